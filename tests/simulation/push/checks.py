"""What must hold of pushed work, beside what holds of every run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from beads_workers.core.base.source import Settlement
from beads_workers.core.base.states import RunState
from beads_workers.core.records import journal as rec
from beads_workers.integrations.rrq import wire
from tests.simulation.accounts import Accounts
from tests.simulation.agenda import Process
from tests.simulation.checkers import Checks, Violation

if TYPE_CHECKING:
    from tests.simulation.nodes import Node
    from tests.simulation.push.senders import Call
    from tests.simulation.push.world import PushWorld


class NoAccounts(Accounts):
    """Of requests in memory: what a crashed run had done is asked for again, and done again."""

    def _apply(self, record: rec.Record, *, check: bool) -> None:
        """Nothing is kept."""


class PushChecks(Checks):
    """10: one terminal answer for each arrival; 11: nothing is lost that was acknowledged."""

    _world: PushWorld

    def __init__(self, world: PushWorld) -> None:
        super().__init__(world)
        if world.kind == "rrq":
            self.accounts = NoAccounts(world)
        self._answers: Counter[str] = Counter()
        self._succeeded: Counter[str] = Counter()
        self._told: Counter[str] = Counter()

    # --- 1 ------------------------------------------------------------------------------------

    def work_began(self, issue_id: str, process: Process, token: str) -> None:
        """A task process of ours begins."""
        if self.is_answered(issue_id):
            raise Violation(1, f"{issue_id} is worked on, and has its answer")
        super().work_began(issue_id, process, token)

    def work_succeeded(self, issue_id: str) -> None:
        """It did all that it had to do."""
        super().work_succeeded(issue_id)
        self._succeeded[issue_id.partition("~")[0]] += 1

    # --- 3 ------------------------------------------------------------------------------------

    def about_to_settle(self, node: Node, settlement: Settlement) -> None:
        """Whoever is far away is told what is on disk; what lives in memory dies with us."""
        if self._world.kind == "queue":
            super().about_to_settle(node, settlement)
        elif (node.run_id, settlement.action.value, str(settlement.issue_id)) not in self._facts:
            raise Violation(3, f"{settlement} is carried out, and the journal does not know")

    def _found_empty(self, node: Node) -> None:
        """Only people end such a run."""

    # --- 8 ------------------------------------------------------------------------------------

    def turn_over(self, node: Node) -> None:
        """Now and then, look at what could grow."""
        self._turns += 1
        if self._turns % 32:
            return
        parts, most = node.core._parts, 3 * len(self._world.senders.jobs) + 20
        sizes = {"in_flight": len(parts.tasks.in_flight), "pending": len(parts.round_trips.pending)}
        sizes |= {"issues": len(parts.effects.issues.known), "registry": len(parts.registry) - 40}
        settled = parts.state is not RunState.RECOVERING
        past = [i.issue_id for i in parts.effects.issues.known.values() if i.retry_entry]
        if self._world.kind == "rrq" and settled and past:
            raise Violation(8, f"of requests in memory it remembers {past}")
        for name, size in sizes.items():
            if size > most:
                raise Violation(8, f"{name} grew to {size}, more than {most}")

    # --- 10 and 11 ----------------------------------------------------------------------------

    def is_answered(self, key: str) -> bool:
        """Whether it has its terminal answer."""
        return self._answers[key] > 0

    def answered(self, key: str, answer: str) -> None:
        """An arrival of a box gets its terminal answer."""
        if self._world.verbose:
            self._world.log(f"answer to {key}: {answer}")
        self._answers[key] += 1
        if self._answers[key] > 1:
            raise Violation(10, f"{key} is answered a second time: {answer}")
        if answer in ("close", "success") and not self.of(key).successes:
            raise Violation(10, f"{key} is answered {answer} without a success")

    def unanswered(self, key: str) -> None:
        """A power cut took it before anybody could read it."""
        self._answers[key] -= 1

    def request_answered(self, call: Call, outcome: wire.RequestOutcome) -> None:
        """A request of RRQ gets one of its answers."""
        name = call.request.request_id
        if self._world.verbose:
            self._world.log(f"answer to {name}: {outcome.status.value}")
        if outcome.request_id != name:
            raise Violation(10, f"{name} was asked, and {outcome.request_id} answered")
        if call.answers > call.sent:
            raise Violation(10, f"{name} is answered {call.answers} times")
        if outcome.status is wire.RequestStatus.SUCCESS:
            self._told[call.job.key] += 1
            if self._told[call.job.key] > self._succeeded[call.job.key]:
                raise Violation(10, f"{name} is a success, and was never done")

    def all_settled(self) -> None:
        """Nothing lives."""
        for process in self._world.processes.of("worker", "task"):
            if process.token:
                raise Violation(6, f"{process.kind} {process.pid} outlived everything")

    def all_done(self) -> None:
        """Nothing is lost, and nobody waits."""
        lost = [key for key in self._world.senders.acknowledged if not self.is_answered(key)]
        if lost:
            raise Violation(11, f"{lost} were acknowledged, and never answered")
        if pending := self._world.senders.pending():
            raise Violation(11, f"whoever sent {pending} still waits")
