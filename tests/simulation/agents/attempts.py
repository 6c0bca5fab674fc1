"""An agent at work on an issue: it asks its vendor, uses tokens, and says how it went."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from beads_workers.core.base.model import Outcome, OutcomeKind
from beads_workers.core.base.wire import Task
from beads_workers.core.records.receipts import Receipt, Tokens
from beads_workers.trackers.settlement_rules import CLOSED, Ownership

if TYPE_CHECKING:
    from tests.simulation.agents.nodes import AgentWorker
    from tests.simulation.agents.world import AgentWorld

DOLLARS_PER_TOKEN = 0.00001
KILLED = -9


@dataclass(frozen=True, slots=True)
class Answer:
    """How it went, by its own word."""

    outcome: Outcome
    receipt: Receipt


class Attempt:
    """Its process is a task. ``end`` is TERM, which it may answer, or KILL, after which it is for
    others to find out what it had used."""

    def __init__(self, world: AgentWorld, worker: AgentWorker, task: Task) -> None:
        self._world = world
        self._worker = worker
        self._random = world.random
        self.issue_id = str(task.issue_id)
        self.request_id = task.request_id
        self._agent = str(task.payload["agent"]["name"])
        self._was_refused_review = bool(task.payload["agent"].get("earlier", {}).get("refused"))
        self._vendor = world.vendors[self._agent]
        self._used = 0
        self._answer: Answer | None = None
        self._rounds = self._random.randint(1, 4)
        self.process = world.processes.start("task", worker.run_id)
        self.process.at_death.append(self._gone)
        world.check.work_began(self.issue_id, self.process, worker.run_id)
        self.process.later(0.3 + self._random.random(), self._ask)

    def end(self, hard: bool) -> None:
        """TERM or KILL."""
        if hard:
            self._world.agenda.after(0.0, self.process.die)
        elif not self._world.faults.hits("agent: ignores TERM", 0.3):
            cancelled = Outcome(OutcomeKind.CANCELLED, "told to end")
            self.process.later(0.05, lambda: self._end(cancelled, "unfinished"))

    # --- at work ------------------------------------------------------------------------------

    def _ask(self) -> None:
        world = self._world
        if world.agenda.now < world.broken_until and not world.peace:
            self._end(Outcome(OutcomeKind.ERROR, "it cannot be started"), "unfinished")
            return
        if self._was_refused_review and not self._used:
            self._review()
            return
        refusal = self._vendor.refusal()
        if refusal is not None:
            self._refuse(refusal)
            return
        self._use(self._random.randint(1, 5) * 1000)
        self._rounds -= 1
        if self._rounds:
            self.process.later(self._random.expovariate(0.2), self._ask)
        else:
            self.process.later(self._random.expovariate(0.5), self._finish)

    def _use(self, tokens: int) -> None:
        # On the disk first: whoever kills it now finds it there.
        self._used += tokens
        self._world.used(self.request_id, self._agent, self._used)
        self._worker.say_progress(self.issue_id, self._used)

    def _finish(self) -> None:
        drawn = self._random.random()
        fails = drawn < 0.3 and not self._world.peace
        if self._world.faults.hits("agent: closes its own issue", 0.3 if fails else 0.1):
            self._close_itself()
        if fails:
            self._end(Outcome(OutcomeKind.ERROR, "verify failed"), "done")
        else:
            self._review()

    def _review(self) -> None:
        reviewer = self._world.reviewer
        if reviewer is not None:
            vendor = self._world.vendors[reviewer]
            refusal = vendor.refusal()
            if refusal is not None:
                self._refuse(replace(refusal, agent=self._agent, refused=reviewer))
                return
        self._world.check.work_succeeded(self.issue_id)
        self._end(Outcome(OutcomeKind.SUCCESS), "done")

    def _close_itself(self) -> None:
        tracker, actor = self._world.tracker, self._worker.actor
        if tracker.issues[self.issue_id].holding.assignee == actor:
            self._world.check.closed_by_agent(self.issue_id)
            tracker.put(self.issue_id, Ownership(CLOSED, actor), f"agent of {actor}")

    # --- its end ------------------------------------------------------------------------------

    def _refuse(self, refusal: Receipt) -> None:
        outcome = Outcome(OutcomeKind.RETRY, refusal.why)
        self._answer = Answer(outcome, self._with_usage(refusal))
        self.process.die()

    def _end(self, outcome: Outcome, verdict: str) -> None:
        receipt = self._with_usage(Receipt(verdict, agent=self._agent))
        self._answer = Answer(outcome, receipt)
        self.process.die()

    def _with_usage(self, receipt: Receipt) -> Receipt:
        if not self._used:
            return receipt
        money = self._used * DOLLARS_PER_TOKEN
        return replace(receipt, usage={"m": Tokens(output=self._used)}, money=money)

    def _gone(self) -> None:
        self._world.check.work_over(self.issue_id, self.process)
        answer = self._answer
        self._worker.process.later(0.0005, lambda: self._worker.attempt_over(answer))
