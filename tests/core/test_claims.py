"""When the tracker is asked, and for how much: docs/SEMANTICS.md, "Which issues"."""

from __future__ import annotations

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import Action, HeldElsewhere, Result
from beads_workers.core.base.states import RunState
from beads_workers.core.base.wire import Wait
from beads_workers.core.records.journal import Noted
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import End, RoundTrip
from tests.core.playbook import Play, done, failed, lost, of, ready, sent_messages, task_of

THEM = "beads-workers/elsewhere/run-9"


def rhythm(attempt_seconds: float, trip_seconds: float, workers: int = 4) -> Play:
    """Workers whose attempts take so long, with a tracker that takes so long."""
    play = Play(workers=workers)
    for number in range(1, workers + 1):
        play.own(number)
    play.answer(*(f"a{number}" for number in range(1, workers + 1)), seconds=trip_seconds)
    play.quiet()
    play.wait(attempt_seconds)
    play.do(done(1, "a1"), ready(1))
    return play


def test_minute_long_tasks_claim_nothing_ahead() -> None:
    assert rhythm(60.0, 0.5).asked() == 1


def test_no_ops_claim_groups_but_never_more_than_thirty_two_ahead() -> None:
    assert rhythm(0.01, 10.0).asked() == 1 + limits.CLAIM_AHEAD_MAX


def test_no_ops_claim_hundreds_ahead_where_the_tracker_takes_no_time_either() -> None:
    assert rhythm(0.0002, 0.01).asked() == 1 + limits.CLAIM_AHEAD_QUICK_MAX


def test_no_ops_of_a_large_fleet_claim_two_for_each_worker_ahead() -> None:
    assert rhythm(0.01, 10.0, workers=40).asked() == 1 + 2 * 40


def test_what_ended_during_a_long_round_trip_waits_a_moment_for_what_it_has_brought() -> None:
    play = rhythm(0.01, 10.0)
    play.do(done(2, "a2"))
    play.answer(*(f"b{number}" for number in range(1, 34)), seconds=10.0)
    assert play.round_trip is None
    play.do(done(1, "b1"), ready(1))
    play.wait(limits.LINGER_SECONDS_MAX)
    assert play.round_trip is not None
    assert {s.issue_id for s in play.round_trip.settlements} == {"a2", "b1"}


@pytest.mark.parametrize(("trip_seconds", "halves"), [(10.0, False), (0.2, True)])
def test_what_is_gone_in_a_moment_is_not_refilled_by_halves(
    trip_seconds: float, halves: bool
) -> None:
    play = rhythm(0.01, trip_seconds)
    play.answer(*(f"b{number}" for number in range(1, 34)), seconds=trip_seconds)
    takes: list[tuple[int, int]] = []
    for number in range(1, 34):
        play.wait(0.01)
        play.do(done(1, f"b{number}"), ready(1))
        if play.round_trip is not None and play.round_trip.take is None:
            play.answer(seconds=trip_seconds)  # Closes alone.
        if play.round_trip is not None:
            takes.append((33 - number, play.asked()))
            break
    assert takes == ([(17, 16)] if halves else [(0, 33)])


def test_events_that_come_together_begin_one_round_trip_for_all_of_them() -> None:
    play = Play(workers=2)
    for number in (1, 2):
        play.own(number)
    play.answer("a", "b")
    play.quiet()
    first = play.core.handle(done(1, "a"), play.now, more=True)
    assert not of(first, RoundTrip)
    (round_trip,) = of(play.core.handle(done(2, "b"), play.now), RoundTrip)
    assert {s.issue_id for s in round_trip.settlements} == {"a", "b"}


def test_what_ends_during_two_round_trips_is_claimed_ahead() -> None:
    # Four workers, a second each, and a round trip of a quarter: one ends during a round trip.
    assert 1 + 2 <= rhythm(1.0, 0.25).asked() <= 1 + 8


def test_attempts_of_a_moment_may_all_end_twice_before_the_tracker_answers() -> None:
    # One in sixty would be expected to end during a round trip.
    assert rhythm(0.3, 0.005).asked() == 1 + 2 * 4


def test_a_large_fleet_claims_what_it_begins_within_a_quarter_of_a_second() -> None:
    # Two hundred end in a second: beside a quick tracker each round trip would bring one of them.
    asked = rhythm(2.0, 0.001, workers=400).asked()
    assert 1 + 200 * 0.25 <= asked <= 1 + 200 * 0.25 + 2


def test_workers_that_are_still_starting_are_claimed_for() -> None:
    assert Play(workers=3).asked() == 3


