"""What must hold of agents, beside what holds of every run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from beads_workers.core.base.source import Action, Settlement
from beads_workers.core.base.states import ConnState, RunState
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry
from beads_workers.core.records.receipts import AccountId
from beads_workers.trackers.settlement_rules import CLOSED, Ownership
from tests.simulation.agents.attempts import DOLLARS_PER_TOKEN
from tests.simulation.checkers import Checks, Violation

if TYPE_CHECKING:
    from tests.simulation.agents.nodes import AgentNode
    from tests.simulation.agents.world import AgentWorld
    from tests.simulation.nodes import Node

CLOCKS_SECONDS = 0.01
UNUSED_SECONDS = 240.0
"""In peace, with somebody idle and issues ready, an account that takes requests again is used
within this: two probes of a minute, each up to half as long again, and a look at the clock."""


@dataclass(slots=True)
class Told:
    """What one run has decided of its accounts, and knows of its attempts, by request.

    ``canaries``: begun on an account that is closed since, by account. ``accounts``: which one each
    is on; ``used``: what is known of its tokens; ``counted``: the same, by its records in the file.
    ``under_way``: the request of each issue.
    """

    closed: dict[str, rec.AccountClosed] = field(default_factory=dict)
    heard: set[str] = field(default_factory=set)
    canaries: dict[str, set[str]] = field(default_factory=dict)
    accounts: dict[str, str] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    under_way: dict[str, str] = field(default_factory=dict)


class AgentChecks(Checks):
    """13 a refusal is free; 14 one canary, no sooner than it may; 15 closed stays closed over a
    restart; 16 open is used; 17 nothing begins beyond a budget; 18 each attempt is counted once;
    19 an agent's own close does not count; 20 after a sleep a claim is read before it is settled.
    """

    _world: AgentWorld

    def __init__(self, world: AgentWorld) -> None:
        super().__init__(world)
        self._told: dict[str, Told] = {}
        self._counted: dict[str, list[tuple[str, int, int]]] = {}
        """Where the cost of each request was counted: the run, the offset, how much."""
        self._started: dict[str, tuple[str, int]] = {}
        self._forgotten: set[str] = set()
        """Requests of which a power cut has taken a record, or a person a history."""
        self._counted_of: dict[str, set[str]] = {}
        self._resumed: set[str] = set()
        self._own_closes: set[str] = set()
        self._unused_since: dict[str, float] = {}

    def resumed(self) -> None:
        """A person says that all is mended."""
        self._resumed = {vendor.account for vendor in self._world.vendors.values()}

    def of_run(self, run_id: str) -> Told:
        """The entry of a run."""
        return self._told.setdefault(run_id, Told())

    # --- what the core decides ----------------------------------------------------------------

    def decided(self, node: AgentNode, record: rec.Record) -> None:
        """It is about to be written."""
        super().decided(node, record)
        told = self.of_run(node.run_id)
        match record:
            case rec.Started() if record.agent:
                self._begins(node, told, record)
            case rec.Finished():
                self._ends(told, record)
            case rec.UsageFound():
                self._found(told, record)
            case rec.AsideHeard(_, message):
                request, tokens = told.under_way.get(message.issue_id), message.tokens  # type: ignore
                if request is not None and tokens:
                    told.used[request] = tokens
            case rec.AccountClosed(account=account):
                told.closed[account] = record
                told.heard.add(account)
                self._resumed.discard(account)
            case rec.AccountOpened(account=account):
                told.closed.pop(account, None)
                told.canaries.pop(account, None)  # Should it close again, they run as others do.
                told.heard.add(account)
            case rec.Claimed(issue_id=issue_id):
                node.slept_with.discard(issue_id)
            case _:
                pass

    def _begins(self, node: AgentNode, told: Told, started: rec.Started) -> None:
        account, request = f"of {started.agent}", started.request_id
        self._may_begin(node, told, account, started.issue_id)
        if account in told.closed:
            told.canaries.setdefault(account, set()).add(request)
        told.accounts[request] = account
        told.under_way[started.issue_id] = request

    def _may_begin(self, node: AgentNode, told: Told, account: str, issue_id: str) -> None:
        wall = self._world.wall() + CLOCKS_SECONDS
        closed = told.closed.get(account)
        if closed is not None and (others := told.canaries.get(account)):
            raise Violation(14, f"{issue_id} is a canary of {account} beside {others}")
        if closed is not None and wall < closed.probe_at and account not in self._resumed:
            raise Violation(14, f"{issue_id} begins {closed.probe_at - wall:.1f} s before its time")
        if account not in told.heard | self._resumed:
            for row in self._world.account_file.rows.get(AccountId(account), ()):
                if wall < row.probe_at:
                    raise Violation(
                        15, f"{issue_id} begins, closed for {row.probe_at - wall:.1f} s"
                    )
        budget, tokens = node.settings.budget, sum(told.used.values())
        if budget is not None and budget.is_spent(tokens * DOLLARS_PER_TOKEN - 1e-6, tokens):
            raise Violation(17, f"{issue_id} begins beyond {budget}: {tokens} tokens are used")

    def _ends(self, told: Told, finished: rec.Finished) -> None:
        request, receipt = finished.request_id, finished.receipt
        told.canaries.get(told.accounts.get(request, ""), set()).discard(request)
        told.under_way.pop(finished.issue_id, None)
        if receipt is None:
            return
        told.used[request] = receipt.tokens.total
        if receipt.refusal and finished.outcome == "retry" and finished.delay_seconds:
            raise Violation(13, f"{finished.issue_id} has to wait for {receipt.why!r}")
        charged = finished.charged > self.accounts.charged(finished.issue_id)
        # An issue whose own budget is spent is out of attempts, whatever its last one was told.
        if receipt.refusal and charged and not finished.error.startswith("its budget"):
            raise Violation(13, f"{finished.issue_id} is charged for {receipt.why!r}")

    def _found(self, told: Told, found: rec.UsageFound) -> None:
        receipt = found.receipt
        told.used[found.request_id] = receipt.tokens.total if receipt else 0

    # --- 18: the ledger -----------------------------------------------------------------------

    def written(self, node: Node, entry: Entry, offset: int) -> None:
        """A record is in the file now, up to this offset."""
        super().written(node, entry, offset)
        record = entry.record
        if isinstance(record, rec.Started) and record.agent:
            self._started[record.request_id] = (node.run_id, offset)
        elif isinstance(record, rec.RetryAsked | rec.Refunded):
            # With a clean history: a start that is broken off may count its last attempt again.
            self._forgotten |= self._counted_of.get(record.issue_id, set())
        elif isinstance(record, rec.Finished | rec.UsageFound):
            receipt = record.receipt
            if receipt is not None and receipt.usage:
                self._count(
                    node.run_id, record.issue_id, record.request_id, receipt.tokens.total, offset
                )

    def _count(self, run_id: str, issue_id: str, request_id: str, tokens: int, offset: int) -> None:
        counted = self._counted.setdefault(request_id, [])
        counted.append((run_id, offset, tokens))
        self._counted_of.setdefault(issue_id, set()).add(request_id)
        if len(counted) > 1 and request_id not in self._forgotten:
            raise Violation(18, f"{request_id} is counted twice: {counted}")
        self.of_run(run_id).counted[request_id] = tokens

    def power_cut(self) -> None:
        """What was not on disk is known no more."""
        folders = self._world.disk.folders

        def is_lost(run_id: str, offset: int) -> bool:
            folder = folders[run_id]
            return offset > folder.end()[0].base and not folder.holds(offset)

        for request_id, place in list(self._started.items()):
            if is_lost(*place):
                self._forgotten.add(request_id)
        for request_id, counted in self._counted.items():
            kept = [each for each in counted if not is_lost(each[0], each[1])]
            if len(kept) < len(counted):
                counted[:] = kept
                self._forgotten.add(request_id)

    def never_written(self, request_ids: Iterable[str]) -> None:
        """A run has read what these had used, settled theirs, and died before it wrote that."""
        self._forgotten |= {each for each in request_ids if not self._counted.get(each)}

    def _all_counted(self) -> None:
        for request_id, (_, used) in self._world.usage.items():
            counted = sum(tokens for _, _, tokens in self._counted.get(request_id, ()))
            if counted != used and request_id not in self._forgotten:
                raise Violation(18, f"{request_id} has used {used} tokens, {counted} are counted")

    # --- 19: what agents close ----------------------------------------------------------------

    def closed_by_agent(self, issue_id: str) -> None:
        """It is about to close its own issue in the tracker."""
        self._own_closes.add(issue_id)

    def work_succeeded(self, issue_id: str) -> None:
        """It did all that it had to do."""
        super().work_succeeded(issue_id)
        self._own_closes.discard(issue_id)

    def tracker_changed(self, issue_id: str, before: Ownership, after: Ownership, by: str) -> None:
        """Somebody wrote to the tracker."""
        super().tracker_changed(issue_id, before, after, by)
        if not by.startswith("agent of"):
            self._own_closes.discard(issue_id)

    # --- 20: after a sleep --------------------------------------------------------------------

    def about_to_settle(self, node: Node, settlement: Settlement) -> None:
        """The tracker is about to be written."""
        super().about_to_settle(node, settlement)
        slept_with = cast("AgentNode", node).slept_with
        is_claim = settlement.action is not Action.REOPEN and not settlement.run_id
        if is_claim and settlement.issue_id in slept_with and not settlement.read_first:
            raise Violation(20, f"{settlement} is written unseen after a sleep")

    # --- 16, and the end ----------------------------------------------------------------------

    def turn_over(self, node: Node) -> None:
        """A turn of the loop."""
        super().turn_over(node)
        ledger = node.core._parts.agents.ledger
        total = ledger.total.tokens.total + ledger.found_earlier.tokens.total
        counted = self.of_run(node.run_id).counted
        if node.journal.is_flushed and total != sum(counted.values()):
            raise Violation(18, f"the ledger says {total} tokens, its journal {counted}")
        if self._world.peace:
            self._is_used(node)

    def _is_used(self, node: Node) -> None:
        parts, now = node.core._parts, self._world.agenda.now
        idle = parts.registry.count(ConnState.IDLE, ConnState.READY)
        off = parts.retry_state.not_to_take()
        ready = [i for i in self._world.tracker.ready(node.actor) if i.id not in off]
        closed = self.of_run(node.run_id).closed
        for vendor in self._world.vendors.values():
            works = parts.state is RunState.RUNNING and idle and ready and not vendor.refusal()
            if not works or vendor.account not in closed:
                self._unused_since.pop(vendor.account, None)
            elif now - self._unused_since.setdefault(vendor.account, now) > UNUSED_SECONDS:
                raise Violation(16, f"{vendor.account} is open, and not used for minutes")

    def all_settled(self) -> None:
        """At the end of the world."""
        super().all_settled()
        for issue_id in sorted(self._own_closes):
            if self._world.tracker.issues[issue_id].holding.status == CLOSED:
                raise Violation(19, f"{issue_id} was closed by an agent that did not do it")
        self._all_counted()
