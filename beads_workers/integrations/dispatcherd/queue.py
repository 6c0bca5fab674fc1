"""The tasks of a fleet from their arrival to their end: no I/O; the time is an argument."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from beads_workers.core.base.model import IssueId
from beads_workers.core.schedule.effects import Timers
from beads_workers.integrations.dispatcherd.wire import OnDuplicate, TaskCall

# --- entries -------------------------------------------------------------------------------------
# One task that a broker has delivered.


class TaskPosition(Enum):
    """Position of a task; the values are the words of dispatcherd's ``running``."""

    ARRIVING = "arriving"
    """Not entered yet."""
    DELAYED = "delayed"
    BLOCKED = "blocked"
    """Waits for the end of another task with the same work."""
    QUEUED = "queued"
    TAKEN = "worker"
    """Taken by the scheduler: with a worker, about to be, or waiting for another attempt."""
    OVER = "over"


@dataclass(slots=True, eq=False)
class QueuedTask:
    """One task."""

    # Counts all tasks, across restarts.
    number: int
    issue_id: IssueId
    task: TaskCall
    channel: str
    # Epoch seconds.
    received_at: float
    # Bytes of its message.
    size: int
    place: TaskPosition = TaskPosition.ARRIVING
    key: str = ""

    def same_work(self) -> str:
        """Return a key that is equal for tasks with the same path and arguments."""
        if not self.key:
            task = self.task
            asked = [task.task, list(task.args), dict(task.kwargs), task.empty]
            self.key = json.dumps(asked, sort_keys=True)
        return self.key


# --- duplicates ----------------------------------------------------------------------------------
# ``on_duplicate``: which tasks are the same work, and which of them may run at the same time.
#
# Two tasks are the same work if path and arguments are equal. A task is active while it is queued
# or taken; a delayed task counts only once its delay is over.


class TaskFate(Enum):
    """Decision about a task that has arrived."""

    QUEUE = "queue"
    BLOCK = "block"
    DISCARD = "discard"


class Duplicates:
    """Applies ``on_duplicate``: call ``judge`` for each arriving task, ``ended`` for each active
    one."""

    def __init__(self) -> None:
        # Most queues only ever see ``parallel``: then nothing is looked up or kept.
        self._active: dict[str, int] | None = None
        self._blocked: dict[str, deque[QueuedTask]] = {}

    def judge(self, entry: QueuedTask, active: Iterable[QueuedTask]) -> TaskFate:
        """Decide about a task, and remember the decision.

        ``active``: all active tasks, without it.
        """
        rule = entry.task.duplicates
        if rule is OnDuplicate.PARALLEL:
            self._begin(entry)
            return TaskFate.QUEUE
        if self._active is None:
            self._active = {}
            for other in active:
                self._begin(other)
        key = entry.same_work()
        waits = key in self._blocked
        if rule is OnDuplicate.DISCARD and (waits or key in self._active):
            return TaskFate.DISCARD
        if rule is OnDuplicate.QUEUE_ONE and waits:
            return TaskFate.DISCARD
        if key in self._active:
            self._blocked.setdefault(key, deque()).append(entry)
            return TaskFate.BLOCK
        self._begin(entry)
        return TaskFate.QUEUE

    def ended(self, entry: QueuedTask) -> QueuedTask | None:
        """Note that an active task has ended; return the task whose turn it is now, now active,
        or None."""
        if self._active is None:
            return None
        key = entry.same_work()
        left = self._active[key] - 1
        if left:
            self._active[key] = left
            return None
        del self._active[key]
        waiting = self._blocked.get(key)
        if not waiting:
            return None
        following = waiting.popleft()
        if not waiting:
            del self._blocked[key]
        self._begin(following)
        return following

    def unblock(self, entry: QueuedTask) -> None:
        """Forget a blocked task that is not wanted any more."""
        key = entry.same_work()
        self._blocked[key].remove(entry)
        if not self._blocked[key]:
            del self._blocked[key]

    def blocked(self) -> Iterator[QueuedTask]:
        """Yield all blocked tasks, those with the same work together."""
        for waiting in self._blocked.values():
            yield from waiting

    def _begin(self, entry: QueuedTask) -> None:
        if self._active is not None:
            key = entry.same_work()
            self._active[key] = self._active.get(key, 0) + 1


