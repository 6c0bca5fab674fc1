"""An orchestrator whose attempts run on other machines, and the line to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.plans import Plan, Step
from beads_workers.core.base.wire import Done, Failed, Task
from beads_workers.core.records.journal import Entry, Leased
from beads_workers.core.schedule.commands import TellGuard, Word
from beads_workers.core.schedule.events import FoundEnded, GuardHeard, Placed
from tests.simulation.agenda import Thread
from tests.simulation.away.hosts import Guard, Host, Said
from tests.simulation.nodes import Node
from tests.simulation.workers import Worker

if TYPE_CHECKING:
    from tests.simulation.away.world import AwayWorld

WORD_SECONDS = 2.0
PLACE = "far"


@dataclass(slots=True)
class _Attempt:
    """One that the line knows. ``ended``: of who waits for it, if somebody does."""

    lease: Leased
    host: Host
    ended: Callable[[int], None] | None = None
    clock: float | None = None
    placed: bool = False
    go: bool = False
    end: bool = False
    looked_for: bool = False
    status: int | None = None
    told: bool = False
    answer: Done | None = None


class Line:
    """``places.relay``, in a process of its own; all it knows dies with the orchestrator."""

    def __init__(self, node: AwayNode) -> None:
        self._node = node
        self._world = node.world
        self._attempts: dict[str, _Attempt] = {}

    def place(self, task: Task, number: int, ended: Callable[[int], None]) -> str:
        """An attempt waits at home for a host."""
        host = self._world.random.choice(self._world.hosts)
        nonce = f"{task.request_id}-{number}"
        ids = str(task.issue_id), task.attempt, task.request_id
        lease = Leased(*ids, PLACE, host.name, str(host.boot), nonce, self._world.lease)
        self._attempts[nonce] = _Attempt(lease, host, ended)
        self._serve(nonce)
        return nonce

    def end(self, nonce: str) -> None:
        """Its worker wants it ended; the word of a worker whose orchestrator is gone is ignored."""
        if (attempt := self._attempts.get(nonce)) is not None:
            attempt.end = True
            if not attempt.placed:
                self._forget(attempt, -15)

    def forget(self, nonce: str) -> None:
        """Nobody waits for it any more."""
        if (attempt := self._attempts.get(nonce)) is not None:
            attempt.ended = None
            if not attempt.go:
                del self._attempts[nonce]

    def tell(self, command: TellGuard) -> None:
        """``PlaceProcess.tell``."""
        lease = command.lease
        attempt = self._attempts.get(lease.nonce)
        if command.word in (Word.LOOK, Word.END):
            if attempt is None:
                host = next(h for h in self._world.hosts if h.name == lease.host)
                attempt = self._attempts[lease.nonce] = _Attempt(lease, host, placed=True, go=False)
                attempt.told = True
                self._ask(lease.nonce)
            attempt.looked_for = True
            attempt.end = attempt.end or command.word is Word.END
            if attempt.status is not None:
                self._report(attempt)
        elif attempt is None:
            return
        elif command.word is Word.GO:
            attempt.go = True
        elif command.word is Word.DROP:
            self._forget(attempt, -15)
        elif attempt.status is not None:
            self._spool(attempt)
            self._forget(attempt, attempt.status)

    def _spool(self, attempt: _Attempt) -> None:
        run_id = attempt.lease.request_id.rpartition(".")[0]
        if attempt.answer is not None and run_id != self._node.run_id:
            self._world.disk.spool_result(run_id, attempt.answer)
            self._world.check.accounts.word_left(run_id, attempt.answer)

    def _forget(self, attempt: _Attempt, status: int) -> None:
        self._attempts.pop(attempt.lease.nonce, None)
        if attempt.ended is not None:
            attempt.ended(status)

    def _serve(self, nonce: str) -> None:
        if (attempt := self._attempts.get(nonce)) is None or attempt.placed:
            return
        attempt.host.serve(attempt.lease.issue_id, nonce)
        self._ask(nonce)

    def _ask(self, nonce: str) -> None:
        attempt = self._attempts.get(nonce)
        if attempt is None or not self._node.process.alive:
            return
        lease, clock = attempt.lease, attempt.clock
        go, end = attempt.go, attempt.end

        def word(guard: Guard) -> Said:
            if go:
                self._world.check.told_to_begin(self._node, lease)
            return guard.hear(clock, lease.seconds, go, end)

        self._node.process.later(0.0, lambda: attempt.host.ask(nonce, word, self._heard(nonce)))
        self._node.process.later(WORD_SECONDS, lambda: self._ask(nonce))

    def _heard(self, nonce: str) -> Callable[[Said], None]:
        return lambda said: self._node.process.later(0.0, lambda: self._hear(nonce, said))

    def _hear(self, nonce: str, said: Said) -> None:
        attempt = self._attempts.get(nonce)
        if attempt is None:
            return
        lease = attempt.lease
        restarted = str(said.boot) != lease.boot
        if not restarted:
            attempt.clock = max(attempt.clock or 0.0, said.clock)
        if not attempt.placed:
            attempt.placed = True
            self._node.tell(Placed(lease))
        if attempt.go or attempt.told:
            self._node.tell(GuardHeard(IssueId(lease.issue_id), nonce))
        over = said.status
        if over is None and restarted:
            over = -9
        if over is None and attempt.told and not said.begun:
            over = -15  # The host has never been told to begin.
        if over is not None and attempt.status is None:
            attempt.status = over
            self._report(attempt)

    def _report(self, attempt: _Attempt) -> None:
        lease, status = attempt.lease, attempt.status
        answer: Done | Failed | None = None
        self._world.faults.counts["(an end was looked for)"] += attempt.looked_for
        issue_id, worker = IssueId(lease.issue_id), "W1"
        if attempt.looked_for and status == 0:
            answer = Done(issue_id, worker, 5, request_id=lease.request_id)
            attempt.answer = answer
        elif attempt.looked_for and status is not None and status > 0:
            answer = Failed(issue_id, worker, f"exit status {status}")
        self._node.tell(FoundEnded(lease, answer))


class AwayWorker(Worker):
    """At home like every worker; what it runs is a program that waits for a host."""

    _node: AwayNode

    def __init__(self, node: AwayNode, worker_id: str) -> None:
        super().__init__(node, worker_id)
        self._nonce = ""
        self._tasks: dict[str, Task] = {}
        self._placed = 0
        self.process.at_death.append(self._gone)

    def _plan(self, task: Task) -> Plan:
        self._tasks[str(task.issue_id)] = task
        return super()._plan(task)

    def _run_step(self, issue_id: str, step: Step) -> None:
        self._placed += 1
        mine = self._placed

        def ended(status: int) -> None:
            self.process.later(0.0005, lambda: self._away_ended(mine, status))

        self._nonce = self._node.line.place(self._tasks[issue_id], mine, ended)

    def _end_step(self, hard: bool) -> None:
        mine = self._placed
        if hard or not self._node.process.alive:
            self._node.line.forget(self._nonce)
            self.process.later(0.0005, lambda: self._away_ended(mine, -9))
        else:
            self._node.line.end(self._nonce)

    def _away_ended(self, number: int, status: int) -> None:
        if number == self._placed and self._nonce:
            self._nonce = ""
            self._ended(status)

    def _gone(self) -> None:
        if self._nonce:
            self._node.line.forget(self._nonce)


class AwayNode(Node):
    """``line``: to all hosts."""

    world: AwayWorld

    def begin(self) -> None:
        """With a line of its own."""
        self.line = Line(self)
        super().begin()

    def make_worker(self, worker_id: str) -> Worker:
        """Its attempts run elsewhere, if its member's do."""
        member = self.core._parts.supervisor.members.get(worker_id)
        return AwayWorker(self, worker_id) if member and member.place else Worker(self, worker_id)

    def tell_guard(self, command: TellGuard) -> None:
        """``Loop.places``: a word to begin waits for the disk."""
        if command.word is Word.GO:
            self.process.start(self._go(command))
        else:
            self.line.tell(command)

    def _go(self, command: TellGuard) -> Thread:
        if not self.world.mutant.begins_unsynced:
            yield from self.journal.sync()
        yield 0.0
        self.line.tell(command)

    def _written(self, entry: Entry, offset: int) -> None:
        super()._written(entry, offset)
        if isinstance(entry.record, Leased):
            self.world.check.leased(entry.record, offset)
