"""The fleet's view of dispatcherd's tasks: each is a job, and its end is written to the spool."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from beads_workers.core.base import source
from beads_workers.core.base.model import Call, IssueId, Job, ListedIssue, OutcomeKind
from beads_workers.core.base.times import write_time
from beads_workers.core.base.traces import KEY
from beads_workers.integrations.dispatcherd.queue import QueuedTask, TaskPosition, TaskQueue
from beads_workers.integrations.dispatcherd.spool import Spool, look_at
from beads_workers.integrations.dispatcherd.wire import to_fields

# --- lookups -------------------------------------------------------------------------------------
# Tasks as they are shown to people who ask why they do not run. No I/O.


def seen_of(entries: Iterable[QueuedTask]) -> dict[IssueId, source.TrackedIssue]:
    """Return these unfinished tasks, oldest first, for display.

    A blocked task waits for the first active task with the same work.
    """
    listed = list(entries)
    blocked = [entry for entry in listed if entry.place is TaskPosition.BLOCKED]
    kinds = {entry.same_work() for entry in blocked}
    first: dict[str, IssueId] = {}
    for entry in listed:
        if kinds and entry.place in _ACTIVE and (kind := entry.same_work()) in kinds:
            first.setdefault(kind, entry.issue_id)
    return {entry.issue_id: _seen(entry, first) for entry in listed}


_ACTIVE = (TaskPosition.QUEUED, TaskPosition.TAKEN)


def _seen(entry: QueuedTask, first: dict[str, IssueId]) -> source.TrackedIssue:
    before = first.get(entry.same_work()) if entry.place is TaskPosition.BLOCKED else None
    return source.TrackedIssue(
        entry.issue_id,
        entry.task.task,
        "open",
        waits_for=(before,) if before else (),
        deferred_until=_until(entry) if entry.place is TaskPosition.DELAYED else "",
        calls=entry.task.task,
    )


def _until(entry: QueuedTask) -> str:
    try:
        return write_time(entry.received_at + entry.task.delay)
    except ValueError:
        return ""  # Beyond the last year that can be written.


# --- source --------------------------------------------------------------------------------------
# The fleet's view of dispatcherd's tasks: each is a job, and its end is written to the spool.


COUNT_SECONDS = 0.5
"""Interval at which the number of waiting tasks is reported to people."""
LISTED_MAX = 200
TIMEOUT_SECONDS_MIN = 0.001
"""Timeout of a task with a negative one: the task begins, and is over at once."""
INTERRUPTED = "it was running when the orchestrator ended, and is not run twice"


class DispatcherdSource:
    """See ``Source``. It belongs to the thread of the loop.

    Only ``recover`` and ``sync`` are called from another thread, and touch nothing that the loop
    uses. Before ``open`` the source only looks: a fleet may be using the file.
    ``retries_interrupted``: tasks that a crashed run had begun are run once more; otherwise they
    are over.
    """

    name = "dispatcherd"
    self_claiming = False

    def __init__(
        self,
        queue: TaskQueue,
        path: Path,
        *,
        actor: str,
        place: str,
        calls_functions: bool,
        retries_interrupted: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.queue = queue
        self.path = path
        self.spool: Spool | None = None
        self.actor = actor
        self.calls = source.Calls()
        self.is_ending = False
        """Set by the ingress: tasks cancelled from now on were cancelled because the fleet ends."""
        self.troubles: list[str] = []
        """Messages for people, a line each; cleared by the one who shows them."""
        self._place = place
        self._calls_functions = calls_functions
        self._retries_interrupted = retries_interrupted
        self._clock = clock
        self._wall_clock = wall_clock
        self._counted = 0
        self._counted_at = float("-inf")
        self._ended: set[IssueId] = set()
        self._lost: set[IssueId] = set()
        self._adopted = False
        self._left = look_at(path)
        self._known = frozenset(e.issue_id for e in self._left.entries.values())
        queue.restore(self._left.entries.values(), self._left.last)

    def open(self) -> None:
        """Begin the spool: from now on arriving tasks are kept. Raises ``OSError``."""
        self.spool = Spool(self.path, self._left)
        if self._left.damaged:
            self.troubles.append(
                f"{self._left.damaged} lines of {self.path} were damaged, and are kept beside it"
            )

    def describe(self) -> str:
        """Return where tasks come from, and how many were left."""
        left = f"; {len(self._known)} tasks left by an earlier run" if self._known else ""
        return f"dispatcherd tasks from {self._place}{left}"

    def take(self, limit: int, skip: Collection[IssueId]) -> source.Taken:
        """Return the next tasks, oldest first."""
        if not self._adopted:
            self._adopt()
        if self.spool is None:
            return self._listed()
        jobs = tuple(self._job(entry) for entry in self.queue.take(limit, skip))
        return source.Taken(jobs, waiting=self._count(), later=self.queue.later_count)

    def settle(self, settlements: Sequence[source.Settlement]) -> list[source.Settled]:
        """End the tasks; requeue those that were never started, or are to be tried again.

        The ends are written to the spool before the journal says that nothing is pending. Otherwise
        a task whose end only the journal knows would run again after a crash.
        """
        for settlement in settlements:
            if self._is_over(settlement):
                self.queue.ended(settlement.issue_id)
            else:
                self.queue.put_back(settlement.issue_id)
        self.note_over()
        return [source.Settled(settlement, source.Result.APPLIED) for settlement in settlements]

    def renew(self, issue_ids: Sequence[IssueId]) -> source.Renewed:
        """Do nothing: there are no leases."""
        return source.Renewed()

    def recover(self, dead: source.CrashedRun) -> list[source.Settled]:
        """Settle the tasks of a crashed run.

        Finished tasks are over. Tasks that were running are over, too, unless they may be run
        again.
        """
        settled = [self._closed(i) for i in (*dead.unclosed, *dead.handed_back)]
        for issue_id in dead.begun:
            if issue_id not in self._known:
                continue
            if self._retries_interrupted:
                settled.append(
                    source.Settled(
                        source.Settlement(source.Action.RELEASE, issue_id), source.Result.APPLIED
                    )
                )
            else:
                self._lost.add(issue_id)
                settled.append(self._closed(issue_id, INTERRUPTED))
        return settled

    def look(self, issue_ids: Sequence[IssueId]) -> dict[IssueId, source.TrackedIssue]:
        """Return those of these tasks that are not over."""
        wanted = set(issue_ids)
        return {issue_id: seen for issue_id, seen in self._seen().items() if issue_id in wanted}

    def unfinished(self, rows_max: int) -> list[source.TrackedIssue]:
        """Return the unfinished tasks, oldest first."""
        return list(self._seen().values())[:rows_max]

    def ready(self) -> frozenset[IssueId]:
        """Return the tasks that only need a worker."""
        self._seen()
        return frozenset(e.issue_id for e in self.queue.all() if e.place is TaskPosition.QUEUED)

    def note_over(self) -> None:
        """Write finished tasks to the spool.

        Raises ``OSError``: then they are still to be written.
        """
        if self.queue.finished and self.spool is not None:
            self.spool.append((), self.queue.finished)
            self.queue.finished.clear()

    def sync(self) -> None:
        """Flush the spool to disk."""
        if self.spool is not None:
            self.spool.sync()

    def close(self) -> None:
        """Do nothing: the ingress closes the spool."""

    # --- inside -------------------------------------------------------------------------------

    def _closed(self, issue_id: IssueId, note: str = "") -> source.Settled:
        self._ended.add(issue_id)
        return source.Settled(
            source.Settlement(source.Action.CLOSE, issue_id, note), source.Result.APPLIED, note
        )

    def _adopt(self) -> None:
        """End the tasks of an earlier run that recovery found to be over, and adopt the others."""
        self._adopted = True
        for issue_id in self._ended & self._known:
            self.queue.ended(issue_id)
        for issue_id in self._lost & self._known:
            self.troubles.append(f"{issue_id}: {INTERRUPTED}")
        self.queue.adopt(self._left.entries.values(), self._clock(), self._wall_clock())
        self._left.entries.clear()

    def _seen(self) -> dict[IssueId, source.TrackedIssue]:
        if not self._adopted and self.spool is None:
            self._adopt()
        return seen_of(self.queue.all())

    def _listed(self) -> source.Taken:
        """Return the waiting tasks for display; a fleet learns of waiting tasks as it takes
        them."""
        waiting = [e for e in self.queue.untaken() if e.place is TaskPosition.QUEUED]
        rows = tuple(ListedIssue(e.issue_id, e.task.task) for e in waiting[:LISTED_MAX])
        return source.Taken(
            listed=rows, more=len(waiting) > len(rows), blocked=self.queue.later_count
        )

    def _is_over(self, settlement: source.Settlement) -> bool:
        if settlement.action is not source.Action.RELEASE:
            return settlement.action is not source.Action.REOPEN
        outcome = settlement.outcome
        if outcome is None:
            return False
        interrupted = self.is_ending and outcome.kind is OutcomeKind.CANCELLED
        return not (interrupted and self._retries_interrupted)

    def _count(self) -> int:
        # Exact if it decides anything; otherwise updated rarely, because each change is a record.
        now, waiting = self._clock(), self.queue.waiting_count
        if not waiting or not self._counted or now >= self._counted_at + COUNT_SECONDS:
            self._counted, self._counted_at = waiting, now
        return self._counted

    def _job(self, entry: QueuedTask) -> Job:
        task, message = entry.task, message_of(entry)
        call = named = None
        if self._calls_functions:
            rest = {name: value for name, value in message.items() if name not in _CALLED}
            call = Call(task.task, task.args, task.kwargs, rest)
        else:
            named = Call(task.task, task.args, task.kwargs)
            message = {"id": entry.issue_id, "title": task.task, **message}
        return Job(
            self.name,
            entry.issue_id,
            task.task,
            issue_type="task",
            call=call,
            named=named,
            timeout_seconds=max(task.timeout, TIMEOUT_SECONDS_MIN) if task.timeout else None,
            original=message,
            enqueued_at=entry.received_at,
            trace_context=message.get(KEY),
        )


_CALLED = frozenset(("task", "args", "kwargs"))


def message_of(entry: QueuedTask) -> dict[str, Any]:
    """Return the message as the real service shows it: with its uuid, and its channel if any."""
    fields = to_fields(entry.task)
    fields.setdefault("uuid", entry.issue_id)
    return fields | ({"channel": entry.channel} if entry.channel else {})
