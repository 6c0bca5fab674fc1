"""Messages to workers: TASK, WAIT, SHUTDOWN, CANCEL, and the deadlines that go with them.

Source: docs/PROTOCOL.md, "Messages".
"""

from __future__ import annotations

from collections.abc import Iterable

from beads_workers.core.base import limits, wire
from beads_workers.core.base.model import IssueId, Job, value
from beads_workers.core.base.scripts import to_payload
from beads_workers.core.base.states import ConnState, ConnStimulus
from beads_workers.core.records.journal import WorkerStopping
from beads_workers.core.records.receipts import NOBODY
from beads_workers.core.schedule.commands import HangUp, Send
from beads_workers.core.schedule.connection_registry import Connection
from beads_workers.core.schedule.effects import jitter
from beads_workers.core.schedule.events import ConnId
from beads_workers.core.schedule.inflight import InFlight
from beads_workers.core.schedule.parts import Parts


@value
class HoldTimeout:
    """Timer key: send WAIT for a READY that was held while the source is asked."""

    conn_id: ConnId


@value
class IdleTimeout:
    """Timer key: send WAIT for a READY that was held until work comes."""

    conn_id: ConnId


@value
class Overdue:
    """Timer key: a worker should have ended its task by itself long ago."""

    conn_id: ConnId


REVOKE = "revoke"
"""Timer key: look for TASKs that are queued behind a long one."""


