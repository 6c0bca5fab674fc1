"""What a person asks of a running fleet: pause, resume, retry, release."""

from __future__ import annotations

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.policy import Policy
from beads_workers.core.base.source import Action, Result
from beads_workers.core.base.states import RunState
from beads_workers.core.base.wire import Cancel, Wait
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Checkpointed
from beads_workers.core.requests.release import ReleaseAskedFor
from beads_workers.core.requests.retry import RetryAskedFor
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Answer, Command, HangUp
from beads_workers.core.schedule.events import ConnId
from beads_workers.core.views.recovery import recovery_state
from tests.core import playbook

T = ev.Ticket(1)
A = IssueId("a")


def asked(play: playbook.Play, event: ev.Event) -> Answer:
    """A person asks; the one answer."""
    return answer(play.do(event))


def answer(commands: list[Command]) -> Answer:
    """The one answer among the commands."""
    (only,) = playbook.of(commands, Answer)
    return only


# --- pause and resume -----------------------------------------------------------------------------


def test_while_paused_workers_wait_and_nothing_is_taken() -> None:
    play = playbook.Play()
    play.join(1)
    play.quiet()
    assert asked(play, ev.PauseAsked(T)) == Answer(T, "paused")
    play.wait(limits.POLL_SECONDS)
    assert play.round_trip is None
    assert (
        playbook.sent_messages(play.wait(limits.IDLE_SECONDS_MAX)) == [Wait(1)]
        and play.round_trip is None
    )
    assert playbook.sent_messages(play.do(playbook.ready(1))) == []


def test_what_was_claimed_when_the_pause_came_stays_in_hand_unsent() -> None:
    play = playbook.Play()
    play.join(1)
    play.do(ev.PauseAsked(T))
    assert playbook.sent_messages(play.answer("a")) == []
    assert playbook.task_of(play.do(ev.ResumeAsked(T)), 1) == "a"


def test_what_runs_goes_on_through_a_pause() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(ev.PauseAsked(T), playbook.done(1, "a"))
    assert play.pending() == [(Action.CLOSE, "a")]


def test_resume_asks_the_tracker_at_once() -> None:
    play = playbook.Play()
    play.join(1)
    play.quiet()
    play.do(ev.PauseAsked(T))
    play.wait(100.0)
    play.do(playbook.ready(1))
    assert asked(play, ev.ResumeAsked(T)) == Answer(T, "running")
    assert play.asked() == 1


def test_a_stop_ends_a_paused_fleet_too() -> None:
    play = playbook.Play()
    play.do(ev.PauseAsked(T), ev.StopAsked())
    assert play.ended == 0


def test_a_pause_during_the_recovery_is_refused() -> None:
    play = playbook.Play(recovering=True)
    assert asked(play, ev.PauseAsked(T)).error == "the fleet is recovering"
    assert play.core.state is RunState.RECOVERING


def test_a_pause_says_who_wanted_it() -> None:
    play = playbook.Play()
    paused = playbook.records(play.do(ev.PauseAsked(T)), rec.RunChanged)
    assert paused == [rec.RunChanged("paused", "a person asked for it")]


def test_a_notify_command_that_fails_is_a_warning() -> None:
    assert playbook.notes(playbook.Play().do(ev.Warned("it failed")), "warning") == ["it failed"]


# --- retry ----------------------------------------------------------------------------------------


def test_retry_reopens_what_was_quarantined_with_a_clean_history() -> None:
    play = playbook.Play(policy=Policy(attempts_max=1))
    play.working("a")
    play.do(playbook.failed(1, "a"))
    play.answer()
    play.quiet()
    assert asked(play, RetryAskedFor(T, (A,))) == Answer(T, "will be retried: a")
    assert (Action.REOPEN, "a") in play.pending()
    assert play.core._parts.retry_state.history(A).charged == 0


def test_all_of_one_cause_can_be_retried_and_no_other() -> None:
    errors = {"a": "a: exit 3", "b": "b: exit 4", "c": "no rule"}
    play = playbook.Play(
        checkpointed=[Checkpointed(i, charged=3, quarantined=True, error=errors[i]) for i in "abc"]
    )
    assert asked(play, RetryAskedFor(T, (), quarantined=True, cause="Exit #")) == Answer(
        T, "will be retried: a, b"
    )
    assert asked(play, RetryAskedFor(T, (), quarantined=True, cause="exit 7")) == Answer(
        T, error="nothing is quarantined for that cause", not_found=True
    )
    assert list(play.board.quarantined) == ["c"]


@pytest.mark.parametrize("cause", [7, None, ["exit"]])
def test_a_cause_is_a_text(cause: object) -> None:
    with pytest.raises(ProtocolError, match="cause"):
        RetryAskedFor.read({"quarantined": True, "cause": cause}, T)


