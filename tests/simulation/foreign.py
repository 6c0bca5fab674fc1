"""Version 1 workers that nobody here has started: self-claiming, slow to notice, undead, and back.

Some have several connections, each with a task of its own, as threads or goroutines would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.wire import Done, Failed, Ready, Shutdown, Task, ToWorker, Wait
from tests.simulation.agenda import Thread
from tests.simulation.network import Link
from tests.simulation.tasks import Work
from tests.simulation.tracker import FREE

if TYPE_CHECKING:
    from tests.simulation.nodes import Node


SLOTS = 3
TRIES = (1.0, 2.0, 4.0)
"""Seconds before each try to connect anew."""


class Foreign:
    """A process with one slot, or several; it ends with the last of them."""

    def __init__(self, node: Node) -> None:
        self.world = node.world
        self.process = self.world.processes.start("foreign")
        count = SLOTS if self.world.faults.hits("foreign worker: several connections", 0.3) else 1
        self._slots = [Slot(self, node) for _ in range(count)]
        self.process.at_death.append(self._died)

    def left(self, slot: Slot) -> None:
        """One of them has come to its end."""
        if slot in self._slots:
            self._slots.remove(slot)
        if not self._slots:
            self.process.die()

    def _died(self) -> None:
        # Nobody of ours could: that it takes its tasks with it is asked of who starts it.
        for slot in self._slots:
            slot.end()


class Slot:
    """One connection after the other. ``undead``: on the end of its stream it works on first."""

    def __init__(self, foreign: Foreign, node: Node) -> None:
        self._foreign = foreign
        self._node = node
        self._world = foreign.world
        self.process = foreign.process
        self._undead = self._world.faults.hits("worker: undead", 0.5)
        self._link: Link | None = None
        self._work: Work | None = None
        self._leaving = self._told = False
        self._actor = f"person/{self.process.pid}"
        self.process.later(self._world.delay(), self._connect)

    def heard(self, message: ToWorker) -> None:
        """``network.Peer``."""
        match message:
            case Task(issue_id=issue_id) if self._work is None and not self._leaving:
                self.process.start(self._begin(str(issue_id)))
            case Wait(seconds) if self._work is None:
                self.process.later(seconds, self._ask)
            case Shutdown():
                self._told = True
                self._leave()
            case _:
                pass

    def hung_up(self) -> None:
        """``network.Peer``."""
        if not self._undead or self._work is None:
            self._leave()

    def end(self) -> None:
        """Its process is no more."""
        if self._work is not None:
            self._work.process.die()

    def _connect(self) -> None:
        self._link = self._node.connect(self)
        if self._link is None:
            self._foreign.left(self)
        else:
            self._ask()

    def _ask(self) -> None:
        if self._link is not None and self._work is None:
            self._link.say(Ready(f"w{self.process.pid}"))

    def _begin(self, issue_id: str) -> Thread:
        if self._node.self_claiming:
            yield 0.05 + self._world.delay()
            self._world.tracker.set_in_progress(issue_id, self._actor)
        if self._work is None and not self._leaving:
            self._work = Work(
                self._world, issue_id, "", lambda s: self._ended(issue_id, s), self.process
            )

    def _ended(self, issue_id: str, status: int) -> None:
        self._work = None
        self.process.start(self._report(issue_id, status))

    def _report(self, issue_id: str, status: int) -> Thread:
        tracker = self._world.tracker
        if self._node.self_claiming:
            yield 0.05 + self._world.delay()
            held = tracker.issues[issue_id].holding
            if status == 0 and not self._world.faults.hits("self-claiming: forgets to close", 0.1):
                tracker.close(issue_id, self._actor)
            elif self._leaving and held.status == "in_progress" and not held.assignee:
                tracker.swap(issue_id, held, FREE, self._actor)
        link = self._link
        if link is None or not link.peer_open or self._leaving:
            self._leave()
            return
        key = IssueId(issue_id)
        link.say(Done(key, "w", 5) if status == 0 else Failed(key, "w", f"exit status {status}"))
        self._ask()

    def _leave(self) -> None:
        if self._work is not None:
            self._leaving = True
            self._work.end(hard=True)
            return
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._told or not self._world.faults.hits("foreign worker: comes back", 0.5):
            self._foreign.left(self)
        else:
            self._leaving = True
            self.process.start(self._come_back())

    def _come_back(self) -> Thread:
        """It has let go of what it had, and says READY to whoever runs now."""
        for seconds in TRIES:
            yield seconds
            node = self._world.node
            if node is not None and node.run_id and node.self_claiming == self._node.self_claiming:
                self._node, self._leaving = node, False
                self._link = node.connect(self)
                if self._link is not None:
                    self._ask()
                    return
        self._foreign.left(self)
