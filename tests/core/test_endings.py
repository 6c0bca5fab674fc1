"""How a run stops and ends: docs/OPERATIONS.md, "Life of a fleet"."""

from __future__ import annotations

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import OutcomeKind
from beads_workers.core.base.policy import Policy
from beads_workers.core.base.source import Action, Result
from beads_workers.core.base.states import RunState
from beads_workers.core.base.wire import CANNOT_START, Shutdown
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Checkpointed
from beads_workers.core.requests.retry import RetryAskedFor
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Answer, End, HangUp, KillWorker, Spawn
from beads_workers.core.schedule.events import ConnId
from tests.core import playbook

STOP = ev.StopAsked()


# --- stopping -------------------------------------------------------------------------------------


def test_a_stop_says_shutdown_to_all_and_requeues_what_is_unsent() -> None:
    play = playbook.Play(workers=3)
    play.own(1)
    play.answer("a", "unsent")
    play.connect(9)
    stop = play.do(STOP)
    assert playbook.sent_messages(stop) == [Shutdown("user_requested")] * 2
    assert play.pending() == [(Action.RELEASE, "unsent")]
    assert playbook.records(stop, rec.Requeued) == [rec.Requeued("unsent")]


def test_the_run_ends_only_when_all_have_left_and_nothing_is_pending_for_the_tracker() -> None:
    play = playbook.Play(workers=1)
    play.own(1)
    play.answer("a")
    play.do(STOP)
    play.do(playbook.cancelled(1, "a"))
    play.do(playbook.lost(1))
    play.reap(1)
    assert play.ended is None and play.pending() == [(Action.RELEASE, "a")]
    assert playbook.of(play.answer(), End) == [End(0)]
    assert play.board.requeued == {"a": None}


def test_a_task_that_is_finished_during_the_stop_is_closed() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(STOP, playbook.done(1, "a"))
    assert play.pending() == [(Action.CLOSE, "a")]
    play.do(playbook.lost(1))
    play.answer()
    assert play.ended == 0


def test_what_is_claimed_after_the_stop_goes_back_at_once() -> None:
    play = playbook.Play()
    play.join(1)
    play.do(STOP)
    assert playbook.sent_messages(play.answer("late")) == []
    assert play.pending() == [(Action.RELEASE, "late")]


def test_nothing_is_taken_after_the_stop() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(STOP, playbook.cancelled(1, "a"))
    assert play.round_trip is not None and play.round_trip.take is None


def test_who_joins_during_a_stop_is_sent_away() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(STOP)
    assert playbook.sent_messages(play.join(2), 2) == [Shutdown("user_requested")]


def test_after_ten_seconds_ours_are_killed_and_foreign_ones_hung_up_on_and_named() -> None:
    play = playbook.Play(workers=1)
    play.own(1)
    play.answer("a")
    play.join(5)
    play.quiet()
    play.do(STOP)
    assert playbook.of(play.wait(limits.STOP_SECONDS - 0.1), KillWorker) == []
    end = play.wait(0.2)
    assert playbook.of(end, KillWorker) == [KillWorker("W1", 101)]
    assert {h.conn_id for h in playbook.of(end, HangUp)} == {1, 5}
    assert playbook.notes(end, "warning") == ["W2 (pid 905) did not leave; it is not ours to kill"]


def test_killed_at_a_stop_charges_no_attempt() -> None:
    play = playbook.Play(workers=1)
    play.own(1)
    play.answer("a")
    play.do(ev.StopAsked(seconds=0.0))
    assert playbook.of(play.wait(0.0), KillWorker)
    play.do(playbook.lost(1))
    (finished,) = playbook.records(play.reap(1, 137), rec.Finished)
    assert (finished.outcome, finished.charged) == ("cancelled", 0)
    play.answer()
    assert play.ended == 0


def test_a_second_stop_makes_it_sooner_and_never_later() -> None:
    play = playbook.Play(workers=1)
    play.own(1)
    play.answer("a")
    play.do(STOP, ev.StopAsked(seconds=1.0), ev.StopAsked(seconds=100.0))
    assert playbook.of(play.wait(0.9), KillWorker) == []
    assert playbook.of(play.wait(0.2), KillWorker)


