"""``hero``: the client's side of Hero's queues in a Redis."""

from __future__ import annotations

import contextlib
import heapq
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from beads_workers.cli.parameters import with_fields
from beads_workers.core.base.text import as_shown, counted, json_line, printable
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_ERROR, EXIT_TRACKER, EXIT_UNKNOWN, EXIT_USAGE

if TYPE_CHECKING:
    from collections.abc import Callable

    from beads_workers.integrations.hero.client import HeroClient, JobLog
    from beads_workers.integrations.hero.options import HeroTable
    from beads_workers.integrations.hero.wire import HeroJob


# --- hero client ---------------------------------------------------------------------------------
# Which Redis the ``hero`` commands use, and how its errors are shown.


URL_VARIABLE = "BEADS_WORKERS_REDIS_URL"
URL_DEFAULT = "redis://127.0.0.1/0"


def seconds(text: str | float) -> float:
    """Return the seconds of a duration that was typed: 90, 90s, 5m."""
    from beads_workers.core.base.times import parse_duration

    try:
        return text if isinstance(text, float) else parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


WorkerId = Annotated[
    str | None,
    typer.Option(
        "--worker", metavar="ID", help="The worker that owns the queue; default [hero] worker."
    ),
]


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """Options of every command: which Redis, and how to answer."""

    url: Annotated[
        str | None,
        typer.Option(
            "--url", metavar="URL", help=f"redis://HOST/DB; else ${URL_VARIABLE}, or [hero] url."
        ),
    ] = None
    naming: Annotated[
        str | None, typer.Option("--naming", metavar="NAME", help="text, later, or cluster.")
    ] = None
    patience: Annotated[
        float,
        typer.Option(
            "--patience", parser=seconds, metavar="DURATION", help="For a Redis that is away."
        ),
    ] = 10.0
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False


@dataclass(frozen=True, slots=True)
class HeroAccess:
    """Client and settings of one command. ``worker``: "" if nobody named one."""

    client: HeroClient
    worker: str
    table: HeroTable

    def named_worker(self) -> str:
        """Return the worker; raise ``CommandError`` if none is named."""
        if not self.worker:
            hint = '--worker ID, or worker = "ID" in [hero] of beads-workers.toml'
            raise CommandError("whose queue? no worker was named", hint, EXIT_USAGE)
        return self.worker


@contextlib.contextmanager
def opened(redis: RedisOptions, worker: str | None = None) -> Iterator[HeroAccess]:
    """Open a client for the options, or else for the environment and the settings file.

    Errors of the Redis and of jobs become ``CommandError``.
    """
    from beads_workers.cli.config import need_source, resolve
    from beads_workers.integrations.hero.client import HeroClient
    from beads_workers.integrations.hero.connection import read_url
    from beads_workers.integrations.hero.options import HeroTable
    from beads_workers.integrations.hero.wire import keys_of
    from beads_workers.options import KEYS

    variable = KEYS["trust"].variable
    trusted = {name: text for name, text in os.environ.items() if name == variable}
    resolved = resolve({}, Path.cwd(), trusted)
    if not redis.url:
        need_source(resolved)
    table = resolved.options.tables.get("hero") or HeroTable()
    try:
        place = read_url(redis.url or os.environ.get(URL_VARIABLE) or table.url or URL_DEFAULT)
        naming = redis.naming or place.options.get("naming") or table.naming
        keys = keys_of(naming, table.keys)
    except ValueError as error:
        raise CommandError(str(error), exit_code=EXIT_USAGE) from None
    whose = worker or place.options.get("worker") or table.worker
    with HeroClient(place.address, keys, redis.patience) as client, client_errors():
        yield HeroAccess(client, whose, table)


@contextlib.contextmanager
def client_errors() -> Iterator[None]:
    """Turn errors of the client into ``CommandError``."""
    from beads_workers.integrations.hero.client import JobExists, NoSuchJob
    from beads_workers.integrations.hero.connection import CannotReach, RedisMissing
    from beads_workers.integrations.hero.wire import WrongField

    try:
        yield
    except (CannotReach, RedisMissing) as error:
        raise CommandError(printable(str(error)), error.hint, EXIT_TRACKER) from None
    except NoSuchJob as error:
        hint = "'beads-workers hero list' shows what is there"
        raise CommandError(printable(str(error), 600), hint, EXIT_UNKNOWN) from None
    except JobExists as error:
        hint = "leave --id out, and it gets one of its own"
        raise CommandError(f"nothing was handed in: {printable(str(error), 600)}", hint) from None
    except WrongField as error:
        message = f"the job cannot be read: {printable(str(error), 600)}"
        raise CommandError(message) from None