def test_what_is_in_hand_is_not_asked_for_again() -> None:
    play = Play(workers=2)
    play.own(1)
    play.answer("a", "b")
    play.do(done(1, "a"), ready(1))
    assert play.round_trip is None or {"a", "b"} <= play.round_trip.skip


def test_an_idle_fleet_asks_every_five_seconds() -> None:
    play = Play()
    play.join(1)
    asked_at = []
    for _ in range(5):
        play.quiet()
        began = play.now
        while play.round_trip is None:
            play.wait(0.5)
        asked_at.append(play.now - began)
    assert asked_at == [5.0] * 5


def test_after_a_lost_race_it_looks_again_soon() -> None:
    play = Play()
    play.join(1)
    play.answer(listed=["taken by somebody else"])
    play.wait(0.6)
    assert play.asked() == 1


def test_a_settlement_makes_it_look_again_because_it_may_have_freed_something() -> None:
    play = Play()
    play.working("a")
    play.join(2)
    play.answer()
    play.do(done(1, "a"))
    play.answer()
    assert play.asked() >= 1


def test_rows_of_a_mere_listing_are_there_for_the_next_ready() -> None:
    play = Play(until_empty=True)
    assert play.asked() == 0
    play.answer(listed=["a"])
    assert sent_messages(play.join(1)) == []
    assert task_of(play.answer("a"), 1) == "a"


def test_a_run_until_empty_is_not_whole_while_another_run_holds_an_issue() -> None:
    play = Play(until_empty=True)
    commands = play.answer(held=(HeldElsewhere(IssueId("z"), THEM),))
    assert of(commands, End) == [End(7)]
    assert (play.board.listed.held, play.board.listed.holders) == (("z",), (THEM,))
    (note,) = [e.record.text for e in play.entries if isinstance(e.record, Noted)]
    assert note.startswith(f"z: held by {THEM}")


def test_a_run_until_empty_waits_for_what_comes_back_by_itself() -> None:
    play = Play(until_empty=True)
    commands = play.answer(held=(HeldElsewhere(IssueId("z"), THEM, leased=True),))
    assert of(commands, End) == []
    play.wait(limits.POLL_SECONDS + 0.1)
    assert of(play.answer(held=()), End) == [End(0)]


def test_without_a_worker_a_mere_listing_is_repeated_only_at_the_poll() -> None:
    play = Play(until_empty=True)
    play.answer(listed=["a"])
    play.wait(limits.POLL_SECONDS - 0.1)
    assert play.round_trip is None
    play.wait(0.2)
    assert play.asked() == 0


# --- retries --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nth", "delay"), [(1, 10.0), (2, 20.0)])
def test_a_failed_issue_is_left_out_until_its_back_off_is_over(nth: int, delay: float) -> None:
    play = Play()
    play.working("a")
    for _ in range(nth - 1):
        play.do(failed(1, "a"))
        play.answer()
        play.quiet()
        play.wait(10.0)
        play.quiet()
        play.wait(60.0)
        play.do(ready(1))
        assert task_of(play.answer("a"), 1) == "a"
    play.do(failed(1, "a"))
    play.answer()
    play.quiet()
    assert "a" in play.core._parts.retry_state.not_to_take()
    play.wait(delay * 0.79)
    assert "a" in play.core._parts.retry_state.not_to_take()
    play.wait(delay * 0.22)
    assert "a" not in play.core._parts.retry_state.not_to_take()
    play.quiet()
    play.wait(limits.POLL_SECONDS)
    assert play.round_trip is not None and "a" not in play.round_trip.skip


# --- trouble --------------------------------------------------------------------------------------


def test_a_tracker_in_trouble_is_left_alone_for_one_second_then_two_up_to_thirty() -> None:
    play = Play()
    play.join(1)
    pauses = []
    for _ in range(7):
        play.answer(take_error="locked")
        began = play.now
        while play.round_trip is None:
            play.wait(0.25)
            play.do(ready(1))
        pauses.append(play.now - began)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_workers_are_held_meanwhile_and_the_board_says_why() -> None:
    play = Play()
    play.join(1)
    assert sent_messages(play.answer(take_error="database is locked", hint="wait")) == []
    assert play.board.trouble is not None
    assert (play.board.trouble.error, play.board.trouble.hint) == ("database is locked", "wait")


def test_it_recovers_by_itself_and_the_board_says_so() -> None:
    play = Play()
    play.join(1)
    play.answer(take_error="locked")
    play.wait(1.0)
    play.do(ready(1))
    assert task_of(play.answer("a"), 1) == "a"
    assert play.board.trouble is None


