"""PAUSE and RESUME, said by either side: nothing new is begun, and nothing is lost."""

from __future__ import annotations

import pytest

from beads_workers.core.base import limits, wire
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.plans import Plan
from beads_workers.core.base.settings import Work
from beads_workers.core.base.states import RunState, WorkerState
from beads_workers.core.records import journal as rec
from beads_workers.core.requests.release import ReleaseAskedFor
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Answer
from beads_workers.core.schedule.events import BY_HAND, ConnId, Ticket
from beads_workers.core.views.status import status
from beads_workers.core.workers import worker_events as wev
from beads_workers.core.workers.worker import WorkerHalf
from tests.core.playbook import Play, done, job, notes, of, ready, records, sent_messages, task_of
from tests.core.test_worker import CONNECTED, LOST, OK, RUN, SHUTDOWN

TICKET = Ticket(1)


def asks(conn: int = 1, *features: str) -> ev.Received:
    """READY of a worker that knows PAUSE."""
    named = frozenset(features or (wire.GROUPED, wire.CANCEL, wire.PAUSE))
    return ev.Received(ConnId(conn), wire.Ready("w", "1.1", named, batch_size=3))


def hold(*worker_ids: str) -> ev.PauseAsked:
    """``pause W1``."""
    return ev.PauseAsked(TICKET, worker_ids or ("W1",))


def let_go(*worker_ids: str) -> ev.ResumeAsked:
    """``resume W1``, or ``resume``."""
    return ev.ResumeAsked(TICKET, worker_ids)


def waiting() -> Play:
    """Worker 1 has said READY, and nothing is known of any work."""
    play = Play()
    play.connect(1)
    play.do(asks())
    return play


# --- a person pauses a worker ---------------------------------------------------------------------


def test_its_ready_is_held_and_nothing_is_claimed_for_it() -> None:
    play = waiting()
    commands = play.do(hold())
    assert sent_messages(commands, 1) == [wire.Pause(BY_HAND)]
    assert [a.text for a in of(commands, Answer)] == ["paused: W1"]
    commands = play.answer("a")
    commands += play.wait(limits.HOLD_SECONDS + 60.0)
    assert not sent_messages(commands, 1), "neither TASK nor WAIT"
    play.quiet()
    assert play.round_trip is None or not play.round_trip.take


def test_a_worker_that_does_not_understand_pause_is_told_to_wait_in_time() -> None:
    play = Play()
    play.connect(1)
    play.do(ready(1))
    play.quiet()
    play.do(hold())
    assert sent_messages(play.wait(limits.IDLE_SECONDS_MAX), 1) == [wire.Wait(1)]


def test_resume_has_it_served_again() -> None:
    play = waiting()
    play.do(hold())
    play.quiet()
    commands = play.do(let_go("W1"))
    assert sent_messages(commands, 1) == [wire.Resume()]
    assert task_of(play.answer("a"), 1) == "a"


def test_resume_of_the_fleet_is_resume_of_every_worker() -> None:
    play = waiting()
    play.do(hold())
    assert sent_messages(play.do(let_go()), 1) == [wire.Resume()]


def test_twice_is_once() -> None:
    play = waiting()
    play.do(hold())
    assert not sent_messages(play.do(hold()), 1)
    play.do(let_go("W1"))
    assert not sent_messages(play.do(let_go("W1")), 1)


def test_its_time_stands_still_as_its_task_may_be_stopped() -> None:
    play = Play()
    play.connect(1)
    play.do(asks())
    play.answer(job("a", timeout_seconds=5.0))
    play.do(hold())
    assert notes(play.wait(1000.0), "error") == []
    play.do(let_go("W1"))
    assert notes(play.wait(1000.0), "error") == ["W1 did not end a in time"]


def test_one_that_does_not_know_pause_is_told_to_wait() -> None:
    play = Play()
    play.join(1, v1=True)
    commands = play.do(hold())
    assert not any(isinstance(m, wire.Pause) for m in sent_messages(commands, 1))
    for _ in range(3):
        play.quiet()
        commands = play.wait(10.0) + play.do(ready(1, v1=True)) + play.quiet()
        assert not [m for m in sent_messages(commands, 1) if not isinstance(m, wire.Wait)]
    play.do(let_go())
    commands = play.do(ready(1, v1=True))
    assert task_of(commands + play.answer("a"), 1) == "a"


