"""What runs for an issue: a process that works on it for a while, whoever looks after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.agenda import Process

if TYPE_CHECKING:
    from tests.simulation.world import World


class Work:
    """A task process. ``ended`` is told its exit status, minus 9 where it was killed."""

    def __init__(
        self, world: World, issue_id: str, token: str, ended: Callable[[int], object], by: Process
    ) -> None:
        self._world = world
        self.issue_id = issue_id
        self.process = world.processes.start("task", token)
        self._ended = ended
        self._by = by
        self._over = False
        self.process.at_death.append(self._gone)
        world.check.work_began(issue_id, self.process, token)
        seconds, self._status = world.fate_of_work()
        self.process.later(seconds, self._finish)

    def end(self, hard: bool) -> None:
        """TERM, which it may ignore, or KILL; ``ended`` follows when nothing is left of it."""
        if not hard and self._world.faults.hits("task: ignores TERM", 0.2):
            return
        self._world.agenda.after(0.0 if hard else self._world.delay(), self.process.die)

    def _finish(self) -> None:
        self._over = True
        if self._status == 0:
            self._world.check.work_succeeded(self.issue_id)
        self.process.die()

    def _gone(self) -> None:
        self._world.check.work_over(self.issue_id, self.process)
        status = self._status if self._over else -9
        self._by.later(0.0005, lambda: self._ended(status))
