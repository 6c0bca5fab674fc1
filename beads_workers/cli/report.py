"""``report``: what happened in a night, from its journals; on screen, as JSON, as a page."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from beads_workers.cli.arguments import Json, StateDir
from beads_workers.cli.client import find_state_directory
from beads_workers.cli.completion import runs
from beads_workers.cli.errors import CommandError
from beads_workers.cli.runs import find_run
from beads_workers.exits import EXIT_UNKNOWN, EXIT_USAGE

if TYPE_CHECKING:
    from beads_workers.core.history import History
    from beads_workers.runtime.run_directory import RunDirectory


WIDTH_MAX = 120
"""Maximum width: longer lines are hard to read."""


def register(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command("report", epilog="Example: beads-workers report --html report.html")(report)


def report(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="One run, by its id or how it begins; else the last night.",
            autocompletion=runs,
        ),
    ] = None,
    last: Annotated[bool, typer.Option("--last", help="Only the last run.")] = False,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The runs since 22:00, or of the last 10h."),
    ] = None,
    done: Annotated[
        bool, typer.Option("--done", help="You were told: the next start begins another night.")
    ] = False,
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write one HTML page; - is stdout.")
    ] = None,
    as_json: Json = False,
    state_dir: StateDir = None,
) -> None:
    """Show what happened in a night, and what it cost.

    It lists what was closed, what failed and why, and what to do next.
    """
    from beads_workers.runtime.run_directory import RunDirectory

    if html is not None and as_json:
        raise CommandError("--html and --json are two reports", "ask for one", EXIT_USAGE)
    if (run is not None) + last + (since is not None) + done > 1:
        raise CommandError(
            "RUN, --last, --since and --done are four reports", "ask for one", EXIT_USAGE
        )
    directory = RunDirectory(find_state_directory(state_dir))
    found = find_run(directory.root, run).name
    if run is not None or last:
        history = read_history(directory, found)
    else:
        history = read_night(directory, found, since)
    if done and history.state == "running":
        raise CommandError("the night is not over: its fleet runs", "beads-workers stop")
    if as_json:
        from beads_workers.core.text import json_line
        from beads_workers.ui import findings

        print(json_line(findings.report(history)))
    elif html is not None:
        _write_page(history, html)
    else:
        _show(history)
    if done:
        _tell_done(directory, history.run_id)


def read_night(directory: RunDirectory, run_id: str, since: str | None = None) -> History:
    """Return the history of the night of this run, or of all runs ``since`` then."""
    from beads_workers.core.nights import night
    from beads_workers.runtime.night import runs_of_night

    if since is not None:
        return night(_since(directory, since))
    return night([read_run(directory, each) for each in runs_of_night(directory, run_id)])


def read_run(directory: RunDirectory, run_id: str) -> History:
    """Return the history of a run, also while it runs; raise ``CommandError`` without one.

    What later runs found out about it is not in it.
    """
    from beads_workers.core.history import fold
    from beads_workers.runtime.journal_file import read_journal

    info = directory.read_info()
    # The lock before the journal: a run that lives now may still write, but not the reverse.
    alive = info is not None and info.run_id == run_id and directory.is_locked()
    history = fold(
        read_journal(directory.run(run_id) / "journal.jsonl"),
        alive=alive,
        now=time.time(),
        settled=directory.is_settled(run_id),
    )
    if history is None:
        raise CommandError(f"run {run_id} has not written anything", "", EXIT_UNKNOWN)
    return history


def read_history(directory: RunDirectory, run_id: str) -> History:
    """Return the history of a run, with the usage that later runs found of its attempts."""
    from beads_workers.core.nights import with_found

    history = read_run(directory, run_id)
    if all(attempt.receipt for attempt in history.attempts if attempt.agent):
        return history
    later = [each for each in directory.run_ids() if each > run_id and directory.beginning(each)]
    return with_found(history, [read_run(directory, each) for each in later])


def _since(directory: RunDirectory, text: str) -> list[History]:
    """Return the runs that went on at this time or later; raise ``CommandError`` without one."""
    at = _time(text)
    found: list[History] = []
    for run_id in reversed(directory.run_ids()):
        if directory.beginning(run_id) is None:
            continue
        run = read_run(directory, run_id)
        if run.began_at + run.seconds < at:
            break
        found.insert(0, run)
    if not found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
        raise CommandError(f"nothing has run since {when}", "beads-workers runs", EXIT_UNKNOWN)
    return found


def _time(text: str) -> float:
    """Return the last time of this clock, or so long ago, in epoch seconds."""
    from beads_workers.core.times import parse_duration

    now = time.time()
    clock = re.fullmatch(r"(\d{1,2}):(\d\d)", text)
    try:
        if clock is None:
            return now - parse_duration(text)
        here = time.localtime(now)
        at = time.mktime((*here[:3], int(clock[1]), int(clock[2]), 0, 0, 0, -1))
        if int(clock[1]) < 24 and int(clock[2]) < 60:
            # Not 24 hours: days may have 23 or 25.
            yesterday = (here[0], here[1], here[2] - 1)
            past = (*yesterday, int(clock[1]), int(clock[2]), 0, 0, 0, -1)
            return at if at <= now else time.mktime(past)
    except (ValueError, OverflowError):
        pass
    raise CommandError(f"{text!r} is no time", "22:00 on the clock, or 10h ago", EXIT_USAGE)


def _tell_done(directory: RunDirectory, run_id: str) -> None:
    try:
        directory.mark_told(run_id)
    except OSError as error:
        raise CommandError(f"cannot note it: {error.strerror}", "the night goes on") from None
    print("the night is done; the next start begins another", file=sys.stderr)


def _show(history: History) -> None:
    from rich.console import Console

    from beads_workers.ui.report_text import report_lines

    console = Console(markup=False, emoji=False, highlight=False)
    unicode = "utf" in console.encoding.lower()
    for part in report_lines(history, min(console.width, WIDTH_MAX), unicode=unicode):
        console.print(part, soft_wrap=True)


def _write_page(history: History, file: str) -> None:
    from beads_workers.ui.report_html import page

    text = page(history)
    if file == "-":
        sys.stdout.buffer.write(text.encode("utf-8"))
        return
    path = Path(file)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}", "--html - is stdout") from None
    print(f"wrote {path} ({len(text.encode()) // 1024 + 1} KiB); open it in any browser")