def test_shutdown_is_for_the_paused_too() -> None:
    play = waiting()
    play.do(hold())
    assert sent_messages(play.do(ev.StopAsked()), 1) == [wire.Shutdown("user_requested")]


def test_one_that_is_about_to_get_a_task_gets_none() -> None:
    play = Play(self_claiming=True)
    play.join(1, v1=True)
    play.answer("a")
    commands = play.do(hold()) + play.quiet()
    assert not any(isinstance(m, wire.Task) for m in sent_messages(commands, 1))


def test_one_that_has_forgotten_what_pause_is_hears_of_no_resume() -> None:
    play = waiting()
    play.do(hold())
    play.do(asks(1, wire.GROUPED, wire.CANCEL))
    assert not any(isinstance(m, wire.Resume) for m in sent_messages(play.do(let_go()), 1))


def test_one_that_has_forgotten_what_pause_is_still_ends_its_task_in_time() -> None:
    play = waiting()
    play.answer(job("a", timeout_seconds=5.0))
    play.do(hold(), asks(1, wire.GROUPED, wire.CANCEL))
    assert notes(play.wait(1000.0), "error")[-1:] == ["W1 did not end a in time"]


def test_what_is_claimed_ahead_goes_back_where_all_are_paused_at_work() -> None:
    play = Play(workers=1)
    play.own(1)
    play.answer("a")
    play.do(done(1, "a"), ready(1))
    play.answer("b", "c")
    commands = play.do(hold())
    assert records(commands, rec.Requeued) == [rec.Requeued(IssueId("c"))]


def test_one_that_is_to_end_its_task_ends_it_paused_or_not() -> None:
    play = waiting()
    play.answer("a")
    play.do(ReleaseAskedFor(TICKET, (IssueId("a"),)), hold())
    assert notes(play.wait(1000.0), "error") == ["W1 did not end a in time"]


def test_an_unknown_worker_is_an_error() -> None:
    play = waiting()
    (answer,) = of(play.do(hold("W1", "W9")), Answer)
    assert (answer.text, answer.error) == ("paused: W1", "no such worker: W9")
    assert answer.not_found


def test_a_new_process_of_a_paused_worker_of_ours_is_paused() -> None:
    play = Play(1)
    play.own(1)
    play.quiet()
    play.do(hold())
    play.do(ev.Disconnected(ConnId(1)))
    play.reap(1)
    play.wait(limits.RESPAWN_DELAY_SECONDS)
    play.do(ev.WorkerSpawned("W1", 202))
    play.connect(2, 202)
    assert sent_messages(play.do(asks(2)), 2) == [wire.Pause(BY_HAND)]


def test_what_is_claimed_goes_back_where_every_worker_is_paused() -> None:
    play = Play(idle_timeout_seconds=50.0)
    play.connect(1)
    play.do(asks(), hold())
    assert records(play.answer("a"), rec.Requeued) == [rec.Requeued(IssueId("a"))]
    for _ in range(20):
        play.quiet()
        play.wait(5.0)
    assert play.core.state is RunState.STOPPING, "--idle-timeout does not wait for it"


def test_it_is_shown() -> None:
    play = waiting()
    play.do(hold())
    (row,) = status(play.board, 0.0)["workers"]
    assert row["paused"] == BY_HAND
    play.do(let_go())
    (row,) = status(play.board, 0.0)["workers"]
    assert row["paused"] is None


# --- a worker pauses the orchestrator -------------------------------------------------------------


def test_a_worker_asks_for_nothing_until_it_says_resume() -> None:
    play = waiting()
    play.do(ev.Received(ConnId(1), wire.Pause("lunch")))
    commands = play.answer("a") + play.wait(60.0)
    assert not sent_messages(commands, 1)
    play.quiet()
    play.do(ev.Received(ConnId(1), wire.Resume()))
    assert task_of(play.answer("b"), 1) == "b"