# --- questions -----------------------------------------------------------------------------------
# ``hero list``, ``status``, ``stop``, ``retry`` and ``logs``: jobs that exist already.


EXIT_TIMED_OUT = 124
FOLLOW_SECONDS = 0.2
LIST_DEFAULT = 100


@with_fields(redis=RedisOptions)
def list_jobs(
    redis: RedisOptions,
    wanted: Annotated[
        str | None,
        typer.Option("--status", metavar="STATE", help="dispatched, started, finished, error."),
    ] = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=0)] = LIST_DEFAULT,
    worker: WorkerId = None,
) -> None:
    """List jobs, the newest first, and count them by state.

    They are looked for by SCAN, bit by bit: no other client of the Redis has to wait.
    """
    from beads_workers.integrations.hero.view import row_object, rows_text, summary
    from beads_workers.integrations.hero.wire import JobStatus

    if wanted is not None and wanted not in (known := [state.value for state in JobStatus]):
        raise CommandError(f"no such state: {printable(wanted)}", ", ".join(known), EXIT_USAGE)
    counts: Counter[str] = Counter({state.value: 0 for state in JobStatus})
    with opened(redis) as access:
        found = (
            row
            for row in access.client.rows()
            if (worker is None or (row.job is not None and row.job.worker_id == worker))
            and (wanted is None or (row.job is not None and row.job.status.value == wanted))
            and not counts.update([row.job.status.value if row.job else "damaged"])
        )
        newest = heapq.nlargest(
            limit, found, key=lambda row: ((row.job.created_at or 0.0) if row.job else 0.0, row.id)
        )
        for _ in found:
            pass  # With a limit of 0, ``nlargest`` has looked at nothing.
    if redis.as_json:
        rows = [row_object(row) for row in newest]
        print(json_line({"jobs": rows, "total": sum(counts.values()), "by_status": counts}))
        return
    for line in rows_text(newest):
        print(line)
    print(summary(counts, len(newest)), file=sys.stderr)


@with_fields(redis=RedisOptions)
def status(
    redis: RedisOptions,
    jobs: Annotated[list[str] | None, typer.Argument(metavar="[JOB...]")] = None,
    worker: WorkerId = None,
) -> None:
    """Show everything about jobs, or how long a queue is.

    Of variables only the names are shown.
    """
    from beads_workers.integrations.hero.view import as_object, details

    with opened(redis, worker) as access:
        if not jobs:
            named = access.named_worker()
            queued, stops = access.client.depths(named)
            if redis.as_json:
                print(json_line({"worker": named, "queued": queued, "stop_requests": stops}))
            else:
                waiting = f"{counted(queued, 'job')} queued, {counted(stops, 'stop request')}"
                print(f"{printable(named)}: {waiting}")
            return
        found = [access.client.get(job_id) for job_id in jobs]
    if redis.as_json:
        print(json_line({"jobs": [as_object(job) for job in found]}))
        return
    for number, job in enumerate(found):
        print("\n".join([""] * bool(number) + list(details(job))))


@with_fields(redis=RedisOptions)
def stop(
    redis: RedisOptions,
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...")],
    wait: Annotated[
        float | None,
        typer.Option("--wait", parser=seconds, metavar="DURATION", help="For its end, so long."),
    ] = None,
    worker: WorkerId = None,
) -> None:
    """Ask for the end of jobs, whether they run or are queued.

    A job that has already ended stays as it is.
    """
    from beads_workers.integrations.hero.view import as_object

    with opened(redis, worker) as access:
        before = _each(access, jobs, access.client.stop)
        after = before if wait is None else [waited(access.client, each, wait) for each in jobs]
    if redis.as_json:
        asked = [job.id for job in before if not job.status.is_final]
        print(json_line({"asked": asked, "jobs": [as_object(job) for job in after]}))
        return
    for was, now in zip(before, after, strict=True):
        name = printable(was.id)
        if was.status.is_final:
            print(f"{name} had ended: {was.status.value}")
        elif wait is None:
            print(f"{name} was {was.status.value}; its end was asked for")
        else:
            print(f"{name} ended: {now.status.value} {printable(now.error or '', 200)}".rstrip())


