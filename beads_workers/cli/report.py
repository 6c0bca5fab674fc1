"""``report``: what happened in a run, from its journal; on screen, as JSON, as a page."""

from __future__ import annotations

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
            metavar="[RUN]", help="Its id or how it begins; else the last.", autocompletion=runs
        ),
    ] = None,
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write one HTML page; - is stdout.")
    ] = None,
    as_json: Json = False,
    state_dir: StateDir = None,
) -> None:
    """Show what happened in a run, and what it cost.

    It lists what was closed, what failed and why, and what to do next.
    """
    from beads_workers.runtime.run_directory import RunDirectory

    if html is not None and as_json:
        raise CommandError("--html and --json are two reports", "ask for one", EXIT_USAGE)
    directory = RunDirectory(find_state_directory(state_dir))
    history = read_history(directory, find_run(directory.root, run).name)
    if as_json:
        from beads_workers.core.text import json_line
        from beads_workers.ui import findings

        print(json_line(findings.report(history)))
    elif html is not None:
        _write_page(history, html)
    else:
        _show(history)
        if run is None and (before := _killed_before(directory, history.run_id)):
            print(f"  beads-workers report {before}\n      the run before it, which was killed")


def _killed_before(directory: RunDirectory, run_id: str) -> str:
    """Return the killed run that this run continued; "" if the run before ended normally."""
    earlier = [each for each in directory.run_ids() if each < run_id][-1:]
    return next((each for each in earlier if not directory.has_ended(each)), "")


def read_history(directory: RunDirectory, run_id: str) -> History:
    """Return the history of a run, also while it runs; raise ``CommandError`` without one."""
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
