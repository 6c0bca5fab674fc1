"""Whether the machine was short of memory or of disk while a gate ran: a red then says nothing.

The kernel counts what it ends for want of memory: for the machine, and for each memory cgroup. It
need not be what we started that was ended; a child of it, below ``make``, shows as any failure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from operator import sub
from pathlib import Path

from beads_workers.core.text import counted

FULL_BYTES = 1 << 20
"""With less than this a disk is full."""

FULL_TEXTS = ("No space left on device", "Disk quota exceeded", "ENOSPC")
"""What programs print that could not write; by the end they may have cleared it away."""

MACHINE = Path("/proc/vmstat")
KILLS = {"memory.events": "oom_kill", "memory.oom_control": "oom_kill"}
"""Of a memory cgroup, in version 2 and 1; of its children, too, in version 2 only."""


class Shortage:
    """``folders``: where a gate writes. ``look`` now and then; ``why`` at the end."""

    def __init__(self, *folders: Path) -> None:
        self._folders = folders
        self._full = ""
        self._counts = list(_counts())
        self._before = [_count(*each) for each in self._counts]

    def look(self) -> None:
        """A disk that is full now may be empty again at the end."""
        for folder in self._folders:
            if not self._full and _free(folder) < FULL_BYTES:
                self._full = f"the disk is full at {folder}"

    def why(self, text: str = "") -> str:
        """What there was too little of; "" for nothing. ``text``: what the command printed."""
        self.look()
        # One kill is counted in several of them.
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
    """The folders of the memory cgroup that this process is in; none where they are not shown."""
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
        # In a container the mount may begin below what the kernel names.
        found.append(place if below.startswith("..") else place / below)
    return found


def _free(folder: Path) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:
        return FULL_BYTES
    return found.f_bavail * found.f_frsize
