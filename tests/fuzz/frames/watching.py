"""What a process has, as the kernel counts it; ``self`` is our own."""

from __future__ import annotations

import os
from pathlib import Path


def resident(pid: int | str) -> int:
    """Its memory now, in bytes."""
    return _field(pid, "VmRSS")


def peak(pid: int | str) -> int:
    """The most that it ever had."""
    return _field(pid, "VmHWM")


def descriptors(pid: int | str) -> int:
    """How many it has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208


def _field(pid: int | str, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) << 10
