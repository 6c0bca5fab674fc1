"""Workers of 1.1 that somebody else has started: they use what 1.1 adds, or say so and do not.

Each holds the orchestrator to what it has announced (invariant 23)."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from beads_workers.core.base.limits import HEARTBEATS_MISSED
from beads_workers.core.base.model import IssueId, OutcomeKind
from beads_workers.core.base.wire import (
    BATCH,
    CANCEL,
    GROUPED,
    HEARTBEAT,
    PAUSE,
    PRIORITY,
    RETURNED_UNSTARTED,
    REVOKED,
    STATUS,
    Batch,
    Cancel,
    Done,
    Failed,
    FromWorker,
    Heartbeat,
    Pause,
    Priority,
    Ready,
    Resume,
    Shutdown,
    Status,
    StatusAsked,
    Task,
    ToWorker,
    Wait,
)
from tests.simulation.network import Link
from tests.simulation.tasks import Work

if TYPE_CHECKING:
    from tests.simulation.nodes import Node


MARGIN_SECONDS, LATE_SECONDS = 8.0, 2.5
"""What is late on its way may take so long, both ways, and one way."""


class Extended:
    """One connection, and one task at a time; with its connection it ends."""

    def __init__(self, node: Node) -> None:
        self._node, self._world = node, node.world
        self.process = self._world.processes.start("extended")
        self.process.at_death.append(self._died)
        self._interval = self._world.random.choice((1.0, 4.0))
        self._silent = self._world.faults.hits("heartbeat: announced and not sent", 0.5)
        self._said_at = self._world.agenda.now
        self._said: deque[float] = deque(maxlen=32)
        self._patience = 0.0
        self._paused_at: float | None = None
        self._liar = self._world.faults.hits("pause: asked for and worked on", 0.2)
        self._wants = [Priority()]
        """What it may be given, by what it has said since before its last READY."""
        self._work: Work | None = None
        self._batch_size = self._world.random.choice((0, 2, 5))
        batch = {BATCH} if self._batch_size else set()
        self._features = frozenset({GROUPED, CANCEL, HEARTBEAT, PAUSE, PRIORITY, STATUS, *batch})
        self._disorderly = self._world.faults.hits("batch: in another order", 0.2)
        self._taken: set[str] = set()
        self._told_to_pause = self._said_ready = False
        self._queue: list[Task] = []
        self._cancelled = self._leaving = False
        self._link: Link | None = None
        self.process.later(self._world.delay(), self._connect)

    def heard(self, message: ToWorker) -> None:
        """``network.Peer``."""
        match message:
            case Task():
                self._take([message])
            case Batch(tasks):
                if not 1 < len(tasks) <= self._batch_size:
                    self._world.breach(23, f"{len(tasks)} in a batch of {self._batch_size}")
                self._take(list(tasks))
            case Wait(seconds) if self._work is None and not self._queue:
                self.process.later(seconds, self._ask)
            case Cancel(issue_id) if any(task.issue_id == issue_id for task in self._queue):
                self._return([task for task in self._queue if task.issue_id == issue_id])
            case Cancel(_, reason) if reason == REVOKED:
                pass  # It had begun.
            case Cancel(issue_id) if self._work is not None and self._work.issue_id == issue_id:
                self._cancelled = True
                self._work.end(hard=True)
            case Shutdown():
                self._leave()
            case StatusAsked():
                # A lie: nothing may depend on it.
                self._say(Status("idle" if self._work else "busy", IssueId("i0")))
            case Pause():
                self._told_to_pause = True
            case Resume():
                if self._told_to_pause and self._queue and not self._disorderly:
                    self._world.breach(23, f"{self._queue} was never revoked in a pause")
                self._told_to_pause = False
                self._next()
            case _:
                pass

    def hung_up(self) -> None:
        """``network.Peer``."""
        self._link = None
        self._leave()

    def called_silent(self) -> None:
        """It is about to be hung up on."""
        now, most = self._world.agenda.now, HEARTBEATS_MISSED * self._interval
        if any(LATE_SECONDS < now - at < most for at in self._said):
            self._world.breach(23, f"called silent at {now}: {self._said}")

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
        if self._work is None and not self._queue and not self._leaving:
            del self._wants[:-1]
            self._choose()
            self._rest()
            self._change()
            ready = Ready("x", "1.1", self._features, 0, self._interval, self._batch_size)
            self._say(ready)
            if self._world.random.random() < 0.1:
                self._choose()

    def _change(self) -> None:
        """It announces something else, where workers are fickle."""
        if self._world.options.fickle:
            kept = self._world.random.sample((BATCH, HEARTBEAT, PAUSE, PRIORITY, STATUS), 3)
            self._features = frozenset({GROUPED, CANCEL, *kept})
        if PRIORITY not in self._features:
            self._wants.append(Priority())
        self._told_to_pause = self._told_to_pause and PAUSE in self._features

    def _rest(self) -> None:
        """It wants nothing for a while, or says so."""
        if self._said_ready and self._world.random.random() < 0.4:
            self._paused_at = self._world.agenda.now
            self._say(Pause())
            self.process.later(self._world.random.uniform(1.0, 30.0), self._rested)
        self._said_ready = True

    def _rested(self) -> None:
        self._paused_at = None
        self._say(Resume())

    def _choose(self) -> None:
        """It wants other tasks from now on, or all of them again."""
        if PRIORITY not in self._features or self._world.random.random() >= 0.2:
            return
        chosen = self._world.random.sample(range(5), self._world.random.randint(0, 4))
        self._wants.append(Priority(frozenset(chosen)) if chosen else Priority())
        self._say(self._wants[-1])

    def _take(self, tasks: list[Task]) -> None:
        if self._leaving or tasks[0].request_id in self._taken:
            return  # It had come before.
        # Its own PAUSE may have crossed the answer to an earlier READY.
        rests = self._paused_at is not None and (
            self._world.agenda.now - self._paused_at > MARGIN_SECONDS
        )
        if self._told_to_pause or rests:
            self._world.breach(23, f"{tasks[0]} for a worker that is paused")
        self._taken |= {task.request_id for task in tasks}
        for task in tasks:
            if not any(wants.accepts(task) for wants in self._wants):
                self._world.breach(23, f"{task} does not fit {self._wants}")
        self._queue += tasks
        self._next()

    def _next(self) -> None:
        """The next one of its queue, or READY."""
        if self._work is not None or self._leaving:
            return
        if self._queue and self._told_to_pause and not self._liar:
            return
        if self._queue:
            self._begin(self._queue.pop(-1 if self._disorderly else 0).issue_id)
        else:
            self._ask()

    def _return(self, tasks: list[Task]) -> None:
        """Unstarted."""
        self._queue = [task for task in self._queue if task not in tasks]
        for task in tasks:
            back = Failed(task.issue_id, "x", "not begun", 0, OutcomeKind.CANCELLED)
            unstarted = {"error_detail": RETURNED_UNSTARTED, "request_id": task.request_id}
            self._say(replace(back, **unstarted))

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
            self._next()
        else:
            outcome = OutcomeKind.CANCELLED if self._cancelled else OutcomeKind.ERROR
            self._say(Failed(issue_id, "x", f"exit status {status}", outcome=outcome))
            self._next()

    def _leave(self) -> None:
        self._leaving = True
        self._return(self._queue)
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
            self._said.append(self._said_at)
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
        promised = HEARTBEAT in self._features
        self._patience = 0.0 if waits or not promised else self._patience + 1.0
        if waits and self._paused_at is not None:
            self._paused_at = self._world.agenda.now
        allowed = HEARTBEATS_MISSED * self._interval + MARGIN_SECONDS
        silence = self._world.agenda.now - self._said_at
        if silence > allowed and self._patience > allowed and self._node.loop.ended is None:
            self._world.breach(23, f"silent for {silence:.0f} s, and still connected")
