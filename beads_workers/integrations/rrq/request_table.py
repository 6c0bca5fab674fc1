"""Requests from their arrival to their answer: no I/O; the time is an argument."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, assert_never

from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.model import IssueId, Outcome, OutcomeKind, value
from beads_workers.core.base.source import PAST_DEADLINE
from beads_workers.core.schedule.effects import Timers
from beads_workers.core.schedule.events import ConnId
from beads_workers.integrations.rrq import wire
from beads_workers.integrations.rrq.wire import frame, parse

# --- answers -------------------------------------------------------------------------------------
# Outcomes of attempts in RRQ's words. Source: docs/RRQ.md, "Being an RRQ executor".


TIMEOUT = "timeout"
LOST = "worker_lost"
"""``ErrorInfo.type``: the worker died with the request. The orchestrator decides about a retry."""
ENDING = "the executor is ending"
DUPLICATE = "duplicate_request"
"""``ErrorInfo.code``: a request of that id is still unanswered."""


class Ids(NamedTuple):
    """The ids that an answer names."""

    request_id: str
    job_id: str


def from_outcome(ids: Ids, outcome: Outcome | None) -> bytes:
    """Return the frame that answers a request with this outcome of its attempt.

    None: the attempt was never started, and the executor ends.
    """
    if outcome is None:
        return failed(ids, "never started: " + ENDING, type=wire.CANCELLED)
    error = outcome.error
    match outcome.kind:
        case OutcomeKind.SUCCESS:
            return _succeeded(ids, outcome.result)
        case OutcomeKind.RETRY:
            info = wire.ErrorInfo(error or "not now")
            after = outcome.retry_after_seconds
            return _framed(wire.RequestOutcome(wire.RequestStatus.RETRY, *ids, None, info, after))
        case OutcomeKind.TIMEOUT:
            return timed_out(ids, error or "timed out")
        case OutcomeKind.ERROR | OutcomeKind.QUESTION:
            return failed(ids, error or "failed without a word")
        case OutcomeKind.NOT_FOUND:
            return failed(ids, error, type=wire.HANDLER_NOT_FOUND)
        case OutcomeKind.CANCELLED:
            return failed(ids, error or "cancelled", type=wire.CANCELLED)
        case OutcomeKind.LOST:
            return failed(ids, error, type=LOST)
        case _:
            assert_never(outcome.kind)


def failed(ids: Ids, message: str, *, type: str | None = None, code: str | None = None) -> bytes:
    """Return a frame with an ``error``."""
    info = wire.ErrorInfo(message, type, code)
    return _framed(wire.RequestOutcome(wire.RequestStatus.ERROR, *ids, error=info))


def timed_out(ids: Ids, message: str) -> bytes:
    """Return a frame with a ``timeout``."""
    info = wire.ErrorInfo(message, TIMEOUT)
    return _framed(wire.RequestOutcome(wire.RequestStatus.TIMEOUT, *ids, error=info))


def _succeeded(ids: Ids, result: str) -> bytes:
    try:
        return frame(wire.encode_success(*ids, result))
    except ValueError as error:  # The result is too long.
        return failed(ids, f"the result cannot be sent: {error}"[:500])


def _framed(answer: wire.RequestOutcome) -> bytes:
    return frame(wire.encode(answer))


# --- unanswered ----------------------------------------------------------------------------------
# What is known of an unanswered request, and the commands to the sockets that follow from it.


UNANSWERED_MAX = 128
"""Most unanswered requests of one connection: at this number it is not read from. The real peers
of version 2 send 64."""
UNANSWERED_BYTES_MAX = 64 << 20
"""Most bytes of unanswered requests of all connections: four requests of the largest size."""
ID_CHARS_MAX = 500
"""Longest id or function name: every record holds them, and real ones are UUIDs and paths."""


@value
class SendFrame:
    """Send these bytes, a whole frame."""

    conn_id: ConnId
    data: bytes


@value
class CloseConnection:
    """Close the connection; ``gone`` follows, as for any other end of a connection."""

    conn_id: ConnId
    reason: str


@value
class Offer:
    """Tell the core that there is something new to take."""


@value
class Withdraw:
    """Tell the core that a taken request is not wanted any more; ``settled`` still has to be
    called."""

    issue_id: IssueId
    why: str


Command = SendFrame | CloseConnection | Offer | Withdraw


@dataclass(slots=True, eq=False)
class Unanswered:
    """One request."""

    number: int
    ids: Ids
    request: wire.Request | None
    # None once the connection is gone.
    conn_id: ConnId | None
    size: int
    in_turn: bool
    # Monotonic seconds, None without one.
    deadline: float | None = None
    # Set when the request's turn has come.
    issue_id: IssueId | None = None
    # A frame, once it is known.
    answer: bytes | None = None
    cancelled: bool = False
    timed_out: bool = False


@dataclass(slots=True)
class RrqConnection:
    """``line``: requests answered in turn; the first is under way.

    ``ignored``: ignore further input.
    """

    line: list[Unanswered] = field(default_factory=list)
    unanswered: dict[int, Unanswered] = field(default_factory=dict)
    ignored: bool = False


# --- service -------------------------------------------------------------------------------------
# Requests from their arrival to their answer: no I/O; the time is an argument.
#
# Every request is answered exactly once while its connection lives. Requests of version 1 are
# answered in turn: the next one of a connection begins when its predecessor is answered. Other
# requests are answered when they are done. ``collect`` returns the resulting commands: call it
# after any other method.
#
# Source: docs/RRQ.md, "Being an RRQ executor". Times are monotonic seconds.


class RequestTable:
    """All connections and requests of one executor."""

    def __init__(self) -> None:
        self._connections: dict[ConnId, RrqConnection] = {}
        self._by_request: dict[str, Unanswered] = {}
        self._waiting: dict[IssueId, Unanswered] = {}
        self._taken: dict[IssueId, Unanswered] = {}
        self._timers = Timers[Unanswered]()
        self._count = 0
        self._bytes = 0
        self._ending = False
        self._commands: list[Command] = []

    # --- what the connections do --------------------------------------------------------------

    def connected(self, conn_id: ConnId) -> None:
        """Register a new connection; it may be a mere probe."""
        self._connections[conn_id] = RrqConnection()

    def received(self, conn_id: ConnId, payload: bytes, now: float, epoch: float) -> None:
        """Handle a whole frame. ``epoch``: the wall clock at ``now``, for deadlines."""
        connection = self._connections.get(conn_id)
        if connection is None or connection.ignored:
            return
        try:
            envelope = parse(payload)
        except wire.WrongRequest as error:
            ids = Ids(error.request_id, error.job_id)
            unanswered = self._enter(conn_id, connection, ids, None, len(payload))
            self._answer(unanswered, failed(ids, f"wrong request: {error}", code="wrong_request"))
            return
        except ProtocolError as error:
            self.misread(conn_id, str(error))
            return
        match envelope:
            case wire.Request():
                self._request(conn_id, connection, envelope, len(payload), now, epoch)
            case wire.CancelRequest():
                self._cancel(envelope)
            case wire.RequestOutcome():
                self.misread(conn_id, "an executor is sent no response")

    def misread(self, conn_id: ConnId, why: str) -> None:
        """Close a connection that sent no valid frame: the start of the next frame is unknown."""
        connection = self._connections.get(conn_id)
        if connection is not None and not connection.ignored:
            connection.ignored = True
            self._commands.append(CloseConnection(conn_id, why))

    def gone(self, conn_id: ConnId) -> None:
        """Forget a closed connection and end its requests: nobody receives their answers."""
        connection = self._connections.pop(conn_id, None)
        for unanswered in connection.unanswered.values() if connection else ():
            unanswered.conn_id = None
            self._forget(unanswered)
            self._end(unanswered, "whoever asked for it has left")

    def is_full(self, conn_id: ConnId) -> bool:
        """Return whether nothing more is to be read from the connection for now."""
        connection = self._connections.get(conn_id)
        mine = len(connection.unanswered) if connection else 0
        return mine >= UNANSWERED_MAX or self._bytes >= UNANSWERED_BYTES_MAX

    def deadline(self) -> float | None:
        """Return when ``on_deadline`` is due."""
        return self._timers.deadline()

    def on_deadline(self, now: float) -> None:
        """Answer and end the requests whose deadline has passed."""
        for unanswered in self._timers.due(now):
            self._time_out(unanswered)

    def finish(self) -> None:
        """Answer the requests that were not taken, and begin no more: the executor ends."""
        self._ending = True
        for unanswered in list(self._by_request.values()):
            if unanswered.issue_id not in self._taken:
                self._answer(unanswered, from_outcome(unanswered.ids, None))

    def abandon(self) -> None:
        """Answer everything that is still unanswered: the executor ends now."""
        self.finish()
        for unanswered in list(self._by_request.values()):
            self._answer(unanswered, failed(unanswered.ids, ENDING, type=wire.CANCELLED))

    def collect(self) -> list[Command]:
        """Return the commands since the last call, in order."""
        commands, self._commands = self._commands, []
        return commands

    @property
    def has_commands(self) -> bool:
        """Whether ``collect`` would return anything."""
        return bool(self._commands)

    # --- what the fleet does ------------------------------------------------------------------

    def take(self, limit: int) -> list[Unanswered]:
        """Return the next requests to work on, oldest first; call ``settled`` for each of them."""
        taken: list[Unanswered] = []
        while self._waiting and len(taken) < limit:
            issue_id = next(iter(self._waiting))
            unanswered = self._taken[issue_id] = self._waiting.pop(issue_id)
            taken.append(unanswered)
        return taken

    def settled(self, issue_id: IssueId, outcome: Outcome | None) -> str:
        """Record the outcome of a taken request; None: it was never started.

        Returns ``PAST_DEADLINE`` if the request was answered with that before, else "".
        """
        unanswered = self._taken.pop(issue_id, None)
        if unanswered is None or unanswered.answer is not None:
            return PAST_DEADLINE if unanswered is not None and unanswered.timed_out else ""
        if unanswered.cancelled and (outcome is None or outcome.kind is not OutcomeKind.SUCCESS):
            # The attempt was ended because somebody cancelled it, whatever its outcome says.
            outcome = Outcome(OutcomeKind.CANCELLED, "cancelled")
        elif outcome is None and not self._ending:
            outcome = Outcome(OutcomeKind.CANCELLED, "never started: it was released")
        self._answer(unanswered, from_outcome(unanswered.ids, outcome))
        return ""

    @property
    def waiting(self) -> int:
        """Number of requests that could be taken."""
        return len(self._waiting)

    @property
    def unanswered(self) -> int:
        """Number of requests that await an answer."""
        return len(self._by_request)

    # --- inside -------------------------------------------------------------------------------

    def _request(
        self,
        conn_id: ConnId,
        connection: RrqConnection,
        request: wire.Request,
        size: int,
        now: float,
        epoch: float,
    ) -> None:
        ids = Ids(request.request_id, request.job_id)
        known = request.request_id in self._by_request
        unanswered = self._enter(conn_id, connection, ids, request, size)
        if (refusal := self._refusal(ids, request, known=known)) is not None:
            self._answer(unanswered, refusal)
            return
        if request.context.deadline is not None:
            unanswered.deadline = now + (request.context.deadline - epoch)
            if unanswered.deadline <= now:
                self._answer(unanswered, timed_out(ids, "its deadline had passed already"))
                return
            self._timers.set(unanswered, unanswered.deadline)
        if unanswered.in_turn:
            self._advance(connection)
        else:
            self._begin(unanswered)

    def _enter(
        self,
        conn_id: ConnId,
        connection: RrqConnection,
        ids: Ids,
        request: wire.Request | None,
        size: int,
    ) -> Unanswered:
        self._count += 1
        in_turn = request is None or request.protocol_version != wire.V2
        unanswered = Unanswered(self._count, ids, request, conn_id, size, in_turn)
        self._bytes += size
        self._by_request.setdefault(ids.request_id, unanswered)
        connection.unanswered[unanswered.number] = unanswered
        if in_turn:
            connection.line.append(unanswered)
        return unanswered

    def _refusal(self, ids: Ids, request: wire.Request, *, known: bool) -> bytes | None:
        if request.protocol_version not in wire.VERSIONS:
            version = request.protocol_version[:20]
            message = f"Unsupported protocol version {version!r}: 1 and 2 are spoken here"
            return failed(ids, message, code=wire.UNSUPPORTED_VERSION)
        if max(len(ids.request_id), len(ids.job_id), len(request.function_name)) > ID_CHARS_MAX:
            message = f"an id or a name is longer than {ID_CHARS_MAX} characters"
            return failed(ids, message, code="wrong_request")
        if known:
            message = "a request of this id is not answered yet"
            return failed(ids, message, code=DUPLICATE)
        return from_outcome(ids, None) if self._ending else None

    def _begin(self, unanswered: Unanswered) -> None:
        """Offer a request to the fleet: its turn has come."""
        issue_id = IssueId(unanswered.ids.job_id)
        if issue_id in self._waiting or issue_id in self._taken:
            # The same job again: its last attempt may not have ended yet.
            issue_id = IssueId(f"{issue_id}~{unanswered.number}")
        unanswered.issue_id = issue_id
        self._waiting[issue_id] = unanswered
        self._commands.append(Offer())

    def _advance(self, connection: RrqConnection) -> None:
        """Send the answers whose turn has come, and begin the request behind them."""
        while connection.line:
            first = connection.line[0]
            if first.answer is None:
                if first.issue_id is None:
                    self._begin(first)
                return
            del connection.line[0]
            self._reply(first, first.answer)

    def _answer(self, unanswered: Unanswered, answer: bytes) -> None:
        """Set the answer, once and for all; it is sent when its turn has come."""
        unanswered.answer = answer
        self._forget(unanswered)
        connection = (
            self._connections.get(unanswered.conn_id) if unanswered.conn_id is not None else None
        )
        if connection is None:
            return
        if unanswered.in_turn:
            self._advance(connection)
        else:
            self._reply(unanswered, answer)

    def _reply(self, unanswered: Unanswered, answer: bytes) -> None:
        assert unanswered.conn_id is not None, "its connection is there"
        del self._connections[unanswered.conn_id].unanswered[unanswered.number]
        self._commands.append(SendFrame(unanswered.conn_id, answer))

    def _forget(self, unanswered: Unanswered) -> None:
        """Remove a request from those that await an answer; its attempt may still run."""
        if self._by_request.get(unanswered.ids.request_id) is unanswered:
            del self._by_request[unanswered.ids.request_id]
        if unanswered.issue_id is not None:
            self._waiting.pop(unanswered.issue_id, None)
        self._timers.cancel(unanswered)
        self._bytes -= unanswered.size
        unanswered.size, unanswered.request = 0, None

    def _end(self, unanswered: Unanswered, why: str) -> None:
        if unanswered.issue_id is not None and self._taken.get(unanswered.issue_id) is unanswered:
            self._commands.append(Withdraw(unanswered.issue_id, why))

    def _time_out(self, unanswered: Unanswered) -> None:
        unanswered.timed_out = True
        self._answer(unanswered, timed_out(unanswered.ids, PAST_DEADLINE))
        self._end(unanswered, PAST_DEADLINE)

    def _cancel(self, cancel: wire.CancelRequest) -> None:
        if cancel.protocol_version not in wire.VERSIONS:
            return
        for unanswered in self._to_cancel(cancel):
            unanswered.cancelled = True
            if unanswered.issue_id in self._taken:
                self._end(unanswered, "cancelled")
            else:
                self._answer(unanswered, failed(unanswered.ids, "cancelled", type=wire.CANCELLED))

    def _to_cancel(self, cancel: wire.CancelRequest) -> list[Unanswered]:
        if cancel.request_id is not None:
            unanswered = self._by_request.get(cancel.request_id)
            return (
                [unanswered]
                if unanswered is not None and unanswered.ids.job_id == cancel.job_id
                else []
            )
        return [o for o in self._by_request.values() if o.ids.job_id == cancel.job_id]
