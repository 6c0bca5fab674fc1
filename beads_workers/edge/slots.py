"""State directories for several executors of one folder: each takes the first that is free."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

from beads_workers.edge.locks import is_locked, try_lock


def take_slot(folder: Path) -> tuple[Path, int]:
    """``folder/1``, ``folder/2``, ...: one that nobody has, and the descriptor that holds it.

    It is ours until the descriptor is closed; an orchestrator that is still ending keeps its own.
    Raises ``OSError``.
    """
    for number in count(1):
        slot = folder / str(number)
        slot.mkdir(parents=True, exist_ok=True)
        fd = try_lock(slot / "slot")
        if fd is not None and not is_locked(slot / "lock"):
            return slot, fd
        if fd is not None:
            os.close(fd)
    raise AssertionError("there is always another number")