def test_retry_of_all_takes_whatever_is_quarantined_and_nothing_else() -> None:
    quarantined = [Checkpointed(i, charged=3, quarantined=True) for i in ("a", "b")]
    play = playbook.Play(checkpointed=[*quarantined, Checkpointed("c", charged=1)])
    play.quiet()  # They are looked at first.
    all_of_them = RetryAskedFor(T, (), quarantined=True)
    assert asked(play, all_of_them) == Answer(T, "will be retried: a, b")
    assert play.pending() == [(Action.REOPEN, "a"), (Action.REOPEN, "b")]


def test_retry_of_all_where_nothing_is_quarantined_is_no_error() -> None:
    assert asked(playbook.Play(), RetryAskedFor(T, (), quarantined=True)) == Answer(
        T, "nothing is quarantined"
    )


def test_retry_of_what_earlier_runs_quarantined_works_too() -> None:
    play = playbook.Play(checkpointed=[Checkpointed("a", charged=3, quarantined=True)])
    play.quiet()
    play.do(RetryAskedFor(T, (A,)))
    assert play.pending() == [(Action.REOPEN, "a")]


def test_what_could_not_be_reopened_and_is_ours_all_the_same_is_not_reopened_any_more() -> None:
    play = playbook.Play(checkpointed=[Checkpointed("a", charged=3, quarantined=True)])
    play.join(1)
    play.do(RetryAskedFor(T, (A,)))
    play.answer()
    assert play.pending() == [(Action.REOPEN, "a")] and play.asked() == 1
    assert playbook.task_of(play.answer("a", results={"a": Result.FAILED}), 1) == "a"
    play.wait(limits.SOURCE_RETRY_MAX_SECONDS)
    assert play.round_trip is None or not play.pending()


def test_retry_while_the_mark_is_being_set_still_ends_with_an_open_issue() -> None:
    play = playbook.Play(policy=Policy(attempts_max=1))
    play.working("a")
    play.do(playbook.failed(1, "a"))
    assert (Action.QUARANTINE, "a") in play.pending()
    assert asked(play, RetryAskedFor(T, (A,))).text == "will be retried: a"
    play.answer()
    assert play.pending() == [(Action.REOPEN, "a")]


def test_retry_is_refused_once_the_run_has_had_its_last_word() -> None:
    play = playbook.Play(checkpointed=[Checkpointed("a", charged=3, quarantined=True)])
    play.quiet()
    play.do(ev.StopAsked())
    assert play.ended is not None
    assert asked(play, RetryAskedFor(T, (A,))) == Answer(T, error="the fleet is ended")
    assert recovery_state(play.entries).unsettled_runs()[0].reopened == ()


def test_retry_ends_the_cooling_of_a_failed_issue() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(playbook.failed(1, "a"))
    play.answer()
    play.quiet()
    play.do(playbook.ready(1))
    play.do(RetryAskedFor(T, (A,)))
    assert play.round_trip is not None and "a" not in play.round_trip.skip


def test_retry_of_something_unknown_is_not_found_and_the_rest_is_done() -> None:
    play = playbook.Play(checkpointed=[Checkpointed("a", charged=3, quarantined=True)])
    answer = asked(play, RetryAskedFor(T, (A, IssueId("x"))))
    assert answer == Answer(T, "will be retried: a", "nothing to retry: x", not_found=True)


def test_done_work_that_is_unclosed_is_never_retried() -> None:
    play = playbook.Play(checkpointed=[Checkpointed("a", claimed_by="actor/run-0")])
    assert asked(play, RetryAskedFor(T, (A,))).not_found
    assert play.core._parts.retry_state.not_to_take() == {"a"}


# --- release --------------------------------------------------------------------------------------


def test_releasing_what_runs_cancels_it_and_keeps_it_from_this_run() -> None:
    play = playbook.Play()
    play.working("a")
    commands = play.do(ReleaseAskedFor(T, (A,)))
    assert answer(commands) == Answer(T, "on hold: a")
    assert playbook.sent_messages(commands, 1) == [Cancel(A, "released")]
    ended = play.do(playbook.cancelled(1, "a"))
    assert playbook.records(ended, rec.Finished)[0].charged == 0
    assert playbook.records(ended, rec.PutOnHold) == [rec.PutOnHold("a")]
    play.answer()
    play.wait(limits.POLL_SECONDS)
    play.do(playbook.ready(1))
    assert play.round_trip is not None and "a" in play.round_trip.skip


