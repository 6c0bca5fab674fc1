"""The process table of the machine: who lives, and what a zygote does for its workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.agenda import Process

if TYPE_CHECKING:
    from tests.simulation.world import World


AWAY = "away"
"""Token of everything on other machines."""


class Processes:
    """Pids are given once; ``tasks`` of a run carry its token."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._last = 100
        self._living: dict[int, Process] = {}

    def start(self, kind: str, token: str = "", *, holds_alive: bool = False) -> Process:
        """A new process."""
        self._last += 1
        process = Process(self._world.agenda, self._last, kind, token, holds_alive)
        self._living[process.pid] = process
        process.at_death.append(lambda: self._gone(process.pid))
        return process

    def get(self, pid: int) -> Process | None:
        """It, if it lives."""
        return self._living.get(pid)

    def lives(self, pid: int) -> bool:
        """Whether there is such a process."""
        return pid in self._living

    def of(self, *kinds: str) -> list[Process]:
        """All that live, of these kinds."""
        return [p for p in self._living.values() if p.kind in kinds]

    def of_run(self, run_id: str) -> list[Process]:
        """Everything that a run has started and that its end must end: workers and tasks."""
        return [p for p in self._living.values() if p.token == run_id]

    def owners(self, run_id: str) -> list[Process]:
        """Who keeps the ``alive`` lock of a run."""
        return [p for p in self._living.values() if p.holds_alive and p.token == run_id]

    def sweep(self, run_id: str) -> None:
        """``sessions.sweep``: end the tasks that nobody is left to end."""
        if self._world.mutant.leaves_tasks:
            return
        for process in self.of_run(run_id):
            if process.kind == "task":
                process.die()

    def cut_power(self) -> None:
        """Everything on this machine is over at once; other machines have another token."""
        for process in list(self._living.values()):
            if process.token != AWAY:
                process.die()

    def _gone(self, pid: int) -> None:
        del self._living[pid]
