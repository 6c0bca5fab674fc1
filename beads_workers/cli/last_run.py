"""The last run, for ``status`` and ``wait`` without a fleet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beads_workers.runtime.endings import how_it_ended

if TYPE_CHECKING:
    from beads_workers.core.records.journal import Record

REFRESH_SECONDS = 60.0
"""Interval at which views of an ended run look again: people decide elsewhere, too."""


def last_run(directory: Path) -> dict[str, Any] | None:
    """Return how the last run ended, as JSON; None if there never was one."""
    runs = directory / "runs"
    try:
        folders = sorted((p for p in runs.iterdir() if p.is_dir()), reverse=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return next((ending for run in folders if (ending := how_it_ended(run)) is not None), None)


def night_of(directory: Path, last: dict[str, Any]) -> dict[str, Any] | None:
    """Return the figures of the night that this run ends; None for a night of one run.

    They are those of ``report``: the same runs are added up.
    """
    if last["night"]["runs"] < 2:
        return None
    from beads_workers.runtime.run_directory import RunDirectory
    from beads_workers.ui.findings import figures
    from beads_workers.views.histories import read_night

    return figures(read_night(RunDirectory(directory), last["run_id"]))


def merge_of(last: dict[str, Any]) -> str:
    """Return the command that brings what has landed to the person's branch, as of now; "" if
    nothing has landed, or it is there."""
    from beads_workers.worktrees.git import GitError
    from beads_workers.worktrees.landed import merge_command

    branch = (last.get("landing") or {}).get("branch", "")
    try:
        return merge_command(str(last["project"]), branch) if branch else ""
    except (GitError, KeyError):
        return ""


def last_snapshot(directory: Path) -> dict[str, Any] | None:
    """Return the last run as ``status`` shows it, with what waits for a person now; None if there
    never was one. ``killed`` is true if it ended without a word."""
    from beads_workers.cli.waiting import waiting
    from beads_workers.core.records.journal import Entry
    from beads_workers.core.views.snapshot import Board
    from beads_workers.core.views.status import status
    from beads_workers.runtime.journal_file import read_journal
    from beads_workers.runtime.run_directory import RunDirectory

    runs = RunDirectory(directory)
    board = Board()
    for entry in read_journal(runs.run(runs.last_run()) / "journal.jsonl"):
        board.apply(entry)
    if board.run is None:
        return None
    # What the tracker shows as waiting no longer moves as if the fleet had seen it.
    for issue_id, why in waiting(directory).over.items():
        for record in _settled(issue_id, why):
            board.apply(Entry(record, board.began_at + board.elapsed, board.elapsed))
    shown = {**status(board, board.elapsed), "running": False, "killed": board.ended is None}
    if shown["landing"] is not None:
        shown["landing"]["merge"] = merge_of(shown)
    return shown


def _settled(issue_id: str, why: str) -> Iterator[Record]:
    from beads_workers.core.base.source import CLOSED_BY_OTHERS, DELETED, Action, Result
    from beads_workers.core.records.journal import RetryAsked, SettledRecord

    if why.startswith(CLOSED_BY_OTHERS):
        yield SettledRecord(issue_id, Action.CLOSE.value, Result.FOUND_CLOSED.value)
    elif why.startswith(DELETED):
        yield SettledRecord(issue_id, Action.CLOSE.value, Result.NOT_OURS.value)
    else:
        yield RetryAsked(issue_id)
        yield SettledRecord(issue_id, Action.REOPEN.value, Result.APPLIED.value)
