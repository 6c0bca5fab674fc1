"""``logs``: the fleet's events, and the output of its tasks."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from beads_workers.cli.arguments import StateDir
from beads_workers.cli.client import find_state_directory
from beads_workers.cli.completion import with_logs
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_UNKNOWN, EXIT_USAGE

if TYPE_CHECKING:
    from beads_workers.core.records.journal import Entry
    from beads_workers.runtime.run_directory import RunDirectory
    from beads_workers.views.logs import How


LOOK_SECONDS = 0.2
"""Interval at which a followed file is checked."""


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """An attempt and its log; ``at``: epoch seconds of its start.

    ``left``: output of attempts of this number that were killed with their worker.
    """

    issue_id: str
    worker_id: str
    number: int
    at: float
    log: Path
    left: tuple[Path, ...] = ()


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command("logs", epilog="Example: beads-workers logs W3 -f")(logs)


def logs(
    which: Annotated[
        str | None,
        typer.Argument(
            metavar="[W3 or ISSUE]", help="Default: the whole fleet.", autocompletion=with_logs
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as it grows.")] = False,
    lines: Annotated[
        int | None, typer.Option("-n", "--lines", min=0, help="Only the last so many.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Only what began since, like 5m.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="The journal's own lines; of attempts, one object each.")
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="All that tools printed, not its first and last lines.")
    ] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Print the output unchanged.")] = False,
    output: Annotated[
        bool, typer.Option("--output", help="Print the output of all attempts, each when it ends.")
    ] = False,
    state_dir: StateDir = None,
) -> None:
    """Show the fleet's events, or what attempts printed."""
    from beads_workers.runtime.run_directory import RunDirectory
    from beads_workers.views.logs import How

    how = How.RAW if raw else How.FULL if full else How.FOLDED
    directory = RunDirectory(find_state_directory(state_dir))
    run_ids = directory.run_ids()
    if not run_ids:
        raise CommandError("nothing has run here yet", "'beads-workers start' runs a fleet")
    after = _after(since)
    if output and (which is not None or as_json):
        raise CommandError("--output is of the whole fleet, and text", "", EXIT_USAGE)
    if which is None:
        last = directory.last_run()
        journal = directory.run(last) / "journal.jsonl"
        shown = _printed(directory.run(last), how=how) if output else _raw if as_json else _as_line
        _show(_events(journal, after, shown), lines)
        if follow:
            _follow_events(directory, last, journal, shown)
        return
    attempts = _attempts(directory, run_ids, which, after)
    if not attempts:
        hint = (
            f"'beads-workers why {which}' says why it did not run; 'beads-workers logs' shows all"
        )
        raise CommandError(f"no attempts of {which}", hint, EXIT_UNKNOWN)
    if as_json:
        for attempt in attempts:
            files = {"log": str(attempt.log), "left": [str(path) for path in attempt.left]}
            print(json.dumps(asdict(attempt) | files))
        return
    if re.fullmatch(r"W\d+", which) or lines is not None:
        attempts = attempts[-1:]
    for attempt in attempts:
        head = f"== {attempt.issue_id} attempt {attempt.number}, {attempt.worker_id}"
        for left in attempt.left:
            print(f"{head}, killed with its worker: {left}", file=sys.stderr)
            _show(_output(left, how=how), lines)
        if attempt.log.exists() or not attempt.left:
            print(f"{head}: {attempt.log}", file=sys.stderr)
            _show(_output(attempt.log, how=how), lines)
    if follow:
        _follow_output(directory, directory.last_run(), attempts[-1].log, how=how)


def _after(since: str | None) -> float:
    from beads_workers.core.base.times import parse_duration

    try:
        return time.time() - parse_duration(since) if since else 0.0
    except ValueError as error:
        raise CommandError(str(error), "", EXIT_USAGE) from None


Shown = Callable[["Entry"], str | None]
"""Returns the text of a journal entry; None for an entry that is left out."""


def _as_line(entry: Entry) -> str | None:
    from beads_workers.ui.lines import line

    return line(entry)


def _raw(entry: Entry) -> str | None:
    from beads_workers.core.records.journal import encode

    return encode(entry).decode().rstrip("\n")


