"""An orchestrator with agents: its workers, its loop with both clocks, and the account file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.plans import Plan, Step, StepKind
from beads_workers.core.base.wire import Progress, Task
from beads_workers.core.records.journal import (
    AccountClosed,
    AccountOpened,
    Finished,
    Record,
    Started,
)
from beads_workers.core.records.receipts import AccountId, Closed, Receipt, Tokens, to_json
from beads_workers.core.schedule.commands import ReadUsage, RoundTrip
from beads_workers.core.schedule.events import Event, ResumeAsked, UsageRead
from beads_workers.core.workers import worker_events as wev
from beads_workers.runtime.account_file import SharedAccounts
from tests.simulation.agents.attempts import DOLLARS_PER_TOKEN, KILLED, Answer, Attempt
from tests.simulation.loop import Loop
from tests.simulation.nodes import Node
from tests.simulation.workers import Worker

if TYPE_CHECKING:
    from tests.simulation.agents.world import AgentWorld

LOOK_SECONDS = 5.0


class SimulatedAccountFile:
    """``runtime.account_file.AccountFile``: one for all fleets; a run sees it through a view."""

    def __init__(self, world: AgentWorld) -> None:
        self._world = world
        self.rows: dict[AccountId, list[Closed]] = {}
        self.changes = 0

    def view(self, run_id: str) -> AccountFileView:
        """As a run sees it."""
        return AccountFileView(self._world, self, run_id)


class AccountFileView:
    """The two methods that ``SharedAccounts`` calls."""

    def __init__(self, world: AgentWorld, file: SimulatedAccountFile, run_id: str) -> None:
        self._world = world
        self._file = file
        self._run_id = run_id
        self._seen = -1

    def tell(self, account: AccountId, closed: list[Closed]) -> None:
        """Raises ``BlockingIOError`` while somebody else writes."""
        if self._world.faults.hits("account file: busy", 0.1):
            raise BlockingIOError
        self._world.point("before the account file is written")
        self._file.rows[account] = [replace(c, told_by=c.told_by or self._run_id) for c in closed]
        self._file.changes += 1

    def changed(self) -> dict[AccountId, list[Closed]] | None:
        """What others have told since the last call."""
        if self._seen == self._file.changes or self._world.mutant.reads_no_accounts:
            return None
        self._seen = self._file.changes
        return {account: [replace(c) for c in rows] for account, rows in self._file.rows.items()}


class AgentLoop(Loop):
    """With the clock that goes on while the machine sleeps."""

    _node: AgentNode

    def _clocks(self) -> tuple[float, ...]:
        return self._node.clocks()


class AgentNode(Node):
    """``slept_with``: what it held when the machine slept, and has not claimed anew since."""

    world: AgentWorld
    loop_class = AgentLoop

    def clocks(self) -> tuple[float, float]:
        """Monotonic, and boot."""
        now = self.world.agenda.now
        return now, now + self.world.slept

    def boot(self) -> dict[str, float]:
        """For the core's beginning."""
        return {"boot": self.clocks()[1]}

    def before_loop(self) -> None:
        """``Fleet._share_accounts``."""
        self.slept_with: set[str] = set()
        self.found: set[str] = set()
        self.process.at_death.append(lambda: self.world.check.never_written(self.found))
        self.last_trip = RoundTrip()
        accounts = [AccountId(vendor.account) for vendor in self.world.vendors.values()]
        file: Any = self.world.account_file.view(self.run_id)
        tell: Callable[[Any], None] = self.loop.queue
        self.accounts = SharedAccounts(file, self.run_id, accounts, tell)
        self.accounts.look()
        self.process.later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        if self.loop.ended is None:
            self.accounts.look()
            self.loop.wake()
            self.process.later(LOOK_SECONDS, self._look)

    def handles(self, event: Event) -> None:
        """The core is about to be told this."""
        super().handles(event)
        if isinstance(event, ResumeAsked):
            self.world.check.resumed()

    def decided(self, record: Record) -> None:
        """``Loop._perform``."""
        super().decided(record)
        if isinstance(record, AccountClosed | AccountOpened):
            self.accounts.record(record)

    def asked_for(self, round_trip: RoundTrip) -> None:
        """The core has composed this."""
        self.last_trip = round_trip

    def flush_ingress(self) -> None:
        """``Loop._turn``, at its end."""
        self.accounts.flush()

    def read_usage(self, ended: ReadUsage | Started | Finished) -> UsageRead | None:
        """``usage_file.usage_read``."""
        found = self.world.usage.get(ended.request_id)
        if found is None or self.world.mutant.reads_no_usage:
            return None
        self.found.add(ended.request_id)
        agent, used = found
        money = used * DOLLARS_PER_TOKEN
        told = Receipt("unfinished", agent=agent, usage={"m": Tokens(output=used)}, money=money)
        ids = IssueId(ended.issue_id), ended.attempt, ended.request_id
        return UsageRead(*ids, told)

    def make_worker(self, worker_id: str) -> Worker:
        """One of ours."""
        return AgentWorker(self, worker_id)

    def machine_slept(self) -> None:
        """Nothing of us happened meanwhile; what was asked for before counts."""
        if not hasattr(self, "slept_with"):
            return  # Before its first turn it holds nothing.
        parts = self.core._parts
        under_way = {s.issue_id for s in self.last_trip.settlements if parts.round_trips.busy}
        held = parts.tasks.in_flight.keys() | parts.round_trips.pending.keys()
        self.slept_with |= {str(i) for i in held - under_way}


class AgentWorker(Worker):
    """The real worker half; its step is an agent's attempt."""

    _node: AgentNode
    _world: AgentWorld
    _task: Task

    @property
    def run_id(self) -> str:
        """Of the run that it belongs to."""
        return self._node.run_id

    @property
    def actor(self) -> str:
        """In whose name the run claims."""
        return self._node.actor

    def _plan(self, task: Task) -> Plan:
        self._task = task
        steps = (Step(StepKind.RUN, ("x",), is_attempt=True),)
        return Plan(steps, "", str(task.issue_id), "", "")

    def _run_step(self, issue_id: str, step: Step) -> None:
        self.work: Any = Attempt(self._world, self, self._task)

    def say_progress(self, issue_id: str, tokens: int) -> None:
        """What its attempt prints."""
        money = tokens * DOLLARS_PER_TOKEN
        said = Progress(IssueId(issue_id), tokens=tokens, money=money)
        self.process.later(0.0005, lambda: self._handle_said(said))

    def _handle_said(self, said: Progress) -> None:
        if self.work is not None and self.work.issue_id == said.issue_id:
            self._handle(wev.StepSaid(said))

    def attempt_over(self, answer: Answer | None) -> None:
        """It has ended, with its own word or without."""
        self.work = None
        if answer is None:
            self._handle(wev.StepEnded(KILLED))
        else:
            self._handle(wev.StepAnswered(answer.outcome, receipt=to_json(answer.receipt)))