def test_a_failure_that_crosses_the_cancel_keeps_it_away_all_the_same() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(ReleaseAskedFor(T, (A,)))
    ended = play.do(playbook.failed(1, "a"))
    assert playbook.records(ended, rec.PutOnHold) == [rec.PutOnHold("a")]


def test_a_worker_that_dies_after_the_cancel_keeps_it_away_all_the_same() -> None:
    play = playbook.Play(workers=1)
    play.own(1)
    play.answer("a")
    play.do(ReleaseAskedFor(T, (A,)), playbook.lost(1))
    ended = play.reap(1, 137)
    assert playbook.records(ended, rec.PutOnHold) == [rec.PutOnHold("a")]
    assert playbook.records(ended, rec.Finished)[0].outcome == "cancelled"


def test_a_success_that_crosses_the_cancel_counts() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(ReleaseAskedFor(T, (A,)), playbook.done(1, "a"))
    assert play.pending() == [(Action.CLOSE, "a")]


def test_what_turns_out_to_be_closed_when_it_is_to_be_reopened_is_forgotten() -> None:
    play = playbook.Play(checkpointed=[rec.Checkpointed("a", charged=3, quarantined=True)])
    play.quiet()
    play.do(RetryAskedFor(T, (A,)))
    play.wait(1.0)
    assert play.pending() == [(Action.REOPEN, "a")]
    play.answer(results={"a": Result.FOUND_CLOSED})
    assert play.core._parts.effects.issues.known == play.board.issues.known == {}


def test_releasing_what_is_claimed_and_unsent_requeues_it() -> None:
    play = playbook.Play(workers=1)
    play.answer("a")
    assert asked(play, ReleaseAskedFor(T, (A,))).text == "on hold: a"
    assert play.pending() == [(Action.RELEASE, "a")]
    assert not play.board.unsent, "it is not ready for anybody here"
    play.answer()
    play.own(1)
    assert play.round_trip is None or "a" in play.round_trip.skip


def test_what_was_released_and_is_closed_by_somebody_is_forgotten() -> None:
    play = playbook.Play(workers=1)
    play.answer("a")
    play.do(ReleaseAskedFor(T, (A,)))
    play.answer(results={"a": Result.FOUND_CLOSED})
    assert play.core._parts.effects.issues.known == play.board.issues.known == {}


def test_releasing_what_cools_down_or_is_just_requeued_works_too() -> None:
    for answered in (False, True):
        play = playbook.Play()
        play.working("a")
        play.do(playbook.failed(1, "a"))
        if answered:
            play.answer()
        assert asked(play, ReleaseAskedFor(T, (A,))).text == "on hold: a"
        assert play.wait(60.0) is not None
        assert "a" in play.core._parts.retry_state.not_to_take()


def test_retry_takes_a_release_back() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(playbook.failed(1, "a"))
    play.answer()
    play.do(ReleaseAskedFor(T, (A,)), RetryAskedFor(T, (A,)))
    assert play.core._parts.retry_state.not_to_take() == set()


def test_releasing_what_is_not_here_is_not_found() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(playbook.done(1, "a"))
    play.answer(results={"a": Result.APPLIED})
    assert asked(play, ReleaseAskedFor(T, (A,))).not_found


def test_a_plain_v1_worker_cannot_be_told_to_cancel_and_loses_its_connection() -> None:
    play = playbook.Play()
    play.join(1, v1=True)
    play.answer("a")
    commands = play.do(ReleaseAskedFor(T, (A,)))
    assert playbook.sent_messages(commands) == [] and answer(commands) == Answer(T, "on hold: a")
    assert playbook.of(commands, HangUp) == [HangUp(ConnId(1), "released")]
    assert answer(play.do(ReleaseAskedFor(T, (A,)))).text == "on hold: a"
    assert playbook.records(play.do(playbook.lost(1)), rec.OwnerLost)[0].pid == 901
    ended = play.do(ev.OwnerGone(901))
    assert playbook.records(ended, rec.Finished)[0].outcome == "cancelled"
    assert playbook.records(ended, rec.PutOnHold) == [rec.PutOnHold("a")]
    assert play.pending() == [(Action.RELEASE, "a")]


def test_releasing_what_a_v1_worker_is_about_to_get_gives_it_something_else() -> None:
    play = playbook.Play(self_claiming=True)
    play.join(1, v1=True)
    play.answer("a")
    assert play.pending() == [(Action.HAND_OVER, "a")]
    commands = play.do(ReleaseAskedFor(T, (A,)))
    assert playbook.sent_messages(commands) == [Wait(1)] and answer(commands).text == "on hold: a"
    play.answer()
    assert play.pending() == [(Action.RELEASE, "a")]
    play.answer()
    assert "a" in play.core._parts.retry_state.not_to_take()
