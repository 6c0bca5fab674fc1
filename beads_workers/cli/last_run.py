"""The ends of runs: from ``ended.json``, or from the journal of a killed run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def last_run(directory: Path) -> dict[str, Any] | None:
    """Return how the last run ended, as JSON; None if there never was one."""
    runs = directory / "runs"
    try:
        folders = sorted((p for p in runs.iterdir() if p.is_dir()), reverse=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return next((ending for run in folders if (ending := how_it_ended(run)) is not None), None)


def how_it_ended(run: Path) -> dict[str, Any] | None:
    """Return how the run in this folder ended; None if it has not written anything."""
    ending = _written(run) or _from_journal(run)
    return None if ending is None else {**ending, "settled": (run / "settled").exists()}


def _written(run: Path) -> dict[str, Any] | None:
    try:
        ending = json.loads((run / "ended.json").read_bytes())
    except (OSError, ValueError):
        return None
    # Another version had other keys: the journal is read instead.
    return ending if isinstance(ending, dict) and "ending" in ending else None


def _from_journal(run: Path) -> dict[str, Any] | None:
    # Imported here: these modules take half as long again as the rest of ``status``.
    from beads_workers.core.snapshot import Board
    from beads_workers.core.status import ending
    from beads_workers.runtime.journal_file import read_end

    board = Board()
    for entry in read_end(run / "journal.jsonl"):
        board.apply(entry)
    return None if board.run is None else ending(board, run.name)
