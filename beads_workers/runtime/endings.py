"""The ends of runs: from ``ended.json``, or from the journal of a killed run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

RESTART_FILE = "restart"
"""File in the folder of a run that is restarted: the pid of the restart, for who watches."""


def is_restarted(run: Path) -> bool:
    """Return whether the run in this folder was stopped to be started again, and the process that
    does so still lives."""
    try:
        pid = int((run / RESTART_FILE).read_bytes())
        os.kill(pid, 0)
    except (OSError, ValueError, OverflowError):
        return False
    return pid > 0


def how_it_ended(run: Path) -> dict[str, Any] | None:
    """Return how the run in this folder ended; None if it has not written anything."""
    ending = _written(run) or _from_journal(run)
    if ending is None:
        return None
    return {**ending, "settled": (run / "settled").exists()}


def _written(run: Path) -> dict[str, Any] | None:
    try:
        ending = json.loads((run / "ended.json").read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(ending, dict) or "ending" not in ending:
        return None  # Another version had other keys: the journal is read instead.
    if "queue" in ending:
        return ending
    more = _from_journal(run)  # The version before this one had fewer keys.
    return more if more is None else more | ending


def _from_journal(run: Path) -> dict[str, Any] | None:
    # Imported here: these modules take half as long again as the rest of ``status``.
    from beads_workers.core.views.snapshot import Board
    from beads_workers.core.views.status import ending
    from beads_workers.runtime.journal_file import read_end

    board = Board()
    for entry in read_end(run / "journal.jsonl"):
        board.apply(entry)
    return None if board.run is None else ending(board, run.name)
