"""What agents have used: tokens and dollars, for each issue, agent and outcome, and the budgets.

The ledger is a fold over the ends of attempts, whose receipts say it; what attempts under way have
used so far comes from their progress, and counts until their receipt takes its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from beads_workers.core.model import IssueId, value
from beads_workers.core.receipts import Receipt, Tokens


@dataclass(slots=True)
class Spend:
    """``unpriced``: tokens for which nobody has said a price."""

    tokens: Tokens = field(default_factory=Tokens)
    money: float = 0.0
    unpriced: int = 0

    def add(self, receipt: Receipt) -> None:
        """What an attempt has used."""
        self.tokens += receipt.tokens
        self.money += receipt.money or 0.0
        self.unpriced += receipt.tokens.total if receipt.money is None else receipt.unpriced


@value
class UnderWay:
    """What an attempt that runs has used so far, as its progress says it."""

    tokens: int = 0
    money: float = 0.0


class Ledger:
    """``running``: of attempts under way, by issue; ``untold``: of those that ended and did not say
    it, until somebody has found it."""

    def __init__(self) -> None:
        self.total = Spend()
        self.by_issue: dict[str, Spend] = {}
        self.by_agent: dict[str, Spend] = {}
        self.by_verdict: dict[str, Spend] = {}
        self.running: dict[str, UnderWay] = {}
        self.untold: dict[str, UnderWay] = {}

    def ended(self, issue_id: str, receipt: Receipt | None) -> None:
        """An attempt is over."""
        used = self.running.pop(issue_id, None)
        if receipt is not None:
            self._add(issue_id, receipt)
        elif used is not None:
            before = self.untold.get(issue_id, UnderWay())
            tokens, money = before.tokens + used.tokens, before.money + used.money
            self.untold[issue_id] = UnderWay(tokens, money)

    def found(self, issue_id: str, receipt: Receipt | None) -> None:
        """What an attempt had used that did not say it."""
        self.untold.pop(issue_id, None)
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
        """An attempt that runs has used so much by now, all in all."""
        self.running[issue_id] = used

    def spent(self, issue_id: IssueId | None = None) -> UnderWay:
        """Tokens and dollars of this run, or of one issue of it, with what runs now."""
        known = self.total if issue_id is None else self.by_issue.get(issue_id, Spend())
        used_so_far = (*self.running.items(), *self.untold.items())
        under_way = [used for each, used in used_so_far if issue_id in (None, each)]
        tokens = known.tokens.total + sum(used.tokens for used in under_way)
        return UnderWay(tokens, known.money + sum(used.money for used in under_way))
