"""What the kernel says of processes: CPU time, wake-ups, memory; by ``/proc``."""

from __future__ import annotations

import os
import re
from pathlib import Path


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of a process until now, to the nanosecond.

    Children are not in it. Threads that have ended are counted by the clock's ticks alone.
    """
    living = sum(thread_seconds(pid, int(task.name)) for task in _tasks(pid))
    return max(living, _ticked(pid))


def thread_seconds(pid: int, thread: int | None = None) -> float:
    """CPU time of one thread; of the first, in which ours has its loop, where none is named."""
    text = Path(f"/proc/{pid}/task/{thread or pid}/schedstat").read_text()
    return int(text.split()[0]) / 1e9


def wake_ups(pid: int) -> int:
    """How often its threads have gone to sleep until now: voluntary context switches."""
    return sum(_status(task / "status", "voluntary_ctxt_switches") for task in _tasks(pid))


def private_bytes(pid: int) -> int:
    """Memory that the process shares with no other: what one more of its kind costs."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * sum(int(kib) for kib in re.findall(r"^Private_\w+:\s+(\d+) kB", text, re.M))


def proportional_bytes(pid: int) -> int:
    """Its memory, with its share of what it has in common with others."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * int(re.findall(r"^Pss:\s+(\d+) kB", text, re.M)[0])


def resident_bytes(pid: int) -> int:
    """All of its memory that is in RAM, whoever else has it too."""
    return 1024 * _status(Path(f"/proc/{pid}/status"), "VmRSS")


def parent(pid: int) -> int:
    """Who started it."""
    return _status(Path(f"/proc/{pid}/status"), "PPid")


def _tasks(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def _status(path: Path, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", path.read_text(), re.M)
    return int(found[1]) if found else 0


def _ticked(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
