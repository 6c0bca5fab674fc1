"""The proof of pull requests itself: what it finds, and a little of it for real."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.proof.forge import Told, kills
from tests.proof.pulls import KINDS, Outcome, PullBacklog, red, strikes, unfit

DONE = Outcome("closed", ("merged",), 1)
LEFT = Outcome("blocked", ("open",), 0, why="quarantined: its checks are red", may_stay=True)


def test_what_was_merged_and_closed_once_fits_and_so_does_what_says_why_it_is_not() -> None:
    for each in (DONE, LEFT, replace(DONE, pulls=("closed", "merged"))):
        assert list(unfit(each)) == []
    assert list(unfit(replace(DONE, pulls=("there",)))) == []


@pytest.mark.parametrize(
    "seen",
    [
        replace(DONE, landings=0),
        replace(DONE, landings=2),
        replace(DONE, pulls=("merged", "merged")),
        replace(DONE, pulls=("merged", "open")),
        replace(DONE, pulls=("closed",)),
        replace(DONE, charged=1),
        replace(DONE, sessions=2),
        replace(LEFT, why=""),
        replace(LEFT, may_stay=False),
        replace(LEFT, pulls=("merged",)),
        replace(LEFT, landings=1),
        replace(LEFT, pulls=("open", "open")),
    ],
)
def test_what_is_lost_done_twice_or_charged_is_found(seen: Outcome) -> None:
    assert len(list(unfit(seen))) == 1


def test_a_kill_explains_a_charge_and_a_session() -> None:
    assert list(unfit(replace(DONE, charged=1, sessions=2, hits=1))) == []


def test_a_remark_is_answered_once_or_told_again() -> None:
    assert list(unfit(replace(DONE, answers=2, rounds=2))) == []
    for each in (replace(DONE, answers=0), replace(DONE, rounds=3), replace(DONE, closes=2)):
        assert len(list(unfit(each))) == 1


def test_ci_sees_what_is_broken_and_halves_that_do_not_fit() -> None:
    assert red(["w1", "half/a/1", "half/b/2", "half/c/1", "half/c/2", "half/c/fits"]) == ""
    assert red(["half/a/1", "half/a/2", "broken/3"]) == "half/a, broken/3"


@pytest.mark.peers
@pytest.mark.daily(3)
def test_nothing_is_lost_or_merged_twice_whatever_is_killed() -> None:
    told = Told(2)
    kills(2, 1, told, 8, PullBacklog)
    assert (told.cases, told.violations) == (2, [])


@pytest.mark.peers
@pytest.mark.daily(3)
@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_at_a_call_opens_answers_and_merges_nothing_twice(kind: str) -> None:
    told = Told(4)
    strikes(4, 1, (kind,), 2, told)
    assert (told.cases, told.violations) == (4, [])
