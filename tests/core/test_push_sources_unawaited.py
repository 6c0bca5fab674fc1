"""Push sources whose senders wait for nothing: work is gathered, and retried here."""

from __future__ import annotations

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId, Outcome, OutcomeKind
from beads_workers.core.base.policy import Policy
from beads_workers.core.base.source import Action, Taken
from beads_workers.core.schedule import events as ev
from tests.core.playbook import Play, cancelled, done, failed, job, ready, task_of

TWICE = Policy(attempts_max=2, retry_delay_seconds=10.0, hand_back=True, hand_back_after=2)


def fleet(workers: int = 1, policy: Policy = TWICE) -> Play:
    """Workers of our own, all waiting for work."""
    play = Play(workers, push=True, policy=policy, poll_seconds=3600.0, awaited=False)
    for number in range(1, workers + 1):
        play.own(number)
    play.quiet()
    return play


def flowing() -> Play:
    """One worker that has had a job, and many that wait for it here."""
    play = fleet()
    play.do(ev.Arrived())
    play.answer("first")
    play.do(done(1, "first"))
    play.quiet()
    play.do(ready(1), ev.Arrived())
    asked = play.asked()
    assert asked >= limits.CLAIM_AHEAD_MAX, "they are nobody else's"
    play.answer(*(f"n{number}" for number in range(asked)))
    play.quiet()
    return play


def test_many_are_taken_ahead_and_their_ends_are_settled_together() -> None:
    play = flowing()
    for number in range(5):
        play.do(done(1, f"n{number}"))
        assert play.round_trip is None, "no turn for one"
        assert task_of(play.do(ready(1))) == f"n{number + 1}"
    play.wait(limits.LINGER_SECONDS)
    assert play.pending() == [(Action.CLOSE, f"n{number}") for number in range(5)]


def test_with_nothing_else_to_do_an_end_is_settled_at_once() -> None:
    play = fleet()
    play.do(ev.Arrived())
    play.answer("a")
    play.do(done(1, "a"))
    assert play.pending() == [(Action.CLOSE, "a")]


def test_a_failure_is_tried_again_and_then_handed_back_with_how_it_went() -> None:
    play = fleet()
    play.do(ev.Arrived())
    play.answer("a")
    play.quiet()
    play.do(failed(1, "a", "boom"))
    assert play.settlement().outcome is None, "it stays, for another try"
    play.do(ready(1))
    play.quiet()
    assert play.board.retrying.keys() == {"a"}
    play.wait(11.0)
    assert play.round_trip is not None and "a" not in play.round_trip.skip
    assert task_of(play.answer(job("a"))) == "a"
    play.quiet()
    play.do(failed(1, "a", "boom again"))
    settlement = play.settlement()
    assert settlement.action is Action.RELEASE
    assert settlement.outcome == Outcome(OutcomeKind.ERROR, "boom again")
    play.quiet()
    assert not play.board.retrying and not play.board.quarantined


def test_what_is_cancelled_or_unknown_is_not_tried_again() -> None:
    asked = ev.Withdrawn((IssueId("a"),), "somebody has cancelled it")
    unknown = failed(1, "a", "no", outcome=OutcomeKind.NOT_FOUND)
    for events in ((asked, cancelled(1, "a")), (unknown,)):
        play = fleet()
        play.do(ev.Arrived())
        play.answer("a")
        play.quiet()
        play.do(*events)
        assert play.settlement().outcome is not None


def test_what_waits_or_is_to_come_keeps_a_run_from_ending_as_empty() -> None:
    for taken in (Taken(waiting=3), Taken(later=1)):
        play = Play(1, push=True, until_empty=True, awaited=False)
        play.own(1)
        play.do(ev.RoundTripEnded(0.1, taken=taken))
        play.wait(1.0)
        assert play.ended is None
        assert sum(play.board.listed.by_priority) == taken.waiting
        assert play.board.listed.blocked == taken.later
