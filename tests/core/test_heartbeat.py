"""Who announces heartbeats and falls silent is lost; nobody else is closed for silence."""

from __future__ import annotations

import pytest

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.states import WorkerState
from beads_workers.core.base.wire import (
    CANCEL,
    GROUPED,
    HEARTBEAT,
    Heartbeat,
    Progress,
    Ready,
    Task,
)
from beads_workers.core.records import journal as rec
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import HangUp
from beads_workers.core.schedule.events import ConnId
from beads_workers.core.workers import worker_events as wev
from tests.core.playbook import Play, done, lost, notes, of, records, task_of
from tests.core.test_worker import CONNECTED, LOST, OK, SHUTDOWN, WAIT, Playbook, task

EVERY = 10.0
BEAT = ev.Received(ConnId(1), Heartbeat())


def asks(seconds: float | None = EVERY, *, features: bool = True) -> ev.Received:
    """READY of worker 1, which announces heartbeats."""
    named = {GROUPED, CANCEL, HEARTBEAT} if features else {GROUPED, CANCEL}
    return ev.Received(ConnId(1), Ready("w", "1.1", frozenset(named), heartbeat_seconds=seconds))


def working(seconds: float | None = EVERY, **others: bool) -> Play:
    """Worker 1 has task a."""
    play = Play()
    play.connect(1)
    play.do(asks(seconds, **others))
    assert task_of(play.answer("a")) == "a"
    play.quiet()
    return play


def closed(play: Play, seconds: float) -> list[HangUp]:
    """Which connections are closed within this time."""
    return of(play.wait(seconds), HangUp)


# --- the orchestrator -----------------------------------------------------------------------------


def test_three_intervals_of_silence_end_the_connection() -> None:
    play = working()
    assert closed(play, 29.9) == []
    commands = play.wait(0.2)
    assert of(commands, HangUp) == [HangUp(ConnId(1), "silent for 30 s")]
    assert notes(commands, "warning") == ["W1: connection closed: silent for 30 s"]


@pytest.mark.parametrize("said", [BEAT, ev.Received(ConnId(1), Progress(IssueId("a"), 1)), asks()])
def test_any_valid_message_is_a_sign_of_life(said: ev.Received) -> None:
    play = working()
    for _ in range(5):
        assert closed(play, 29.0) == []
        play.do(said)
    assert len(closed(play, 30.1)) == 1


def test_a_wrong_line_is_none() -> None:
    play = working()
    assert closed(play, 29.0) == []
    play.do(ev.Misread(ConnId(1), "no JSON", "{"))
    assert len(closed(play, 1.1)) == 1


@pytest.mark.parametrize(("seconds", "features"), [(None, True), (EVERY, False)])
def test_who_announces_none_may_be_silent_for_ever(seconds: float | None, features: bool) -> None:
    play = working(seconds, features=features)
    assert closed(play, 100_000.0) == []
    assert not notes(play.do(BEAT), "error"), "and what it says all the same is ignored"
    assert closed(play, 100_000.0) == []


def test_the_last_ready_counts() -> None:
    play = working()
    play.do(done(1, "a"), asks(1.0))
    assert len(closed(play, 3.1)) == 1
    play = working()
    play.do(done(1, "a"), asks(None))
    assert closed(play, 100.0) == []


def test_its_task_goes_on_as_that_of_any_lost_worker() -> None:
    play = working()
    play.wait(30.1)
    play.do(lost(1))
    (ended,) = records(play.wait(31.0), rec.Finished)
    assert (ended.issue_id, ended.outcome) == ("a", "lost"), "after its grace"


def test_an_orchestrator_that_was_stopped_looks_once_more() -> None:
    play = working()
    play.now += 1000.0
    late = play.core.on_deadline(play.now)
    assert of(late, HangUp) == [], "what it has said meanwhile is unread"
    play.do(BEAT)
    assert closed(play, 29.0) == []
    play.now += 1000.0
    play.core.on_deadline(play.now)
    assert len(closed(play, 1.1)) == 1, "and then it counts"


def test_a_silent_worker_that_was_told_to_leave_keeps_its_issue() -> None:
    play = working()
    play.do(ev.StopAsked(seconds=100.0))
    assert len(closed(play, 30.1)) == 1
    (owner_lost,) = records(play.do(lost(1)), rec.OwnerLost)
    assert owner_lost.told_to_stop


# --- the worker -----------------------------------------------------------------------------------


def beats(commands: list[wev.Command]) -> int:
    """How many heartbeats are sent."""
    return commands.count(wev.SendMessage(Heartbeat()))


def test_a_worker_with_nothing_to_say_says_that_it_lives() -> None:
    book = Playbook(heartbeat=EVERY)
    (ready,) = book.tell(CONNECTED)
    assert isinstance(ready, wev.SendMessage) and isinstance(ready.message, Ready)
    assert ready.message.heartbeat_seconds == EVERY and HEARTBEAT in ready.message.features
    book.tell(task(request_id="r"))
    assert [beats(book.tick()) for _ in range(3)] == [1, 1, 1]
    assert book.now == 130.0 and book.half.state is WorkerState.WORKING


def test_whatever_it_says_puts_that_off() -> None:
    book = Playbook(heartbeat=EVERY)
    book.tell(CONNECTED, task(request_id="r"))
    book.now += 9.0
    book.tell(wev.StepSaid(Progress(percent=1)))
    assert book.half.deadline() == 119.0
    book.now += 9.0
    book.tell(OK)
    assert book.half.deadline() == 128.0
    book.tell(WAIT)
    assert beats(book.tick()) == 1 and book.now == 128.0


def test_it_says_nothing_where_nobody_is_there_or_version_1_is_spoken() -> None:
    book = Playbook(heartbeat=EVERY)
    assert book.half.deadline() is None
    book.tell(CONNECTED)
    book.tell(wev.MessageReceived(Task(IssueId("t-1"), 2, "title", v1=True)))
    assert book.half.deadline() is None
    for end in (LOST, SHUTDOWN):
        book = Playbook(heartbeat=EVERY)
        book.tell(CONNECTED, task(request_id="r"), end)
        while book.half.state is not WorkerState.GONE and book.half.deadline() is not None:
            commands = book.tick()
            assert not (end is LOST and beats(commands))
            book.tell(OK)
