"""The conversation with every worker: one READY, one reply.

``states.CONNECTION`` says what is answered in which state; this module has the reactions. Source:
docs/PROTOCOL.md, "Conversation". ``sender`` says what workers are told, ``sessions`` knows who is
connected, ``features`` has what they can do beyond version 1.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import assert_never

from beads_workers.core.base import limits, wire
from beads_workers.core.base.model import (
    OCCUPIED,
    IssueId,
    Outcome,
    OutcomeKind,
    kept,
    note_of,
    value,
)
from beads_workers.core.base.states import (
    ConnReaction,
    ConnState,
    ConnStimulus,
    IssueState,
    RunState,
)
from beads_workers.core.records.issues import Issue
from beads_workers.core.records.journal import Inherited, WorkerJoined, WorkerLeft
from beads_workers.core.records.receipts import read_receipt
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.claims import ClaimScheduler
from beads_workers.core.schedule.commands import HangUp, WatchOwner
from beads_workers.core.schedule.connection_registry import HAS_TASK, Connection
from beads_workers.core.schedule.inflight import InFlight, lost, not_back
from beads_workers.core.schedule.parts import Parts
from beads_workers.core.workers.away import Away, no_answer
from beads_workers.core.workers.features.table import FEATURES
from beads_workers.core.workers.sender import HoldTimeout, IdleTimeout, Overdue, Sender


@value
class HelloTimeout:
    """Timer key: deadline of the first valid message of a connection."""

    conn_id: ev.ConnId


@value
class GraceOver:
    """Timer key: end of the grace in which a worker that is not ours may end its lost issue."""

    issue_id: IssueId


@value
class ExitDue:
    """Timer key: deadline by which a worker of ours that left its connection must have exited."""

    pid: int


class Connections:
    """Reads what workers say, and serves them."""

    def __init__(self, parts: Parts, sender: Sender, scheduler: ClaimScheduler) -> None:
        self._parts = parts
        self._sender = sender
        self._scheduler = scheduler
        self._effects = parts.effects
        self._registry = parts.registry
        self._tasks = parts.tasks
        self._timers = parts.effects.timers
        self.away = Away(parts, sender, self._end_away)
        around = parts, sender, scheduler, lambda worker: self.serve(worker, soon=True)
        self._features = tuple(feature(*around) for feature in FEATURES)
        self._hearers = {kind: each for each in self._features for kind in each.messages}
        assert len(self._hearers) == sum(len(each.messages) for each in self._features)
        self.command_unusable = ""
        """The reason why no task of this fleet can run, found by a worker of ours; "" if none."""

    # --- what comes in ------------------------------------------------------------------------

    def connected(self, event: ev.Connected) -> None:
        """Register a new connection; it has no worker until its first valid message."""
        connection = self._registry.add(event.conn_id, event.pid, event.start_time)
        connection.own = event.pid in self._parts.supervisor.by_pid
        self._timers.set(HelloTimeout(event.conn_id), self._effects.now + limits.HELLO_SECONDS)
        if not event.start_time and event.pid in self._parts.supervisor.reaped_pids:
            self._hang_up_on_dead(connection)

    def misread(self, event: ev.Misread) -> None:
        """Report a line that is no message, and go on; a flood of them closes the connection."""
        connection = self._registry.get(event.conn_id)
        if connection is None:
            return
        complaints = connection.complaints
        if self._effects.now - complaints.bad_since >= limits.BAD_LINES_SECONDS:
            complaints.bad_since, complaints.bad_lines = self._effects.now, 0
        complaints.bad_lines += 1
        complaints.shown += 1
        who = connection.worker_id or f"pid {connection.pid}"
        if complaints.shown <= limits.BAD_LINES_SHOWN:
            self._effects.note("warning", f"{who}: {event.reason}: {event.head}")
        if complaints.bad_lines == limits.BAD_LINES_MAX:
            within = f"{limits.BAD_LINES_MAX} wrong lines within {limits.BAD_LINES_SECONDS:g} s"
            cause = f"{within}, the last one: {event.reason}"
            self._effects.note("warning", f"{who}: connection closed: {cause}")
            self._effects.ask(HangUp(event.conn_id, cause))

    def unknown(self, event: ev.Unknown) -> None:
        """Ignore a message of a later version or an extension, however many there are."""
        connection = self._registry.get(event.conn_id)
        if connection is None or event.kind in connection.complaints.unknown:
            return
        if len(connection.complaints.unknown) < limits.BAD_LINES_SHOWN:
            connection.complaints.unknown.add(event.kind)
            who = connection.worker_id or f"pid {connection.pid}"
            self._effects.note("warning", f"{who}: ignored an unknown message: {event.head}")

    def received(self, event: ev.Received) -> None:
        """Handle a valid message: move its connection by the table, and react to the move.

        READY, and the end of a task, may have the next task sent. Claims and writes that follow are
        for the round trip that ``Orchestrator.after_events`` begins.
        """
        connection = self._registry.get(event.conn_id)
        if connection is None:
            return
        message = event.message
        connection.heard_at = self._effects.now
        if not isinstance(message, wire.Turn):
            self._handle_side_message(connection, message)
            return
        if connection.dead:
            return
        if not connection.worker_id:
            self._join(connection, message)
        if isinstance(message, wire.Ready):
            if message != connection.ready:
                connection.announces(message)
                for feature in self._features:
                    feature.announced(connection)
            if self._effects.issues.count(IssueState.ORPHANED):
                self._reregistered(connection)
        reaction = self._registry.move(connection, self._stimulus(connection, message))
        match reaction:
            case ConnReaction.ATTEMPT_END:
                assert isinstance(message, wire.Done | wire.Failed)
                self._task_ended(connection, message)
            case ConnReaction.SERVE:
                if self._scheduler.unwanted:
                    self._scheduler.note_free(connection)
                self.serve(connection)
                if connection.abilities.prefetch_count:
                    self._fill(connection)
            case ConnReaction.REPEAT_TASK if connection.abilities.prefetch_count:
                pass  # The READY crossed a prefetched TASK.
            case ConnReaction.REPEAT_TASK:
                self._sender.repeat_task(connection)
            case ConnReaction.RESYNC:
                self._note_stray(connection, message)
                self._sender.say(connection, wire.Wait(limits.WAIT_SECONDS_RESYNC))
            case ConnReaction.NOTE:
                self._note_stray(connection, message)
            case ConnReaction.ANSWERED | ConnReaction.NONE:
                pass
            case ConnReaction.BUG:
                raise AssertionError(reaction)
            case _:
                assert_never(reaction)

    def _handle_side_message(self, connection: Connection, message: wire.SideMessage) -> None:
        for kind in type(message).__mro__:  # The feature that hears just this type goes first.
            if kind in self._hearers:
                self._hearers[kind].handle(connection, message)
                return
        name = type(message).__name__.upper()
        self._sender.note_stray(connection, f"said {name}, which is not understood here")

    def asked(self, event: ev.Asked | ev.OfPlace) -> bool:
        """Pass a person's request, or news of a place, to the feature that handles it; return False
        if none does."""
        if isinstance(event, self.away.requests):
            self.away.asked(event)
            return True
        able = [feature for feature in self._features if isinstance(event, feature.requests)]
        for feature in able:
            feature.asked(event)
        return bool(able)

    def disconnected(self, event: ev.Disconnected) -> None:
        """Handle a lost connection: its jobs are orphaned until their owner is known to be dead."""
        connection = self._registry.remove(event.conn_id)
        if connection is None:
            return
        for key in (HelloTimeout, HoldTimeout, IdleTimeout, Overdue):
            self._timers.cancel(key(event.conn_id))
        for feature in self._features:
            feature.left(connection)
        if connection.worker_id:
            self._effects.write(WorkerLeft(connection.worker_id, event.reason))
        in_flight = self._sender.in_flight(connection)
        if in_flight is not None:
            if in_flight.issue.state is IssueState.DELEGATING:
                self._tasks.unreserve(in_flight)
            else:
                self._lose(connection, in_flight)
        for issue_id in connection.prefetched:
            self._lose(connection, self._tasks.in_flight[issue_id])
        if connection.own and not self._registry.is_connected(connection.pid):
            # The worker ends its task and exits by itself; if it does not, it is stuck.
            grace = self._sender.grace(connection) + limits.LEAVE_MARGIN_SECONDS
            self._timers.set(ExitDue(connection.pid), self._effects.now + grace)

    def reaped(self, pid: int) -> None:
        """Handle the end of a process of ours.
        Messages that it sent before may be unread, and count. But a TASK sent in reply would be
        lost, and charged as an attempt."""
        for connection in self._registry.of_process(pid):
            if not connection.worker_id:
                self._hang_up_on_dead(connection)
            elif connection.state in _KNOWN:
                self._registry.retire(connection)
        self.owner_dead(pid)

    def _hang_up_on_dead(self, connection: Connection) -> None:
        # The READY would register a foreign worker: no process has this pid any more.
        connection.dead = True
        self._effects.ask(HangUp(connection.conn_id, "its process has ended"))

    def owner_dead(self, pid: int) -> None:
        """End the orphaned jobs of a process that is dead: what it did not finish is lost."""
        for in_flight in self._tasks.orphaned():
            if in_flight.issue.lost_pid == pid:
                self.end_orphaned(in_flight)

    def grace_over(self, issue_id: IssueId) -> None:
        """End an orphaned job: its worker had its time to end the job, whether it did or not."""
        in_flight = self._tasks.in_flight[issue_id]
        self.end_orphaned(in_flight, not_back(in_flight.issue.lost_pid))

    def inherit(self, inherited: Inherited) -> None:
        """Take over an issue that an earlier run left with a foreign worker which lives on."""
        issue_id = IssueId(inherited.issue_id)
        if issue_id in self._tasks.in_flight or not self._tasks.is_open(issue_id):
            return  # The issue has moved on since: the next start looks again.
        grace = self._parts.settings.orphan_grace_seconds
        if inherited.told_to_stop or grace is None:
            grace = 0.0
        elif inherited.lost_at:
            # A clock that was set back makes no wait longer than it was; 0 would be for ever.
            passed = max(0.0, self._effects.epoch - inherited.lost_at)
            grace = max(limits.GRACE_SECONDS_MIN, grace - passed)
        else:
            grace = max(limits.GRACE_SECONDS_MIN, grace)
        if inherited.lease is not None:
            until = self._effects.epoch + self.away.seconds(inherited.lease)
            self._tasks.inherit(replace(inherited, lease_until=until), self._parts.settings.source)
            self.away.inherited(self._tasks.in_flight[issue_id])
            return
        self._tasks.inherit(replace(inherited, grace_seconds=grace), self._parts.settings.source)
        self._watch_orphan(issue_id, inherited.pid, inherited.start_time, grace)
        for connection in self._registry.of_process(inherited.pid):
            # The worker may have said READY before we knew.
            if connection.ready:
                self._reregistered(connection)

    def _watch_orphan(
        self, issue_id: IssueId, pid: int, start_time: int, grace_seconds: float
    ) -> None:
        self._effects.ask(WatchOwner(pid, start_time, issue_id))
        if grace_seconds:
            self._timers.set(GraceOver(issue_id), self._effects.now + grace_seconds)

    # --- how an attempt ended ----------------------------------------------------------------

    def _task_ended(self, connection: Connection, message: wire.Done | wire.Failed) -> None:
        in_flight = self._tasks.in_flight[message.issue_id]
        if message.is_stopping:
            self._sender.will_leave(connection)
        self._sender.ended(connection, in_flight.job.issue_id)
        failed = message if isinstance(message, wire.Failed) else None
        if in_flight.issue.lease is not None and self.away.is_open(in_flight, message):
            # It has waited long enough for an end that nobody has seen, or could not bring it.
            in_flight.overdue = bool(failed and failed.outcome is OutcomeKind.TIMEOUT)
            self.away.orphan(in_flight)
            return
        unstarted = (
            failed is not None
            and failed.error_detail == wire.RETURNED_UNSTARTED
            and connection.abilities.queues
        )
        if failed and unstarted and self._goes_on(in_flight):
            self._tasks.returned_unstarted(in_flight, failed.error)
            return  # No attempt has ended, because none had begun.
        for warning in message.warnings:
            self._effects.note("warning", f"{connection.worker_id}: {warning}")
        if connection.own and failed and failed.error_detail == wire.CANNOT_START:
            self.command_unusable = failed.error
        outcome = _outcome(message, bool(in_flight.job.call or self._parts.settings.work.function))
        waits = outcome.occupied and connection.own
        if outcome.kind is OutcomeKind.CANCELLED and not (
            unstarted or waits or self._asked_to_end(connection, in_flight)
        ):
            # A cancellation that nobody asked for is uncharged like a retry, but it backs off, and
            # not for ever.
            outcome = replace(outcome, kind=OutcomeKind.RETRY, occupied="")
        self._tasks.attempt_ended(in_flight, outcome, message.duration_ms)
        if (member := self._parts.supervisor.by_pid.get(connection.pid)) is not None:
            member.crashes = 0  # The worker ended a task: no crash loop.
        self._scheduler.completed(self._tasks.last_seconds)
        if connection.abilities.prefetch_count:
            self._fill(connection)

    def give_back(self, in_flight: InFlight, why: str) -> bool:
        """Take an orphaned issue back for a person, once its attempt is over if that is leased;
        return False if the worker is ours."""
        if self.away.is_at_large(in_flight):
            in_flight.cancelled = why
            self.away.look(in_flight, end=True)
            return True
        if in_flight.issue.lost_pid in self._parts.supervisor.by_pid:
            return False
        in_flight.cancelled = why
        self.end_orphaned(in_flight)
        return True

    def end_orphaned(self, in_flight: InFlight, outcome: Outcome | None = None) -> None:
        """End an orphaned job. A worker's death charges the attempt unless we asked for the end."""
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

    def _end_away(self, in_flight: InFlight, answer: wire.Done | wire.Failed | None) -> None:
        taken = in_flight.cancelled or in_flight.overdue or in_flight.issue.inherited
        if answer is None or taken:
            self.end_orphaned(in_flight, no_answer(in_flight))
        else:
            outcome = _outcome(answer, bool(in_flight.job.call))
            self._tasks.attempt_ended(in_flight, outcome, answer.duration_ms)

    def _goes_on(self, in_flight: InFlight) -> bool:
        """Return whether a task that was returned unstarted is for another worker.
        It is not if it was taken away."""
        return self._parts.state in _TAKING and in_flight.cancelled in ("", wire.REVOKED)

    def _asked_to_end(self, connection: Connection, in_flight: InFlight) -> bool:
        told_to_leave = connection.state in (ConnState.ENDING, ConnState.LEAVING)
        return bool(told_to_leave or in_flight.cancelled or self.command_unusable)

    # --- what goes out ------------------------------------------------------------------------

    def serve(self, connection: Connection, *, soon: bool | None = None) -> None:
        """Answer a READY, or hold it until there is work.
        ``soon``: the source is being asked; None: the scheduler knows."""
        if connection.state is not ConnState.READY:
            return
        state = self._parts.state
        if connection.retiring or state in _LEAVING:
            self._sender.shut_down(connection)
        elif connection.pause is not None:
            if not connection.pause.holds_ready:
                self._sender.keep_waiting(connection, soon=False)
        elif state is RunState.RUNNING and (in_flight := self._next_for(connection)):
            self._deliver(connection, in_flight)
        else:
            if state is RunState.RUNNING and connection.wants is not None:
                self._scheduler.none_suits()
            # Else the READY is held until there is work: whoever sends it waits for the answer.
            if not (self._parts.push and connection.own and state is RunState.RUNNING):
                soon = self._scheduler.coming() if soon is None else soon
                self._sender.keep_waiting(connection, soon=soon)

    def _next_for(self, connection: Connection) -> InFlight | None:
        """Return what a worker begins now. A session lies on one machine: who is free there has
        it."""
        place_of = self._parts.supervisor.place_of

        def is_for_other(issue: Issue) -> bool:
            receipt = issue.retry_entry.receipt if issue.retry_entry else None
            there = receipt.place if receipt and receipt.session else None
            if there in (None, place_of(connection.pid)):
                return False
            ready = self._registry.in_state(ConnState.READY)
            return any(place_of(c.pid) == there and c.pause is None for c in ready)

        return self._tasks.next_to_begin(connection.wants, is_for_other)

    def _deliver(self, connection: Connection, in_flight: InFlight) -> None:
        batched = connection.abilities.batch_size > 0
        behind = (each for f in self._features for each in f.behind(connection)) if batched else ()
        self._sender.deliver(connection, in_flight, behind)

    def _fill(self, connection: Connection) -> None:
        for feature in self._features:
            feature.fill(connection)

    def serve_waiting(self, *, soon: bool) -> None:
        """Serve all workers that wait for their reply, after the source has answered."""
        for connection in self._registry.in_state(ConnState.READY):
            self.serve(connection, soon=soon)

    def serve_idle(self) -> None:
        """Serve idle workers after every event, so that none waits while there is work."""
        if self._parts.state is not RunState.RUNNING or not self._registry.count(ConnState.READY):
            return
        if not self._effects.issues.count(IssueState.CLAIMED):
            return
        for connection in self._registry.in_state(ConnState.READY):
            if connection.retiring or connection.pause is not None:
                continue
            if in_flight := self._next_for(connection):
                self._deliver(connection, in_flight)

    def handed_over(self, in_flight: InFlight) -> None:
        """Send the TASK now that the tracker knows about the hand-over."""
        connection = self._registry.get(in_flight.conn_id)
        assert connection is not None, "a job stays reserved only while its worker is there"
        self._sender.start(connection, in_flight)

    def not_handed_over(self, in_flight: InFlight) -> None:
        """Tell the worker to wait for another job: the tracker refused the hand-over."""
        connection = self._registry.get(in_flight.conn_id)
        if connection is not None:
            connection.issue_id = None
            self._sender.tell_to_wait(connection, limits.WAIT_SECONDS_RESYNC)

    # --- deadlines ----------------------------------------------------------------------------

    def hello_timed_out(self, conn_id: ev.ConnId) -> None:
        """Close a connection that has sent nothing valid in its first ten seconds."""
        if (found := self._registry.get(conn_id)) and found.state is ConnState.NEW:
            self._effects.ask(HangUp(conn_id, "said nothing valid"))

    def hold_timed_out(self, conn_id: ev.ConnId) -> None:
        """Send WAIT: the source takes its time, or nothing has come for long."""
        connection = self._registry.get(conn_id)
        if connection and connection.state is ConnState.READY:
            # Work may come at any moment, so the worker asks again as soon as it may.
            self._sender.tell_to_wait(connection, limits.WAIT_SECONDS_MIN)

    def overdue(self, conn_id: ev.ConnId) -> None:
        """End a worker that did not end its task in time: it is stuck."""
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

    def is_due(self, key: Hashable) -> bool:
        """Pass a timer that is due on to the features; return False if none of them owns it."""
        return any(feature.is_due(key) for feature in self._features)

    def exit_due(self, pid: int) -> None:
        """Have a worker that has left its socket replaced: it is of no use."""
        self._parts.supervisor.kill(pid)

    # --- inside -------------------------------------------------------------------------------

    def _join(self, connection: Connection, message: wire.Turn) -> None:
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
        version = message.version if isinstance(message, wire.Ready) else "1"
        who = (connection.worker_id, connection.pid, message.worker_id[:40])
        # A further slot of one process comes and goes with its connection.
        own = member is not None and connection.worker_id == member.worker_id
        self._effects.write(WorkerJoined(*who, own, version[:10], connection.start_time))
        for feature in self._features:
            feature.joined(connection)

    def _reregistered(self, connection: Connection) -> None:
        # A process that came back and says READY has let go of what it had before. A process with
        # several connections, now or before, speaks for each task only on that task's connection,
        # and that one is gone.
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

    def _stimulus(self, connection: Connection, message: wire.Turn) -> ConnStimulus:
        if isinstance(message, wire.Ready):
            return ConnStimulus.SAID_READY
        its_own = (connection.issue_id, *connection.prefetched)
        if connection.state not in HAS_TASK or message.issue_id not in its_own:
            return ConnStimulus.STRAY
        in_flight = self._tasks.in_flight[message.issue_id]
        if isinstance(message, wire.Failed) and message.request_id not in (
            "",
            in_flight.started.request_id,
        ):
            return ConnStimulus.STRAY  # The FAILED belongs to an earlier TASK for the same issue.
        return ConnStimulus.FINISHED_ONE if connection.prefetched else ConnStimulus.FINISHED

    def _lose(self, connection: Connection, in_flight: InFlight) -> None:
        is_expected = self.away.is_expected(in_flight)
        if connection.state is ConnState.ENDING:
            in_flight.cancelled = in_flight.cancelled or "stopped"
            in_flight.obeyed = not (connection.overstayed or is_expected)
        if is_expected:
            self.away.orphan(in_flight)
            return
        pid = connection.pid
        if connection.own:
            self._tasks.lose(in_flight, pid)
            if pid not in self._parts.supervisor.by_pid:
                self.end_orphaned(in_flight)  # Reaped before its spool was read.
            return
        grace = self._parts.settings.orphan_grace_seconds
        grace = 0.0 if connection.overstayed or grace is None else grace
        more = {"told_to_stop": connection.overstayed, "several": connection.several}
        self._tasks.lose(in_flight, pid, grace_seconds=grace, **more)
        self._watch_orphan(in_flight.job.issue_id, pid, 0, grace)

    def _note_stray(self, connection: Connection, message: wire.Turn) -> None:
        if isinstance(message, wire.Ready):
            text = "said READY again before its reply"
        else:
            text = f"reported {message.issue_id[:80]!r}, which it does not have"
        self._sender.note_stray(connection, text)