def test_the_issue_of_a_foreign_worker_that_still_lives_goes_back_and_is_named() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(STOP)
    assert playbook.records(play.do(playbook.lost(1)), rec.Finished) == [], (
        "it may be about to exit"
    )
    gone = play.wait(limits.STOP_SECONDS + limits.LAST_LOOK_SECONDS)
    assert "a goes back although pid 901 still lives" in playbook.notes(gone, "warning")
    assert play.pending() == [(Action.RELEASE, "a")]
    play.answer()
    assert play.ended == 0


def test_a_stop_does_not_wait_for_a_connection_that_never_said_anything() -> None:
    play = playbook.Play()
    play.connect(1)
    commands = play.do(STOP)
    assert playbook.sent_messages(commands, 1) == [Shutdown("user_requested")]
    assert [c.conn_id for c in playbook.of(commands, HangUp)] == [1]
    play.do(playbook.lost(1))
    play.quiet()
    assert play.ended == 0


def test_a_drain_lets_running_tasks_finish_and_sends_the_idle_home() -> None:
    play = playbook.Play()
    play.working("a")
    play.join(2)
    play.quiet()
    drain = play.do(ev.StopAsked(drain=True))
    assert playbook.sent_messages(drain) == [Shutdown("user_requested")] and playbook.sent_messages(
        drain, 2
    )
    end = play.do(playbook.done(1, "a"))
    assert playbook.sent_messages(end, 1) == [Shutdown("user_requested")]
    play.do(playbook.lost(1), playbook.lost(2))
    play.answer()
    assert play.ended == 0


def test_an_idle_worker_that_a_drain_sent_home_is_not_replaced() -> None:
    play = playbook.Play(workers=2)
    play.own(1)
    play.answer("a")
    play.own(2)
    play.quiet()
    play.do(ev.StopAsked(drain=True), playbook.lost(2))
    play.reap(2)
    assert playbook.of(play.wait(60.0), Spawn) == []


def test_a_stop_overtakes_a_drain() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(ev.StopAsked(drain=True))
    assert playbook.sent_messages(play.do(STOP)) == [Shutdown("user_requested")]


def test_a_stop_overtakes_the_recovery_and_its_spooled_result_harms_nothing() -> None:
    play = playbook.Play(recovering=True)
    play.do(STOP)
    assert play.ended == 0
    play.do(ev.RecoveryEnded())
    assert play.core.state is RunState.ENDED


@pytest.mark.parametrize("asked", [ev.PauseAsked, ev.ResumeAsked])
def test_what_makes_no_sense_any_more_is_refused(asked: type) -> None:
    play = playbook.Play()
    play.working("a")
    play.do(STOP)
    (answer,) = playbook.of(play.do(asked(ev.Ticket(1))), Answer)
    assert answer.error == "the fleet is stopping"


def test_what_the_tracker_does_not_take_for_a_minute_is_left_to_the_next_start() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(STOP, playbook.done(1, "a"))
    play.answer(settle_error="locked")
    play.do(playbook.lost(1))
    while play.ended is None and play.now < 1200.0:
        if play.round_trip is not None:
            play.answer(settle_error="locked")
        play.wait(1.0)
    assert play.ended == 7
    assert limits.SETTLE_TIMEOUT_SECONDS <= play.now - 1000.0 < limits.SETTLE_TIMEOUT_SECONDS + 5


# --- reasons and exit codes -----------------------------------------------------------------------


def test_a_fatal_error_ends_the_run_with_its_own_reason_and_exit_code() -> None:
    play = playbook.Play()
    play.join(1)
    play.quiet()
    assert playbook.sent_messages(play.do(ev.FatalError("the state directory is gone"))) == [
        Shutdown("error")
    ]
    play.do(playbook.lost(1))
    assert play.ended == 1


