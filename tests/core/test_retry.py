"""Spawn storms: when everything fails at its start, nothing is charged and claiming pauses."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId, OutcomeKind
from beads_workers.core.base.policy import Policy
from beads_workers.core.base.source import Action
from beads_workers.core.base.states import RunState
from beads_workers.core.records import journal as rec
from beads_workers.core.requests.retry import RetryAskedFor
from beads_workers.core.requests.why import WhyAsked
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Answer, Command
from beads_workers.core.views.recovery import recovery_state
from beads_workers.core.views.status import status
from tests.core import playbook

FIVE = ("a", "b", "c", "d", "e")
T = ev.Ticket(1)


def fleet(size: int = 5, **others: object) -> playbook.Play:
    """So many workers, each with an issue that has just begun."""
    play = playbook.Play(**others)  # type: ignore[arg-type]
    play.working(*(chr(ord("a") + i) for i in range(size)))
    return play


def breaker(play: playbook.Play, *issue_ids: str, **how: object) -> list[Command]:
    """They fail one after the other, as they were handed out."""
    commands: list[Command] = []
    for number, issue_id in enumerate(issue_ids or FIVE, 1):
        commands += play.do(playbook.failed(number, issue_id, **how))  # type: ignore[arg-type]
    return commands


def hand(play: playbook.Play, number: int, issue_id: str) -> None:
    """This worker asks for work until it has got this issue."""
    if playbook.task_of(play.do(playbook.ready(number)), number) is None:
        while (
            play.round_trip is None or not play.round_trip.take or issue_id in play.round_trip.skip
        ):
            play.quiet()
            play.wait(0.0 if play.round_trip else 1.0)
        if playbook.task_of(play.answer(issue_id), number) is None:
            play.do(playbook.ready(number))


def one_by_one(play: playbook.Play, *issue_ids: str) -> None:
    """A fleet of one worker has them fail in turn."""
    play.connect(1)
    for issue_id in issue_ids:
        hand(play, 1, issue_id)
        play.do(playbook.failed(1, issue_id))


def test_five_issues_that_fail_at_their_start_pause_the_fleet_with_one_message() -> None:
    play = fleet()
    (changed,) = playbook.records(breaker(play, error="Not logged in"), rec.RunChanged)
    assert changed.state == "paused"
    for words in ("not logged in, or the wrong folder", "Not logged in", "'beads-workers resume'"):
        assert words in changed.reason


def test_the_message_stands_in_status_in_needs_and_in_why() -> None:
    play = fleet()
    breaker(play)
    shown = status(play.board, 1.0)
    assert "'beads-workers resume'" in shown["state_reason"]
    assert [n["remedy"] for n in shown["needs"] if "wrong folder" in n["text"]] == ["resume"]
    (answer,) = playbook.of(play.do(WhyAsked(T, ())), Answer)
    assert answer.facts is not None and "wrong folder" in answer.facts.state_reason


@pytest.mark.parametrize(
    ("outcome", "seconds", "pauses"),
    [
        (OutcomeKind.ERROR, 0.0, True),
        (OutcomeKind.ERROR, limits.BREAKER_SECONDS - 0.01, True),
        (OutcomeKind.ERROR, limits.BREAKER_SECONDS, False),
        (OutcomeKind.TIMEOUT, 1.0, True),
        (OutcomeKind.NOT_FOUND, 0.0, True),
        (OutcomeKind.RETRY, 0.0, False),
        (OutcomeKind.CANCELLED, 0.0, False),
    ],
)
def test_what_counts_is_a_failure_within_two_seconds(
    outcome: OutcomeKind, seconds: float, pauses: bool
) -> None:
    play = fleet()
    play.now += seconds
    breaker(play, outcome=outcome)
    assert (play.core.state is RunState.PAUSED) is pauses


def test_workers_that_die_are_no_storm() -> None:
    play = playbook.Play(5)
    for number in range(1, 6):
        play.own(number)
    play.quiet()
    play.answer(*FIVE) if play.round_trip else play.wait(limits.POLL_SECONDS)
    for number in range(1, 6):
        play.reap(number, 137)
    assert play.core.state is RunState.RUNNING


def test_four_issues_are_no_storm_however_often_they_fail() -> None:
    play = fleet(4, policy=Policy(attempts_max=9, retry_delay_seconds=0.1))
    breaker(play, *FIVE[:4])
    for number, issue_id in enumerate(FIVE[:4], 1):
        hand(play, number, issue_id)
        play.do(playbook.failed(number, issue_id))
    assert _charged(play, FIVE[:4]) == {2}
    assert play.core.state is RunState.RUNNING


def test_after_one_success_failures_are_the_issues_own() -> None:
    play = fleet(6)
    play.do(playbook.done(6, "f"))
    breaker(play)
    assert play.core.state is RunState.RUNNING
    assert _charged(play) == {1}


def test_nothing_is_charged_to_any_of_them_in_the_retry_state_or_in_the_journal() -> None:
    play = fleet()
    assert len(playbook.records(breaker(play), rec.Refunded)) == 5
    assert _charged(play) == {0}
    assert recovery_state(play.entries).checkpoint() == []


def test_what_was_charged_before_in_an_earlier_run_stays_charged() -> None:
    play = fleet(checkpointed=[rec.Checkpointed("a", charged=1)])
    breaker(play)
    assert [p.charged for p in recovery_state(play.entries).checkpoint()] == [1]
    assert play.core._parts.retry_state.history(IssueId("a")).charged == 1


def test_those_that_were_still_running_when_it_broke_out_are_not_charged_either() -> None:
    play = fleet(8)
    breaker(play, *FIVE, "f", "g", "h")
    assert recovery_state(play.entries).checkpoint() == []


def test_a_fleet_of_one_worker_has_a_storm_as_well() -> None:
    play = playbook.Play()
    one_by_one(play, *FIVE)
    assert play.core.state is RunState.PAUSED
    assert recovery_state(play.entries).checkpoint() == []


def test_what_was_quarantined_at_once_goes_back_to_the_tracker() -> None:
    play = playbook.Play(policy=Policy(attempts_max=1))
    one_by_one(play, *FIVE)
    assert set(play.pending()) == {(Action.RELEASE, "e"), *((Action.REOPEN, i) for i in FIVE[:4])}
    play.answer()
    assert status(play.board, 1.0)["totals"]["quarantined"] == 0
    assert recovery_state(play.entries).checkpoint() == []


def test_a_quarantine_that_is_just_being_written_is_undone_after_it() -> None:
    play = fleet(policy=Policy(attempts_max=1))
    breaker(play)
    assert {action for action, _ in play.pending()} == {Action.QUARANTINE}
    play.answer()
    while play.round_trip is not None:
        play.answer()
    shown = {e.record.issue_id for e in play.entries if _reopened(e.record)}  # type: ignore[attr-defined]
    assert shown == set(FIVE[:4])


def test_resume_gives_one_more_chance_and_then_it_pauses_again() -> None:
    play = fleet()
    breaker(play)
    while play.round_trip is not None:
        play.answer()
    play.do(ev.ResumeAsked(T))
    assert play.core.state is RunState.RUNNING
    for number, issue_id in enumerate(FIVE, 1):
        assert play.core.state is RunState.RUNNING
        hand(play, number, issue_id)
        play.do(playbook.failed(number, issue_id))
    assert play.core.state is RunState.PAUSED


def test_a_success_of_what_still_ran_shows_that_it_was_no_storm_and_goes_on() -> None:
    play = fleet(6)
    breaker(play)
    play.wait(60.0)
    (changed,) = playbook.records(play.do(playbook.done(6, "f")), rec.RunChanged)
    assert changed == rec.RunChanged("running", "an attempt has succeeded after all")


def test_a_person_who_pauses_as_well_is_obeyed_also_after_a_success() -> None:
    play = fleet(6)
    breaker(play)
    play.do(ev.PauseAsked(T), playbook.done(6, "f"))
    assert play.core.state is RunState.PAUSED


def test_until_empty_lets_finish_what_runs_requeues_the_rest_and_exits_7() -> None:
    play = playbook.Play(until_empty=True)
    for number in range(1, 7):
        play.join(number)
    play.answer(listed=("a",))
    play.answer(*FIVE, "f")
    commands = breaker(play)
    (message,) = playbook.notes(commands, "error")
    assert "wrong folder" in message and "start again" in message
    assert play.core.state is RunState.DRAINING
    commands = play.do(playbook.failed(6, "f"))
    assert {m.reason for m in playbook.sent_messages(commands) if hasattr(m, "reason")} == {"error"}
    for number in range(1, 7):
        play.do(ev.Disconnected(ev.ConnId(number), ""))
    while play.round_trip is not None:
        play.answer()
    assert play.ended == 7
    assert recovery_state(play.entries).checkpoint() == []


def test_a_run_that_is_stopped_in_a_storm_exits_7() -> None:
    play = fleet()
    breaker(play)
    play.do(ev.StopAsked(), *(ev.Disconnected(ev.ConnId(n), "") for n in range(1, 6)))
    while play.round_trip is not None:
        play.answer()
    assert play.ended == 7


def test_a_retry_by_hand_in_between_leaves_nothing_to_requeue() -> None:
    play = playbook.Play(policy=Policy(attempts_max=1))
    one_by_one(play, "a")
    play.do(RetryAskedFor(T, (IssueId("a"),)))
    while play.round_trip is not None:
        play.answer()
    assert play.core._parts.retry_state.history(IssueId("a")).charged == 0


def test_an_error_that_would_move_the_cursor_is_shown_and_not_obeyed() -> None:
    play = fleet()
    (changed,) = playbook.records(breaker(play, error="\x1b[2Jgone"), rec.RunChanged)
    assert "\x1b" not in changed.reason


def _reopened(record: rec.Record) -> bool:
    return isinstance(record, rec.SettledRecord) and record.action == Action.REOPEN.value


def _charged(play: playbook.Play, issue_ids: Iterable[str] = FIVE) -> set[int]:
    retry_state = play.core._parts.retry_state
    return {retry_state.history(IssueId(each)).charged for each in issue_ids}


def test_what_is_stopped_without_fault_may_be_taken_at_once_and_leaves_no_past() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(ev.Withdrawn((IssueId("a"),), "nobody wants it"), playbook.cancelled(1, "a"))
    assert play.core._parts.retry_state.not_to_take() == set()
    play.quiet()
    answer = playbook.of(play.do(RetryAskedFor(T, (IssueId("a"),))), Answer)[0]
    assert answer.error == "nothing to retry: a"
