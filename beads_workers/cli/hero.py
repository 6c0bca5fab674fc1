"""``hero``: the client's side of Hero's queues in a Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from beads_workers.cli.errors import EXIT_ERROR, CommandError
from beads_workers.cli.hero_client import (
    PATIENCE_DEFAULT,
    Json,
    Naming,
    Patience,
    Url,
    WorkerId,
    opened,
    seconds,
)
from beads_workers.cli.hero_looking import list_jobs, logs, retry, status, stop, waited
from beads_workers.core.text import counted, json_line, printable

if TYPE_CHECKING:
    from beads_workers.protocols.hero import HeroJob

HELP = "Hand in Hero jobs in a Redis, wait for them, stop them."

ScriptFile = Annotated[
    str | None, typer.Argument(metavar="[FILE]", help="The script; default stdin.")
]
ScriptText = Annotated[str | None, typer.Option("-e", "--script", help="The script itself.")]
JobId = Annotated[str | None, typer.Option("--id", help="Default: a new UUID.")]
Caller = Annotated[str | None, typer.Option(help="Who asks; default you at this machine.")]
Context = Annotated[str, typer.Option(help="Which of the fleet's contexts runs it.")]
Timeout = Annotated[
    float | None, typer.Option(parser=seconds, metavar="DURATION", help="Of one attempt.")
]
Retries = Annotated[int, typer.Option(min=0, max=1000, help="Attempts after the first.")]
Concurrent = Annotated[bool, typer.Option("--concurrent", help="Others may run beside it.")]
LogPath = Annotated[str | None, typer.Option(metavar="PATH", help="Below the fleet's log_root.")]
Env = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME[=VALUE]", help="A variable for it; without a value, as it is here."),
]
After = Annotated[list[str] | None, typer.Option(metavar="ID", help="A job to finish before it.")]


def register(app: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(no_args_is_help=True, help=HELP)
    app.add_typer(group, name="hero")
    example = "Example: beads-workers hero "
    group.command("submit", epilog=example + "submit --worker w1 --context sh job.sh")(submit)
    group.command("run", epilog=example + "run --worker w1 --context sh -e 'echo hi'")(run)
    group.command("list", epilog=example + "list --status error")(list_jobs)
    group.command("status", epilog=example + "status JOB")(status)
    group.command("stop", epilog=example + "stop JOB --wait 30")(stop)
    group.command("retry", epilog=example + "retry JOB")(retry)
    group.command("logs", epilog=example + "logs JOB -f")(logs)


def submit(
    ctx: typer.Context,
    file: ScriptFile = None,
    script: ScriptText = None,
    batch: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Jobs as JSON Lines instead; - is stdin."),
    ] = None,
    job_id: JobId = None,
    caller: Caller = None,
    context: Context = "",
    timeout: Timeout = None,
    retries: Retries = 0,
    concurrent: Concurrent = False,
    log_path: LogPath = None,
    env: Env = None,
    after: After = None,
    worker: WorkerId = None,
    url: Url = None,
    naming: Naming = None,
    patience: Patience = PATIENCE_DEFAULT,
    as_json: Json = False,
) -> None:
    """Hand in a job, or a batch of them, and print its id.

    Of a batch every line is read first: a wrong one, and none is handed in.
    """
    from beads_workers.cli import hero_jobs

    with opened(url, naming, worker, patience) as here:
        if batch:
            jobs = hero_jobs.batch(batch, here.worker)
        else:
            typed = hero_jobs.Typed.of(ctx.params)
            jobs = [hero_jobs.typed_job(typed, here.named_worker())]
        ids = here.client.submit(jobs)
    if as_json:
        print(json_line({"submitted": len(ids), "job_ids": ids}))
    elif batch:
        print(f"submitted {counted(len(ids), 'job')}")
    else:
        print(printable(ids[0]))


def run(
    ctx: typer.Context,
    file: ScriptFile = None,
    script: ScriptText = None,
    wait: Annotated[
        float | None,
        typer.Option("--wait", parser=seconds, metavar="DURATION", help="Default: for ever."),
    ] = None,
    job_id: JobId = None,
    caller: Caller = None,
    context: Context = "",
    timeout: Timeout = None,
    retries: Retries = 0,
    concurrent: Concurrent = False,
    log_path: LogPath = None,
    env: Env = None,
    after: After = None,
    worker: WorkerId = None,
    url: Url = None,
    naming: Naming = None,
    patience: Patience = PATIENCE_DEFAULT,
    as_json: Json = False,
) -> None:
    """Hand in a job, wait for its end, and print its output.

    Exit code 1: it ended with an error; 124: it had not ended after --wait, and goes on.
    """
    from beads_workers.cli import hero_jobs
    from beads_workers.cli.hero_text import print_output

    with opened(url, naming, worker, patience) as here:
        job = hero_jobs.typed_job(hero_jobs.Typed.of(ctx.params), here.named_worker())
        (made,) = here.client.submit([job])
        ended = waited(here.client, made, wait)
    failed = _ended(ended, as_json=as_json)
    if not as_json:
        print_output(ended.output or "")
    if failed:
        raise failed


def _ended(job: HeroJob, *, as_json: bool) -> CommandError | None:
    """Show the JSON of a job that has ended; the error to end with, if it did with one."""
    from beads_workers.cli.hero_text import as_object
    from beads_workers.protocols.hero import Status

    if as_json:
        print(json_line(as_object(job)))
    if job.status is Status.FINISHED:
        return None
    hint = f"beads-workers hero status {printable(job.id)}"
    return CommandError(f"the job failed: {printable(job.error or '', 600)}", hint, EXIT_ERROR)
