"""What workers are told: TASK, WAIT, SHUTDOWN, CANCEL, and the deadlines that go with them.

Source: docs/PROTOCOL.md, "Messages".
"""

from __future__ import annotations

import math

from beads_workers.core import limits
from beads_workers.core.commands import HangUp, Send
from beads_workers.core.desk import jitter
from beads_workers.core.events import ConnId
from beads_workers.core.held import Held
from beads_workers.core.jobs import IssueId, Job
from beads_workers.core.message_types import RECALLED, Cancel, Shutdown, Task, ToWorker, Wait
from beads_workers.core.parts import Parts
from beads_workers.core.records import WorkerStopping
from beads_workers.core.roster import Connection
from beads_workers.core.scripts import to_payload
from beads_workers.core.states import ConnState, ConnStimulus
from beads_workers.core.values import value


@value
class HoldOver:
    """Timer key: a held READY is answered with WAIT now."""

    conn_id: ConnId


@value
class Overdue:
    """Timer key: a worker should have ended its task by itself long ago."""

    conn_id: ConnId


RECALL = "recall"
"""Timer key: look whether TASKs wait behind one that takes long."""


class Replies:
    """Everything that is sent to a worker goes through here."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._desk = parts.desk
        self._roster = parts.roster
        self._tasks = parts.tasks
        self._timers = parts.desk.timers

    def deliver(self, connection: Connection, held: Held) -> None:
        """Give it this job: at once, or after the tracker was told that it claims by itself."""
        self._timers.cancel(HoldOver(connection.conn_id))
        connection.issue_id = held.job.issue_id
        if self._parts.literal and not connection.grouped:
            self._roster.move(connection, ConnStimulus.RESERVED)
            self._tasks.reserve(held, connection.conn_id, connection.worker_id)
        else:
            self.start(connection, held)

    def start(self, connection: Connection, held: Held) -> None:
        """TASK: a new attempt begins."""
        self._send_task(connection, held)
        self._watch(connection, held)

    def send_behind(self, connection: Connection, held: Held) -> None:
        """TASK, for a worker that has one already: it keeps this one for later."""
        held.behind = True
        connection.ahead.append(held.job.issue_id)
        self._send_task(connection, held)
        if RECALL not in self._timers:
            self._timers.set(RECALL, self._desk.now + limits.RECALL_SECONDS)

    def _send_task(self, connection: Connection, held: Held) -> None:
        self._tasks.begin(held, connection.conn_id, connection.worker_id)
        self._roster.move(connection, ConnStimulus.TASK_SENT)
        self.say(connection, self._task(connection, held))

    def ended(self, connection: Connection, issue_id: IssueId) -> None:
        """It does not have this one any more; after its task it begins the next that it kept."""
        if issue_id != connection.issue_id:
            connection.ahead.remove(issue_id)
            return
        connection.issue_id = None
        self._timers.cancel(Overdue(connection.conn_id))
        if connection.ahead:
            self._begins_next(connection)

    def _begins_next(self, connection: Connection) -> None:
        connection.issue_id = connection.ahead.pop(0)
        held = self.held(connection)
        assert held is not None, "what it keeps is held"
        held.behind, held.started_at = False, self._desk.now
        if held.cancelled == RECALLED:
            held.cancelled = ""  # It came too late, and its worker takes no notice.
        self._watch(connection, held)

    def recall(self) -> None:
        """What waits behind a task that takes long comes back: others may be free."""
        waits = [c for c in self._roster.in_state(ConnState.BUSY) if c.ahead]
        for connection in waits:
            held = self.held(connection)
            assert held is not None, "a busy connection has a job"
            if self._desk.now - held.started_at >= limits.RECALL_SECONDS:
                for issue_id in connection.ahead:
                    self.end_attempt(self._tasks.held[issue_id], RECALLED)
        if waits:
            self._timers.set(RECALL, self._desk.now + limits.RECALL_SECONDS)

    def repeat_task(self, connection: Connection) -> None:
        """It asks for work while it has some: the same TASK again, never a second one."""
        held = self.held(connection)
        assert held is not None, "a busy connection has a job"
        self.note_stray(connection, f"said READY while it has {held.job.issue_id}")
        self.say(connection, self._task(connection, held))

    def note_stray(self, connection: Connection, text: str) -> None:
        """Log what makes no sense; a peer that goes on like this must not fill the disk."""
        connection.strays += 1
        if connection.strays <= limits.BAD_LINES_SHOWN:
            self._desk.note("error", f"{connection.worker_id} {text}")

    def tell_to_wait(self, connection: Connection, seconds: int | None = None) -> None:
        """WAIT, and no more is owed."""
        self._timers.cancel(HoldOver(connection.conn_id))
        self._roster.move(connection, ConnStimulus.WAIT_SENT)
        self.say(connection, Wait(seconds or self._wait_seconds(connection)))

    def will_leave(self, connection: Connection) -> None:
        """It takes no more tasks. Say so before its task is cleared: at no moment could it be given
        another one."""
        self._roster.retire(connection)
        self._desk.write(WorkerStopping(connection.worker_id))

    def shut_down(self, connection: Connection) -> None:
        """SHUTDOWN: the worker ends what it does, and leaves."""
        self._timers.cancel(HoldOver(connection.conn_id))
        if connection.state is ConnState.RESERVED and (held := self.held(connection)):
            connection.issue_id = None
            self._tasks.unreserve(held)
        self._roster.move(connection, ConnStimulus.SHUTDOWN_SENT)
        reason = "user_requested" if connection.retiring else self._parts.reason
        self.say(connection, Shutdown(reason))

    def cancel(self, held: Held, reason: str) -> bool:
        """Take a running task away; False where its worker does not understand that."""
        connection = self._roster.get(held.conn_id) if held.conn_id is not None else None
        if connection is None or not connection.cancellable:
            return False
        held.cancelled = reason
        self.say(connection, Cancel(held.job.issue_id, reason))
        if not held.behind:
            self._watch(connection, held)
        return True

    def end_attempt(self, held: Held, reason: str) -> None:
        """Its claim is gone: its worker must end it, or be gone itself."""
        connection = self._roster.get(held.conn_id) if held.conn_id is not None else None
        if connection is None or held.cancelled or self.cancel(held, reason):
            return
        # It does not understand CANCEL; without its connection a worker ends what it does.
        held.cancelled = reason
        self._desk.ask(HangUp(connection.conn_id, reason))

    def say(self, connection: Connection, message: ToWorker) -> None:
        """Send under the id that we gave it."""
        self._desk.ask(
            Send(connection.conn_id, connection.worker_id or "W0", message, connection.v1)
        )

    def grace(self, connection: Connection) -> float:
        """How long its task may take to end, in seconds; one that calls the tracker has a close."""
        calls = 0.0 if connection.grouped else limits.LITERAL_CALL_SECONDS
        return self._parts.settings.work.term_grace_seconds + calls

    def held(self, connection: Connection) -> Held | None:
        """The job that it has, or is to get."""
        if connection.issue_id is None:
            return None
        return self._tasks.held.get(connection.issue_id)

    def _watch(self, connection: Connection, held: Held) -> None:
        """It must have ended the task by then, or is stuck."""
        grace = self.grace(connection) + limits.TIMEOUT_MARGIN_SECONDS
        timeout = 0.0 if held.cancelled else self._timeout(held.job)
        if timeout is not None:
            key = Overdue(connection.conn_id)
            self._timers.set_earlier(key, self._desk.now + timeout + grace)

    def _task(self, connection: Connection, held: Held) -> Task:
        job, work = held.job, self._parts.settings.work
        # A function has its arguments; only what verifies its work looks at the issue.
        called = job.call and work.allow_modules and connection.own and not work.verify
        lean = bool(called or job.script)
        payload: dict[str, object] = {}
        if not lean and job.original:
            payload["issue"] = dict(job.original)
        if job.command is not None:
            payload["command"] = list(job.command)
        if job.call is not None:
            payload["callable"] = job.call.path
            payload["args"], payload["kwargs"] = list(job.call.args), dict(job.call.kwargs)
            if job.call.message is not None:
                payload["message"] = dict(job.call.message)
        if job.script is not None:
            payload["script"] = to_payload(job.script)
        if held.trace_context:
            payload["trace_context"] = dict(held.trace_context)
        return Task(
            job.issue_id,
            job.priority,
            job.title[: limits.TITLE_CHARS_MAX],
            "" if lean else job.description,
            job.issue_type,
            () if lean else job.labels,
            held.attempt,
            self._timeout(job),
            payload,
            request_id=held.request_id,
        )

    def _timeout(self, job: Job) -> float | None:
        if job.timeout_seconds is not None:
            return job.timeout_seconds
        return self._parts.settings.work.timeout_seconds

    def _wait_seconds(self, connection: Connection) -> int:
        # With many who wait, each alone may sleep longer; wide apart, so that after those who were
        # told together somebody still asks soon.
        # Who is still starting counts: the first are told before the others are here.
        waiting = self._roster.count(ConnState.IDLE, ConnState.READY)
        waiting = max(waiting, self._parts.crew.wanted())
        calm = min(max(limits.WAIT_SECONDS_IDLE, waiting), limits.WAIT_SECONDS_IDLE_MAX)
        more = 1.2 * calm - limits.WAIT_SECONDS_IDLE
        seconds = limits.WAIT_SECONDS_IDLE + round(
            more * jitter(f"{connection.conn_id} {self._desk.now}")
        )
        if self._tasks.held:
            seconds = min(seconds, limits.WAIT_SECONDS_BUSY)
        if (due := self._parts.ledger.next_due()) is not None:
            seconds = min(seconds, math.ceil(due - self._desk.now))
        return max(seconds, limits.WAIT_SECONDS_MIN)