@with_fields(redis=RedisOptions)
def retry(
    redis: RedisOptions,
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...")],
    worker: WorkerId = None,
) -> None:
    """Have jobs run once more that have ended, with all of their attempts.

    One that has not ended stays as it is.
    """
    with opened(redis, worker) as access:
        before = _each(access, jobs, access.client.retry)
    if redis.as_json:
        print(json_line({"queued": [job.id for job in before if job.status.is_final]}))
        return
    for was in before:
        fate = "queued again" if was.status.is_final else f"has not ended: {was.status.value}"
        print(f"{printable(was.id)} {fate}")


def _each(access: HeroAccess, jobs: list[str], act: Callable[[str, str], HeroJob]) -> list[HeroJob]:
    """Call ``act`` for all jobs; return what it returned: each job as it was before.

    All jobs are looked up first, so that an unknown id changes nothing.
    """
    for job_id in jobs:
        access.client.get(job_id)
    try:
        return [act(job_id, access.worker) for job_id in jobs]
    except ValueError as error:
        raise CommandError(printable(str(error), 600), "--worker ID", EXIT_USAGE) from None


@with_fields(redis=RedisOptions)
def logs(
    redis: RedisOptions,
    job: Annotated[str, typer.Argument(metavar="JOB")],
    lines: Annotated[
        int | None, typer.Option("-n", "--lines", min=0, help="The last ones.")
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Until the job ends.")] = False,
    log_root: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder of the logs; default [hero] log_root.")
    ] = None,
) -> None:
    """Show the log of a job.

    It is read on this machine, and only below the root of logs.
    """
    from beads_workers.core.base.redaction import UnsafePath
    from beads_workers.integrations.hero.client import JobLog

    with opened(redis) as access:
        found = access.client.get(job)
        root = log_root or (access.table.log_root.path if access.table.log_root else "")
        name = printable(job, 200)
        if not found.log_path:
            hint = "a job has one where it was handed in with --log-path"
            raise CommandError(f"{name} has no log_path", hint, EXIT_UNKNOWN)
        if not root:
            hint = '--log-root DIR, or log_root = "DIR" in [hero] of beads-workers.toml'
            raise CommandError("where are the logs of jobs? no root was named", hint, EXIT_USAGE)
        where = printable(found.log_path, 200)
        try:
            with JobLog(root, found.log_path) as log:
                _show_log(access.client, job, log, lines, follow=follow, as_json=redis.as_json)
        except UnsafePath as error:
            hint = f"only what is below {printable(root)} is read"
            raise CommandError(f"{where} is not read: {error}", hint) from None
        except OSError as error:
            hint = "it is read on this machine: does the fleet write it here?"
            raise CommandError(f"{where}: {error.strerror}", hint, EXIT_UNKNOWN) from None


def _show_log(
    client: HeroClient, job_id: str, log: JobLog, lines: int | None, *, follow: bool, as_json: bool
) -> None:
    if lines is not None:
        log.to_last(lines)
    rest = b""
    while True:
        ended = follow and client.get(job_id).status.is_final
        while data := log.read():
            *from_start, rest = (rest + data).split(b"\n")
            for line in from_start:
                _show_line(line, as_json=as_json)
        if not follow or ended:
            break
        sys.stdout.flush()
        time.sleep(FOLLOW_SECONDS)
    if rest:
        _show_line(rest, as_json=as_json)


def _show_line(line: bytes, *, as_json: bool) -> None:
    text = line.decode("utf-8", "replace")
    if as_json:
        print(json_line({"line": text}))
    else:
        print(printable(as_shown(text)))


def waited(client: HeroClient, job_id: str, patience: float | None) -> HeroJob:
    """Return the ended job; raise ``CommandError`` if that takes longer than ``patience``."""
    from beads_workers.integrations.hero.client import StillUnderWay

    hint = f"it goes on: beads-workers hero status {printable(job_id)}"
    try:
        return client.wait(job_id, patience)
    except StillUnderWay as error:
        raise CommandError(printable(str(error), 600), hint, EXIT_TIMED_OUT) from None
    except KeyboardInterrupt:
        print(f"\n{hint}", file=sys.stderr)
        raise


# --- hero ----------------------------------------------------------------------------------------


