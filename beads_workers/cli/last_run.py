"""How the last run ended, from its journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from beads_workers.core.board import Board
from beads_workers.core.status import status
from beads_workers.edge.journal import read_journal
from beads_workers.edge.run_directory import RunDirectory


def last_run(directory: Path) -> dict[str, Any] | None:
    """Its outcome as JSON; None where there never was one."""
    runs = RunDirectory(directory)
    for run_id in reversed(runs.run_ids()):
        board = fold(runs.run(run_id) / "journal.jsonl")
        if board.run is not None:
            return _told(runs, run_id, board)
    return None


def fold(journal: Path) -> Board:
    """The whole journal as a board."""
    board = Board()
    for entry in read_journal(journal):
        board.apply(entry)
    return board


def _told(runs: RunDirectory, run_id: str, board: Board) -> dict[str, Any]:
    shown = status(board, board.elapsed)
    ended = board.ended
    how = f"ended: {ended.reason or 'as asked'}" if ended else "ended without a word (killed?)"
    return {
        "run_id": run_id,
        "how": how,
        "began_at": round(board.began_at, 3),
        "ended_at": round(board.began_at + board.elapsed, 3),
        "exit_code": ended.exit_code if ended else None,
        "closed": shown["totals"]["done"],
        "failed": shown["totals"]["failed"],
        "set_aside": shown["set_aside"],
        "not_closed": shown["queue"]["not_closed"],
        "settled": runs.is_settled(run_id),
    }