class Sender:
    """Sends every message to workers."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._effects = parts.effects
        self._registry = parts.registry
        self._tasks = parts.tasks
        self._timers = parts.effects.timers

    def deliver(
        self, connection: Connection, in_flight: InFlight, rest: Iterable[InFlight] = ()
    ) -> None:
        """Send a job to a worker. If the worker claims by itself, the tracker is told first.

        ``rest``: of a batch; each is chosen when the one before is begun.
        """
        self.wait_no_more(connection)
        connection.issue_id = in_flight.job.issue_id
        if self._parts.self_claiming and not connection.abilities.grouped:
            self._registry.move(connection, ConnStimulus.RESERVED)
            self._tasks.reserve(in_flight, connection.conn_id, connection.worker_id)
        else:
            self.start(connection, in_flight, rest)

    def start(
        self, connection: Connection, in_flight: InFlight, rest: Iterable[InFlight] = ()
    ) -> None:
        """Begin a new attempt with a TASK, or a BATCH if others are queued behind it."""
        task = self._begin(connection, in_flight)
        others = tuple(self.queue(connection, each) for each in rest) if rest else ()
        self.say(connection, wire.Batch((task, *others)) if others else task)
        self.watch(connection, in_flight)

    def queue(self, connection: Connection, in_flight: InFlight) -> wire.Task:
        """Queue a job on a worker behind its current one; return the TASK for it."""
        in_flight.queued_on_worker = True
        connection.prefetched.append(in_flight.job.issue_id)
        if REVOKE not in self._timers:
            self._timers.set(REVOKE, self._effects.now + limits.REVOKE_SECONDS)
        return self._begin(connection, in_flight)

    def _begin(self, connection: Connection, in_flight: InFlight) -> wire.Task:
        place = self._parts.supervisor.place_of(connection.pid)
        self._tasks.begin(in_flight, connection.conn_id, connection.worker_id, place)
        self._registry.move(connection, ConnStimulus.TASK_SENT)
        return self._task(connection, in_flight)

    def ended(self, connection: Connection, issue_id: IssueId) -> None:
        """Clear a job that a worker ended; after its task it begins the next one of its queue."""
        if issue_id != connection.issue_id:
            connection.prefetched.remove(issue_id)
            return
        connection.issue_id = None
        self._timers.cancel(Overdue(connection.conn_id))
        if connection.prefetched:
            self._begins_next(connection)

    def _begins_next(self, connection: Connection) -> None:
        connection.issue_id = connection.prefetched.pop(0)
        in_flight = self.in_flight(connection)
        assert in_flight is not None, "what it keeps is in flight"
        in_flight.queued_on_worker, in_flight.started_at = False, self._effects.now
        if in_flight.cancelled == wire.REVOKED:
            in_flight.cancelled = ""  # The CANCEL came too late, and the worker ignores it.
        self.watch(connection, in_flight)

    def repeat_task(self, connection: Connection) -> None:
        """Send the same TASK again to a worker that asks for work while it has some."""
        in_flight = self.in_flight(connection)
        assert in_flight is not None, "a busy connection has a job"
        self.note_stray(connection, f"said READY while it has {in_flight.job.issue_id}")
        self.say(connection, self._task(connection, in_flight))

    def note_stray(self, connection: Connection, text: str) -> None:
        """Log a message that makes no sense, up to a limit: a peer must not fill the disk."""
        connection.complaints.strays += 1
        if connection.complaints.strays <= limits.BAD_LINES_SHOWN:
            self._effects.note("error", f"{connection.worker_id} {text}")

    def keep_waiting(self, connection: Connection, *, soon: bool) -> None:
        """Hold a READY: it is answered as soon as there is work, or with WAIT in the end.
        ``soon``: the source is being asked."""
        short, long = HoldTimeout(connection.conn_id), IdleTimeout(connection.conn_id)
        now = self._effects.now
        if not soon:
            self._timers.cancel(short)
        if long in self._timers or short in self._timers:
            return
        if soon:
            self._timers.set(short, now + limits.HOLD_SECONDS)
            return
        # Workers that came together are not told together, and a WAIT never wakes us for one worker
        # alone.
        most = limits.OWN_IDLE_SECONDS_MAX if connection.own else limits.IDLE_SECONDS_MAX
        until = now + most * (1 - 0.2 * jitter(f"{connection.conn_id} {now}"))
        self._timers.set(long, until // limits.IDLE_BEAT_SECONDS * limits.IDLE_BEAT_SECONDS)

    def wait_no_more(self, connection: Connection) -> None:
        """Stop holding a READY: it is answered, or is not to be before something else happens."""
        self._timers.cancel(HoldTimeout(connection.conn_id))
        self._timers.cancel(IdleTimeout(connection.conn_id))

    def tell_to_wait(self, connection: Connection, seconds: int) -> None:
        """Send WAIT; nothing more follows."""
        self.wait_no_more(connection)
        self._registry.move(connection, ConnStimulus.WAIT_SENT)
        self.say(connection, wire.Wait(seconds))

    def will_leave(self, connection: Connection) -> None:
        """Note that a worker takes no more tasks.
        Call this before its task is cleared: at no moment could it be given another one."""
        self._registry.retire(connection)
        self._effects.write(WorkerStopping(connection.worker_id))

    def shut_down(self, connection: Connection) -> None:
        """Send SHUTDOWN: the worker ends what it does, and leaves."""
        self.wait_no_more(connection)
        if connection.state is ConnState.RESERVED and (in_flight := self.in_flight(connection)):
            connection.issue_id = None
            self._tasks.unreserve(in_flight)
        self._registry.move(connection, ConnStimulus.SHUTDOWN_SENT)
        reason = "user_requested" if connection.retiring else self._parts.reason
        self.say(connection, wire.Shutdown(reason))

    def cancel(self, in_flight: InFlight, reason: str) -> bool:
        """Take a running task back; return False if its worker does not understand CANCEL."""
        connection = self._registry.get(in_flight.conn_id)
        if connection is None or not connection.abilities.cancel:
            return False
        in_flight.cancelled = reason
        self.say(connection, wire.Cancel(in_flight.job.issue_id, reason))
        if not in_flight.queued_on_worker:
            self.watch(connection, in_flight)
        return True

    def end_attempt(self, in_flight: InFlight, reason: str) -> None:
        """End an attempt whose claim is gone: its worker must end it, or be disconnected."""
        connection = self._registry.get(in_flight.conn_id)
        if connection is None or in_flight.cancelled or self.cancel(in_flight, reason):
            return
        # The worker does not understand CANCEL; without its connection it ends what it does.
        in_flight.cancelled = reason
        self._effects.ask(HangUp(connection.conn_id, reason))

    def unreserve(self, in_flight: InFlight) -> None:
        """Give a worker another job than the one reserved for it."""
        connection = self._registry.get(in_flight.conn_id)
        assert connection is not None, "a job stays reserved only while its worker is there"
        connection.issue_id = None
        self._tasks.unreserve(in_flight)
        self.tell_to_wait(connection, limits.WAIT_SECONDS_RESYNC)

    def say(self, connection: Connection, message: wire.ToWorker) -> None:
        """Send a message under the id that we gave the worker."""
        v1 = not connection.abilities.additions
        self._effects.ask(Send(connection.conn_id, connection.worker_id or "W0", message, v1))

    def grace(self, connection: Connection) -> float:
        """Return how many seconds its task may take to end.
        The task of a worker that calls the tracker ends with a close."""
        calls = 0.0 if connection.abilities.grouped else limits.SELF_CLAIM_CALL_SECONDS
        return self._parts.settings.work.term_grace_seconds + calls

    def in_flight(self, connection: Connection) -> InFlight | None:
        """Return the job that a worker has, or is to get."""
        if connection.issue_id is None:
            return None
        return self._tasks.in_flight.get(connection.issue_id)

    def watch(self, connection: Connection, in_flight: InFlight) -> None:
        """Set the deadline by which a worker must have ended its task, or is stuck."""
        if connection.pause and connection.pause.stops_clock and not in_flight.cancelled:
            return  # RESUME begins this anew.
        timeout = 0.0 if in_flight.cancelled else self._timeout(in_flight.job)
        if timeout is None or (timeout and self._parts.supervisor.place_of(connection.pid)):
            return
        key, call = Overdue(connection.conn_id), in_flight.job.call
        grace = self.grace(connection) + limits.TIMEOUT_MARGIN_SECONDS
        if call is not None and call.message is not None:
            grace += limits.SET_UP_SECONDS
        self._timers.set_earlier(key, self._effects.now + timeout + grace)

    def _task(self, connection: Connection, in_flight: InFlight) -> wire.Task:
        job, work = in_flight.job, self._parts.settings.work
        if not connection.abilities.additions:
            return wire.Task(job.issue_id, job.priority, job.title)
        # A function has its arguments; only a command that verifies its work reads the issue.
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
        if in_flight.candidate is not NOBODY:
            payload["agent"] = self._parts.agents.payload(in_flight.issue, in_flight.candidate)
        if in_flight.trace_context:
            payload["trace_context"] = dict(in_flight.trace_context)
        return wire.Task(
            job.issue_id,
            job.priority,
            job.title[: limits.TITLE_CHARS_MAX],
            "" if lean else job.description,
            job.issue_type,
            () if lean else job.labels,
            in_flight.started.attempt,
            self._timeout(job),
            payload,
            request_id=in_flight.started.request_id,
            # A worker that announced ``grouped`` has said so itself.
            claims="" if connection.abilities.grouped else self._claims,
        )

    @property
    def _claims(self) -> str:
        return wire.CLAIMS_WORKER if self._parts.self_claiming else wire.CLAIMS_ORCHESTRATOR

    def _timeout(self, job: Job) -> float | None:
        if job.timeout_seconds is not None:
            return job.timeout_seconds
        return self._parts.settings.work.timeout_seconds