def test_what_is_pending_stays_pending_through_the_trouble_and_nothing_is_concluded() -> None:
    play = Play()
    play.working("a")
    play.do(done(1, "a"))
    play.answer(settle_error="locked")
    assert play.board.totals["done"] == 0
    play.wait(1.0)
    assert play.pending() == [(Action.CLOSE, "a")]
    play.answer()
    assert play.board.totals["done"] == 1


def test_one_refused_close_is_tried_again_alone_and_the_rest_goes_on() -> None:
    play = Play()
    play.working("a", "b")
    play.do(done(1, "a"))
    play.answer(results={"a": Result.FAILED})
    play.do(done(2, "b"))
    assert play.pending() == [(Action.CLOSE, "b")], "a has its pause"
    play.answer()
    play.quiet()
    play.wait(1.0)
    assert play.pending() == [(Action.CLOSE, "a")]


def test_settlements_gather_while_the_tracker_is_busy_and_go_out_as_one_group() -> None:
    play = Play()
    play.working("a", "b", "c")
    play.do(done(1, "a"), done(2, "b"), done(3, "c"))
    assert play.pending() == [(Action.CLOSE, "a")]
    play.answer()
    assert play.pending() == [(Action.CLOSE, "b"), (Action.CLOSE, "c")]


# --- before everything ----------------------------------------------------------------------------


def test_nothing_is_asked_before_the_earlier_runs_are_settled_and_workers_wait() -> None:
    play = Play(workers=1, recovering=True)
    assert sent_messages(play.own(1)) == [] and play.round_trip is None
    (reply,) = sent_messages(play.wait(limits.HOLD_SECONDS))
    assert isinstance(reply, Wait)
    play.do(ev.RecoveryEnded())
    assert play.asked() == 1


def test_a_ready_that_is_held_by_the_recovery_gets_its_task_afterwards() -> None:
    play = Play(workers=1, recovering=True)
    play.own(1)
    play.do(ev.RecoveryEnded())
    assert task_of(play.answer("a"), 1) == "a"


def test_a_recovery_in_trouble_is_shown_until_it_ends() -> None:
    play = Play(recovering=True)
    play.do(ev.RecoveryFailed("bd is missing", "install it", 2.0))
    assert play.board.trouble is not None and play.board.trouble.error == "bd is missing"
    play.do(ev.RecoveryEnded())
    assert play.board.trouble is None


# --- proof that nothing is left -------------------------------------------------------------------


def about_to_fail() -> Play:
    """Under ``--until-empty``, one worker with the one issue that there is."""
    play = Play(until_empty=True)
    play.join(1)
    play.answer(listed=["a"])
    assert task_of(play.answer("a"), 1) == "a"
    return play


def test_an_answer_from_before_a_retry_was_due_is_no_proof_that_nothing_is_left() -> None:
    play = about_to_fail()
    play.do(failed(1, "a"), ready(1))
    play.answer()
    while play.round_trip is None:
        play.wait(0.5)
    assert "a" in play.round_trip.skip
    play.wait(60.0)
    play.answer()
    assert play.core.state is RunState.RUNNING
    assert play.asked() >= 1
    assert play.round_trip is not None and "a" not in play.round_trip.skip


def test_what_a_round_trip_itself_requeues_is_looked_for_again() -> None:
    play = Play(until_empty=True, self_claiming=True)
    play.join(1, v1=True)
    play.answer(listed=["a"])
    play.answer("a")
    assert (Action.HAND_OVER, "a") in play.pending()
    play.join(2, v1=True)
    play.do(lost(1))
    play.answer()
    assert (Action.RELEASE, "a") in play.pending()
    assert (
        play.round_trip is not None
        and play.round_trip.take is not None
        and "a" in play.round_trip.skip
    )
    play.answer()
    assert play.core.state is RunState.RUNNING
    assert play.round_trip is not None and "a" not in play.round_trip.skip


def test_what_cools_down_in_the_round_trip_that_closes_the_last_one_is_looked_for_again() -> None:
    play = Play(until_empty=True)
    for conn in (1, 2, 3):
        play.join(conn)
    play.answer(listed=["a", "b", "c"])
    play.answer("a", "b", "c")
    play.do(failed(1, "a"))
    play.answer()
    (cooling,) = play.core._parts.retry_state.cooling()
    due = cooling.due
    assert due is not None
    play.wait(due - play.now - 0.1)
    play.quiet()
    play.do(done(2, "b"), done(3, "c"), ready(3))
    play.answer()
    assert (Action.CLOSE, "c") in play.pending()
    assert play.round_trip is not None and play.round_trip.take and "a" in play.round_trip.skip
    play.wait(0.2)
    play.answer()
    assert play.core.state is RunState.RUNNING
    assert play.round_trip is not None and "a" not in play.round_trip.skip
