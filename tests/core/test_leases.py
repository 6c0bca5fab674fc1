"""Leases: docs/SEMANTICS.md, "Leases". When they are renewed, and what ends with them."""

from __future__ import annotations

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.settings import Work
from beads_workers.core.base.source import Action, Result
from beads_workers.core.base.wire import GROUPED, Cancel, Ready
from beads_workers.core.records import journal as rec
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Command, HangUp, KillWorker
from beads_workers.core.schedule.events import ConnId
from tests.core.playbook import (
    Play,
    cancelled,
    done,
    notes,
    of,
    ready,
    records,
    sent_messages,
    task_of,
)

LIFE = 300.0
HALF = LIFE / 2
GIVEN_UP_AT = LIFE - limits.TERM_GRACE_SECONDS - limits.LEASE_MARGIN_SECONDS


def leased(*issue_ids: str) -> Play:
    """Workers 1, 2... with one issue each, claimed a second apart."""
    play = Play()
    for number, issue_id in enumerate(issue_ids, 1):
        play.join(number)
        assert task_of(play.answer(issue_id, lease=LIFE), number) == issue_id
        play.wait(1.0)
    play.quiet()
    return play


def renewing(play: Play) -> tuple[str, ...]:
    """What the round trip under way is to renew; a poll in between finds nothing."""
    assert play.round_trip is not None, "nothing is asked of the tracker"
    return play.round_trip.renew


def unreachable(play: Play, seconds: float) -> list[Command]:
    """The tracker fails whatever it is asked, for so long."""
    commands: list[Command] = []
    until = play.now + seconds
    while play.now < until:
        if play.round_trip is not None:
            commands += play.answer(settle_error="unreachable")
        commands += play.wait(1.0)
    return commands


def issues_to_end(commands: list[Command]) -> list[str]:
    """Which issues a worker is told to end."""
    return [str(m.issue_id) for m in sent_messages(commands) if isinstance(m, Cancel)]


# --- renewing -------------------------------------------------------------------------------------


def test_a_lease_is_renewed_at_half_its_life_and_not_before() -> None:
    play = leased("a")
    play.wait(HALF - 1.5)
    assert play.round_trip is None
    play.wait(1.0)
    assert renewing(play) == ("a",)


def test_a_renewal_that_was_neither_done_nor_refused_is_tried_again_but_not_at_once() -> None:
    play = leased("a")
    play.wait(HALF)
    play.answer()
    play.wait(limits.LEASE_RETRY_SECONDS - 0.1)
    assert play.round_trip is None
    play.wait(0.2)
    assert renewing(play) == ("a",)


def test_a_renewed_lease_is_left_alone_for_another_half_of_its_life() -> None:
    play = leased("a")
    play.wait(HALF)
    play.answer(lease=LIFE)
    play.wait(HALF - 1.0)
    assert play.round_trip is None
    play.wait(2.0)
    assert renewing(play) == ("a",)


def test_leases_are_renewed_one_by_one_the_one_that_ends_first_before_the_others() -> None:
    play = leased("a", "b", "c")
    play.wait(HALF)
    order = []
    for _ in range(3):
        order.append(renewing(play))
        play.answer(lease=LIFE)
    assert order == [("a",), ("b",), ("c",)]
    assert play.round_trip is None


def test_a_close_goes_out_between_two_renewals() -> None:
    play = leased("a", "b", "c")
    play.wait(HALF)
    play.do(done(3, "c"))
    play.answer(lease=LIFE)
    assert play.pending() == [(Action.CLOSE, "c")] and renewing(play) == ("b",)


def test_what_is_being_closed_is_not_renewed_in_the_same_turn() -> None:
    play = leased("a")
    play.join(2)
    play.wait(HALF)  # That the second worker finds nothing to do is asked for all the time.
    play.answer(take_error="locked")
    play.do(done(1, "a"))
    play.wait(limits.LEASE_RETRY_SECONDS)
    assert play.pending() == [(Action.CLOSE, "a")] and renewing(play) == ()


