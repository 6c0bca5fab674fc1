"""``hero list``, ``status``, ``stop`` and ``logs``: jobs that are there already."""

from __future__ import annotations

import heapq
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from beads_workers.cli.errors import EXIT_UNKNOWN, EXIT_USAGE, CommandError
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
from beads_workers.core.text import as_shown, counted, json_line, printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from beads_workers.cli.hero_client import Here
    from beads_workers.edge.hero.client import Client
    from beads_workers.edge.hero.logs import JobLog
    from beads_workers.protocols.hero import HeroJob

EXIT_TIMED_OUT = 124
FOLLOW_SECONDS = 0.2
LIST_DEFAULT = 100


def list_jobs(
    wanted: Annotated[
        str | None,
        typer.Option("--status", metavar="STATE", help="dispatched, started, finished, error."),
    ] = None,
    worker: WorkerId = None,
    limit: Annotated[int, typer.Option("-n", "--limit", min=0)] = LIST_DEFAULT,
    url: Url = None,
    naming: Naming = None,
    patience: Patience = PATIENCE_DEFAULT,
    as_json: Json = False,
) -> None:
    """List jobs, the newest first, and count them by state.

    They are looked for by SCAN, bit by bit: no other client of the Redis has to wait.
    """
    from beads_workers.cli.hero_text import row_object, rows_text, summary
    from beads_workers.protocols.hero import Status

    if wanted is not None and wanted not in (known := [state.value for state in Status]):
        raise CommandError(f"no such state: {printable(wanted)}", ", ".join(known), EXIT_USAGE)
    counts: Counter[str] = Counter({state.value: 0 for state in Status})
    with opened(url, naming, None, patience) as here:
        found = (
            row
            for row in here.client.rows()
            if (worker is None or (row.job is not None and row.job.worker_id == worker))
            and (wanted is None or (row.job is not None and row.job.status.value == wanted))
            and not counts.update([row.job.status.value if row.job else "damaged"])
        )
        newest = heapq.nlargest(
            limit, found, key=lambda row: ((row.job.created_at or 0.0) if row.job else 0.0, row.id)
        )
        for _ in found:
            pass  # With a limit of nought nothing was looked at.
    if as_json:
        rows = [row_object(row) for row in newest]
        print(json_line({"jobs": rows, "total": sum(counts.values()), "by_status": counts}))
        return
    for line in rows_text(newest):
        print(line)
    print(summary(counts, len(newest)), file=sys.stderr)


def status(
    jobs: Annotated[list[str] | None, typer.Argument(metavar="[JOB...]")] = None,
    worker: WorkerId = None,
    url: Url = None,
    naming: Naming = None,
    patience: Patience = PATIENCE_DEFAULT,
    as_json: Json = False,
) -> None:
    """Show everything about jobs, or how long a queue is.

    Of variables only the names are shown.
    """
    from beads_workers.cli.hero_text import as_object, details

    with opened(url, naming, worker, patience) as here:
        if not jobs:
            named = here.named_worker()
            queued, stops = here.client.depths(named)
            if as_json:
                print(json_line({"worker": named, "queued": queued, "stop_requests": stops}))
            else:
                waiting = f"{counted(queued, 'job')} queued, {counted(stops, 'stop request')}"
                print(f"{printable(named)}: {waiting}")
            return
        found = [here.client.get(job_id) for job_id in jobs]
    if as_json:
        print(json_line({"jobs": [as_object(job) for job in found]}))
        return
    for number, job in enumerate(found):
        print("\n".join([""] * bool(number) + list(details(job))))


def stop(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...")],
    wait: Annotated[
        float | None,
        typer.Option("--wait", parser=seconds, metavar="DURATION", help="For its end, so long."),
    ] = None,
    worker: WorkerId = None,
    url: Url = None,
    naming: Naming = None,
    patience: Patience = PATIENCE_DEFAULT,
    as_json: Json = False,
) -> None:
    """Ask for the end of jobs, whether they run or are queued.

    One that has ended already stays as it is.
    """
    from beads_workers.cli.hero_text import as_object

    with opened(url, naming, worker, patience) as here:
        before = _each(here, jobs, here.client.stop)
        after = before if wait is None else [waited(here.client, each, wait) for each in jobs]
    if as_json:
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


def retry(
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...")],
    worker: WorkerId = None,
    url: Url = None,
    naming: Naming = None,
    patience: Patience = PATIENCE_DEFAULT,
    as_json: Json = False,
) -> None:
    """Have jobs run once more that have ended, with all of their attempts.

    One that has not ended stays as it is.
    """
    with opened(url, naming, worker, patience) as here:
        before = _each(here, jobs, here.client.retry)
    if as_json:
        print(json_line({"queued": [job.id for job in before if job.status.is_final]}))
        return
    for was in before:
        told = "queued again" if was.status.is_final else f"has not ended: {was.status.value}"
        print(f"{printable(was.id)} {told}")


def _each(here: Here, jobs: list[str], act: Callable[[str, str], HeroJob]) -> list[HeroJob]:
    """Do it to all of them; returns what ``act`` gave: each as it was before.

    One that there is not shall not leave half of it done: they are all looked for first.
    """
    for job_id in jobs:
        here.client.get(job_id)
    try:
        return [act(job_id, here.worker) for job_id in jobs]
    except ValueError as error:
        raise CommandError(printable(str(error), 600), "--worker ID", EXIT_USAGE) from None


def logs(
    job: Annotated[str, typer.Argument(metavar="JOB")],
    lines: Annotated[
        int | None, typer.Option("-n", "--lines", min=0, help="The last ones.")
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Until the job ends.")] = False,
    log_root: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where logs are; else [hero] log_root.")
    ] = None,
    url: Url = None,
    naming: Naming = None,
    patience: Patience = PATIENCE_DEFAULT,
    as_json: Json = False,
) -> None:
    """Show the log of a job.

    It is read on this machine, and only below the root of logs.
    """
    from beads_workers.core.log_paths import NotConfined
    from beads_workers.edge.hero.logs import JobLog

    with opened(url, naming, None, patience) as here:
        found = here.client.get(job)
        root = log_root or (here.table.log_root.path if here.table.log_root else "")
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
                _show_log(here.client, job, log, lines, follow=follow, as_json=as_json)
        except NotConfined as error:
            hint = f"only what is below {printable(root)} is read"
            raise CommandError(f"{where} is not read: {error}", hint) from None
        except OSError as error:
            hint = "it is read on this machine: does the fleet write it here?"
            raise CommandError(f"{where}: {error.strerror}", hint, EXIT_UNKNOWN) from None


def _show_log(
    client: Client, job_id: str, log: JobLog, lines: int | None, *, follow: bool, as_json: bool
) -> None:
    if lines is not None:
        log.to_last(lines)
    rest = b""
    while True:
        ended = follow and client.get(job_id).status.is_final
        while data := log.read():
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
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
        print(printable(as_shown(text)) if sys.stdout.isatty() else text)


def waited(client: Client, job_id: str, patience: float | None) -> HeroJob:
    """The job as it has ended; a ``CommandError`` where that takes longer than the patience."""
    from beads_workers.edge.hero.answers import StillUnderWay

    hint = f"it goes on: beads-workers hero status {printable(job_id)}"
    try:
        return client.wait(job_id, patience)
    except StillUnderWay as error:
        raise CommandError(printable(str(error), 600), hint, EXIT_TIMED_OUT) from None
    except KeyboardInterrupt:
        print(f"\n{hint}", file=sys.stderr)
        raise
