"""Push sources: work is taken at once, tried once, and answered whatever becomes of it."""

from __future__ import annotations

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId, Outcome, OutcomeKind
from beads_workers.core.base.policy import Policy
from beads_workers.core.base.source import Action
from beads_workers.core.base.wire import Cancel, Task, Wait
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import RoundTrip, Send
from tests.core.playbook import (
    Play,
    cancelled,
    done,
    failed,
    job,
    lost,
    of,
    ready,
    sent_messages,
    task_of,
)

HAND_BACK = Policy(hand_back=True)


def push(workers: int = 1) -> Play:
    """A fleet with so many workers of its own, all of them waiting for work."""
    play = Play(workers, push=True, policy=HAND_BACK, poll_seconds=3600.0)
    for number in range(1, workers + 1):
        play.own(number)
    play.quiet()
    return play


def running(issue_id: str = "a") -> Play:
    """One worker, with one job."""
    play = push()
    play.do(ev.Arrived())
    assert task_of(play.answer(issue_id)) == issue_id
    play.quiet()
    return play


def settled(play: Play) -> tuple[Action, Outcome | None]:
    """The one settlement of the round trip under way: what is asked, and how it went."""
    settlement = play.settlement()
    return settlement.action, settlement.outcome


def test_a_worker_of_ours_is_never_told_to_wait() -> None:
    play = push()
    assert sent_messages(play.wait(10 * limits.HOLD_SECONDS)) == []


def test_a_worker_of_somebody_else_is_told_to_wait_as_always() -> None:
    play = push()
    commands = play.join(7) + play.wait(limits.IDLE_SECONDS_MAX)
    assert [type(message) for message in sent_messages(commands, 7)] == [Wait]


def test_what_arrives_is_taken_at_once() -> None:
    play = push()
    play.do(ev.Arrived())
    assert play.asked() >= 1
    assert task_of(play.answer("a"), 1) == "a"


def test_a_success_is_closed_at_once_with_its_outcome() -> None:
    play = push(2)
    play.do(ev.Arrived())
    play.answer("a", "b")
    play.quiet()
    play.do(done(1, "a", result={"x": 1}))
    action, outcome = settled(play)
    assert action is Action.CLOSE
    assert outcome == Outcome(OutcomeKind.SUCCESS, result='{"x":1}')


def test_a_failure_is_handed_back_and_nothing_of_it_is_remembered() -> None:
    play = running()
    play.do(failed(1, "a", "boom"))
    assert settled(play) == (Action.RELEASE, Outcome(OutcomeKind.ERROR, "boom"))
    play.do(ready(1))
    play.quiet()
    assert play.board.retrying == play.board.quarantined == play.board.requeued == {}
    assert not play.board.issues.known
    play.do(ev.Arrived())
    assert play.round_trip is not None and play.round_trip.skip == frozenset()
    assert task_of(play.answer("a"), 1) == "a", "whoever sent it may send it again"


def test_a_retry_is_not_ours_to_make() -> None:
    play = running()
    play.do(failed(1, "a", "later", outcome=OutcomeKind.RETRY, retry_after_seconds=7.0))
    assert settled(play) == (Action.RELEASE, Outcome(OutcomeKind.RETRY, "later", 7.0))


def test_a_worker_that_dies_requeues_what_it_had() -> None:
    play = running()
    play.do(lost(1))
    play.quiet()
    play.reap(1, -9)
    action, outcome = settled(play)
    assert action is Action.RELEASE
    assert outcome is not None and outcome.kind is OutcomeKind.LOST


def test_many_failures_at_the_start_are_no_storm() -> None:
    play = push()
    for number in range(limits.BREAKER_ISSUES + 2):
        play.do(ev.Arrived())
        assert task_of(play.answer(f"a{number}"), 1) == f"a{number}"
        play.quiet()
        play.do(failed(1, f"a{number}"), ready(1))
        play.quiet()
    assert play.board.state == "running"
    assert play.board.totals["failed"] == limits.BREAKER_ISSUES + 2


def test_what_is_withdrawn_before_it_was_sent_is_settled_without_an_outcome() -> None:
    play = push()
    play.do(ev.Arrived(), lost(1))
    play.answer("b")
    play.quiet()
    play.do(ev.Withdrawn((IssueId("b"),), "it has left"))
    assert settled(play) == (Action.RELEASE, None)


def test_what_is_withdrawn_from_its_worker_is_ended_and_then_settled() -> None:
    play = running()
    commands = play.do(ev.Withdrawn((IssueId("a"),), "it has left"))
    assert [s.message for s in of(commands, Send)] == [Cancel(IssueId("a"), "it has left")]
    assert play.round_trip is None
    play.do(cancelled(1, "a"))
    action, outcome = settled(play)
    assert action is Action.RELEASE
    assert outcome is not None and outcome.kind is OutcomeKind.CANCELLED


def test_what_nobody_has_can_be_withdrawn() -> None:
    play = running()
    assert play.do(ev.Withdrawn((IssueId("x"),), "gone")) == []


def test_the_attempt_is_the_one_that_the_source_counts() -> None:
    play = push()
    play.do(ev.Arrived())
    (task,) = [m for m in sent_messages(play.answer(job("a", attempt=4)), 1) if isinstance(m, Task)]
    assert task.attempt == 4


def test_a_run_that_has_failed_at_requests_ends_well() -> None:
    play = running()
    play.do(failed(1, "a"), ready(1))
    play.quiet()
    play.do(ev.StopAsked())
    play.do(lost(1))
    play.reap(1)
    play.quiet()
    assert play.ended == 0


def asking(claims_ahead: bool) -> Play:
    """One busy worker; a source that is asked over a network, and for which a claim is a start."""
    play = Play(1, push=True, policy=HAND_BACK, poll_seconds=3600.0, claims_ahead=claims_ahead)
    play.own(1)
    play.quiet()
    play.do(ev.Arrived())
    play.answer("a")
    return play


def test_where_a_claim_is_a_start_nothing_is_claimed_before_a_worker_is_free() -> None:
    for claims_ahead in (False, True):
        play = asking(claims_ahead)
        for name, following in ("ab", "bc", "cd"):
            # Attempts that take no time beside round trips that do: others would be claimed ahead.
            play.do(done(1, name))
            play.do(ready(1))
            while not (play.round_trip and play.round_trip.take):
                play.answer(seconds=1.0)
            asked = play.asked()
            play.answer(following, seconds=1.0)
        assert (asked == 1) is not claims_ahead


def test_what_has_come_is_looked_at_also_while_everybody_is_busy() -> None:
    for claims_ahead, looks in ((False, [0]), (True, [])):
        play = asking(claims_ahead)
        play.quiet()
        play.do(ev.Arrived(), ev.Arrived())
        assert of(play.wait(limits.RECHECK_SECONDS * 0.9), RoundTrip) == []
        turns = of(play.wait(limits.RECHECK_SECONDS * 0.2), RoundTrip)
        assert [round_trip.take for round_trip in turns] == looks