def test_done_work_whose_close_fails_keeps_its_lease() -> None:
    play = leased("a")
    play.do(done(1, "a"))
    while play.now < 1000.0 + HALF + 2.0:
        play.wait(0.5)
        if play.round_trip is not None and not play.round_trip.renew:
            play.answer(results={"a": Result.FAILED})
    while not renewing(play):
        play.answer(results={"a": Result.FAILED})
        play.wait(1.0)
    assert renewing(play) == ("a",)


def test_without_leases_nothing_is_ever_renewed() -> None:
    play = Play()
    play.working("a")
    play.quiet()
    play.wait(10 * LIFE)
    assert play.round_trip is None


def test_what_no_longer_is_in_our_hands_is_not_renewed() -> None:
    play = leased("a")
    play.do(done(1, "a"))
    play.answer()
    play.quiet()
    play.wait(LIFE)
    assert play.round_trip is None or renewing(play) == ()


def test_what_was_handed_over_to_a_worker_has_no_lease() -> None:
    play = Play(self_claiming=True)
    play.join(1, v1=True)
    play.answer("a", lease=LIFE)
    play.answer()
    play.quiet()
    ended = play.wait(2 * LIFE)
    assert issues_to_end(ended) == [] and of(ended, HangUp) == []
    assert play.round_trip is None or renewing(play) == ()


# --- refused --------------------------------------------------------------------------------------


def test_a_refused_renewal_ends_the_attempt_at_once_says_so_and_charges_nothing() -> None:
    play = leased("a")
    play.wait(HALF)
    ended = play.answer(lost=["a"])
    assert issues_to_end(ended) == ["a"]
    assert notes(ended, "error") == [
        "a: the claim was lost: it is in_progress, assigned to bob; its attempt is ended"
    ]
    (finished,) = records(play.do(cancelled(1, "a")), rec.Finished)
    assert (finished.outcome, finished.charged) == ("cancelled", 0)
    play.answer(results={"a": Result.NOT_OURS})
    assert "a" not in play.core._parts.tasks.in_flight


def test_a_done_that_comes_after_the_loss_needs_a_close_which_the_tracker_refuses() -> None:
    play = leased("a")
    play.wait(HALF)
    play.answer(lost=["a"])
    play.do(done(1, "a"))
    assert play.pending() == [(Action.CLOSE, "a")]
    late = play.answer(results={"a": Result.NOT_OURS})
    assert notes(late, "warning") == ["a is not ours any more and was left alone: not_ours"]
    assert play.board.totals["done"] == 0


def test_a_claim_found_lost_after_its_done_disturbs_no_later_task_of_that_worker() -> None:
    play = Play(workers=1)
    play.own(1)
    play.answer("a", lease=LIFE)
    play.wait(HALF)
    play.do(done(1, "a"))
    assert sent_messages(play.answer(lost=["a"])) == []
    play.do(ready(1))
    play.answer("b")
    assert of(play.wait(60.0), KillWorker) == []


def test_a_lost_claim_that_was_not_sent_yet_is_never_sent() -> None:
    play = Play(workers=2)
    play.do(ev.WorkerSpawned("W1", 101))
    play.answer("a", "b", lease=LIFE)
    play.wait(HALF)
    play.answer(lost=["a"])
    assert (Action.RELEASE, "a") in play.pending()
    assert task_of(play.join(1, 101), 1) == "b"


def test_a_foreign_worker_that_ignores_a_cancel_is_hung_up_on_not_killed() -> None:
    play = leased("a")
    play.wait(HALF)
    play.answer(lost=["a"])
    stuck = play.wait(limits.TERM_GRACE_SECONDS + limits.TIMEOUT_MARGIN_SECONDS)
    assert of(stuck, KillWorker) == []
    assert of(stuck, HangUp) == [HangUp(ConnId(1), "did not end its task in time")]


