"""Tells a slow machine from a slow peer: how long the tested process waited for a processor."""

from __future__ import annotations

from beads_workers.runtime.kernel import system

NANOSECONDS = 1e9
SHARE = 0.5
"""Share of the allowed time: if the process waited for a processor that long, it is excused."""


class ProcessorClock:
    """Measures how long a process waited for a processor, from its start or from ``watch``.

    The kernel counts this for each thread; if the kernel does not count, the time is 0.
    """

    def __init__(self) -> None:
        self._before: dict[int, float] = {}

    def watch(self, pid: int) -> None:
        """Exclude the time that this process has waited until now."""
        self._before.setdefault(pid, system.waited_seconds(pid))

    def excuses(self, allowed: float, pid: int) -> float:
        """Return the seconds that this process waited if they excuse a delay, else 0.

        ``allowed``: seconds in which something was due.
        """
        waited = system.waited_seconds(pid) - self._before.get(pid, 0.0)
        return waited if 0.0 < allowed * SHARE <= waited else 0.0
