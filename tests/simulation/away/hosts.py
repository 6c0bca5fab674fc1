"""Other machines: guards with attempts, their leases, and what their disks keep of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.processes import AWAY
from tests.simulation.tasks import Work

if TYPE_CHECKING:
    from tests.simulation.away.world import AwayWorld

PATIENCE_SECONDS = 60.0
"""So long a guard waits for its word."""
GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Said:
    """The answer of a guard, or of what is left of it. ``status``: None while it is not over."""

    boot: int
    clock: float
    begun: bool
    status: int | None = None


class Guard:
    """One attempt. It begins with a word that is young enough, and ends with its lease."""

    def __init__(self, host: Host, issue_id: str, nonce: str) -> None:
        self._host = host
        self._world = host.world
        self.issue_id = issue_id
        self.nonce = nonce
        self._boot = host.boot
        self.process = self._world.processes.start("guard", AWAY)
        self.process.at_death.append(self._died)
        self.begun = False
        self.status: int | None = None
        self._work: Work | None = None
        self._until = 0.0
        self.process.later(PATIENCE_SECONDS, self._give_up)

    def hear(self, clock: float | None, lease: float, go: bool, end: bool) -> Said:
        """A word of home, with the reading of our clock that came home last."""
        now = self._world.agenda.now
        if self.process.alive:
            fresh = clock is not None and clock + lease > now
            if go and fresh and not self.begun:
                self._begin()
            if self.begun and clock is not None:
                self._until = max(self._until, min(clock, now) + lease)
                self._look_later()
            if end:
                self._end()
        return self.said()

    def said(self) -> Said:
        """What it answers, or what the files of the host tell."""
        return Said(self._host.boot, self._world.agenda.now, self.begun, self.status)

    def freeze(self) -> None:
        """The machine sleeps: nothing of it happens, and nobody notices."""
        self.process.stop()
        if self._work is not None and self._work.process.alive:
            self._work.process.stop()
            self._world.check.work_over(self.issue_id, self._work.process)

    def thaw(self) -> None:
        """It wakes: a lease that is over is found over first."""
        if self._work is not None and self._world.agenda.now >= self._until:
            self._work.process.die()
        if self._work is not None and self._work.process.alive:
            self._world.check.work_began(self.issue_id, self._work.process, AWAY)
            self._work.process.resume()
        self.process.resume()

    def _begin(self) -> None:
        self.begun = True
        self._work = Work(self._world, self.issue_id, AWAY, self._ended, self.process)

    def _look_later(self) -> None:
        if not self._world.mutant.guards_forget_leases:
            wait = max(0.0, self._until - self._world.agenda.now)
            self.process.later(wait, self._look)

    def _look(self) -> None:
        if self._work is not None and self._world.agenda.now >= self._until:
            work = self._work
            work.end(hard=False)
            self.process.later(GRACE_SECONDS, lambda: work.end(hard=True))

    def _end(self) -> None:
        if not self.begun:
            self._ended(-15)
        elif self._work is not None:
            work = self._work
            work.end(hard=False)
            self.process.later(GRACE_SECONDS, lambda: work.end(hard=True))

    def _give_up(self) -> None:
        if not self.begun:
            self.process.die()

    def _ended(self, status: int) -> None:
        self._work, self.status = None, status
        self.process.die()

    def _died(self) -> None:
        """Its outer process ends what it had, and writes that down, if it lives."""
        if self._work is not None:
            self._work.process.die()
            self._work = None
        if self.begun and self.status is None:
            self.status = -9


class Host:
    """``cut``: no word reaches it, and none of its own leaves it."""

    def __init__(self, world: AwayWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.boot = 1
        self.cut = self.asleep = False
        self.guards: dict[str, Guard] = {}

    def serve(self, issue_id: str, nonce: str) -> None:
        """Start a guard, unless there was one: an engine may ask twice."""
        if nonce not in self.guards:
            self.guards[nonce] = Guard(self, issue_id, nonce)

    def ask(self, nonce: str, word: Callable[[Guard], Said], heard: Callable[[Said], None]) -> None:
        """Bring a word there and its answer back; either may be lost, and both be late."""
        if self.cut or self.world.faults.hits("line: a word is lost", 0.02):
            return
        late = self.world.faults.hits("line: late", 0.05)
        delay = self.world.random.uniform(1.0, 60.0) if late else self.world.delay()

        def arrive() -> None:
            guard = self.guards.get(nonce)
            if self.cut or self.asleep or guard is None:
                return
            said = word(guard)
            if not self.world.faults.hits("line: an answer is lost", 0.02):
                self.world.agenda.after(self.world.delay(), lambda: bring(said))

        def bring(said: Said) -> None:
            if not self.cut:
                heard(said)

        self.world.agenda.after(delay, arrive)

    def sleep(self, seconds: float) -> None:
        """Close its lid for a while."""
        self.asleep = True
        for guard in self.guards.values():
            guard.freeze()
        self.world.agenda.after(seconds, self._wake)

    def _wake(self) -> None:
        if self.asleep:
            self.asleep = False
            for guard in list(self.guards.values()):
                guard.thaw()

    def restart(self) -> None:
        """Everything there is over at once; its disk keeps what had begun."""
        self._wake()
        self.boot += 1
        for guard in self.guards.values():
            guard.process.die()