# --- queue ---------------------------------------------------------------------------------------
# The tasks of a fleet from their arrival to their end: no I/O; the time is an argument.
#
# A task is entered once it is in the spool; ``finished`` has the numbers of tasks that ended, which
# are to be written there, too. Source: docs/DISPATCHERD.md. Times are monotonic seconds, except
# ``QueuedTask.received_at``.


QUEUE_BYTES_MAX = 256 << 20
"""Most bytes of unfinished messages: beyond that nothing is read, and publishers wait."""
_ENTRY_BYTES = 500
"""Memory for one task besides its message."""


class TaskQueue:
    """All unfinished tasks. Tasks of an earlier run are entered first (``adopt``)."""

    def __init__(self, *, bytes_max: int = QUEUE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._entries: dict[IssueId, QueuedTask] = {}
        self._queued: dict[IssueId, QueuedTask] = {}
        self._requeued: dict[IssueId, QueuedTask] = {}
        """Tasks that were taken and requeued: they go before all others."""
        self._taken: dict[IssueId, QueuedTask] = {}
        self._delayed = Timers[QueuedTask]()
        """The tasks whose delay is not over."""
        self._blocked_count = 0
        self._duplicates = Duplicates()
        self._bytes = 0
        self._last = 0
        self._adopted = False
        self._early: list[QueuedTask] = []
        self.received_count = 0
        """Number of tasks that arrived in this run."""
        self.discarded_count = 0
        self.finished: list[int] = []
        """Numbers of tasks that finished since the list was last cleared."""
        self.has_news = False
        """Whether tasks can be taken that could not before; the one who reports it clears the
        flag."""

    # --- arriving ---------------------------------------------------------------------------------

    def make(self, task: TaskCall, channel: str, received_at: float, size: int) -> QueuedTask:
        """Give a task its number and its name here; ``enter`` it once it is in the spool."""
        self._last += 1
        self.received_count += 1
        uuid = task.uuid or f"internal-{self._last}"
        issue_id = IssueId(uuid)
        if issue_id in self._entries:
            # Publishers may send the same task twice: both run.
            issue_id = IssueId(f"{uuid}~{self._last}")
        entry = QueuedTask(self._last, issue_id, task, channel, received_at, size)
        self._keep(entry)
        return entry

    def enter(self, entry: QueuedTask, now: float, epoch: float) -> None:
        """Queue, delay or block a task that is in the spool now.

        ``epoch``: the wall clock at ``now``.
        """
        if not self._adopted:
            self._early.append(entry)
            return
        # If the wall clock was set back, no task waits longer than its delay.
        left = min(entry.received_at + entry.task.delay - epoch, entry.task.delay)
        if left <= 0:
            self._admit(entry)
            return
        entry.place = TaskPosition.DELAYED
        self._delayed.set(entry, now + left)

    def restore(self, entries: Iterable[QueuedTask], last: int) -> None:
        """Add the tasks that an earlier run left, oldest first, and its last number."""
        self._last = max(self._last, last)
        for entry in entries:
            self._keep(entry)

    def adopt(self, entries: Iterable[QueuedTask], now: float, epoch: float) -> None:
        """Enter these restored tasks before all that arrived since; the other restored ones are
        over."""
        self._adopted = True
        early, self._early = self._early, []
        for entry in (*entries, *early):
            if entry.issue_id in self._entries:
                self.enter(entry, now, epoch)

    def deadline(self) -> float | None:
        """Return when ``on_deadline`` is due."""
        return self._delayed.deadline()

    def on_deadline(self, now: float) -> None:
        """Queue or block the tasks whose delay is over."""
        for entry in self._delayed.due(now):
            self._admit(entry)

    # --- what the fleet does ----------------------------------------------------------------------

    def take(self, limit: int, skip: Collection[IssueId]) -> list[QueuedTask]:
        """Return the next tasks to work on, oldest first; call ``ended`` or ``put_back`` for
        each."""
        taken: list[QueuedTask] = []
        for waiting in (self._requeued, self._queued):
            for entry in waiting.values():
                if len(taken) >= limit:
                    break
                if entry.issue_id not in skip:
                    taken.append(entry)
        for entry in taken:
            (self._requeued if entry.issue_id in self._requeued else self._queued).pop(
                entry.issue_id
            )
            entry.place = TaskPosition.TAKEN
            self._taken[entry.issue_id] = entry
        return taken

    def put_back(self, issue_id: IssueId) -> None:
        """Requeue a taken task."""
        entry = self._taken.pop(issue_id, None)
        if entry is not None:
            entry.place = TaskPosition.QUEUED
            self._requeued[issue_id] = entry
            self.has_news = True

    def ended(self, issue_id: IssueId) -> None:
        """Note the end of a task that was taken, or left by an earlier run; ignore unknown ids."""
        entry = self._entries.get(issue_id)
        if entry is not None:
            self._taken.pop(issue_id, None)
            self._end(entry, active=entry.place is TaskPosition.TAKEN)

    def cancel(self, issue_ids: Iterable[IssueId]) -> int:
        """End those of these tasks that nobody has taken; return how many."""
        count = 0
        for issue_id in issue_ids:
            entry = self._entries.get(issue_id)
            if entry is not None and entry.place in _UNTAKEN:
                self._remove(entry)
                count += 1
        return count

    # --- what people see --------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be read for now."""
        return self._bytes >= self._bytes_max

    @property
    def waiting_count(self) -> int:
        """Number of tasks that could be taken."""
        return len(self._queued) + len(self._requeued)

    @property
    def later_count(self) -> int:
        """Number of tasks that will be queued later by themselves."""
        return len(self._delayed) + self._blocked_count + len(self._early)

    def find(self, issue_id: IssueId) -> QueuedTask | None:
        """Return a task that is not over, or None."""
        return self._entries.get(issue_id)

    def all(self) -> Iterator[QueuedTask]:
        """Return all unfinished tasks, oldest first."""
        return iter(sorted(self._entries.values(), key=lambda entry: entry.number))

    def untaken(self) -> Iterator[QueuedTask]:
        """Yield all tasks that the scheduler does not have: blocked, queued and delayed, in this
        order."""
        yield from self._duplicates.blocked()
        yield from self._requeued.values()
        yield from self._queued.values()
        yield from self._delayed

    # --- inside -----------------------------------------------------------------------------------

    def _keep(self, entry: QueuedTask) -> None:
        self._entries[entry.issue_id] = entry
        self._bytes += entry.size + _ENTRY_BYTES

    def _admit(self, entry: QueuedTask) -> None:
        match self._duplicates.judge(entry, self._active()):
            case TaskFate.QUEUE:
                self._queue(entry)
            case TaskFate.BLOCK:
                entry.place = TaskPosition.BLOCKED
                self._blocked_count += 1
            case TaskFate.DISCARD:
                self.discarded_count += 1
                self._end(entry, active=False)

    def _active(self) -> Iterator[QueuedTask]:
        for each in (self._requeued, self._queued, self._taken):
            yield from each.values()

    def _queue(self, entry: QueuedTask) -> None:
        entry.place = TaskPosition.QUEUED
        self._queued[entry.issue_id] = entry
        self.has_news = True

    def _remove(self, entry: QueuedTask) -> None:
        match entry.place:
            case TaskPosition.DELAYED:
                self._delayed.cancel(entry)
            case TaskPosition.BLOCKED:
                self._blocked_count -= 1
                self._duplicates.unblock(entry)
            case TaskPosition.QUEUED:
                self._queued.pop(entry.issue_id, None)
                self._requeued.pop(entry.issue_id, None)
        self._end(entry, active=entry.place is TaskPosition.QUEUED)

    def _end(self, entry: QueuedTask, *, active: bool) -> None:
        entry.place = TaskPosition.OVER
        del self._entries[entry.issue_id]
        self._bytes -= entry.size + _ENTRY_BYTES
        self.finished.append(entry.number)
        if active and (following := self._duplicates.ended(entry)) is not None:
            self._blocked_count -= 1
            self._queue(following)


_UNTAKEN = (TaskPosition.DELAYED, TaskPosition.BLOCKED, TaskPosition.QUEUED)
