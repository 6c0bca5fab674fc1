"""Whether it was the machine that was late: how long who is tried waited for a processor."""

from __future__ import annotations

from pathlib import Path

NANOSECONDS = 1e9
SHARE = 0.5
"""Of the time that was allowed: if so much of it went by in a queue, nobody is to blame."""


class ProcessorClock:
    """Counts for a process from its start, or from ``watch``.

    The kernel counts for each thread how long it waited for a processor; if it does not, that is 0.
    """

    def __init__(self) -> None:
        self._before: dict[int, float] = {}

    def watch(self, pid: int) -> None:
        """What this process has waited until now does not count."""
        self._before.setdefault(pid, _waited(pid))

    def excuses(self, allowed: float, pid: int) -> float:
        """The seconds that this process waited, if those explain that something was not there in
        the time that was ``allowed``; else 0."""
        waited = _waited(pid) - self._before.get(pid, 0.0)
        return waited if 0.0 < allowed * SHARE <= waited else 0.0


def _waited(pid: int) -> float:
    return max(map(_thread_waited, Path(f"/proc/{pid}/task").glob("*")), default=0.0)


def _thread_waited(thread: Path) -> float:
    try:
        return int((thread / "schedstat").read_text().split()[1]) / NANOSECONDS
    except (OSError, IndexError):
        return 0.0
