"""``report``: what happened in a night, from its journals; on screen, as JSON, as a page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from beads_workers.cli.arguments import Json, StateDir
from beads_workers.cli.client import find_state_directory
from beads_workers.cli.completion import runs
from beads_workers.cli.runs import find_run
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_USAGE

if TYPE_CHECKING:
    from beads_workers.core.views.history import History
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
    from beads_workers.cli.waiting import waiting
    from beads_workers.core.views.history import as_of_now
    from beads_workers.runtime.run_directory import RunDirectory
    from beads_workers.views.histories import read_history, read_night

    if html is not None and as_json:
        raise CommandError("--html and --json are two reports", "ask for one", EXIT_USAGE)
    if (run is not None) + last + (since is not None) + done > 1:
        raise CommandError(
            "RUN, --last, --since and --done do not go together", "choose one", EXIT_USAGE
        )
    directory = RunDirectory(find_state_directory(state_dir))
    found = find_run(directory.root, run).name
    if run is not None or last:
        history = read_history(directory, found)
    else:
        history = read_night(directory, found, since)
    history = as_of_now(history, waiting(directory.root).over)
    if done and history.state == "running":
        raise CommandError("the night is not over: its fleet runs", "beads-workers stop")
    if as_json:
        from beads_workers.core.base.text import json_line
        from beads_workers.ui import findings

        print(json_line(findings.report(history)))
    elif html is not None:
        _write_page(directory.root, history, html)
    else:
        _show(history)
    if done:
        _tell_done(directory, history.start.run_id)


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


def _write_page(root: Path, history: History, file: str) -> None:
    from beads_workers.ui.report_html import page
    from beads_workers.views.attempt_files import landed_diffs

    text = page(history, [*landed_diffs(root, history)])
    if file == "-":
        sys.stdout.buffer.write(text.encode("utf-8"))
        return
    path = Path(file)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}", "--html - is stdout") from None
    print(f"wrote {path} ({len(text.encode()) // 1024 + 1} KiB); open it in any browser")
