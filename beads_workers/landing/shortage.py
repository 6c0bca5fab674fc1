"""Shortage of memory or of disk on the machine while a gate ran: a red verdict then says nothing.

The kernel counts the processes that it kills for want of memory: for the machine, and for each
memory cgroup. The killed process need not be the one that we started. A child of it, below
``make``, shows as any failure.
"""

from __future__ import annotations

import os
from operator import sub
from pathlib import Path

from beads_workers.core.base.text import counted
from beads_workers.runtime.kernel import system

FULL_BYTES = 1 << 20
"""A disk with less free space is full."""

FULL_TEXTS = ("No space left on device", "Disk quota exceeded", "ENOSPC")
"""Texts that programs print if they could not write; by the end they may have freed the space."""


class Shortage:
    """Shortages during a gate. ``folders``: those in which a gate writes. Call ``look`` now and
    then, and ``why`` at the end."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._full = ""
        self._before = system.memory_kills()

    def look(self) -> None:
        """Note a full disk: it may have space again at the end."""
        for folder in self._folders:
            if not self._full and _free(folder) < FULL_BYTES:
                self._full = f"the disk is full at {folder}"

    def why(self, text: str = "") -> str:
        """Return which resource was short; "" if none. ``text``: the output of the command."""
        self.look()
        # One kill is counted in several of these.
        kills = max(map(sub, system.memory_kills(), self._before), default=0)
        if kills > 0:
            ended = counted(kills, "process", "processes")
            return f"the system ended {ended} for want of memory meanwhile"
        if self._full:
            return self._full
        return "the disk is full" if any(each in text for each in FULL_TEXTS) else ""


def _free(folder: Path) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:
        return FULL_BYTES
    return found.f_bavail * found.f_frsize
