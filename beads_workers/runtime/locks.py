"""File locks (flock) that are held as long as a process lives: its end unlocks them.

This module imports none of our modules: ``status`` looks at a lock before it loads anything else.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def try_lock(path: Path, *, create: bool = True) -> int | None:
    """Lock a file for as long as the descriptor, or a copy of it, is open; return None if it is
    held.

    Raises ``FileNotFoundError`` if there is no such file and ``create`` is False.
    """
    made = os.O_CREAT if create else 0
    fd = os.open(path, os.O_RDWR | made | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold the lock of a file, once others have let go of it. Raises ``OSError``."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock; False if the file is missing or not readable."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Shared, and for a moment: processes that only look do not see each other.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
