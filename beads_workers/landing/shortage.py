"""Shortage of memory or of disk on the machine while a gate ran: a red verdict then says nothing.

The kernel counts the processes that it kills for want of memory: for the machine, and for each
memory cgroup. The killed process need not be the one that we started. A child of it, below
``make``, shows as any failure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from operator import sub
from pathlib import Path

from beads_workers.core.base.text import counted

FULL_BYTES = 1 << 20
"""A disk with less free space is full."""

FULL_TEXTS = ("No space left on device", "Disk quota exceeded", "ENOSPC")
"""Texts that programs print if they could not write; by the end they may have freed the space."""

MACHINE = Path("/proc/vmstat")
KILLS = {"memory.events": "oom_kill", "memory.oom_control": "oom_kill"}
"""Files of a memory cgroup, in version 2 and 1, and their counter; only version 2 counts the kills
of its children, too."""


class Shortage:
    """Shortages during a gate. ``folders``: those in which a gate writes. Call ``look`` now and
    then, and ``why`` at the end."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._full = ""
        self._counts = list(_counts())
        self._before = [_count(*each) for each in self._counts]

    def look(self) -> None:
        """Note a full disk: it may have space again at the end."""
        for folder in self._folders:
            if not self._full and _free(folder) < FULL_BYTES:
                self._full = f"the disk is full at {folder}"

    def why(self, text: str = "") -> str:
        """Return which resource was short; "" if none. ``text``: the output of the command."""
        self.look()
        # One kill is counted in several of these.
        now = [_count(*each) for each in self._counts]
        kills = max(map(sub, now, self._before), default=0)
        if kills > 0:
            ended = counted(kills, "process", "processes")
            return f"the system ended {ended} for want of memory meanwhile"
        if self._full:
            return self._full
        return "the disk is full" if any(each in text for each in FULL_TEXTS) else ""


def _count(file: Path, name: str) -> int:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    found = (line.split() for line in lines)
    return next((int(fields[1]) for fields in found if fields[:1] == [name]), 0)


def _counts() -> Iterator[tuple[Path, str]]:
    yield MACHINE, "oom_kill"
    for folder in memory_cgroups():
        for file, name in KILLS.items():
            if (folder / file).exists():
                yield folder / file, name


def memory_cgroups() -> list[Path]:
    """Return the folders of the memory cgroup of this process; none if they are not visible."""
    try:
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return []
    paths = {
        "cgroup2" if not names else "cgroup": path
        for _, names, path in groups
        if not names or "memory" in names.split(",")
    }
    found = []
    for fields in mounts:
        kind, options = fields[fields.index("-") + 1], fields[-1].split(",")
        if kind not in paths or (kind == "cgroup" and "memory" not in options):
            continue
        root, place = fields[3], Path(fields[4])
        below = os.path.relpath(paths[kind], root)
        # In a container the mount may begin below the path that the kernel names.
        found.append(place if below.startswith("..") else place / below)
    return found


def _free(folder: Path) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:
        return FULL_BYTES
    return found.f_bavail * found.f_frsize
