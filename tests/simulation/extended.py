"""Workers of 1.1 that somebody else has started: they use what 1.1 adds, or say so and do not.

Each holds the orchestrator to what it has announced (invariant 23)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beads_workers.core.limits import HEARTBEATS_MISSED
from beads_workers.core.model import IssueId, OutcomeKind
from beads_workers.core.wire import (
    CANCEL,
    GROUPED,
    HEARTBEAT,
    PRIORITY,
    Cancel,
    Done,
    Failed,
    FromWorker,
    Heartbeat,
    Priority,
    Ready,
    Shutdown,
    Task,
    ToWorker,
    Wait,
)
from tests.simulation.network import Link
from tests.simulation.tasks import Work

if TYPE_CHECKING:
    from tests.simulation.nodes import Node


MARGIN_SECONDS = 8.0
"""What is late on its way may take so long, both ways."""


class Extended:
    """One connection, and one task at a time; with its connection it ends."""

    def __init__(self, node: Node) -> None:
        self._node, self._world = node, node.world
        self.process = self._world.processes.start("extended")
        self.process.at_death.append(self._died)
        self._interval = self._world.random.choice((1.0, 4.0))
        self._silent = self._world.faults.hits("heartbeat: announced and not sent", 0.5)
        self._said_at = self._world.agenda.now
        self._patience = 0.0
        self._wants = [Priority()]
        """What it may be given, by what it has said since before its last READY."""
        self._work: Work | None = None
        self._taken = ""
        self._cancelled = self._leaving = False
        self._link: Link | None = None
        self.process.later(self._world.delay(), self._connect)

    def heard(self, message: ToWorker) -> None:
        """``network.Peer``."""
        match message:
            case Task(request_id=self._taken):
                pass  # It had come before.
            case Task(issue_id=issue_id) if self._work is None and not self._leaving:
                self._taken = message.request_id
                if not any(wants.takes(message) for wants in self._wants):
                    self._world.breach(23, f"{message} does not fit {self._wants}")
                self._begin(issue_id)
            case Wait(seconds) if self._work is None:
                self.process.later(seconds, self._ask)
            case Cancel(issue_id) if self._work is not None and self._work.issue_id == issue_id:
                self._cancelled = True
                self._work.end(hard=True)
            case Shutdown():
                self._leave()
            case _:
                pass

    def hung_up(self) -> None:
        """``network.Peer``."""
        self._link = None
        self._leave()

    # --- what it does ---------------------------------------------------------------------------

    def _connect(self) -> None:
        self._link = self._node.connect(self)
        if self._link is None:
            self.process.die()
            return
        self._ask()
        self.process.later(self._interval, self._beat)
        self._world.agenda.after(1.0, self._expect_an_end)

    def _ask(self) -> None:
        if self._work is None and not self._leaving:
            del self._wants[:-1]
            self._choose()
            features = frozenset({GROUPED, CANCEL, HEARTBEAT, PRIORITY})
            self._say(Ready("x", "1.1", features, heartbeat_seconds=self._interval))
            if self._world.random.random() < 0.1:
                self._choose()

    def _choose(self) -> None:
        """It wants other tasks from now on, or all of them again."""
        if self._world.random.random() >= 0.2:
            return
        chosen = self._world.random.sample(range(5), self._world.random.randint(0, 4))
        self._wants.append(Priority(frozenset(chosen)) if chosen else Priority())
        self._say(self._wants[-1])

    def _begin(self, issue_id: IssueId) -> None:
        self._cancelled = False
        self._work = Work(
            self._world, issue_id, "", lambda s: self._ended(issue_id, s), self.process
        )

    def _ended(self, issue_id: IssueId, status: int) -> None:
        self._work = None
        if self._leaving:
            self._leave()
        elif status == 0:
            self._say(Done(issue_id, "x", 5))
            self._ask()
        else:
            outcome = OutcomeKind.CANCELLED if self._cancelled else OutcomeKind.ERROR
            self._say(Failed(issue_id, "x", f"exit status {status}", outcome=outcome))
            self._ask()

    def _leave(self) -> None:
        self._leaving = True
        if self._work is not None:
            self._work.end(hard=True)
            return
        if self._link is not None:
            self._link.close()
        self.process.die()

    def _died(self) -> None:
        if self._work is not None:
            self._work.process.die()

    def _say(self, message: FromWorker) -> None:
        if self._link is not None:
            self._said_at = self._world.agenda.now
            self._link.say(message)

    # --- heartbeats -----------------------------------------------------------------------------

    def _beat(self) -> None:
        if not self._silent:
            self._say(Heartbeat())
            self.process.later(self._interval, self._beat)

    def _expect_an_end(self) -> None:
        """Whoever is silent for three intervals has no connection any more."""
        link, process = self._link, self._node.process
        if link is None or not link.core_open or not process.alive or not self.process.alive:
            return
        self._world.agenda.after(1.0, self._expect_an_end)
        # An orchestrator that was stopped, or has no room for its journal, has its time anew.
        waits = process.stopped or self._world.disk.room is not None
        self._patience = 0.0 if waits else self._patience + 1.0
        allowed = HEARTBEATS_MISSED * self._interval + MARGIN_SECONDS
        silence = self._world.agenda.now - self._said_at
        if silence > allowed and self._patience > allowed and self._node.loop.ended is None:
            self._world.breach(23, f"silent for {silence:.0f} s, and still connected")
