"""Usage of agents: tokens and dollars, for each issue, agent and outcome, and the budgets.

The ledger is a fold over the ends of attempts, whose receipts tell their usage. Attempts under way
report theirs as progress, which counts until their receipt takes its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from beads_workers.core.model import IssueId, value
from beads_workers.core.receipts import Receipt, Tokens


@dataclass(slots=True)
class Spend:
    """``unpriced``: tokens for which no price is known."""

    tokens: Tokens = field(default_factory=Tokens)
    money: float = 0.0
    unpriced: int = 0

    def add(self, receipt: Receipt) -> None:
        """Add the usage of an attempt."""
        self.tokens += receipt.tokens
        self.money += receipt.money or 0.0
        self.unpriced += receipt.tokens.total if receipt.money is None else receipt.unpriced


@value
class UnderWay:
    """Usage so far of a running attempt, as its progress reports it."""

    tokens: int = 0
    money: float = 0.0


class Ledger:
    """``running``: of attempts under way, by issue; ``unreported``: of attempts that ended without
    a report, until it is found."""

    def __init__(self) -> None:
        self.total = Spend()
        self.by_issue: dict[str, Spend] = {}
        self.by_agent: dict[str, Spend] = {}
        self.by_verdict: dict[str, Spend] = {}
        self.running: dict[str, UnderWay] = {}
        self.unreported: dict[str, UnderWay] = {}

    def ended(self, issue_id: str, receipt: Receipt | None) -> None:
        """Count the end of an attempt."""
        used = self.running.pop(issue_id, None)
        if receipt is not None:
            self._add(issue_id, receipt)
        elif used is not None:
            before = self.unreported.get(issue_id, UnderWay())
            tokens, money = before.tokens + used.tokens, before.money + used.money
            self.unreported[issue_id] = UnderWay(tokens, money)

    def found(self, issue_id: str, receipt: Receipt | None) -> None:
        """Count the usage that was found of an attempt that did not report it."""
        self.unreported.pop(issue_id, None)
        if receipt is not None:
            self._add(issue_id, receipt)

    def _add(self, issue_id: str, receipt: Receipt) -> None:
        if not (receipt.usage or receipt.money):
            return
        named = (
            (self.by_issue, issue_id),
            (self.by_agent, receipt.agent or "agent"),
            (self.by_verdict, receipt.verdict or "unknown"),
        )
        for table, name in named:
            table.setdefault(name, Spend()).add(receipt)
        self.total.add(receipt)

    def progress(self, issue_id: str, used: UnderWay) -> None:
        """Take over the total that a running attempt has used by now."""
        self.running[issue_id] = used

    def spent(self, issue_id: IssueId | None = None) -> UnderWay:
        """Return tokens and dollars of this run, or of one of its issues.
        Running attempts are included."""
        known = self.total if issue_id is None else self.by_issue.get(issue_id, Spend())
        used_so_far = (*self.running.items(), *self.unreported.items())
        under_way = [used for each, used in used_so_far if issue_id in (None, each)]
        tokens = known.tokens.total + sum(used.tokens for used in under_way)
        return UnderWay(tokens, known.money + sum(used.money for used in under_way))