def test_both_have_to_resume() -> None:
    play = waiting()
    play.do(ev.Received(ConnId(1), wire.Pause()), hold())
    play.do(ev.Received(ConnId(1), wire.Resume()))
    assert [e.record for e in play.entries if isinstance(e.record, rec.WorkerResumed)] == []
    play.do(let_go())
    assert [e.record for e in play.entries if isinstance(e.record, rec.WorkerResumed)]


def test_version_1_has_no_pause() -> None:
    play = Play()
    play.join(1, v1=True)
    assert len(notes(play.do(ev.Received(ConnId(1), wire.Pause())), "error")) == 1
    assert task_of(play.answer("a"), 1) == "a"


# --- the worker -----------------------------------------------------------------------------------


class Book:
    """One worker half with room for three tasks."""

    def __init__(self, *, suspends: bool = False, timeout: float | None = None) -> None:
        plan = Plan((RUN,), "i", "", "l", "o")
        work = Work(suspends=suspends, timeout_seconds=timeout)
        self.now = 100.0
        self.half = WorkerHalf("W1", work, lambda task: plan, heartbeat_seconds=None, batch_size=3)
        self.tell(CONNECTED)
        tasks = [wire.Task(IssueId(i), 2, i, request_id=f"r-{i}") for i in ("a", "b")]
        self.tell(wev.MessageReceived(wire.Batch(tuple(tasks))))

    def tell(self, *events: wev.Event) -> list[object]:
        """What it says, and what it asks its edge for, at the last of these events."""
        commands: list[wev.Command] = []
        for event in events:
            commands = self.half.handle(event, self.now)
        return [c.message if isinstance(c, wev.SendMessage) else c for c in commands]


PAUSED, RESUMED = wev.MessageReceived(wire.Pause("x")), wev.MessageReceived(wire.Resume())
DONE_A = wire.Done(IssueId("a"), "W1", 0)


def test_it_begins_nothing_that_is_queued_until_resume() -> None:
    book = Book()
    assert book.tell(PAUSED) == []
    assert book.tell(OK) == [DONE_A]
    assert book.half.state is WorkerState.HELD and book.half.deadline() is None
    assert book.tell(PAUSED) == []
    (step,) = book.tell(RESUMED)
    assert isinstance(step, wev.RunStep) and book.half.state is WorkerState.WORKING


def test_what_is_taken_from_it_meanwhile_leaves_it_ready() -> None:
    book = Book()
    book.tell(PAUSED, OK)
    failed, ready = book.tell(wev.MessageReceived(wire.Cancel(IssueId("b"), wire.REVOKED)))
    assert isinstance(failed, wire.Failed) and isinstance(ready, wire.Ready)
    assert book.half.state is WorkerState.ASKING
    assert book.tell(RESUMED) == []


@pytest.mark.parametrize(("end", "status"), [(SHUTDOWN, 0), (LOST, 1)])
def test_it_leaves_while_it_is_paused(end: wev.Event, status: int) -> None:
    book = Book()
    book.tell(PAUSED, OK)
    commands = book.tell(end)
    assert wev.Exit(status) in commands


def test_a_command_that_can_bear_it_is_stopped_and_its_time_with_it() -> None:
    book = Book(suspends=True, timeout=10.0)
    book.now += 4.0
    assert book.tell(PAUSED) == [wev.SuspendStep(on=True)]
    assert book.half.deadline() is None
    book.now += 1000.0
    assert book.tell(RESUMED) == [wev.SuspendStep(on=False)]
    assert book.half.deadline() == book.now + 6.0
    book.now += 1.0
    (done_a, _) = book.tell(OK)
    assert done_a == wire.Done(IssueId("a"), "W1", 5000), "of which nothing was the pause"


@pytest.mark.parametrize(
    "end", [SHUTDOWN, LOST, wev.MessageReceived(wire.Cancel(IssueId("a"), "x"))]
)
def test_what_is_to_be_ended_goes_on_first(end: wev.Event) -> None:
    book = Book(suspends=True)
    book.tell(PAUSED)
    commands = [c for c in book.tell(end) if isinstance(c, wev.SuspendStep | wev.EndStep)]
    assert commands == [wev.SuspendStep(on=False), wev.EndStep(hard=False)]


def test_without_that_option_its_command_goes_on() -> None:
    book = Book(timeout=10.0)
    assert book.tell(PAUSED) == [] and book.half.deadline() == 110.0