HELP = "Hand in Hero jobs in a Redis, wait for them, stop them."


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The job of ``submit`` and ``run``."""

    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="The script; default stdin.")
    ] = None
    script: Annotated[str | None, typer.Option("-e", "--script", help="The script itself.")] = None
    job_id: Annotated[str | None, typer.Option("--id", help="Default: a new UUID.")] = None
    caller: Annotated[str | None, typer.Option(help="The caller; default you at this machine.")] = (
        None
    )
    context: Annotated[str, typer.Option(help="The context of the fleet that runs it.")] = ""
    timeout: Annotated[
        float | None, typer.Option(parser=seconds, metavar="DURATION", help="Of one attempt.")
    ] = None
    retries: Annotated[int, typer.Option(min=0, max=1000, help="Attempts after the first.")] = 0
    concurrent: Annotated[bool, typer.Option("--concurrent", help="Others may run beside it.")] = (
        False
    )
    log_path: Annotated[
        str | None, typer.Option(metavar="PATH", help="Below the fleet's log_root.")
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=VALUE]", help="A variable for it; without a value, as it is here."
        ),
    ] = None
    after: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="A job to finish before it.")
    ] = None
    worker: WorkerId = None


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


@with_fields(options=JobOptions, redis=RedisOptions)
def submit(
    options: JobOptions,
    redis: RedisOptions,
    batch: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Jobs as JSON Lines instead; - is stdin."),
    ] = None,
) -> None:
    """Hand in a job, or a batch of them, and print its id.

    Of a batch every line is read first: a wrong one, and none is handed in.
    """
    from beads_workers.integrations.hero import view

    with opened(redis, options.worker) as access:
        jobs = (
            view.batch(batch, access.worker)
            if batch
            else [_typed_job(options, access.named_worker())]
        )
        ids = access.client.submit(jobs)
    if redis.as_json:
        print(json_line({"submitted": len(ids), "job_ids": ids}))
    elif batch:
        print(f"submitted {counted(len(ids), 'job')}")
    else:
        print(printable(ids[0]))


@with_fields(options=JobOptions, redis=RedisOptions)
def run(
    options: JobOptions,
    redis: RedisOptions,
    wait: Annotated[
        float | None,
        typer.Option("--wait", parser=seconds, metavar="DURATION", help="Default: for ever."),
    ] = None,
) -> None:
    """Hand in a job, wait for its end, and print its output.

    Exit code 1: it ended with an error; 124: it had not ended after --wait, and goes on.
    """
    from beads_workers.integrations.hero.view import print_output

    with opened(redis, options.worker) as access:
        job = _typed_job(options, access.named_worker())
        (made,) = access.client.submit([job])
        ended = waited(access.client, made, wait)
    failed = _ended(ended, as_json=redis.as_json)
    if not redis.as_json:
        print_output(ended.output or "")
    if failed:
        raise failed


def _typed_job(options: JobOptions, worker: str) -> HeroJob:
    """Return one job from options; raise ``CommandError``."""
    from beads_workers.integrations.hero import view

    if options.script is not None and options.file is not None:
        raise CommandError("a script and a file with one", "give one of them", EXIT_USAGE)
    script = (
        options.script if options.script is not None else view.text_of(options.file or view.STDIN)
    )
    fields = {
        "id": options.job_id or "",
        "caller_id": options.caller or view.default_caller(),
        "worker_id": worker,
        "context_id": options.context,
        "script": script,
        "timeout": options.timeout,
        "retries": options.retries,
        "concurrent": options.concurrent,
        "log_path": options.log_path,
        "env_vars": dict(view.variable(each) for each in options.env or ()),
        "prerequisites": list(options.after or ()),
    }
    try:
        return view.job_of(fields)
    except ValueError as error:
        raise CommandError(printable(str(error), 300), exit_code=EXIT_USAGE) from None


def _ended(job: HeroJob, *, as_json: bool) -> CommandError | None:
    """Show an ended job as JSON if asked to; return the error to exit with, None for a success."""
    from beads_workers.integrations.hero.view import as_object
    from beads_workers.integrations.hero.wire import JobStatus

    if as_json:
        print(json_line(as_object(job)))
    if job.status is JobStatus.FINISHED:
        return None
    hint = f"beads-workers hero status {printable(job.id)}"
    return CommandError(f"the job failed: {printable(job.error or '', 600)}", hint, EXIT_ERROR)