def _printed(folder: Path, *, how: How) -> Shown:
    """Return a function that shows an attempt's output when the attempt ends.

    Each line begins with the issue. Attempts of one number share a log: lines that were shown are
    not repeated.
    """
    from beads_workers.core.base.model import OutcomeKind
    from beads_workers.core.records.journal import Finished
    from beads_workers.executors.files import log_file
    from beads_workers.views.logs import left_outputs

    seen: dict[Path, int] = {}

    def shown(entry: Entry) -> str | None:
        ended = entry.record
        if not isinstance(ended, Finished):
            return None
        log = Path(log_file(str(folder), ended.issue_id, ended.attempt))
        lines = list(_output(log, how=how)) if log.exists() else []
        begin = seen.pop(log, 0)
        if ended.verdict == "requeue":  # Others are over: a stream may run for months.
            seen[log] = len(lines)
        lines = lines[begin:]
        if ended.outcome != OutcomeKind.SUCCESS.value:
            began = entry.at - ended.duration_ms / 1000
            for left in left_outputs(folder, ended.worker_id, began, entry.at):
                lines += _output(left, how=how)
        return "\n".join(f"{ended.issue_id}: {line}" for line in lines) or None

    return shown


def _events(journal: Path, after: float, shown: Shown) -> Iterator[str]:
    from beads_workers.runtime.journal_file import read_journal

    for entry in read_journal(journal):
        if entry.at >= after and (text := shown(entry)) is not None:
            yield text


def _attempts(
    directory: RunDirectory, run_ids: list[str], which: str, after: float
) -> list[AttemptLog]:
    """Return the matching attempts of the newest run that has any."""
    from beads_workers.core.records.journal import Finished, Started
    from beads_workers.executors.files import log_file, output_file
    from beads_workers.runtime.journal_file import read_journal
    from beads_workers.views.logs import left_outputs

    for run_id in reversed(run_ids):
        run = directory.run(run_id)
        entries = list(read_journal(run / "journal.jsonl"))
        over = {e.record.request_id: e.at for e in entries if isinstance(e.record, Finished)}
        found: dict[Path, AttemptLog] = {}
        for entry in entries:
            r = entry.record
            if not isinstance(r, Started) or which not in (r.issue_id, r.worker_id):
                continue
            log = Path(log_file(str(run), r.issue_id, r.attempt))
            left: list[Path] = []
            if r.request_id in over:
                left = left_outputs(run, r.worker_id, entry.at, over[r.request_id])
            elif not log.exists():
                log = Path(output_file(str(run), r.worker_id))  # The log is still being written.
            if entry.at >= after:
                # A free retry has the number of the attempt before it, and shares its log.
                before = found[log].left if log in found else ()
                attempt = AttemptLog(r.issue_id, r.worker_id, r.attempt, entry.at, log)
                found[log] = replace(attempt, left=(*before, *left))
        if found:
            return list(found.values())
    return []


def _output(log: Path, *, how: How) -> Iterator[str]:
    try:
        from beads_workers.views.logs import readable_lines

        yield from readable_lines(log, how)
    except FileNotFoundError:
        print("(it printed nothing)", file=sys.stderr)


def _show(texts: Iterator[str], count: int | None) -> None:
    from collections import deque

    for text in texts if count is None else deque(texts, maxlen=count):
        print(text)
    sys.stdout.flush()


def _follow_events(directory: RunDirectory, run_id: str, journal: Path, shown: Shown) -> None:
    from beads_workers.core.records.journal import decode, is_repeated
    from beads_workers.runtime.journal_file import following, segments

    newest = segments(journal)[-1:] or [journal]
    for raw in _grow(directory, run_id, newest[0], following):
        entry = None if is_repeated(raw) else decode(raw)
        if entry is not None and (text := shown(entry)) is not None:
            print(text, flush=True)


def _follow_output(directory: RunDirectory, run_id: str, log: Path, *, how: How) -> None:
    from beads_workers.views.logs import How, of_tail, printed

    readable = None if how is How.RAW else of_tail(log, how)
    for line in _grow(directory, run_id, log):
        for text in printed(line, readable):
            print(text, flush=True)


def _grow(
    directory: RunDirectory,
    run_id: str,
    file: Path,
    following: Callable[[Path], Path | None] = lambda _: None,
) -> Iterator[bytes]:
    """Yield lines that are added until the run ends; ``following``: the next file, or None."""
    opened = file.open("rb")
    opened.seek(0, os.SEEK_END)
    rest = b""
    while True:
        alive = directory.is_alive(run_id)
        then = following(file)  # Before the last read: a file with a successor no longer grows.
        if opened.tell() > os.fstat(opened.fileno()).st_size:
            # The middle of a long log was cut out, with what was shown.
            opened.seek(0, os.SEEK_END)
            rest = b""
        while data := opened.read(1 << 16):
            *whole, rest = (rest + data).split(b"\n")
            yield from whole
        if then is not None:
            opened.close()
            file, opened, rest = then, then.open("rb"), b""
        elif not alive:
            return
        else:
            time.sleep(LOOK_SECONDS)
