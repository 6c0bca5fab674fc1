"""Usage of agents: tokens and dollars, for each issue, agent and outcome, and the budgets.

The ledger is a fold over the ends of attempts, whose receipts tell their usage. Attempts under way
report theirs as progress, which counts until their receipt takes its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from beads_workers.core.base.model import IssueId, value
from beads_workers.core.base.night import NightSoFar, run_of
from beads_workers.core.records.receipts import Receipt, Tokens

Part = TypeVar("Part")

CUT = ("timeout", "lost", "cancelled")
"""Outcomes of attempts whose agent was ended in the middle of an answer, if it was at work."""


def is_cut(receipt: Receipt, outcome: str) -> bool:
    """Return whether the usage may lack an answer, because the agent was ended while it worked."""
    is_begun = bool(receipt.usage or receipt.session)
    return is_begun and (receipt.was_cut or outcome in CUT)


def unpriced_of(receipt: Receipt) -> int:
    """Return the number of tokens without a price."""
    return receipt.tokens.total if receipt.money is None else receipt.unpriced


class ToldLater(Generic[Part]):
    """Parts of the usage without a price for which a later attempt of the same session pays: its
    total has at least the tokens that were heard of the session by then."""

    def __init__(self) -> None:
        self._heard: dict[str, int] = {}
        self._waiting: dict[str, list[Part]] = {}

    def add(self, part: Part, receipt: Receipt) -> list[Part]:
        """Return the parts for which this receipt, the next one, pays. ``part``: this one's."""
        session = receipt.session
        if not session:
            return []
        heard = self._heard[session] = self._heard.get(session, 0) + receipt.tokens.total
        if unpriced_of(receipt):
            self._waiting.setdefault(session, []).append(part)
        elif receipt.money and _reported(receipt) >= heard:
            return self._waiting.pop(session, [])
        return []


def told_later(attempts: Iterable[tuple[str, Receipt]]) -> set[str]:
    """Return the attempts without a price for which a later one paid.

    ``attempts``: request ids and receipts, the oldest first.
    """
    later = ToldLater[str]()
    return {paid for request_id, receipt in attempts for paid in later.add(request_id, receipt)}


def _reported(receipt: Receipt) -> int:
    """Return the tokens of the whole session, as its last total has them; 0 without one."""
    by_model = receipt.totals.get("reported")
    rows = by_model.values() if isinstance(by_model, Mapping) else ()
    counts = (n for row in rows if isinstance(row, list) for n in row[:4])
    return sum(n for n in counts if isinstance(n, int))


@dataclass(slots=True)
class Spend:
    """``unpriced``: tokens for which no price is known. ``cut``: attempts whose agent was killed:
    each lacks at most the answer that it was writing."""

    tokens: Tokens = field(default_factory=Tokens)
    money: float = 0.0
    unpriced: int = 0
    cut: int = 0

    def add(self, receipt: Receipt, *, was_cut: bool = False) -> None:
        """Add the usage of an attempt."""
        self.cut += was_cut
        self.tokens += receipt.tokens
        self.money += receipt.money or 0.0
        self.unpriced += unpriced_of(receipt)


@value
class UnderWay:
    """Usage so far of a running attempt, as its progress reports it; or a sum. ``cut``: as in
    ``Spend``."""

    tokens: int = 0
    money: float = 0.0
    cut: int = 0


class Ledger:
    """``running``: of attempts under way, by issue; ``unreported``: of attempts that ended without
    a report, until it is found."""

    def __init__(self, run_id: str = "", night: NightSoFar | None = None) -> None:
        """``night``: what was spent before this run, which counts for ``spent_in_night``."""
        self._run_id, self._night = run_id, night or NightSoFar()
        self.total = Spend()
        self.found_earlier = Spend()
        """Usage that was found here of attempts of earlier runs of the night."""
        self.by_issue: dict[str, Spend] = {}
        self.by_agent: dict[str, Spend] = {}
        self.by_verdict: dict[str, Spend] = {}
        self.running: dict[str, UnderWay] = {}
        self.unreported: dict[str, UnderWay] = {}
        self._told_later = ToldLater[tuple[int, list[Spend]]]()

    def ended(self, issue_id: str, receipt: Receipt | None, outcome: str = "") -> None:
        """Count the end of an attempt; ``outcome``: a value of ``model.OutcomeKind``."""
        used = self.running.pop(issue_id, None)
        if receipt is not None:
            self._add(issue_id, receipt, was_cut=is_cut(receipt, outcome))
        elif used is not None:
            before = self.unreported.get(issue_id, UnderWay())
            tokens, money = before.tokens + used.tokens, before.money + used.money
            self.unreported[issue_id] = UnderWay(tokens, money)

    def found(
        self, issue_id: str, request_id: str, receipt: Receipt | None, *, whole: bool = False
    ) -> None:
        """Count the usage that was found of an attempt that did not report it.
        It belongs to the run of the attempt, and if that was in this night, to the night.
        ``whole``: nothing is missing in it, because its agent came to its end."""
        run_id = run_of(request_id)
        outcome = "" if whole else "lost"
        if receipt is None:
            self.unreported.pop(issue_id, None)
        elif not self._run_id or run_id == self._run_id:
            self.unreported.pop(issue_id, None)
            self._add(issue_id, receipt, was_cut=is_cut(receipt, outcome))
        elif self._night.first and run_id >= self._night.first:
            self.found_earlier.add(receipt, was_cut=is_cut(receipt, outcome))

    def resumed(self, total: Spend, found_earlier: Spend) -> None:
        """Take over the sums of a journal whose beginning is gone."""
        self.total, self.found_earlier = replace(total), replace(found_earlier)

    def _add(self, issue_id: str, receipt: Receipt, *, was_cut: bool = False) -> None:
        if not (receipt.usage or receipt.money or was_cut):
            return
        named = (
            (self.by_issue, issue_id),
            (self.by_agent, receipt.escalated or receipt.agent or "agent"),
            (self.by_verdict, receipt.verdict or "unknown"),
        )
        spends = [self.total, *(table.setdefault(name, Spend()) for table, name in named)]
        for spend in spends:
            spend.add(receipt, was_cut=was_cut)
        for tokens, paid in self._told_later.add((unpriced_of(receipt), spends), receipt):
            for spend in paid:
                spend.unpriced -= tokens

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
        money = known.money + sum(used.money for used in under_way)
        return UnderWay(tokens, money, known.cut)

    def spent_in_night(self) -> UnderWay:
        """Return tokens and dollars of this run and of those before it in the same night."""
        run, earlier, found = self.spent(), self._night, self.found_earlier
        tokens = earlier.tokens + found.tokens.total + run.tokens
        money = earlier.money + found.money + run.money
        return UnderWay(tokens, money, earlier.cut + found.cut + run.cut)
