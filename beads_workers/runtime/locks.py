"""Files that are locked for as long as somebody lives (flock): what a process leaves, it unlocks.

It imports nothing of ours: ``status`` looks at a lock before anything else is loaded.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def try_lock(path: Path, *, create: bool = True) -> int | None:
    """Lock a file for as long as the descriptor, or a copy of it, is open; None if it is held.

    Raises ``FileNotFoundError`` where there is none that is not to be made.
    """
    made = os.O_CREAT if create else 0
    fd = os.open(path, os.O_RDWR | made | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def is_locked(path: Path) -> bool:
    """Whether somebody holds it; False where there is no such file, or none that we may read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Shared, and for a moment: others who only look do not see each other.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
