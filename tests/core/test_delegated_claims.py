"""Workers that claim and close by themselves: docs/SEMANTICS.md, "Who calls bd"."""

from __future__ import annotations

import pytest

from beads_workers.core.base.source import Action, Result, Settlement
from beads_workers.core.base.wire import Ready, Shutdown, Task, Wait
from beads_workers.core.records import journal as rec
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.events import ConnId
from tests.core.playbook import (
    Play,
    done,
    failed,
    job,
    lost,
    ready,
    records,
    sent_messages,
    task_of,
)

A = job("a").issue_id


def delegating() -> Play:
    """A plain v1 worker waits for issue a, which the tracker is being told of."""
    play = Play(self_claiming=True)
    play.join(1, v1=True)
    assert sent_messages(play.answer("a")) == []
    assert play.settlement() == Settlement(Action.HAND_OVER, A)
    return play


def test_the_task_goes_out_only_after_the_tracker_knows() -> None:
    assert task_of(delegating().answer(), 1) == "a"


def test_a_grouped_worker_needs_no_delegated_claim() -> None:
    play = Play(self_claiming=True)
    play.join(1)
    assert task_of(play.answer("a"), 1) == "a"


def test_on_other_sources_a_plain_worker_gets_its_task_at_once() -> None:
    play = Play(self_claiming=False)
    play.join(1, v1=True)
    assert task_of(play.answer("a"), 1) == "a"


@pytest.mark.parametrize(
    ("self_claiming", "features", "claims"),
    [(True, (), "worker"), (False, (), "orchestrator"), (True, ("grouped",), "")],
)
def test_a_task_says_who_claims_to_whoever_left_that_open(
    self_claiming: bool, features: tuple[str, ...], claims: str
) -> None:
    play = Play(self_claiming=self_claiming)
    play.do(ev.Connected(ConnId(1), 101))
    play.do(ev.Received(ConnId(1), Ready("w", "1.1", frozenset(features))))
    messages = sent_messages(play.answer("a"))
    if self_claiming and not features:
        messages = sent_messages(play.answer())
    (task,) = messages
    assert isinstance(task, Task) and task.claims == claims


def test_what_was_handed_over_is_read_before_it_is_closed() -> None:
    play = delegating()
    play.answer()
    play.do(done(1, "a"))
    assert play.settlement() == Settlement(Action.CLOSE, A, read_first=True, handed_over=True)


def test_what_was_handed_over_is_read_before_it_is_requeued() -> None:
    play = delegating()
    play.answer()
    play.do(failed(1, "a"))
    assert play.settlement() == Settlement(Action.RELEASE, A, read_first=True, handed_over=True)


def test_a_refused_hand_over_is_answered_with_wait_and_the_issue_left_alone() -> None:
    play = delegating()
    refused = play.answer(results={"a": Result.NOT_OURS})
    assert sent_messages(refused, 1) == [Wait(1)]
    assert records(refused, rec.Started) == []
    play.wait(1.0)
    play.do(ready(1, v1=True))
    play.answer("b")
    assert task_of(play.answer(), 1) == "b", "the worker is as free as before"


def test_an_issue_that_is_found_closed_at_its_hand_over_counts_as_done() -> None:
    play = delegating()
    assert sent_messages(play.answer(results={"a": Result.FOUND_CLOSED}), 1) == [Wait(1)]
    assert play.board.totals["done"] == 1


def test_a_hand_over_that_failed_is_tried_again_and_then_the_task_goes_out_once() -> None:
    play = delegating()
    refused = play.answer(results={"a": Result.FAILED})
    assert sent_messages(refused) == []
    (failure,) = records(refused, rec.SettlementFailed)
    assert (failure.issue_id, failure.action, failure.tries) == ("a", "hand_over", 1)
    assert 0.0 < failure.retry_in_seconds <= 1.0
    play.wait(1.0)
    assert play.pending() == [(Action.HAND_OVER, "a")]
    assert task_of(play.answer(), 1) == "a"


def test_a_worker_that_leaves_during_its_hand_over_leaves_the_issue_to_be_requeued() -> None:
    play = delegating()
    play.do(lost(1))
    play.answer()
    assert play.pending() == [(Action.RELEASE, "a")]
    assert play.settlement().handed_over
    play.answer()
    assert not play.core._parts.tasks.in_flight
    assert not [e for e in play.entries if isinstance(e.record, rec.Started)]


def test_the_journal_says_that_it_goes_back_before_the_tracker_has_answered() -> None:
    play = delegating()
    assert records(play.do(lost(1)), rec.Requeued) == [rec.Requeued(A)]


@pytest.mark.parametrize(("result", "closed"), [(Result.FOUND_CLOSED, 1), (Result.NOT_OURS, 0)])
def test_a_hand_over_that_was_refused_is_over_although_its_worker_has_left(
    result: Result, closed: int
) -> None:
    play = delegating()
    play.do(lost(1))
    play.answer(results={"a": result})
    assert not play.core._parts.tasks.in_flight and not play.core._parts.round_trips.pending
    assert play.board.totals["done"] == closed


def test_it_is_requeued_even_if_the_hand_over_failed() -> None:
    play = delegating()
    play.do(lost(1))
    play.answer(results={"a": Result.FAILED})
    play.wait(2.0)
    assert play.pending() == [(Action.RELEASE, "a")]


def test_a_stop_during_the_hand_over_sends_shutdown_and_no_task() -> None:
    play = delegating()
    assert sent_messages(play.do(ev.StopAsked())) == [Shutdown("user_requested")]
    assert sent_messages(play.answer()) == []
    play.do(lost(1))
    assert play.pending() == [(Action.RELEASE, "a")]
    play.answer()
    assert play.ended == 0


def test_a_second_ready_during_the_hand_over_brings_nothing() -> None:
    play = delegating()
    assert sent_messages(play.do(ready(1, v1=True))) == []
    assert task_of(play.answer(), 1) == "a"
