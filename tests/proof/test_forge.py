"""The proof of forges itself: what it finds in what was seen, and a little of it for real."""

from __future__ import annotations

import pytest

from beads_workers.core.base.source import Result
from beads_workers.integrations.forge import marks
from tests.proof.forge import KINDS, Shown, Side, Told, kills, races, unfair, unfit, wordy

HAS_IT = Result.APPLIED


def test_two_that_have_one_issue_are_found() -> None:
    both = [Side("a", 1, True, False, HAS_IT), Side("b", 2, True, False, HAS_IT)]
    assert list(unfair(both)) == ["both have it"]


def test_one_that_has_it_is_fair_and_none_is_not() -> None:
    loser = Side("b", 2)
    assert list(unfair([Side("a", 1, True, False, HAS_IT), loser])) == []
    assert list(unfair([Side("a", 1), loser])) == ["a has claimed it first, and did not get it"]
    assert list(unfair([Side("a"), Side("b")])) == ["nobody has claimed it"]


def test_one_whose_mark_is_gone_has_it_no_more() -> None:
    loser = Side("b", 2)
    assert list(unfair([Side("a", 1, True, True), loser])) == []
    (found,) = unfair([Side("a", 1, True, True, HAS_IT), loser])
    assert found == "a has it (applied), and its mark is gone"
    (found,) = unfair([Side("a", 1, True, False), loser])
    assert found == "a took it, and has it no more (not_ours)"


def test_what_is_shown_fits_what_is_so() -> None:
    assert list(unfit(Shown(1, True, True), is_claimed=True)) == []
    assert list(unfit(Shown(0, False, False), is_claimed=False)) == []
    assert len(list(unfit(Shown(0, True, True), is_claimed=False))) == 2
    assert len(list(unfit(Shown(2, False, False, others=("bw:blocked",)), is_claimed=True))) == 4
    assert len(list(unfit(Shown(1, True, True, twice=("bw:in-progress",)), is_claimed=True))) == 1


def test_a_closed_issue_has_one_receipt_and_no_other_comment() -> None:
    claim, receipt = (marks.marked(kind, "a", "text") for kind in (marks.CLAIM, marks.DONE))
    assert list(wordy([receipt])) == []
    assert len(list(wordy([]))) == 1
    assert len(list(wordy([receipt, receipt]))) == 2
    assert len(list(wordy([receipt, claim]))) == 2


@pytest.mark.peers
@pytest.mark.daily(3)
@pytest.mark.parametrize("kind", KINDS)
def test_of_two_fleets_one_has_an_issue(kind: str) -> None:
    told = Told(4)
    races(4, 1, (kind,), 4, told)
    assert (told.cases, told.violations) == (4, [])


@pytest.mark.peers
@pytest.mark.daily(3)
def test_nothing_is_done_twice_whatever_is_killed() -> None:
    told = Told(3)
    kills(3, 1, told, issues=8)
    assert (told.cases, told.violations) == (3, [])