def test_a_run_without_a_memory_waits_for_no_tracker() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(ev.FatalError("the state directory is gone", forgets=True), playbook.done(1, "a"))
    play.answer(settle_error="no such file")
    play.do(playbook.lost(1))
    while play.ended is None and play.now < 1200.0:
        if play.round_trip is not None:
            play.answer(settle_error="no such file")
        play.wait(0.5)
    assert play.ended == 1
    assert play.now - 1000.0 < limits.FORGETFUL_SETTLE_SECONDS + 2


@pytest.mark.parametrize("noticed", ["before the stop", "while it settles"])
def test_a_stop_waits_for_no_tracker_that_is_gone(noticed: str) -> None:
    gone = ev.Degraded("the tracker", "the tracker cannot be used", "ls", stops=True, gone=True)
    play = playbook.Play()
    play.working("a")
    if noticed == "before the stop":
        play.do(gone)
    play.do(ev.StopAsked(), playbook.done(1, "a"))
    play.answer(settle_error="no such file")
    play.do(playbook.lost(1))
    assert play.ended is None
    if noticed == "while it settles":
        play.do(gone)
    while play.ended is None and play.now < 1200.0:
        if play.round_trip is not None:
            play.answer(settle_error="no such file")
        play.wait(0.5)
    assert play.ended == 7
    assert play.now - 1000.0 < limits.FORGETFUL_SETTLE_SECONDS + 2


def test_a_command_that_cannot_be_run_ends_the_run_and_charges_nothing() -> None:
    play = playbook.Play(workers=1)
    play.own(1)
    play.answer("a")
    end = play.do(playbook.failed(1, "a", "make: not found", error_detail=CANNOT_START))
    assert playbook.sent_messages(end) == [Shutdown("error")]
    assert playbook.records(end, rec.Finished)[0].charged == 0


def test_the_exit_code_of_a_signal_is_passed_on() -> None:
    play = playbook.Play()
    play.do(ev.StopAsked(exit_code=130))
    assert play.ended == 130


def test_a_failed_issue_ends_the_run_with_seven() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(playbook.failed(1, "a"), STOP, playbook.lost(1))
    play.quiet()
    assert play.ended == 7


def test_what_an_earlier_run_failed_at_is_no_failure_of_this_one() -> None:
    old = [
        Checkpointed("a", charged=1, error="boom"),
        Checkpointed("b", charged=3, quarantined=True),
    ]
    play = playbook.Play(checkpointed=old, until_empty=True)
    play.answer()
    assert play.ended == 0


def test_an_issue_that_was_quarantined_and_then_done_after_all_is_no_failure() -> None:
    play = playbook.Play(policy=Policy(attempts_max=1))
    play.working("a")
    play.do(playbook.failed(1, "a"))
    play.answer()
    play.do(RetryAskedFor(ev.Ticket(1), (playbook.job("a").issue_id,)))
    play.answer()
    play.quiet()
    play.wait(limits.POLL_SECONDS)
    play.do(playbook.ready(1))
    assert playbook.task_of(play.answer("a"), 1) == "a"
    play.do(playbook.done(1, "a"))
    play.answer()
    play.do(STOP, playbook.lost(1))
    play.quiet()
    assert play.ended == 0


def draining(issue_id: str) -> playbook.Play:
    """Under --until-empty, worker 1 works on this issue, and nothing else is there."""
    play = playbook.Play(until_empty=True)
    play.answer(listed=[issue_id])
    play.join(1)
    assert playbook.task_of(play.answer(issue_id), 1) == issue_id
    return play


# --- until empty, and limits ----------------------------------------------------------------------


def test_until_empty_ends_after_a_listing_that_shows_nothing() -> None:
    play = playbook.Play(until_empty=True)
    assert play.asked() == 0
    play.answer()
    assert play.ended == 0
    assert playbook.records(play.first, rec.RunEnded) == []


def test_until_empty_says_idle_timeout_to_the_workers() -> None:
    play = playbook.Play(until_empty=True)
    play.answer(listed=["x"])
    play.join(1)
    assert playbook.sent_messages(play.answer(), 1)[-1] == Shutdown("idle_timeout")


