"""BATCH: a TASK, and others that are queued behind it."""

from __future__ import annotations

from beads_workers.core.base import limits, wire
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.plans import NotRunnable, Plan
from beads_workers.core.base.settings import Work
from beads_workers.core.base.states import WorkerState
from beads_workers.core.records import journal as rec
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Command
from beads_workers.core.schedule.events import ConnId
from beads_workers.core.workers import worker_events as wev
from beads_workers.core.workers.worker import WorkerHalf
from tests.core.playbook import (
    Play,
    done,
    job,
    lost,
    notes,
    records,
    sent_messages,
    task_of,
    unstarted,
)
from tests.core.test_worker import CONNECTED, OK, RUN, SHUTDOWN


def asks(conn: int, size: int = 3, *features: str) -> ev.Received:
    """READY of a worker that takes batches."""
    named = frozenset(features or (wire.GROUPED, wire.CANCEL, wire.BATCH))
    return ev.Received(ConnId(conn), wire.Ready("w", "1.1", named, batch_size=size))


def batch_of(commands: list[Command], conn: int = 1) -> list[str]:
    """The issues of the one BATCH that is sent."""
    (batch,) = [m for m in sent_messages(commands, conn) if isinstance(m, wire.Batch)]
    return [task.issue_id for task in batch.tasks]


def batched() -> Play:
    """Worker 1 has a, b and c."""
    play = Play()
    play.connect(1)
    play.do(asks(1))
    assert play.asked() == 3
    assert batch_of(play.answer("a", "b", "c")) == ["a", "b", "c"]
    play.quiet()
    return play


# --- the orchestrator -----------------------------------------------------------------------------


def test_as_many_are_claimed_as_it_takes_and_each_has_its_record() -> None:
    play = batched()
    begun = [e.record.issue_id for e in play.entries if isinstance(e.record, rec.Started)]
    assert begun == ["a", "b", "c"]
    row = play.board.workers["W1"]
    assert (row.issue_id, [s.issue_id for s, _ in row.prefetched]) == ("a", ["b", "c"])


def test_they_are_answered_one_by_one_and_in_any_order() -> None:
    play = batched()
    for issue_id in ("a", "c", "b"):
        (ended,) = records(play.do(done(1, issue_id)), rec.Finished)
        assert (ended.issue_id, ended.outcome) == (issue_id, "success")
    assert not notes(play.do(asks(1)), "error")


def test_one_alone_is_a_plain_task() -> None:
    play = Play()
    play.connect(1)
    play.do(asks(1))
    assert task_of(play.answer("a"), 1) == "a"


def test_it_needs_grouped_and_cancel() -> None:
    play = Play()
    play.connect(1)
    play.do(asks(1, 3, wire.GROUPED, wire.BATCH))
    assert play.asked() == 1


def test_who_waits_gets_its_share_first() -> None:
    play = Play()
    play.connect(1)
    play.do(asks(1, 10))
    play.join(2)
    commands = play.answer("a", "b", "c", "d")
    assert batch_of(commands) == ["a", "b", "c"] and task_of(commands, 2) == "d"


def test_what_it_has_not_begun_is_revoked_only_for_somebody_who_is_idle() -> None:
    play = batched()
    assert not sent_messages(play.wait(60.0), 1), "it has asked for them"
    play.join(2)
    revoked = sent_messages(play.wait(1.0), 1)
    assert revoked == [wire.Cancel(IssueId(i), wire.REVOKED) for i in ("b", "c")]
    play.do(unstarted(1, "b"), unstarted(1, "c"))
    ends = [e.record for e in play.entries if isinstance(e.record, rec.Finished)]
    assert [(r.issue_id, r.charged) for r in ends] == [("b", 0), ("c", 0)]


def test_of_a_lost_worker_only_what_it_had_begun_is_charged() -> None:
    play = batched()
    play.do(lost(1))
    ends = records(play.do(ev.OwnerGone(901)), rec.Finished)
    assert {r.issue_id: (r.outcome, r.charged) for r in ends} == {
        "a": ("lost", 1), "b": ("cancelled", 0), "c": ("cancelled", 0),
    }  # fmt: skip


def test_ready_in_the_middle_brings_the_task_at_hand_again() -> None:
    play = batched()
    play.do(done(1, "a"))
    assert task_of(play.do(asks(1)), 1) == "b"


def test_titles_and_labels_of_a_batch_fit_into_a_line() -> None:
    play = Play()
    play.connect(1)
    play.do(asks(1, 100))
    found = [job(f"j{n}", labels=("x" * 1000,)) for n in range(98)]
    sent = len(batch_of(play.answer(*found)))
    assert 60 < sent <= limits.BATCH_CHARS_MAX // 1000 + 2


# --- the worker -----------------------------------------------------------------------------------


class Book:
    """One worker half that takes three tasks at once."""

    def __init__(self) -> None:
        plan = Plan((RUN,), "i", "", "l", "o")
        self.half = WorkerHalf(
            "W1",
            Work(),
            lambda task: _REFUSED if task.issue_id.startswith("odd") else plan,
            heartbeat_seconds=None,
            batch_size=3,
        )
        (ready,) = self.tell(CONNECTED)
        features = frozenset({wire.BATCH, wire.CANCEL, wire.GROUPED, wire.PAUSE, wire.STATUS})
        assert ready == wire.Ready("W1", "1.1", features, batch_size=3)

    def tell(self, event: wev.Event) -> list[object]:
        """What it says, and what it runs."""
        commands = self.half.handle(event, 100.0)
        return [c.message if isinstance(c, wev.SendMessage) else c for c in commands]

    def batch(self, *issue_ids: str) -> list[str]:
        """A BATCH comes; what it does about it, in short."""
        tasks = [wire.Task(IssueId(i), 2, i, request_id=f"r-{i}") for i in issue_ids]
        return _short(self.tell(wev.MessageReceived(wire.Batch(tuple(tasks)))))


_REFUSED = NotRunnable("no way")


def _short(commands: list[object]) -> list[str]:
    return [f"{type(c).__name__} {getattr(c, 'issue_id', '')}".strip() for c in commands]


def test_a_worker_begins_the_first_and_the_others_in_their_order() -> None:
    book = Book()
    assert book.batch("a", "b", "c") == ["RunStep"]
    assert _short(book.tell(OK)) == ["Done a", "RunStep"]
    assert _short(book.tell(OK)) == ["Done b", "RunStep"]
    assert _short(book.tell(OK)) == ["Done c", "Ready"]


def test_it_says_ready_only_when_none_is_left() -> None:
    book = Book()
    assert book.batch("odd", "b") == ["Failed odd", "RunStep"]
    assert _short(book.tell(OK)) == ["Done b", "Ready"]
    assert book.batch("odd-1", "odd-2") == ["Failed odd-1", "Failed odd-2", "Ready"]
    assert book.half.state is WorkerState.ASKING


def test_it_returns_what_it_has_not_begun() -> None:
    book = Book()
    book.batch("a", "b", "c")
    cancel = wev.MessageReceived(wire.Cancel(IssueId("b"), wire.REVOKED))
    assert _short(book.tell(cancel)) == ["Failed b"]
    assert _short(book.tell(SHUTDOWN)) == ["Failed c", "EndStep"]