def test_a_worker_that_does_not_understand_cancel_loses_its_connection() -> None:
    play = Play()
    play.connect(1)
    play.do(ev.Received(ConnId(1), Ready("w", "1.1", frozenset({GROUPED}))))
    play.answer("a", lease=LIFE)
    play.quiet()
    play.wait(HALF)
    (hung_up,) = of(play.answer(lost=["a"]), HangUp)
    assert hung_up.conn_id == 1
    play.do(ev.Disconnected(ConnId(1)))
    (finished,) = records(play.do(ev.OwnerGone(901)), rec.Finished)
    assert (finished.outcome, finished.charged) == ("cancelled", 0)


# --- unreachable ----------------------------------------------------------------------------------


def test_an_unreachable_tracker_ends_no_attempt_while_the_lease_goes_on() -> None:
    play = leased("a")
    assert issues_to_end(unreachable(play, GIVEN_UP_AT - 5.0)) == []


def test_an_attempt_is_ended_before_a_lease_that_cannot_be_renewed_does() -> None:
    play = leased("a")
    ended = unreachable(play, GIVEN_UP_AT)
    assert issues_to_end(ended) == ["a"]
    assert "a: its lease could not be renewed; its attempt is ended" in notes(ended, "error")
    (finished,) = records(play.do(cancelled(1, "a")), rec.Finished)
    assert (finished.outcome, finished.charged) == ("cancelled", 0)


def test_even_a_worker_that_ignores_the_cancel_is_dead_before_the_lease_ends() -> None:
    play = Play(workers=1)
    play.own(1)
    play.answer("a", lease=LIFE)
    ends = play.now + LIFE
    while not (killed := of(unreachable(play, 1.0), KillWorker)):
        assert play.now < ends
    assert killed[0].pid == 101


def test_a_call_that_hangs_holds_up_no_end() -> None:
    play = leased("a")
    play.wait(HALF)
    assert renewing(play) == ("a",), "and is never answered"
    assert issues_to_end(play.wait(HALF - 1.0)) == ["a"]


def test_a_renewal_that_came_in_the_last_moment_saves_the_attempt() -> None:
    play = leased("a")
    play.wait(GIVEN_UP_AT - 10.0)
    play.answer(lease=LIFE)
    assert issues_to_end(play.wait(60.0)) == []


def test_with_a_long_grace_there_is_still_time_to_renew() -> None:
    play = Play(work=Work(term_grace_seconds=3600.0))
    play.join(1)
    play.answer("a", lease=LIFE)
    play.quiet()
    play.wait(HALF)
    assert renewing(play) == ("a",)
    assert issues_to_end(play.wait(25.0)) == []


# --- sleep ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [HALF + 10.0, 3600.0])
def test_after_a_sleep_the_lease_is_renewed_within_seconds_and_nothing_is_thrown_away(
    seconds: float,
) -> None:
    play = leased("a")
    play.sleep(seconds)
    play.wait(limits.LEASE_LOOK_SECONDS)
    assert renewing(play) == ("a",)
    play.answer(lease=LIFE)
    assert issues_to_end(play.wait(HALF - 10.0)) == []


def test_who_wakes_too_late_finds_it_taken_and_ends_the_attempt() -> None:
    play = leased("a")
    play.sleep(3600.0)
    play.wait(limits.LEASE_LOOK_SECONDS)
    assert issues_to_end(play.answer(lost=["a"])) == ["a"]


def test_who_wakes_too_late_without_a_tracker_ends_the_attempt_as_well() -> None:
    play = leased("a")
    play.sleep(3600.0)
    ended = play.wait(limits.LEASE_LOOK_SECONDS)
    ended += unreachable(play, limits.LEASE_WAKE_SECONDS + 1.0)
    assert issues_to_end(ended) == ["a"]


def test_after_a_freeze_it_is_the_same_whatever_is_heard_first() -> None:
    play = leased("a", "b")
    play.now += 3600.0  # Stopped by a signal: no deadline was looked at meanwhile.
    play.do(done(1, "a"))
    assert play.pending() == [(Action.CLOSE, "a")] and renewing(play) == ("b",)
    ended = play.answer(results={"a": Result.NOT_OURS}, lost=["b"])
    assert issues_to_end(ended) == ["b"]
