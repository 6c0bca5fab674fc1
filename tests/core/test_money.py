"""The ledger: what attempts have used, once each, and what is left of a budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.budget import Budget, read_budget
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.night import NightSoFar
from beads_workers.core.records.money import Ledger, UnderWay, told_later
from beads_workers.core.records.receipts import Receipt, Tokens
from beads_workers.ui.findings import Costs

ONE = Receipt("done", agent="claude", usage={"opus": Tokens(100, 10)}, money=0.5)
UNPRICED = Receipt("unfinished", agent="codex", usage={"gpt": Tokens(1000)})


def test_an_attempt_counts_for_its_issue_its_agent_and_its_verdict() -> None:
    ledger = Ledger()
    ledger.ended("a", ONE)
    ledger.ended("a", ONE)
    ledger.ended("b", UNPRICED)
    assert ledger.total.money == pytest.approx(1.0)
    assert ledger.by_issue["a"].tokens == Tokens(200, 20)
    assert ledger.by_agent["codex"].unpriced == 1000
    assert ledger.by_verdict["done"].money == pytest.approx(1.0)


def test_of_an_attempt_whose_dollars_are_known_in_part_that_part_counts() -> None:
    ledger = Ledger()
    ledger.progress("a", UnderWay(50, 0.1))
    part = Receipt("unfinished", "", "claude", usage={"opus": Tokens(60)}, money=0.1, unpriced=8)
    ledger.ended("a", part)
    assert ledger.spent() == UnderWay(60, 0.1)
    assert ledger.total.unpriced == 8


def test_progress_counts_until_the_receipt_takes_its_place() -> None:
    ledger = Ledger()
    ledger.progress("a", UnderWay(50, 0.25))
    ledger.progress("a", UnderWay(90, 0.4))
    assert ledger.spent() == UnderWay(90, 0.4)
    assert ledger.spent(IssueId("b")) == UnderWay()
    ledger.ended("a", ONE)
    assert ledger.spent(IssueId("a")) == UnderWay(110, 0.5)
    assert not ledger.running


def test_an_attempt_without_a_receipt_costs_what_its_progress_said_until_it_is_found() -> None:
    ledger = Ledger()
    ledger.progress("a", UnderWay(50, 0.25))
    ledger.ended("a", None)
    assert ledger.spent() == ledger.spent(IssueId("a")) == UnderWay(50, 0.25)
    ledger.found("a", "run.1", ONE)
    assert ledger.spent() == UnderWay(110, 0.5, cut=1)
    ledger.ended("b", None)
    assert ledger.spent() == UnderWay(110, 0.5, cut=1)


@pytest.mark.parametrize(
    ("receipt", "outcome", "cut"),
    [
        (Receipt("unfinished", session="s", was_cut=True), "error", 1),
        (Receipt("unfinished", session="s"), "lost", 1),
        (Receipt("unfinished", session="s"), "error", 0),
        (Receipt("unfinished"), "lost", 0),
        (ONE, "timeout", 1),
        (ONE, "success", 0),
    ],
)
def test_an_agent_that_was_ended_at_work_is_counted_also_if_it_had_used_nothing_yet(
    receipt: Receipt, outcome: str, cut: int
) -> None:
    ledger = Ledger()
    ledger.ended("a", receipt, outcome)
    assert ledger.spent().cut == cut


def test_an_agent_that_was_killed_in_an_earlier_run_is_counted_as_here() -> None:
    ledger = Ledger("run-2", NightSoFar("run-1", 1))
    ledger.found("a", "run-1.1", Receipt("unfinished", session="s"))
    ledger.found("a", "run-1.2", Receipt("unfinished"))
    ledger.found("a", "run-1.3", ONE, whole=True)
    assert ledger.spent_in_night() == UnderWay(110, 0.5, cut=1)


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("20", Budget(dollars=20.0)),
        ("$2.50", Budget(dollars=2.5)),
        ("5Mtok", Budget(tokens=5_000_000)),
        ("1.5mtok", Budget(tokens=1_500_000)),
        ("800ktok", Budget(tokens=800_000)),
        ("900tok", Budget(tokens=900)),
    ],
)
def test_budgets_are_dollars_or_tokens(text: str, budget: Budget) -> None:
    assert read_budget(text) == budget


@pytest.mark.parametrize("text", ["", "much", "-3", "nan", "inf", "5 apples", "Mtok", "1e400"])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no budget"):
        read_budget(text)


@given(st.floats(0, 1e6) | st.integers(0, 10**9))
def test_a_budget_reads_what_it_writes(amount: float) -> None:
    for text in (f"{amount}", f"{amount}Mtok"):
        budget = read_budget(text)
        again = read_budget(str(budget))
        assert again.dollars == pytest.approx(budget.dollars)
        assert again.tokens == pytest.approx(budget.tokens)


def test_a_budget_is_spent_when_it_is_reached() -> None:
    assert Budget(dollars=5).is_spent(5.0, 0)
    assert not Budget(dollars=5).is_spent(4.99, 10**9)
    assert Budget(tokens=100).is_spent(0.0, 100)
    assert Budget(dollars=0).is_spent(0.0, 0)
    assert not Budget().is_spent(1e9, 10**9)
    assert Budget(dollars=5).dollars_left(2.0) == pytest.approx(3.0)
    assert Budget(tokens=5).dollars_left(2.0) is None


@pytest.mark.parametrize(
    ("reported", "session", "later"),
    [
        (1600, "s", {"r.1"}),
        (600, "s", set()),  # A program whose total begins anew.
        (1600, "other", set()),
        (0, "s", set()),
    ],
)
def test_money_told_later_pays_for_what_its_total_includes(
    reported: int, session: str, later: set[str]
) -> None:
    cut = Receipt("unfinished", session="s", usage={"m": Tokens(900, 100)}, unpriced=0)
    totals = {"session": session, "reported": {"m": [reported, 0, 0, 0, 0.5]}}
    told = Receipt("done", session=session, usage={"m": Tokens(500, 100)}, money=0.5, totals=totals)
    assert told_later([("r.1", cut), ("r.2", told)]) == later
    ledger = Ledger()
    ledger.ended("a", cut, "lost")
    assert ledger.total.unpriced == ledger.by_issue["a"].unpriced == cut.tokens.total
    ledger.ended("a", told, "success")
    left = 0 if later else cut.tokens.total
    assert ledger.total.unpriced == ledger.by_issue["a"].unpriced == left
    spend = Costs()
    spend.add_attempt(cut, was_cut=True, later=bool(later))
    assert (spend.unpriced, spend.later) == ((0, 1000) if later else (1000, 0))
