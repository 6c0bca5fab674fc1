"""Refs that stand in files of their own, read without a call of git.

An attempt looks at its branch a dozen times, and nearly always the branch is one file and ``HEAD``
another. Anything else (packed refs, reftables, a symbolic ref, a detached HEAD, a file that is no
file) is no answer: then git is asked. The agent can write these files, as it can all of ``.git``.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from beads_workers.worktrees.git import is_object

BYTES_MAX = 4096
"""Bytes of the longest file that is read: it holds one name of git's."""


def loose_ref(common: Path, ref: str) -> str:
    """Return the commit that the file of a ref names; "" if only git can tell."""
    name = _line(common / ref)
    return name if is_object(name) else ""


def is_checked_out(directory: Path, ref: str) -> bool:
    """Return whether the ``HEAD`` of a worktree names this ref. ``directory``: the worktree's own
    git directory. With reftables, it names none."""
    return _line(directory / "HEAD") == f"ref: {ref}"


def _line(path: Path) -> str:
    """Return the only line of a regular file; "" for anything else. Never waits, as for a pipe that
    an agent has put there."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return ""
        text = os.read(file, BYTES_MAX)
    except OSError:
        return ""
    finally:
        os.close(file)
    line, end, rest = os.fsdecode(text).partition("\n")
    return line if end and not rest else ""
