"""Turns of checkouts: as many at a time as there are processors, and two at least.

Eight workers begin together, and each needs a checkout. Side by side, all eight end late; in turn,
the first agents begin while the other worktrees are made. Each turn is a lock in git's common
folder, which the kernel releases should its holder be killed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beads_workers.runtime.kernel import system
from beads_workers.runtime.locks import alone, try_lock

LOCK = "beads-workers-turn.lock"
"""Name of the lock of whoever is the next; ``.1`` and so on are the turns."""
LEAST = 2
LOOK_SECONDS = 0.01


@contextmanager
def turn(common: str) -> Iterator[None]:
    """Wait for a turn, and hold it. Raises ``OSError``."""
    with alone(Path(common, LOCK)):
        held = _free(common)
    try:
        yield
    finally:
        os.close(held)


def _free(common: str) -> int:
    """Wait until a turn is free; only one process at a time waits here."""
    turns = max(LEAST, system.processors())
    while True:
        for number in range(1, turns + 1):
            if (lock := try_lock(Path(common, f"{LOCK}.{number}"))) is not None:
                return lock
        time.sleep(LOOK_SECONDS)