def test_a_listing_that_began_before_the_last_settlement_does_not_count() -> None:
    play = draining("a")
    play.join(2)
    assert play.pending() == [], "a listing is under way"
    play.do(playbook.done(1, "a"))
    play.answer()
    assert play.core.state is RunState.RUNNING, "it saw nothing, but the close may free others"
    assert play.pending() == [(Action.CLOSE, "a")]
    play.answer()
    assert play.asked(), "it looks once more"
    assert Shutdown("idle_timeout") in playbook.sent_messages(play.answer(), 1)


def test_a_failed_listing_is_no_empty_one() -> None:
    play = playbook.Play(until_empty=True)
    play.answer(take_error="locked")
    assert play.core.state is RunState.RUNNING
    play.wait(1.1)
    play.answer()
    assert play.ended == 0


def test_until_empty_waits_for_retries() -> None:
    play = draining("a")
    play.do(playbook.failed(1, "a"), playbook.lost(1))
    play.quiet()
    play.quiet()
    assert play.core.state is RunState.RUNNING


def test_until_empty_waits_for_what_an_earlier_run_left_to_cool_down() -> None:
    play = playbook.Play(
        until_empty=True,
        checkpointed=[Checkpointed("a", charged=1, not_before=playbook.EPOCH + 30.0)],
    )
    play.answer()
    assert play.core.state is RunState.RUNNING
    while play.now < 1031.0:
        play.wait(1.0)
        if play.now < 1030.0:
            play.quiet()
    assert play.round_trip is not None and "a" not in play.round_trip.skip


def test_a_close_that_fails_for_a_minute_ends_until_empty_with_seven() -> None:
    play = draining("a")
    play.do(playbook.done(1, "a"), playbook.lost(1))
    while play.ended is None and play.now < 1300.0:
        if play.round_trip is not None:
            play.answer(results={"a": Result.FAILED})
        play.wait(1.0)
    assert play.ended == 7
    assert play.now - 1000.0 < limits.SETTLE_TIMEOUT_SECONDS + limits.SOURCE_RETRY_MAX_SECONDS


def test_a_minute_in_which_we_were_stopped_ourselves_is_no_minute_of_failing() -> None:
    play = draining("a")
    play.do(playbook.done(1, "a"))
    play.answer(settle_error="bd: exit status 1")
    play.now += 10 * limits.SETTLE_TIMEOUT_SECONDS
    play.do(playbook.ready(1))
    assert play.core.state is RunState.RUNNING, "it was asked once, and once is not for a minute"


def test_a_limit_of_issues_ends_the_run_and_takes_no_more_than_that() -> None:
    play = playbook.Play(issues_max=2)
    play.working("a", "b")
    play.join(3)
    assert play.round_trip is None
    play.do(playbook.done(1, "a"))
    play.answer()
    play.do(playbook.done(2, "b"))
    assert Shutdown("idle_timeout") in playbook.sent_messages(play.answer(), 1)


def test_the_idle_timeout_runs_only_while_nothing_is_in_hand() -> None:
    play = playbook.Play(idle_timeout_seconds=30.0)
    play.working("a")
    play.wait(100.0)
    assert play.core.state is RunState.RUNNING
    play.quiet()
    play.do(playbook.done(1, "a"))
    play.quiet()
    play.wait(29.0)
    assert play.core.state is RunState.RUNNING
    assert playbook.sent_messages(play.wait(1.1), 1) == [Shutdown("idle_timeout")]


def test_the_time_for_the_run_ends_it_with_124_while_there_is_work() -> None:
    play = playbook.Play(runtime_max_seconds=60.0)
    play.working("a")
    assert playbook.sent_messages(play.wait(60.0), 1) == [Shutdown("user_requested")]
    play.do(playbook.failed(1, "a", outcome=OutcomeKind.CANCELLED), playbook.lost(1))
    while play.ended is None:
        play.quiet()
    assert play.ended == 124
    assert ConnId(1) not in {c.conn_id for c in play.core._parts.registry}
