"""An orchestrator whose workers commit, and the lander that it talks to."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from beads_workers.core.base.model import Outcome, OutcomeKind
from beads_workers.core.base.plans import Plan, Step, StepKind
from beads_workers.core.base.wire import Task
from beads_workers.core.records import landing as ld
from beads_workers.core.records.receipts import Receipt, to_json
from beads_workers.core.schedule.events import LanderGone, LanderSaid
from beads_workers.core.workers import worker_events as wev
from tests.simulation.nodes import Node
from tests.simulation.workers import Worker

if TYPE_CHECKING:
    from tests.simulation.landing.world import LandingWorld

NO_WORKTREE = "no room for a worktree\n"
DIES = 0.03
"""So often it dies around each landing, before it and after it."""


class Lander:
    """One process of it: lands the most urgent branch, then the next; all it knows it was told."""

    def __init__(self, node: LandingNode) -> None:
        self._node = node
        self._world = node.world
        self.process = self._world.processes.start("lander", node.run_id)
        self.process.at_death.append(self._gone)
        self._queue: dict[str, ld.Add] = {}
        self._busy = False

    def handle(self, order: ld.Order) -> None:
        """An order has come through the pipe."""
        if not self.process.alive:
            return
        match order:
            case ld.Add() if order.commit in self._landed():
                self._say(self._landed_as(order))
            case ld.Add():
                self._queue[order.issue_id] = order
            case ld.CancelLanding(issue_id):
                if self._queue.pop(issue_id, None) is not None:
                    self._say(ld.LandingCancelled(issue_id))
            case ld.GoOn():
                pass
        self._next()

    def _landed(self) -> list[str]:
        return [] if self._world.mutant.forgets_landed else self._world.repository.landed

    def _next(self) -> None:
        if self._busy:
            return
        if not self._queue:
            self._say(ld.Idle())
            return
        self._busy = True
        first = min(self._queue.values(), key=lambda add: (add.priority, add.ended_at))
        self._say(ld.Gate(0, "began", "t", (first.issue_id,)))
        seconds = self._world.random.expovariate(1 / 5.0)
        self.process.later(seconds, lambda: self._gated(first))

    def _gated(self, add: ld.Add) -> None:
        self._busy = False
        if self._queue.get(add.issue_id) is add:
            del self._queue[add.issue_id]
            self._decide(add)
        if self.process.alive:
            self._next()

    def _decide(self, add: ld.Add) -> None:
        repository, faults = self._world.repository, self._world.faults
        why = "" if self._world.peace else repository.trouble(add.commit)
        if why:
            self._world.check.refused(add.issue_id)
            against = tuple(repository.made[head] for head in repository.landed[-1:])
            self._say(ld.Refused(add.issue_id, add.attempt, why, "text", ("f",), "tip", against))
            return
        if faults.hits("lander: dies before it lands one", DIES):
            self.process.die()
            return
        if not self._world.mutant.invents_commits:
            repository.land(add.commit)
        if faults.hits("lander: dies before it says so", DIES):
            self.process.die()
            return
        self._say(self._landed_as(add))

    def _landed_as(self, add: ld.Add) -> ld.Landed:
        commit = self._world.repository.commit_of(add.commit)
        return ld.Landed(add.issue_id, add.attempt, commit, "tree")

    def _say(self, news: ld.News) -> None:
        read = ld.from_line(ld.to_line(news))
        self._world.agenda.after(self._world.delay(), lambda: self._node.heard(self, read))

    def _gone(self) -> None:
        self._world.agenda.after(self._world.delay(), lambda: self._node.lander_gone(self))


class LandingNode(Node):
    """``runtime/lander.LanderProcess`` is part of it."""

    world: LandingWorld
    _lander: Lander | None = None

    def start_lander(self) -> None:
        """``LanderProcess.start``; one that is left of a killed run ends with its stdin."""
        self._lander = Lander(self)
        self.process.at_death.append(self._lander.process.die)

    def tell_lander(self, order: ld.Order) -> None:
        """``LanderProcess.tell``."""
        lander = self._lander
        if lander is not None:
            read = ld.from_line(ld.to_line(order))
            self.world.agenda.after(self.world.delay(), lambda: lander.handle(read))

    def heard(self, lander: Lander, news: Any) -> None:
        """A line of it was read."""
        if lander is self._lander and self.loop.ended is None:
            self.tell(LanderSaid(news))

    def lander_gone(self, lander: Lander) -> None:
        """Its pipe has ended."""
        if lander is self._lander and self.process.alive and self.loop.ended is None:
            self._lander = None
            self.tell(LanderGone("killed"))

    def kill_lander(self) -> bool:
        """KILL from outside."""
        if self._lander is None or not self._lander.process.alive:
            return False
        self._lander.process.die()
        return True

    def make_worker(self, worker_id: str) -> Worker:
        """One of ours."""
        return CommittingWorker(self, worker_id)


class CommittingWorker(Worker):
    """The real worker half; after its task what that left is committed."""

    _world: LandingWorld
    _task: Task

    def _plan(self, task: Task) -> Plan:
        self._task = task
        prepare = Step(StepKind.PREPARE, ("x",))
        steps = (
            prepare,
            Step(StepKind.RUN, ("x",)),
            Step(StepKind.DELIVER, ("x",), is_attempt=True),
        )
        return Plan(steps, "", str(task.issue_id), "", "")

    def _run_step(self, issue_id: str, step: Step) -> None:
        if step.kind is StepKind.RUN:
            super()._run_step(issue_id, step)
        elif step.kind is StepKind.PREPARE:
            made = self._world.makes_worktrees()
            ended = wev.StepEnded(0) if made else wev.StepEnded(1, NO_WORKTREE)
            self.process.later(self._world.delay(), lambda: self._handle(ended))
        else:
            self.process.later(self._world.delay(), lambda: self._deliver(issue_id))

    def _deliver(self, issue_id: str) -> None:
        head = self._world.repository.commit(issue_id)
        self._world.check.committed(issue_id, head)
        receipt = Receipt("done", branch=f"bw/{issue_id}", base="b", head=head, commits=(head,))
        assert asdict(receipt)["head"] == head
        answer = wev.StepAnswered(Outcome(OutcomeKind.SUCCESS), receipt=to_json(receipt))
        self._handle(answer)
