"""A worker that says with the end of its task that it stops: another one comes in its place.

And tasks of dispatcherd, which are asked to end before they are told.
"""

from __future__ import annotations

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import Call, Outcome, OutcomeKind
from beads_workers.core.base.plans import Step, StepKind
from beads_workers.core.base.wire import Done, Failed, Shutdown, encode, parse
from beads_workers.core.records import journal as rec
from beads_workers.core.schedule.commands import Command, Spawn, Write
from beads_workers.core.workers import worker_events as wev
from tests.core.playbook import Play, done, failed, lost, of, ready, sent_messages, task_of
from tests.core.test_worker import CONNECTED, GRACE, KILL, TERM, Playbook, busy, cancel, task

DISPATCHED = Step(StepKind.RUN, (), call=Call("m.f", message={"uuid": "u"}))
ASK = wev.EndStep(hard=False, ask=True)


def working() -> Play:
    """W1 is a process of ours that has a task; more could be taken."""
    play = Play(1)
    play.own(1)
    assert task_of(play.answer("a")) == "a"
    play.quiet()
    return play


def kinds(commands: list[Command]) -> list[type[rec.Record]]:
    """The records in their order."""
    return [type(c.record) for c in commands if isinstance(c, Write)]


@pytest.mark.parametrize("end", [done, failed])
def test_it_is_stopping_before_its_task_is_over_and_gets_no_more(end: object) -> None:
    play = working()
    assert callable(end)
    commands = play.do(end(1, "a", is_stopping=True))
    order = [k for k in kinds(commands) if k in (rec.WorkerStopping, rec.Finished)]
    assert order == [rec.WorkerStopping, rec.Finished]
    assert play.board.workers["W1"].state == "stopping"
    assert [type(m) for m in sent_messages(play.do(ready(1)))] == [Shutdown]


def test_another_one_is_started_in_its_place_and_no_crash_is_counted() -> None:
    play = working()
    for number in range(limits.CRASH_LOOP_MAX + 1):
        play.do(done(1, "a" if not number else f"a{number}", is_stopping=True), ready(1), lost(1))
        play.quiet()
        spawned = play.reap(1) + play.wait(limits.RESPAWN_DELAY_MAX_SECONDS)
        assert [each.worker_id for each in of(spawned, Spawn)] == ["W1"]
        play.own(1)
        play.wait(limits.POLL_SECONDS)
        commands = play.answer(f"a{number + 1}") + play.do(ready(1))
        assert task_of(commands) == f"a{number + 1}"
        play.quiet()


def test_both_messages_say_it_only_where_it_is_so() -> None:
    for message in (Done, Failed):
        for stopping in (True, False):
            fields = message("a", "W1", duration_ms=1, is_stopping=stopping)  # type: ignore[arg-type]
            line = encode(fields, "W1", 0.0, v1=False)
            assert (b"is_stopping" in line) is stopping
            assert parse(line) == fields
            assert b"is_stopping" not in encode(fields, "W1", 0.0, v1=True)


def test_what_the_step_said_goes_with_its_answer() -> None:
    book = busy(DISPATCHED)
    stopped = wev.StepAnswered(Outcome(OutcomeKind.SUCCESS), is_stopping=True)
    (answer, _) = book.tell(stopped)
    assert isinstance(answer, wev.SendMessage) and isinstance(answer.message, Done)
    assert answer.message.is_stopping


def ended(book: Playbook) -> None:
    """It is asked, told after half of the time, and killed after the other half."""
    began = book.now
    assert book.tick() == [TERM]
    assert book.now == began + GRACE / 2
    assert book.tick() == [KILL]
    assert book.now == began + GRACE


def test_a_task_of_dispatcherd_is_asked_told_and_killed_when_it_is_cancelled() -> None:
    book = busy(DISPATCHED)
    assert book.tell(cancel()) == [ASK]
    ended(book)


def test_and_when_its_time_is_over() -> None:
    book = Playbook(DISPATCHED)
    book.tell(CONNECTED, task(timeout=7.0), wev.StepBegun())
    assert book.tick() == [ASK]
    ended(book)
    (answer, _) = book.tell(wev.StepEnded(-9, "", "KILL"))
    assert isinstance(answer, wev.SendMessage) and isinstance(answer.message, Failed)
    assert answer.message.outcome is OutcomeKind.TIMEOUT


def test_its_time_begins_when_what_it_needs_is_there() -> None:
    book = Playbook(DISPATCHED)
    book.tell(CONNECTED, task(timeout=7.0))
    book.now += 100.0
    assert book.tell(wev.StepBegun()) == []
    began = book.now
    assert book.tick() == [ASK]
    assert book.now == began + 7.0
    (answer, _) = book.tell(wev.StepAnswered(Outcome(OutcomeKind.ERROR, "cancelled by SIGUSR1")))
    assert isinstance(answer, wev.SendMessage) and isinstance(answer.message, Failed)
    assert (answer.message.error, answer.message.duration_ms) == ("timed out after 7 s", 7000)


def test_what_is_never_ready_is_ended_and_said_so() -> None:
    book = Playbook(DISPATCHED)
    book.tell(CONNECTED, task(timeout=7.0))
    began = book.now
    assert book.tick() == [ASK]
    assert book.now == began + limits.SET_UP_SECONDS
    book.tell(wev.StepBegun())
    ended(book)
    (answer, _) = book.tell(wev.StepEnded(-9, "", "KILL"))
    assert isinstance(answer, wev.SendMessage) and isinstance(answer.message, Failed)
    assert answer.message.outcome is OutcomeKind.TIMEOUT


def test_one_that_ends_when_it_is_asked_was_cancelled_whatever_it_says() -> None:
    book = busy(DISPATCHED)
    book.tell(cancel())
    (answer, _) = book.tell(wev.StepAnswered(Outcome(OutcomeKind.ERROR, "cancelled by SIGUSR1")))
    assert isinstance(answer, wev.SendMessage) and isinstance(answer.message, Failed)
    assert answer.message.outcome is OutcomeKind.CANCELLED


def test_any_other_call_is_told_at_once() -> None:
    book = busy(Step(StepKind.RUN, (), call=Call("m.f")))
    assert book.tell(cancel()) == [TERM]
    assert book.tick() == [KILL]
