"""The conversation with every worker: one READY, one reply.

Source: docs/PROTOCOL.md, "The conversation". What is answered in which state stands in
``states.CONNECTION``; here are the reactions.
"""

from __future__ import annotations

from typing import assert_never

from beads_workers.core import limits
from beads_workers.core.commands import HangUp, WatchHolder
from beads_workers.core.events import Connected, ConnId, Disconnected, Misread, Received
from beads_workers.core.held import Held
from beads_workers.core.judging import Judging
from beads_workers.core.message_types import Done, Failed, FromWorker, Ready, Wait
from beads_workers.core.parts import Parts
from beads_workers.core.records import WorkerJoined, WorkerLeft
from beads_workers.core.replies import HoldOver, Overdue, Replies
from beads_workers.core.roster import Connection
from beads_workers.core.states import ConnReaction, ConnState, ConnStimulus, IssueState, RunState
from beads_workers.core.values import value


@value
class HelloDue:
    """Timer key: a connection must have said something valid by then."""

    conn_id: ConnId


@value
class ExitDue:
    """Timer key: a worker of ours that left its connection must have exited by then."""

    pid: int


class Floor:
    """Serves the connections; the caller says whether work may come in a moment."""

    def __init__(self, parts: Parts, replies: Replies, judging: Judging) -> None:
        self._parts = parts
        self._judging = judging
        self._replies = replies
        self._desk = parts.desk
        self._roster = parts.roster
        self._tasks = parts.tasks
        self._timers = parts.desk.timers

    # --- what comes in ------------------------------------------------------------------------

    def connected(self, event: Connected) -> None:
        """A connection is nobody until its first valid message."""
        connection = self._roster.add(event.conn_id, event.pid, event.start_time)
        connection.own = event.pid in self._parts.crew.by_pid
        self._timers.set(HelloDue(event.conn_id), self._desk.now + limits.HELLO_SECONDS)

    def misread(self, event: Misread) -> None:
        """A line that is no message: say so, and go on; a flood ends the connection."""
        connection = self._roster.get(event.conn_id)
        if connection is None:
            return
        connection.bad_lines += 1
        if connection.bad_lines <= limits.BAD_LINES_SHOWN:
            who = connection.worker_id or f"pid {connection.pid}"
            self._desk.note("warning", f"{who}: {event.reason}: {event.head}")
        if connection.bad_lines == limits.BAD_LINES_MAX:
            self._desk.ask(HangUp(event.conn_id, "too many wrong lines"))

    def received(self, event: Received) -> ConnReaction:
        """A valid message; returns what came of it.

        ``SERVE`` is left to the caller, who knows whether work is coming, and so is telling the
        intake of an attempt that ended (``JUDGE``).
        """
        connection = self._roster.get(event.conn_id)
        if connection is None:
            return ConnReaction.NONE
        message = event.message
        if not connection.worker_id:
            self._join(connection, message)
        if isinstance(message, Ready):
            connection.opt_in(message)
            self._vouched(connection)
        reaction = self._roster.move(connection, self._stimulus(connection, message))
        match reaction:
            case ConnReaction.JUDGE:
                assert isinstance(message, Done | Failed)
                return reaction if self._judging.judge(connection, message) else ConnReaction.NONE
            case ConnReaction.REPEAT_TASK if connection.keeps:
                pass  # A TASK for later has met it at its end.
            case ConnReaction.REPEAT_TASK:
                self._replies.repeat_task(connection)
            case ConnReaction.RESYNC:
                self._note_stray(connection, message)
                self._replies.say(connection, Wait(limits.WAIT_SECONDS_RESYNC))
            case ConnReaction.NOTE:
                self._note_stray(connection, message)
            case ConnReaction.SERVE | ConnReaction.ANSWERED | ConnReaction.NONE:
                pass
            case ConnReaction.BUG:
                raise AssertionError(reaction)
            case _:
                assert_never(reaction)
        return reaction

    def disconnected(self, event: Disconnected) -> None:
        """The connection is over; what it had is loose until its holder is known to be dead."""
        connection = self._roster.remove(event.conn_id)
        if connection is None:
            return
        for key in (HelloDue, HoldOver, Overdue):
            self._timers.cancel(key(event.conn_id))
        if connection.worker_id:
            self._desk.write(WorkerLeft(connection.worker_id, event.reason))
        held = self._replies.held(connection)
        if held is not None:
            if held.state is IssueState.HANDING:
                self._tasks.unreserve(held)
            else:
                self._lose(connection, held)
        for issue_id in connection.ahead:
            self._lose(connection, self._tasks.held[issue_id])
        if connection.own and not self._roster.is_connected(connection.pid):
            # It ends its task and exits by itself; if it does not, it is stuck.
            grace = self._replies.grace(connection) + limits.LEAVE_MARGIN_SECONDS
            self._timers.set(ExitDue(connection.pid), self._desk.now + grace)

    def holder_dead(self, pid: int) -> None:
        """The process that had loose jobs is gone: what it did not finish is lost."""
        for held in self._tasks.loose():
            if held.holder_pid == pid:
                self._judging.conclude_loose(held)

    # --- what goes out ------------------------------------------------------------------------

    def serve(self, connection: Connection, *, soon: bool) -> None:
        """Answer a READY. ``soon``: the source is being asked, so a reply may wait a little."""
        if connection.state is not ConnState.READY:
            return
        state = self._parts.state
        if connection.retiring or state in _LEAVING:
            self._replies.shut_down(connection)
        elif state is RunState.RUNNING and (held := self._tasks.most_urgent()):
            self._replies.deliver(connection, held)
        elif self._parts.pushed and connection.own and state is RunState.RUNNING:
            pass  # Held until there is work: whoever sends it waits for the answer.
        elif soon and HoldOver(connection.conn_id) not in self._timers:
            self._timers.set(HoldOver(connection.conn_id), self._desk.now + limits.HOLD_SECONDS)
        elif not soon:
            self._replies.tell_to_wait(connection)

    def send_ahead(self, connection: Connection, tasks: int) -> None:
        """So many tasks for later, while nobody waits for work."""
        if connection.retiring or self._parts.state is not RunState.RUNNING:
            return
        for _ in range(tasks):
            if self._roster.count(ConnState.READY) or not (held := self._tasks.most_urgent()):
                return
            self._replies.send_behind(connection, held)

    def serve_held(self, *, soon: bool) -> None:
        """The source has answered: go through those who wait for their reply."""
        for connection in self._roster.in_state(ConnState.READY):
            self.serve(connection, soon=soon)

    def handed_over(self, held: Held) -> None:
        """The tracker knows: now the TASK can go out."""
        connection = self._roster.get(held.conn_id) if held.conn_id is not None else None
        assert connection is not None, "a job stays reserved only while its worker is there"
        self._replies.start(connection, held)

    def not_handed_over(self, held: Held) -> None:
        """The tracker would not: the worker gets something else."""
        connection = self._roster.get(held.conn_id) if held.conn_id is not None else None
        if connection is not None:
            connection.issue_id = None
            self._replies.tell_to_wait(connection, limits.WAIT_SECONDS_RESYNC)

    # --- deadlines ----------------------------------------------------------------------------

    def hello_due(self, conn_id: ConnId) -> None:
        """Nothing valid in its first ten seconds: no worker."""
        if (found := self._roster.get(conn_id)) and found.state is ConnState.NEW:
            self._desk.ask(HangUp(conn_id, "said nothing valid"))

    def hold_over(self, conn_id: ConnId) -> None:
        """The source takes its time: WAIT."""
        connection = self._roster.get(conn_id)
        if connection and connection.state is ConnState.READY:
            # Work is on its way: ask again as soon as may be.
            self._replies.tell_to_wait(connection, limits.WAIT_SECONDS_MIN)

    def overdue(self, conn_id: ConnId) -> None:
        """A worker did not end its task in time: it is stuck, and ends itself now."""
        connection = self._roster.get(conn_id)
        held = self._replies.held(connection) if connection else None
        if connection is None or held is None:
            return
        held.overdue = not held.cancelled
        self._desk.note("error", f"{connection.worker_id} did not end {held.job.issue_id} in time")
        if connection.own:
            self._parts.crew.kill(connection.pid)
        self._desk.ask(HangUp(conn_id, "did not end its task in time"))

    def exit_due(self, pid: int) -> None:
        """A worker without its socket is of no use: have it replaced."""
        self._parts.crew.kill(pid)

    # --- inside -------------------------------------------------------------------------------

    def _join(self, connection: Connection, message: FromWorker) -> None:
        member = self._parts.crew.by_pid.get(connection.pid)
        connection.own = member is not None
        if member is not None:
            connection.worker_id = self._roster.own_id(member.worker_id, message.worker_id)
            if member.unwanted:
                self._roster.retire(connection)
        else:
            reserved = set(self._parts.crew.members)
            connection.worker_id = self._roster.next_worker_id(reserved)
        self._timers.cancel(HelloDue(connection.conn_id))
        version = message.version if isinstance(message, Ready) else "1"
        who = (connection.worker_id, connection.pid, message.worker_id[:40])
        # A further slot of one process comes and goes with its connection.
        own = member is not None and connection.worker_id == member.worker_id
        self._desk.write(WorkerJoined(*who, own, version[:10], connection.start_time))

    def _vouched(self, connection: Connection) -> None:
        # A process that came back and says READY has let go of what it had before.
        for held in self._tasks.loose() if self._tasks.count(IssueState.LOOSE) else ():
            came_later = held.lost_conn_id is not None and connection.conn_id > held.lost_conn_id
            if held.holder_pid == connection.pid and came_later:
                self._judging.conclude_loose(held)

    def _stimulus(self, connection: Connection, message: FromWorker) -> ConnStimulus:
        if isinstance(message, Ready):
            return ConnStimulus.SAID_READY
        has_task = connection.state in (ConnState.BUSY, ConnState.ENDING)
        if not has_task or message.issue_id not in (connection.issue_id, *connection.ahead):
            return ConnStimulus.STRAY
        held = self._tasks.held[message.issue_id]
        if isinstance(message, Failed) and message.request_id not in ("", held.request_id):
            return ConnStimulus.STRAY  # Of an earlier TASK for the same issue.
        return ConnStimulus.FINISHED_ONE if connection.ahead else ConnStimulus.FINISHED

    def _lose(self, connection: Connection, held: Held) -> None:
        if connection.state is ConnState.ENDING:
            held.cancelled = held.cancelled or "stopped"
        self._tasks.lose(held, connection.pid)
        if connection.own:
            if connection.pid not in self._parts.crew.by_pid:
                self._judging.conclude_loose(held)  # It was reaped before its last words were read.
        else:
            self._desk.ask(WatchHolder(connection.pid))

    def _note_stray(self, connection: Connection, message: FromWorker) -> None:
        if isinstance(message, Ready):
            text = "said READY again before its reply"
        else:
            text = f"reported {message.issue_id[:80]!r}, which it does not have"
        self._replies.note_stray(connection, text)


_LEAVING = (RunState.DRAINING, RunState.STOPPING, RunState.SETTLING, RunState.ENDED)