_KNOWN = (ConnState.IDLE, ConnState.READY, ConnState.RESERVED, ConnState.BUSY)
_TAKING = (RunState.WAITING, RunState.RUNNING, RunState.PAUSED)
_LEAVING = (RunState.DRAINING, RunState.STOPPING, RunState.SETTLING, RunState.ENDED)


def _outcome(message: wire.Done | wire.Failed, of_function: bool) -> Outcome:
    receipt = read_receipt(message.receipt) if message.receipt is not None else None
    if isinstance(message, wire.Done):
        if message.result is None and not message.result_file and receipt is None:
            return Outcome(OutcomeKind.SUCCESS)
        note, result = note_of(message.result), kept(message.result, of_function=of_function)
        file = message.result_file
        return Outcome(OutcomeKind.SUCCESS, "", None, note, result, file, receipt)
    if message.error == "busy" or message.error_detail == wire.CANNOT_START:
        return Outcome(OutcomeKind.CANCELLED, message.error)
    if message.error_detail.startswith(OCCUPIED):
        folder = message.error_detail.removeprefix(OCCUPIED)
        return Outcome(OutcomeKind.CANCELLED, message.error, occupied=folder)
    return Outcome(
        message.outcome,
        message.error,
        message.retry_after_seconds,
        receipt=receipt,
        unprepared=message.outcome is OutcomeKind.RETRY
        and message.error_detail == wire.CANNOT_PREPARE,
    )
