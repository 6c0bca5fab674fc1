"""After the machine has slept, whatever it held is looked at before it is settled."""

from __future__ import annotations

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import Action, Result, Settlement
from beads_workers.core.schedule import events as ev
from tests.core.playbook import Play, cancelled, done, failed, lost, ready


def slept(seconds: float = 3600.0) -> Play:
    """Issue ``a`` was begun before the machine slept."""
    play = Play()
    play.working("a")
    play.quiet()
    play.sleep(seconds)
    return play


@pytest.mark.parametrize(
    ("end", "action"),
    [
        (done(1, "a"), Action.CLOSE),
        (failed(1, "a"), Action.RELEASE),
        (cancelled(1, "a"), Action.RELEASE),
    ],
)
def test_a_claim_is_read_again_before_it_is_settled(end: ev.Event, action: Action) -> None:
    play = slept()
    play.do(end)
    settlement = play.settlement()
    assert (settlement.action, settlement.read_first) == (action, True)


def test_without_a_sleep_it_is_not() -> None:
    play = slept(limits.SLEEP_SECONDS_MIN / 2)
    play.do(done(1, "a"))
    assert not play.settlement().read_first


def test_what_is_claimed_after_it_is_not() -> None:
    play = slept()
    play.do(done(1, "a"))
    play.quiet()
    play.do(ready(1))
    play.wait(10.0)
    play.answer("b")
    play.do(ready(1))
    play.do(done(1, "b"))
    assert play.settlement() == Settlement(Action.CLOSE, IssueId("b"))


def test_what_was_claimed_and_unsent_is_read_again() -> None:
    play = Play()
    play.join(1)
    play.do(lost(1))
    play.answer("a")
    play.sleep(60.0)
    play.do(ev.StopAsked())
    assert (play.settlement().action, play.settlement().read_first) == (Action.RELEASE, True)


def test_a_write_that_was_pending_is_read_again_when_it_is_asked_for() -> None:
    play = Play()
    play.working("a")
    play.do(done(1, "a"))
    play.answer(results={"a": Result.FAILED})
    play.sleep(3600.0)
    play.wait(5.0)
    assert play.settlement().read_first


def test_one_that_was_under_way_counts_as_it_was_asked() -> None:
    play = Play()
    play.working("a")
    play.do(done(1, "a"))
    play.sleep(3600.0)
    play.wait(1.0)
    play.answer()
    assert not play.core._parts.tasks.in_flight and play.board.totals["done"] == 1


def test_a_plain_worker_is_handed_only_what_was_looked_at() -> None:
    play = Play(self_claiming=True)
    play.join(1, v1=True)
    play.answer("a")
    assert play.settlement().action is Action.HAND_OVER and not play.settlement().read_first
    play.sleep(3600.0)
    play.answer(results={"a": Result.FAILED})
    play.wait(40.0)
    assert play.settlement().read_first
