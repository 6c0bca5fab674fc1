"""The conversation with every worker: one READY, one reply.

``Connections`` hears what they say, ``Sender`` answers. ``sessions`` knows who is connected."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import assert_never

from beads_workers.core import limits
from beads_workers.core.claims import ClaimScheduler
from beads_workers.core.commands import HangUp, Send, WatchOwner
from beads_workers.core.effects import jitter
from beads_workers.core.events import Connected, ConnId, Disconnected, Misread, Received, Unknown
from beads_workers.core.inflight import InFlight, lost, not_back
from beads_workers.core.journal import (
    AsideHeard,
    Inherited,
    StatusHeard,
    WorkerJoined,
    WorkerLeft,
    WorkerPaused,
    WorkerResumed,
    WorkerStopping,
)
from beads_workers.core.model import IssueId, Job, Outcome, OutcomeKind, kept, note_of, value
from beads_workers.core.parts import Parts
from beads_workers.core.receipts import NOBODY, read_receipt
from beads_workers.core.scripts import to_payload
from beads_workers.core.sessions import Connection
from beads_workers.core.states import (
    ConnReaction,
    ConnState,
    ConnStimulus,
    IssueState,
    RunState,
)
from beads_workers.core.wire import (
    CANNOT_PREPARE,
    CANNOT_START,
    CLAIMS_ORCHESTRATOR,
    CLAIMS_WORKER,
    RETURNED_UNSTARTED,
    REVOKED,
    Aside,
    Batch,
    Beside,
    Cancel,
    Done,
    Failed,
    Heartbeat,
    Pause,
    Priority,
    Progress,
    Ready,
    Resume,
    Shutdown,
    Status,
    StatusAsked,
    Task,
    ToWorker,
    Turn,
    Wait,
)

# --- sender --------------------------------------------------------------------------------------
# What workers are told: TASK, WAIT, SHUTDOWN, CANCEL, and the deadlines that go with them.
#
# Source: docs/PROTOCOL.md, "Messages".


@value
class HoldTimeout:
    """Timer key: a READY that waits for what the source is being asked is told to WAIT now."""

    conn_id: ConnId


@value
class IdleTimeout:
    """Timer key: a READY that waits for work to come is told to WAIT now."""

    conn_id: ConnId


@value
class Overdue:
    """Timer key: a worker should have ended its task by itself long ago."""

    conn_id: ConnId


BY_HAND = "a person asked for it"
"""The reason of a pause that needs no explanation."""

REVOKE = "revoke"
"""Timer key: look for TASKs that are queued behind a long one."""


class Sender:
    """Everything that is sent to a worker goes through here."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._effects = parts.effects
        self._registry = parts.registry
        self._tasks = parts.tasks
        self._timers = parts.effects.timers

    def deliver(
        self, connection: Connection, in_flight: InFlight, rest: Iterable[InFlight] = ()
    ) -> None:
        """Give it this job: at once, or after the tracker was told that it claims by itself.

        ``rest``: of a batch; each is chosen when the one before is begun."""
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
        """TASK: a new attempt begins. BATCH, where others are queued behind it."""
        task = self._begin(connection, in_flight)
        others = tuple(self._queue(connection, each) for each in rest) if rest else ()
        self.say(connection, Batch((task, *others)) if others else task)
        self._watch(connection, in_flight)

    def send_prefetched(self, connection: Connection, in_flight: InFlight) -> None:
        """TASK for a worker that is busy: it is queued on the worker."""
        self.say(connection, self._queue(connection, in_flight))

    def _queue(self, connection: Connection, in_flight: InFlight) -> Task:
        in_flight.queued_on_worker = True
        connection.prefetched.append(in_flight.job.issue_id)
        if REVOKE not in self._timers:
            self._timers.set(REVOKE, self._effects.now + limits.REVOKE_SECONDS)
        return self._begin(connection, in_flight)

    def _begin(self, connection: Connection, in_flight: InFlight) -> Task:
        self._tasks.begin(in_flight, connection.conn_id, connection.worker_id)
        self._registry.move(connection, ConnStimulus.TASK_SENT)
        return self._task(connection, in_flight)

    def ended(self, connection: Connection, issue_id: IssueId) -> None:
        """It does not have this one any more; after its task it begins the next one of its
        queue."""
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
        if in_flight.cancelled == REVOKED:
            in_flight.cancelled = ""  # It came too late, and its worker takes no notice.
        self._watch(connection, in_flight)

    def tell_pause(self, connection: Connection, reason: str) -> None:
        """PAUSE: what is queued on it goes to others."""
        if not connection.abilities.pause or connection.pause.told:
            return
        connection.pause.told = True
        self._timers.cancel(Overdue(connection.conn_id))
        self.say(connection, Pause(reason))
        for issue_id in connection.prefetched:
            self.end_attempt(self._tasks.in_flight[issue_id], REVOKED)

    def tell_resume(self, connection: Connection) -> None:
        """RESUME: the time of its task begins anew, as it may have been stopped."""
        if connection.pause.told:
            connection.pause.told = False
            self.say(connection, Resume())
            if (in_flight := self.in_flight(connection)) is not None:
                self._watch(connection, in_flight)

    def revoke(self) -> None:
        """Revoke what is queued behind a long task: another worker may be free."""
        waits = [c for c in self._registry.in_state(ConnState.BUSY) if c.prefetched]
        for connection in waits:
            in_flight = self.in_flight(connection)
            assert in_flight is not None, "a busy connection has a job"
            if connection.abilities.batch_size and not self._somebody_idles():
                continue  # It has asked for them, and they keep nobody from work.
            if self._effects.now - in_flight.started_at >= limits.REVOKE_SECONDS:
                for issue_id in connection.prefetched:
                    self.end_attempt(self._tasks.in_flight[issue_id], REVOKED)
        if waits:
            self._timers.set(REVOKE, self._effects.now + limits.REVOKE_SECONDS)

    def _somebody_idles(self) -> bool:
        idle = self._registry.count(ConnState.READY, ConnState.IDLE)
        idle -= self._registry.idle_paused()
        return idle > self._effects.issues.count(IssueState.CLAIMED)

    def repeat_task(self, connection: Connection) -> None:
        """It asks for work while it has some: the same TASK again, never a second one."""
        in_flight = self.in_flight(connection)
        assert in_flight is not None, "a busy connection has a job"
        self.note_stray(connection, f"said READY while it has {in_flight.job.issue_id}")
        self.say(connection, self._task(connection, in_flight))

    def note_stray(self, connection: Connection, text: str) -> None:
        """Log what makes no sense; a peer that goes on like this must not fill the disk."""
        connection.complaints.strays += 1
        if connection.complaints.strays <= limits.BAD_LINES_SHOWN:
            self._effects.note("error", f"{connection.worker_id} {text}")

    def keep_waiting(self, connection: Connection, *, soon: bool) -> None:
        """Its READY is answered later: as soon as there is work, or with WAIT in the end. ``soon``:
        the source is being asked."""
        short, long = HoldTimeout(connection.conn_id), IdleTimeout(connection.conn_id)
        now = self._effects.now
        if not soon:
            self._timers.cancel(short)
        if long in self._timers or short in self._timers:
            return
        if soon:
            self._timers.set(short, now + limits.HOLD_SECONDS)
            return
        # Those who came together are not told together, and whoever is told wakes nobody alone.
        most = limits.OWN_IDLE_SECONDS_MAX if connection.own else limits.IDLE_SECONDS_MAX
        until = now + most * (1 - 0.2 * jitter(f"{connection.conn_id} {now}"))
        self._timers.set(long, until // limits.IDLE_BEAT_SECONDS * limits.IDLE_BEAT_SECONDS)

    def wait_no_more(self, connection: Connection) -> None:
        """Its READY is answered, or is not to be before something else happens."""
        self._timers.cancel(HoldTimeout(connection.conn_id))
        self._timers.cancel(IdleTimeout(connection.conn_id))

    def tell_to_wait(self, connection: Connection, seconds: int) -> None:
        """WAIT, and nothing more follows."""
        self.wait_no_more(connection)
        self._registry.move(connection, ConnStimulus.WAIT_SENT)
        self.say(connection, Wait(seconds))

    def will_leave(self, connection: Connection) -> None:
        """It takes no more tasks. Say so before its task is cleared: at no moment could it be given
        another one."""
        self._registry.retire(connection)
        self._effects.write(WorkerStopping(connection.worker_id))

    def shut_down(self, connection: Connection) -> None:
        """SHUTDOWN: the worker ends what it does, and leaves."""
        self.wait_no_more(connection)
        if connection.state is ConnState.RESERVED and (in_flight := self.in_flight(connection)):
            connection.issue_id = None
            self._tasks.unreserve(in_flight)
        self._registry.move(connection, ConnStimulus.SHUTDOWN_SENT)
        reason = "user_requested" if connection.retiring else self._parts.reason
        self.say(connection, Shutdown(reason))

    def cancel(self, in_flight: InFlight, reason: str) -> bool:
        """Take a running task back; False where its worker does not understand that."""
        connection = (
            self._registry.get(in_flight.conn_id) if in_flight.conn_id is not None else None
        )
        if connection is None or not connection.abilities.cancel:
            return False
        in_flight.cancelled = reason
        self.say(connection, Cancel(in_flight.job.issue_id, reason))
        if not in_flight.queued_on_worker:
            self._watch(connection, in_flight)
        return True

    def end_attempt(self, in_flight: InFlight, reason: str) -> None:
        """Its claim is gone: its worker must end it, or be gone itself."""
        connection = (
            self._registry.get(in_flight.conn_id) if in_flight.conn_id is not None else None
        )
        if connection is None or in_flight.cancelled or self.cancel(in_flight, reason):
            return
        # It does not understand CANCEL; without its connection a worker ends what it does.
        in_flight.cancelled = reason
        self._effects.ask(HangUp(connection.conn_id, reason))

    def unreserve(self, in_flight: InFlight) -> None:
        """The worker that it is reserved for gets something else."""
        connection = (
            self._registry.get(in_flight.conn_id) if in_flight.conn_id is not None else None
        )
        assert connection is not None, "a job stays reserved only while its worker is there"
        connection.issue_id = None
        self._tasks.unreserve(in_flight)
        self.tell_to_wait(connection, limits.WAIT_SECONDS_RESYNC)

    def say(self, connection: Connection, message: ToWorker) -> None:
        """Send under the id that we gave it."""
        v1 = not connection.abilities.additions
        self._effects.ask(Send(connection.conn_id, connection.worker_id or "W0", message, v1))

    def grace(self, connection: Connection) -> float:
        """How long its task may take to end, in seconds; one that calls the tracker has a close."""
        calls = 0.0 if connection.abilities.grouped else limits.SELF_CLAIM_CALL_SECONDS
        return self._parts.settings.work.term_grace_seconds + calls

    def in_flight(self, connection: Connection) -> InFlight | None:
        """The job that it has, or is to get."""
        if connection.issue_id is None:
            return None
        return self._tasks.in_flight.get(connection.issue_id)

    def _watch(self, connection: Connection, in_flight: InFlight) -> None:
        """It must have ended the task by then, or is stuck."""
        if connection.pause.told and not in_flight.cancelled:
            return  # It may have stopped it; RESUME begins this anew.
        grace = self.grace(connection) + limits.TIMEOUT_MARGIN_SECONDS
        timeout = 0.0 if in_flight.cancelled else self._timeout(in_flight.job)
        if timeout is not None:
            key, call = Overdue(connection.conn_id), in_flight.job.call
            if call is not None and call.message is not None:
                grace += limits.SET_UP_SECONDS
            self._timers.set_earlier(key, self._effects.now + timeout + grace)

    def _task(self, connection: Connection, in_flight: InFlight) -> Task:
        job, work = in_flight.job, self._parts.settings.work
        if not connection.abilities.additions:
            return Task(job.issue_id, job.priority, job.title)
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
        if in_flight.candidate is not NOBODY:
            payload["agent"] = self._parts.agents.payload(in_flight.issue, in_flight.candidate)
        if in_flight.trace_context:
            payload["trace_context"] = dict(in_flight.trace_context)
        return Task(
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
        return CLAIMS_WORKER if self._parts.self_claiming else CLAIMS_ORCHESTRATOR

    def _timeout(self, job: Job) -> float | None:
        if job.timeout_seconds is not None:
            return job.timeout_seconds
        return self._parts.settings.work.timeout_seconds


# --- connections ---------------------------------------------------------------------------------
# The conversation with every worker: one READY, one reply.
#
# Source: docs/PROTOCOL.md, "Conversation". What is answered in which state stands in
# ``states.CONNECTION``; here are the reactions.


@value
class HelloTimeout:
    """Timer key: a connection must have said something valid by then."""

    conn_id: ConnId


@value
class AsideDue:
    """Timer key: what a worker says of its task may be shown again."""

    conn_id: ConnId


@value
class SilenceTimeout:
    """Timer key: a worker that has announced heartbeats must have said something by then."""

    conn_id: ConnId


@value
class GraceOver:
    """Timer key: a worker that is not ours has had its time to end what it lost."""

    issue_id: IssueId


@value
class ExitDue:
    """Timer key: a worker of ours that left its connection must have exited by then."""

    pid: int


class Connections:
    """Hears what workers say, and serves them."""

    def __init__(self, parts: Parts, sender: Sender, scheduler: ClaimScheduler) -> None:
        self._parts = parts
        self._sender = sender
        self._scheduler = scheduler
        self._effects = parts.effects
        self._registry = parts.registry
        self._tasks = parts.tasks
        self._timers = parts.effects.timers
        self._asked_status = -math.inf
        self.command_unusable = ""
        """Why no task of this fleet can run, once a worker of ours has found out."""

    # --- what comes in ------------------------------------------------------------------------

    def connected(self, event: Connected) -> None:
        """A connection is nobody until its first valid message."""
        connection = self._registry.add(event.conn_id, event.pid, event.start_time)
        connection.own = event.pid in self._parts.supervisor.by_pid
        self._timers.set(HelloTimeout(event.conn_id), self._effects.now + limits.HELLO_SECONDS)
        if not event.start_time and event.pid in self._parts.supervisor.reaped_pids:
            self._hang_up_on_dead(connection)

    def misread(self, event: Misread) -> None:
        """A line that is no message: say so, and go on; a flood ends the connection."""
        connection = self._registry.get(event.conn_id)
        if connection is None:
            return
        said = connection.complaints
        if self._effects.now - said.bad_since >= limits.BAD_LINES_SECONDS:
            said.bad_since, said.bad_lines = self._effects.now, 0
        said.bad_lines += 1
        said.shown += 1
        who = connection.worker_id or f"pid {connection.pid}"
        if said.shown <= limits.BAD_LINES_SHOWN:
            self._effects.note("warning", f"{who}: {event.reason}: {event.head}")
        if said.bad_lines == limits.BAD_LINES_MAX:
            within = f"{limits.BAD_LINES_MAX} wrong lines within {limits.BAD_LINES_SECONDS:g} s"
            cause = f"{within}, the last one: {event.reason}"
            self._effects.note("warning", f"{who}: connection closed: {cause}")
            self._effects.ask(HangUp(event.conn_id, cause))

    def unknown(self, event: Unknown) -> None:
        """A message of a later version, or somebody's own: ignored, however many there are."""
        connection = self._registry.get(event.conn_id)
        if connection is None or event.kind in connection.complaints.unknown:
            return
        if len(connection.complaints.unknown) < limits.BAD_LINES_SHOWN:
            connection.complaints.unknown.add(event.kind)
            who = connection.worker_id or f"pid {connection.pid}"
            self._effects.note("warning", f"{who}: ignored an unknown message: {event.head}")

    def received(self, event: Received) -> None:
        """A valid message: its connection moves by the table, and here is what comes of that.

        READY, and the end of a task, may have the next one sent. What that leaves to be claimed or
        written is for the round trip that ``Orchestrator.after_events`` begins."""
        connection = self._registry.get(event.conn_id)
        if connection is None:
            return
        message = event.message
        connection.heard_at = self._effects.now
        if not isinstance(message, Turn):
            self._heard_beside(connection, message)
            return
        if connection.dead:
            return
        if not connection.worker_id:
            self._join(connection, message)
        if isinstance(message, Ready):
            if message != connection.ready:
                connection.announces(message)
                self._expect_heartbeats(connection)
            if connection.pause.by_person:
                self._sender.tell_pause(connection, BY_HAND)
            if self._effects.issues.count(IssueState.ORPHANED):
                self._reregistered(connection)
        reaction = self._registry.move(connection, self._stimulus(connection, message))
        match reaction:
            case ConnReaction.ATTEMPT_END:
                assert isinstance(message, Done | Failed)
                self._task_ended(connection, message)
            case ConnReaction.SERVE:
                if self._scheduler.unwanted:
                    self._scheduler.is_free(connection)
                self.serve(connection, soon=self._scheduler.coming())
                if connection.abilities.prefetch_count:
                    self._prefetch(connection)
            case ConnReaction.REPEAT_TASK if connection.abilities.prefetch_count:
                pass  # A prefetched TASK has crossed it.
            case ConnReaction.REPEAT_TASK:
                self._sender.repeat_task(connection)
            case ConnReaction.RESYNC:
                self._note_stray(connection, message)
                self._sender.say(connection, Wait(limits.WAIT_SECONDS_RESYNC))
            case ConnReaction.NOTE:
                self._note_stray(connection, message)
            case ConnReaction.ANSWERED | ConnReaction.NONE:
                pass
            case ConnReaction.BUG:
                raise AssertionError(reaction)
            case _:
                assert_never(reaction)

    def _heard_beside(self, connection: Connection, message: Beside) -> None:
        match message:
            case Aside():
                self._heard_aside(connection, message)
            case Priority():
                self._choose(connection, message)
            case Pause() | Resume():
                self._pause(connection, message)
            case Status():
                self._heard_status(connection, message)
            case Heartbeat():
                pass
            case _:
                assert_never(message)

    def _pause(self, connection: Connection, message: Pause | Resume) -> None:
        if not connection.abilities.additions:
            kind = type(message).__name__.upper()
            self._sender.note_stray(connection, f"said {kind}, which version 1 has not")
            return
        reason = message.reason or "it asks for nothing" if isinstance(message, Pause) else ""
        self._change_pause(connection, reason, paused=isinstance(message, Pause))

    def hold(self, worker_id: str) -> bool:
        """A person pauses this worker; False where there is none."""
        found = self._registry.of_worker(worker_id)
        if not found and worker_id not in self._parts.supervisor.members:
            return False
        self._registry.held.add(worker_id)
        for connection in found:
            self._change_pause(connection, BY_HAND, held=True)
        return True

    def let_go(self, worker_id: str) -> bool:
        """A person resumes it; False where there is none."""
        found = self._registry.of_worker(worker_id)
        self._registry.held.discard(worker_id)
        for connection in found:
            self._change_pause(connection, held=False)
        return bool(found) or worker_id in self._parts.supervisor.members

    def requeue_if_all_paused(self) -> None:
        """Where every worker is paused, what is claimed and unsent is left to others."""
        runs = self._parts.state is RunState.RUNNING
        if runs and self._registry.idle_paused() and not self._parts.slots():
            self._tasks.requeue_unsent()

    def _change_pause(
        self,
        connection: Connection,
        reason: str = "",
        *,
        held: bool | None = None,
        paused: bool | None = None,
    ) -> None:
        before = connection.is_paused
        connection.pause.by_person = connection.pause.by_person if held is None else held
        connection.pause.by_itself = connection.pause.by_itself if paused is None else paused
        self._registry.pause(connection)
        if connection.pause.by_person:
            self._sender.tell_pause(connection, reason)
        else:
            self._sender.tell_resume(connection)
        if connection.is_paused is before:
            return
        if connection.is_paused:
            self._sender.wait_no_more(connection)
            self._effects.write(WorkerPaused(connection.worker_id, reason))
            self.requeue_if_all_paused()
        else:
            self._effects.write(WorkerResumed(connection.worker_id))
            self._scheduler.is_free(connection)
        self._scheduler.reschedule()
        self.serve(connection, soon=True)

    def _choose(self, connection: Connection, wants: Priority) -> None:
        if connection.ready and not connection.abilities.priority:
            self._sender.note_stray(connection, "said PRIORITY, which it has not announced")
            return
        connection.wants = None if wants == Priority() else wants
        self._scheduler.is_free(connection)
        self.serve(connection, soon=True)

    def _heard_status(self, connection: Connection, message: Status) -> None:
        if not connection.abilities.additions:
            self._sender.note_stray(connection, "said STATUS, which version 1 has not")
            return
        connection.asides.add(message)
        self.tell_asides(connection.conn_id)

    def ask_status(self) -> None:
        """Somebody looks: ask those that answer, unless that was just done."""
        if self._effects.now - self._asked_status < limits.STATUS_SECONDS:
            return
        self._asked_status = self._effects.now
        for connection in self._registry:
            if connection.abilities.status and connection.worker_id:
                self._sender.say(connection, StatusAsked())

    def _heard_aside(self, connection: Connection, message: Aside) -> None:
        has_it = message.issue_id == connection.issue_id and connection.state in _HAS_TASK
        if not connection.abilities.additions or not has_it:
            kind, issue_id = type(message).__name__.upper(), message.issue_id[:80]
            self._sender.note_stray(connection, f"said {kind} of {issue_id!r}, which it has not")
            return
        in_flight = self._sender.in_flight(connection)
        if in_flight is not None and isinstance(message, Progress) and message.reached:
            in_flight.reached = message.reached
        if isinstance(message, Progress) and message.tokens is not None:
            self._parts.preparation.works()
        connection.asides.add(message)
        self.tell_asides(connection.conn_id)

    def tell_asides(self, conn_id: ConnId) -> None:
        """Show what a worker says of its task, no more often than need be."""
        connection = self._registry.get(conn_id)
        assert connection is not None, "its timer goes with it"
        for message in connection.asides.take(self._effects.now):
            if isinstance(message, Status):
                self._effects.write(StatusHeard(connection.worker_id, message))
            elif message.issue_id == connection.issue_id:
                self._effects.write(AsideHeard(connection.worker_id, message))
                if isinstance(message, Progress):
                    self._parts.agents.heard(message.issue_id, message)
        if (due := connection.asides.deadline()) is not None:
            self._timers.set(AsideDue(conn_id), due)

    def disconnected(self, event: Disconnected) -> None:
        """The connection is over; what it had is orphaned until its owner is known to be dead."""
        connection = self._registry.remove(event.conn_id)
        if connection is None:
            return
        for key in (HelloTimeout, HoldTimeout, IdleTimeout, Overdue, AsideDue, SilenceTimeout):
            self._timers.cancel(key(event.conn_id))
        if connection.worker_id:
            self._effects.write(WorkerLeft(connection.worker_id, event.reason))
        if not connection.own:
            self._registry.held.discard(connection.worker_id)  # Another one may be called so.
        in_flight = self._sender.in_flight(connection)
        if in_flight is not None:
            if in_flight.issue.state is IssueState.DELEGATING:
                self._tasks.unreserve(in_flight)
            else:
                self._lose(connection, in_flight)
        for issue_id in connection.prefetched:
            self._lose(connection, self._tasks.in_flight[issue_id])
        if connection.own and not self._registry.is_connected(connection.pid):
            # It ends its task and exits by itself; if it does not, it is stuck.
            grace = self._sender.grace(connection) + limits.LEAVE_MARGIN_SECONDS
            self._timers.set(ExitDue(connection.pid), self._effects.now + grace)

    def reaped(self, pid: int) -> None:
        """A process of ours has ended. What it has said before may be still unread, and counts; but
        a TASK in answer to that would be lost, and charged as an attempt."""
        for connection in self._registry.of_process(pid):
            if not connection.worker_id:
                self._hang_up_on_dead(connection)
            elif connection.state in _KNOWN:
                self._registry.retire(connection)
        self.owner_dead(pid)

    def _hang_up_on_dead(self, connection: Connection) -> None:
        # Its READY would make it a worker, and not one of ours: nobody has this pid any more.
        connection.dead = True
        self._effects.ask(HangUp(connection.conn_id, "its process has ended"))

    def owner_dead(self, pid: int) -> None:
        """The process that had orphaned jobs is gone: what it did not finish is lost."""
        for in_flight in self._tasks.orphaned():
            if in_flight.issue.lost_pid == pid:
                self.end_orphaned(in_flight)

    def grace_over(self, issue_id: IssueId) -> None:
        """Its worker was to end it within this, and goes without an issue whether it did or not."""
        in_flight = self._tasks.in_flight[issue_id]
        self.end_orphaned(in_flight, not_back(in_flight.issue.lost_pid))

    def inherit(self, inherited: Inherited) -> None:
        """An earlier run has left it with a worker that was not ours, and lives on."""
        issue_id = IssueId(inherited.issue_id)
        if issue_id in self._tasks.in_flight or not self._tasks.is_open(issue_id):
            return  # It has moved on since: the next start looks again.
        grace = self._parts.settings.orphan_grace_seconds
        if inherited.told_to_stop or grace is None:
            grace = 0.0
        elif inherited.lost_at:
            # A clock that was set back makes no wait longer than it was; 0 would be for ever.
            passed = max(0.0, self._effects.epoch - inherited.lost_at)
            grace = max(limits.GRACE_SECONDS_MIN, grace - passed)
        else:
            grace = max(limits.GRACE_SECONDS_MIN, grace)
        self._tasks.inherit(replace(inherited, grace_seconds=grace), self._parts.settings.source)
        self._watch_orphan(issue_id, inherited.pid, inherited.start_time, grace)
        for connection in self._registry.of_process(inherited.pid):
            # It may have said READY before we knew.
            if connection.ready:
                self._reregistered(connection)

    def _watch_orphan(
        self, issue_id: IssueId, pid: int, start_time: int, grace_seconds: float
    ) -> None:
        self._effects.ask(WatchOwner(pid, start_time, issue_id))
        if grace_seconds:
            self._timers.set(GraceOver(issue_id), self._effects.now + grace_seconds)

    # --- how an attempt ended ----------------------------------------------------------------

    def _task_ended(self, connection: Connection, message: Done | Failed) -> None:
        in_flight = self._tasks.in_flight[message.issue_id]
        if message.is_stopping:
            self._sender.will_leave(connection)
        self._sender.ended(connection, in_flight.job.issue_id)
        failed = message if isinstance(message, Failed) else None
        unstarted = (
            failed is not None
            and failed.error_detail == RETURNED_UNSTARTED
            and connection.abilities.queues
        )
        if failed and unstarted and self._goes_on(in_flight):
            self._tasks.returned_unstarted(in_flight, failed.error)
            return  # No attempt has ended: none had begun.
        for warning in message.warnings:
            self._effects.note("warning", f"{connection.worker_id}: {warning}")
        if connection.own and failed and failed.error_detail == CANNOT_START:
            self.command_unusable = failed.error
        outcome = _outcome(message, bool(in_flight.job.call or self._parts.settings.work.function))
        if outcome.kind is OutcomeKind.CANCELLED and not (
            unstarted or self._asked_to_end(connection, in_flight)
        ):
            # Nobody asked for that: free like a retry, but it backs off, and not for ever.
            outcome = replace(outcome, kind=OutcomeKind.RETRY)
        self._tasks.attempt_ended(in_flight, outcome, message.duration_ms)
        if connection.own:
            self._parts.supervisor.worked(connection.pid)
        self._scheduler.completed(self._tasks.last_seconds)
        if connection.abilities.prefetch_count:
            self._prefetch(connection)

    def give_back(self, in_flight: InFlight, why: str) -> bool:
        """A person wants it back from a worker that is not ours and lives on; False for ours."""
        if in_flight.issue.lost_pid in self._parts.supervisor.by_pid:
            return False
        in_flight.cancelled = why
        self.end_orphaned(in_flight)
        return True

    def end_orphaned(self, in_flight: InFlight, outcome: Outcome | None = None) -> None:
        """A worker's death charges the attempt; one that we asked for does not."""
        self._timers.cancel(GraceOver(in_flight.job.issue_id))
        if in_flight.issue.inherited:
            self._tasks.give_back(in_flight)
            return
        if in_flight.queued_on_worker and self._goes_on(in_flight):
            self._tasks.returned_unstarted(
                in_flight, f"its worker (pid {in_flight.issue.lost_pid}) died before"
            )
            return
        ends = self._parts.state in (RunState.STOPPING, RunState.SETTLING)
        if in_flight.cancelled or in_flight.queued_on_worker or ends:
            outcome = Outcome(OutcomeKind.CANCELLED, in_flight.cancelled or "stopped")
        else:
            outcome = outcome or lost(in_flight.issue.lost_pid)
        if in_flight.overdue:
            outcome = Outcome(OutcomeKind.TIMEOUT, "timed out, and its worker with it")
        self._tasks.attempt_ended(in_flight, outcome)

    def _goes_on(self, in_flight: InFlight) -> bool:
        """Whether a task that was returned unstarted is for another worker: nobody has taken it
        away."""
        runs = self._parts.state in (RunState.RUNNING, RunState.PAUSED)
        return runs and in_flight.cancelled in ("", REVOKED)

    def _asked_to_end(self, connection: Connection, in_flight: InFlight) -> bool:
        told_to_leave = connection.state in (ConnState.ENDING, ConnState.LEAVING)
        return bool(told_to_leave or in_flight.cancelled or self.command_unusable)

    # --- what goes out ------------------------------------------------------------------------

    def serve(self, connection: Connection, *, soon: bool) -> None:
        """Answer a READY, or hold it until there is work. ``soon``: the source is being asked."""
        if connection.state is not ConnState.READY:
            return
        state = self._parts.state
        if connection.retiring or state in _LEAVING:
            self._sender.shut_down(connection)
        elif connection.is_paused and (connection.abilities.pause or connection.pause.by_itself):
            pass  # Held until RESUME.
        elif connection.is_paused:
            self._sender.keep_waiting(connection, soon=False)
        elif state is RunState.RUNNING and (
            in_flight := self._tasks.next_to_begin(connection.wants)
        ):
            self._deliver(connection, in_flight)
        else:
            if state is RunState.RUNNING and connection.wants is not None:
                self._scheduler.found_none()
            # Else held until there is work: whoever sends it waits for the answer.
            if not (self._parts.push and connection.own and state is RunState.RUNNING):
                self._sender.keep_waiting(connection, soon=soon)

    def _deliver(self, connection: Connection, in_flight: InFlight) -> None:
        rest = self._rest_of_batch(connection) if connection.abilities.batch_size else ()
        self._sender.deliver(connection, in_flight, rest)

    def _rest_of_batch(self, connection: Connection) -> Iterator[InFlight]:
        """What goes with the first task: its share of what is there. An agent's attempt would keep
        its account from others while it waits."""
        if self._parts.settings.work.agents:
            return
        waiting = self._registry.count(ConnState.READY)
        left = self._effects.issues.count(IssueState.CLAIMED)
        share = min(-(-left // (waiting + 1)), left - waiting, connection.abilities.batch_size - 1)
        characters = 0
        for _ in range(share):
            if (in_flight := self._tasks.next_to_begin(connection.wants)) is None:
                return
            yield in_flight
            characters += len(in_flight.job.title) + sum(map(len, in_flight.job.labels))
            if characters > limits.BATCH_CHARS_MAX:
                return

    def _somebody_waits(self) -> bool:
        """Whether anybody would take whatever is there."""
        if not self._registry.count(ConnState.READY):
            return False
        waiting = self._registry.in_state(ConnState.READY)
        return any(c.wants is None and not c.is_paused for c in waiting)

    def _prefetch(self, connection: Connection) -> None:
        """More tasks for a worker that has one, while no other waits for work."""
        if connection.state is not ConnState.BUSY:
            return
        off = connection.retiring or connection.is_paused
        if off or self._parts.state is not RunState.RUNNING:
            return
        queued = len(connection.prefetched)
        for _ in range(self._scheduler.to_prefetch(connection.abilities.prefetch_count, queued)):
            if self._somebody_waits() or not (
                in_flight := self._tasks.next_to_begin(connection.wants)
            ):
                return
            self._sender.send_prefetched(connection, in_flight)

    def serve_waiting(self, *, soon: bool) -> None:
        """The source has answered: go through those who wait for their reply."""
        for connection in self._registry.in_state(ConnState.READY):
            self.serve(connection, soon=soon)

    def serve_idle(self) -> None:
        """After every event: nobody waits while there is work, however that has come."""
        if self._parts.state is not RunState.RUNNING or not self._registry.count(ConnState.READY):
            return
        if not self._effects.issues.count(IssueState.CLAIMED):
            return
        for connection in self._registry.in_state(ConnState.READY):
            if connection.retiring or connection.is_paused:
                continue
            if in_flight := self._tasks.next_to_begin(connection.wants):
                self._deliver(connection, in_flight)

    def handed_over(self, in_flight: InFlight) -> None:
        """The tracker knows: now the TASK can go out."""
        connection = (
            self._registry.get(in_flight.conn_id) if in_flight.conn_id is not None else None
        )
        assert connection is not None, "a job stays reserved only while its worker is there"
        self._sender.start(connection, in_flight)

    def not_handed_over(self, in_flight: InFlight) -> None:
        """The tracker would not: the worker gets something else."""
        connection = (
            self._registry.get(in_flight.conn_id) if in_flight.conn_id is not None else None
        )
        if connection is not None:
            connection.issue_id = None
            self._sender.tell_to_wait(connection, limits.WAIT_SECONDS_RESYNC)

    # --- deadlines ----------------------------------------------------------------------------

    def hello_timed_out(self, conn_id: ConnId) -> None:
        """Nothing valid in its first ten seconds: no worker."""
        if (found := self._registry.get(conn_id)) and found.state is ConnState.NEW:
            self._effects.ask(HangUp(conn_id, "said nothing valid"))

    def hold_timed_out(self, conn_id: ConnId) -> None:
        """The source takes its time, or nothing has come for long: WAIT."""
        connection = self._registry.get(conn_id)
        if connection and connection.state is ConnState.READY:
            # Work may come at any moment: ask again as soon as may be.
            self._sender.tell_to_wait(connection, limits.WAIT_SECONDS_MIN)

    def silence_timed_out(self, conn_id: ConnId) -> None:
        """Nothing in three of its intervals: it is frozen, or gone without a word."""
        connection = self._registry.get(conn_id)
        assert connection is not None, "its timer goes with it"
        now, key = self._effects.now, SilenceTimeout(conn_id)
        if now < connection.silent_from:
            self._expect_heartbeats(connection)
        elif now - connection.silent_from >= limits.SLEEP_SECONDS_MIN and (
            connection.excused != connection.heard_at
        ):
            # We come late: what it has said meanwhile may be still unread.
            connection.excused = connection.heard_at
            self._timers.set(key, now + limits.SLEEP_SECONDS_MIN)
        else:
            silence = f"silent for {now - connection.heard_at:.0f} s"
            self._effects.note("warning", f"{connection.worker_id}: connection closed: {silence}")
            # Nobody knows what it does: told to leave, it has not left.
            connection.overstayed = connection.state is ConnState.ENDING
            self._effects.ask(HangUp(conn_id, silence))

    def _expect_heartbeats(self, connection: Connection) -> None:
        # Moved when it is due, not with every message.
        key = SilenceTimeout(connection.conn_id)
        if connection.abilities.heartbeat_seconds is None:
            self._timers.cancel(key)
        else:
            self._timers.set_earlier(key, connection.silent_from)

    def overdue(self, conn_id: ConnId) -> None:
        """A worker did not end its task in time: it is stuck, and ends itself now."""
        connection = self._registry.get(conn_id)
        in_flight = self._sender.in_flight(connection) if connection else None
        if connection is None or in_flight is None:
            return
        in_flight.overdue = not in_flight.cancelled
        self._effects.note(
            "error", f"{connection.worker_id} did not end {in_flight.job.issue_id} in time"
        )
        if connection.own:
            self._parts.supervisor.kill(connection.pid)
        self._effects.ask(HangUp(conn_id, "did not end its task in time"))

    def exit_due(self, pid: int) -> None:
        """A worker without its socket is of no use: have it replaced."""
        self._parts.supervisor.kill(pid)

    # --- inside -------------------------------------------------------------------------------

    def _join(self, connection: Connection, message: Turn) -> None:
        member = self._parts.supervisor.by_pid.get(connection.pid)
        connection.own = member is not None
        if member is not None:
            connection.worker_id = self._registry.own_id(member.worker_id, message.worker_id)
            if member.unwanted:
                self._registry.retire(connection)
        else:
            reserved = set(self._parts.supervisor.members)
            connection.worker_id = self._registry.next_worker_id(reserved)
        self._registry.joined(connection)
        self._timers.cancel(HelloTimeout(connection.conn_id))
        version = message.version if isinstance(message, Ready) else "1"
        who = (connection.worker_id, connection.pid, message.worker_id[:40])
        # A further slot of one process comes and goes with its connection.
        own = member is not None and connection.worker_id == member.worker_id
        self._effects.write(WorkerJoined(*who, own, version[:10], connection.start_time))
        names = {connection.worker_id, connection.worker_id.partition(".")[0]}
        if not self._registry.held.isdisjoint(names):
            self._change_pause(connection, BY_HAND, held=True)

    def _reregistered(self, connection: Connection) -> None:
        # A process that came back and says READY has let go of what it had before. One that has, or
        # had, several connections speaks for each of them only on that one, and it is gone.
        for in_flight in self._tasks.orphaned() if not connection.several else ():
            orphaned, lost_by = in_flight.issue.orphaned, in_flight.lost_conn_id
            if orphaned is None or orphaned.pid != connection.pid or orphaned.several:
                continue
            if isinstance(orphaned, Inherited):
                came_later = orphaned.start_time in (0, connection.start_time)
            else:
                came_later = lost_by is not None and connection.conn_id > lost_by
            if came_later:
                self.end_orphaned(in_flight)

    def _stimulus(self, connection: Connection, message: Turn) -> ConnStimulus:
        if isinstance(message, Ready):
            return ConnStimulus.SAID_READY
        its_own = (connection.issue_id, *connection.prefetched)
        if connection.state not in _HAS_TASK or message.issue_id not in its_own:
            return ConnStimulus.STRAY
        in_flight = self._tasks.in_flight[message.issue_id]
        if isinstance(message, Failed) and message.request_id not in (
            "",
            in_flight.started.request_id,
        ):
            return ConnStimulus.STRAY  # Of an earlier TASK for the same issue.
        return ConnStimulus.FINISHED_ONE if connection.prefetched else ConnStimulus.FINISHED

    def _lose(self, connection: Connection, in_flight: InFlight) -> None:
        if connection.state is ConnState.ENDING:
            in_flight.cancelled = in_flight.cancelled or "stopped"
            in_flight.obeyed = not connection.overstayed
        pid = connection.pid
        if connection.own:
            self._tasks.lose(in_flight, pid)
            if pid not in self._parts.supervisor.by_pid:
                self.end_orphaned(in_flight)  # It was reaped before its result spool was read.
            return
        grace = self._parts.settings.orphan_grace_seconds
        grace = 0.0 if connection.overstayed or grace is None else grace
        more = {"told_to_stop": connection.overstayed, "several": connection.several}
        self._tasks.lose(in_flight, pid, grace_seconds=grace, **more)
        self._watch_orphan(in_flight.job.issue_id, pid, 0, grace)

    def _note_stray(self, connection: Connection, message: Turn) -> None:
        if isinstance(message, Ready):
            text = "said READY again before its reply"
        else:
            text = f"reported {message.issue_id[:80]!r}, which it does not have"
        self._sender.note_stray(connection, text)


_HAS_TASK = (ConnState.BUSY, ConnState.ENDING)
_KNOWN = (ConnState.IDLE, ConnState.READY, ConnState.RESERVED, ConnState.BUSY)
_LEAVING = (RunState.DRAINING, RunState.STOPPING, RunState.SETTLING, RunState.ENDED)


def _outcome(message: Done | Failed, of_function: bool) -> Outcome:
    receipt = read_receipt(message.receipt) if message.receipt is not None else None
    if isinstance(message, Done):
        if message.result is None and not message.result_file and receipt is None:
            return Outcome(OutcomeKind.SUCCESS)
        note, result = note_of(message.result), kept(message.result, of_function=of_function)
        file = message.result_file
        return Outcome(OutcomeKind.SUCCESS, "", None, note, result, file, receipt)
    if message.error == "busy" or message.error_detail == CANNOT_START:
        return Outcome(OutcomeKind.CANCELLED, message.error)
    return Outcome(
        message.outcome,
        message.error,
        message.retry_after_seconds,
        receipt=receipt,
        unprepared=message.outcome is OutcomeKind.RETRY and message.error_detail == CANNOT_PREPARE,
    )
