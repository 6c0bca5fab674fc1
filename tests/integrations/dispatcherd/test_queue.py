"""The queue: every task is taken once, in order, when it may be; nothing is counted for ever."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from beads_workers.core.base.model import IssueId
from beads_workers.integrations.dispatcherd.queue import QueuedTask, TaskPosition, TaskQueue
from beads_workers.integrations.dispatcherd.wire import OnDuplicate, TaskCall
from tests.support.shares import examples

EPOCH = 1_700_000_000.0


class Bench:
    """A queue with its clock."""

    def __init__(self) -> None:
        self.queue = TaskQueue()
        self.now = 100.0
        self.queue.adopt((), self.now, EPOCH)

    def send(self, task: str = "a.b", **fields: Any) -> QueuedTask:
        entry = self.queue.make(TaskCall(task, **fields), "channel", EPOCH, 10)
        self.queue.enter(entry, self.now, EPOCH)
        return entry

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.queue.on_deadline(self.now)

    def take(self, limit: int = 10, skip: tuple[str, ...] = ()) -> list[str]:
        return [e.issue_id for e in self.queue.take(limit, [IssueId(i) for i in skip])]

    def end(self, issue_id: str) -> None:
        self.queue.ended(IssueId(issue_id))


def test_tasks_are_taken_oldest_first_and_once() -> None:
    bench = Bench()
    for uuid in "abc":
        bench.send(uuid=uuid)
    assert bench.queue.has_news
    assert (bench.take(2), bench.take(2), bench.take(2)) == (["a", "b"], ["c"], [])


def test_what_is_to_be_skipped_stays_where_it_is() -> None:
    bench = Bench()
    for uuid in "abc":
        bench.send(uuid=uuid)
    assert bench.take(1, skip=("a",)) == ["b"]
    assert bench.take() == ["a", "c"]


def test_what_is_put_back_comes_before_all_others() -> None:
    bench = Bench()
    for uuid in "abc":
        bench.send(uuid=uuid)
    bench.take(1)
    bench.queue.put_back(IssueId("a"))
    assert bench.take() == ["a", "b", "c"]


def test_a_task_without_a_uuid_gets_one() -> None:
    bench = Bench()
    bench.send(uuid="x")
    assert bench.send().issue_id == "internal-2"


def test_the_same_uuid_twice_are_two_tasks() -> None:
    bench = Bench()
    bench.send(uuid="x")
    bench.send(uuid="x")
    assert bench.take() == ["x", "x~2"]
    bench.end("x")
    assert bench.send(uuid="x").issue_id == "x", "the first is over"


def test_a_delayed_task_waits_for_its_time() -> None:
    bench = Bench()
    bench.send(uuid="late", delay=5.0)
    bench.send(uuid="soon", delay=1.0)
    assert bench.take() == []
    assert (bench.queue.deadline(), bench.queue.later_count) == (101.0, 2)
    bench.pass_time(1.0)
    assert bench.take() == ["soon"]
    bench.pass_time(4.0)
    assert bench.take() == ["late"]
    assert bench.queue.deadline() is None


def test_a_delay_goes_on_while_nobody_runs_and_is_never_longer_than_it_was() -> None:
    for later, left in ((3.0, 2.0), (-1000.0, 5.0), (9.0, 0.0)):
        queue = TaskQueue()
        entry = QueuedTask(1, IssueId("a"), TaskCall("a.b", delay=5.0), "", EPOCH, 10)
        queue.restore([entry], 1)
        queue.adopt([entry], 100.0, EPOCH + later)
        assert (queue.deadline() or 100.0) == 100.0 + left


def test_discard_drops_what_is_queued_running_or_blocked_already() -> None:
    bench = Bench()
    bench.send(uuid="a", args=(1,))
    dropped = bench.send(uuid="b", args=(1,), on_duplicate="discard")
    other = bench.send(uuid="c", args=(2,), on_duplicate="discard")
    assert (dropped.place, other.place) == (TaskPosition.OVER, TaskPosition.QUEUED)
    assert bench.queue.finished == [2]
    assert bench.take() == ["a", "c"]
    assert bench.send(uuid="d", args=(2,), on_duplicate="discard").place is TaskPosition.OVER
    bench.end("c")
    assert bench.send(uuid="e", args=(2,), on_duplicate="discard").place is TaskPosition.QUEUED


def test_serial_waits_for_its_turn_however_many_there_are() -> None:
    bench = Bench()
    for uuid in "abc":
        bench.send(uuid=uuid, on_duplicate="serial")
    assert (bench.take(), bench.queue.later_count) == (["a"], 2)
    bench.end("a")
    assert bench.take() == ["b"]
    bench.end("b")
    assert bench.take() == ["c"]
    bench.end("c")
    assert bench.queue.later_count == 0


def test_queue_one_keeps_one_that_waits_and_drops_the_others() -> None:
    bench = Bench()
    places = [bench.send(uuid=u, on_duplicate="queue_one").place for u in "abc"]
    assert places == [TaskPosition.QUEUED, TaskPosition.BLOCKED, TaskPosition.OVER]
    bench.take()
    bench.end("a")
    assert bench.take() == ["b"]


def test_what_waits_for_another_try_still_counts_as_there() -> None:
    bench = Bench()
    bench.send(uuid="a", on_duplicate="serial")
    bench.send(uuid="b", on_duplicate="serial")
    bench.take()
    bench.queue.put_back(IssueId("a"))
    assert bench.take(10, skip=("a",)) == []


def test_only_what_nobody_has_taken_is_cancelled_here() -> None:
    bench = Bench()
    for uuid, more in (("a", {}), ("b", {}), ("c", {"delay": 9.0})):
        bench.send(uuid=uuid, on_duplicate="serial", **more)
    bench.send("other.task", uuid="d")
    assert bench.take(1) == ["a"]
    assert [e.issue_id for e in bench.queue.untaken()] == ["b", "d", "c"]
    assert bench.queue.cancel([IssueId(i) for i in ("a", "b", "c", "d", "x")]) == 3
    assert sorted(bench.queue.finished) == [2, 3, 4]
    bench.pass_time(10.0)
    bench.end("a")
    assert bench.take() == []


def test_what_an_earlier_run_left_comes_before_what_came_since() -> None:
    queue = TaskQueue()
    old = [QueuedTask(n, IssueId(f"old-{n}"), TaskCall("a.b"), "", EPOCH, 10) for n in (3, 5)]
    queue.restore(old, 7)
    early = queue.make(TaskCall("a.b", uuid="new"), "", EPOCH, 10)
    queue.enter(early, 100.0, EPOCH)
    assert (early.number, queue.take(9, ())) == (8, [])
    queue.ended(IssueId("old-5"))
    queue.adopt(old, 100.0, EPOCH)
    assert [e.issue_id for e in queue.take(9, ())] == ["old-3", "new"]
    assert queue.finished == [5]


def test_a_queue_is_full_by_bytes() -> None:
    queue = TaskQueue(bytes_max=1000)
    queue.adopt((), 0.0, EPOCH)
    entry = queue.make(TaskCall("a.b", uuid="a"), "", EPOCH, 600)
    assert queue.is_full
    queue.enter(entry, 0.0, EPOCH)
    queue.take(1, ())
    queue.ended(IssueId("a"))
    assert not queue.is_full


RULES = [each.value for each in OnDuplicate]


class Tasks(RuleBasedStateMachine):
    """Whatever is sent, taken, put back, cancelled and ended: each task comes to one end."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.sent: dict[int, QueuedTask] = {}
        self.out: list[str] = []
        self.finished: list[int] = []

    @rule(
        work=st.integers(0, 2), how=st.sampled_from(RULES), delay=st.sampled_from([0.0, 0.0, 2.0])
    )
    def send(self, work: int, how: str, delay: float) -> None:
        entry = self.bench.send(args=(work,), on_duplicate=how, delay=delay)
        self.sent[entry.number] = entry

    @rule(limit=st.integers(1, 3))
    def take(self, limit: int) -> None:
        self.out += self.bench.take(limit)

    @rule(back=st.booleans(), at=st.integers(0, 5))
    def finish(self, back: bool, at: int) -> None:
        if not self.out:
            return
        issue_id = IssueId(self.out.pop(at % len(self.out)))
        if back:
            self.bench.queue.put_back(issue_id)
        else:
            self.bench.queue.ended(issue_id)

    @rule(number=st.integers(1, 20))
    def cancel(self, number: int) -> None:
        if number in self.sent:
            self.bench.queue.cancel([self.sent[number].issue_id])

    @rule(seconds=st.sampled_from([0.5, 3.0]))
    def wait(self, seconds: float) -> None:
        self.bench.pass_time(seconds)

    @invariant()
    def each_is_in_one_place(self) -> None:
        queue = self.bench.queue
        self.finished += queue.finished
        queue.finished.clear()
        over = {n for n, entry in self.sent.items() if entry.place is TaskPosition.OVER}
        assert sorted(self.finished) == sorted(over)
        untaken = [entry.number for entry in queue.untaken()]
        taken = [n for n, entry in self.sent.items() if entry.place is TaskPosition.TAKEN]
        assert sorted([*untaken, *taken, *over]) == sorted(self.sent)
        assert queue.waiting_count + queue.later_count == len(untaken)

    @invariant()
    def what_is_serial_never_runs_beside_its_like(self) -> None:
        running = [entry for entry in self.sent.values() if entry.place is TaskPosition.TAKEN]
        for entry in running:
            if entry.task.on_duplicate == "serial":
                like = [o for o in running if o.task.args == entry.task.args and o is not entry]
                # Others may have come later, and run beside whatever there is.
                assert all(o.task.on_duplicate == "parallel" for o in like)

    def teardown(self) -> None:
        """In the end nothing is left, and nothing is remembered."""
        for _ in range(3 * len(self.sent) + 1):
            self.bench.pass_time(5.0)
            self.out += self.bench.take(100)
            while self.out:
                self.bench.end(self.out.pop())
        queue = self.bench.queue
        assert all(entry.place is TaskPosition.OVER for entry in self.sent.values())
        assert (queue.waiting_count, queue.later_count, queue._bytes) == (0, 0, 0)
        assert not queue._duplicates._active and not queue._duplicates._blocked


TestTasks = Tasks.TestCase
TestTasks.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
