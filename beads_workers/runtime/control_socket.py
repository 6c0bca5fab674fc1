"""The control socket: requests of the command line to a running fleet, and its followers."""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Protocol

from beads_workers import registry
from beads_workers.core import requests
from beads_workers.core.base.framing import Line, ProtocolError, as_integer, as_number, parse_object
from beads_workers.core.base.plain import to_plain
from beads_workers.core.base.wire import ControlAsked
from beads_workers.core.records.journal import KINDS, heads
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Answer
from beads_workers.core.schedule.events import ConnId, Event, StopAsked, Ticket
from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import Frames
from beads_workers.runtime.sockets import Acceptor, Peers, Stream
from beads_workers.runtime.within_attempt import refusal

if TYPE_CHECKING:
    from beads_workers.runtime.worker_server import WorkerServer


# --- tickets -------------------------------------------------------------------------------------
# Which client waits for which answer of the core.


Answered = Callable[[Answer], None]


class Tickets:
    """Tickets: each goes to the core with a request, and comes back with the answer."""

    def __init__(self) -> None:
        self._last = 0
        self._waiting: dict[Ticket, Answered] = {}

    def issue(self) -> Ticket:
        """Return a new ticket."""
        self._last += 1
        return Ticket(self._last)

    def wait(self, ticket: Ticket, answered: Answered) -> None:
        """Have ``answered`` called once, within the turn of the loop that passes on the request."""
        self._waiting[ticket] = answered

    def answer(self, answer: Answer) -> None:
        """Hand the core's answer to the client that waits for it."""
        if (answered := self._waiting.pop(answer.ticket, None)) is not None:
            answered(answer)


# --- followers -----------------------------------------------------------------------------------
# Followers get the journal's lines as they are written: all lines, or only those of some kinds.
#
# Source: docs/OPERATIONS.md, "Control socket". Few clients want all lines. A client that waits for
# the end of a run must cost nothing per issue, neither here nor in its own process.


PUBLISH_SECONDS = 0.05
"""Seconds between two batches of lines: to people, that is immediate."""

ALL = None
NOTHING: frozenset[str] = frozenset()
NOTES = frozenset({"noted"})

Kinds = frozenset[str] | None
"""Kinds of lines that a follower wants, or ``ALL``."""


class _Share:
    """The lines gathered for all followers that want the same kinds."""

    def __init__(self, kinds: Kinds) -> None:
        self._heads = None if kinds is None else heads(kinds)
        self.members: set[int] = set()
        self.gathered = bytearray()

    def add(self, lines: bytes) -> None:
        if self._heads is None:
            self.gathered += lines
        # One search in all lines: the kinds that clients wait for are rare.
        elif any(head in lines for head in self._heads):
            wanted = (line for line in lines.splitlines(True) if line.startswith(self._heads))
            self.gathered += b"".join(wanted)


class Followers:
    """Followers of the journal, each a number; each follows one choice of kinds at a time."""

    def __init__(self) -> None:
        self._shares: dict[Kinds, _Share] = {}
        self._publish_at = 0.0

    def __contains__(self, number: int) -> bool:
        """Return whether this follower is registered, even if only to be told the end."""
        return any(number in share.members for share in self._shares.values())

    def add(self, number: int, kinds: Kinds) -> None:
        """Give the follower lines of these kinds from now on; ``flush`` first, or it gets older
        lines."""
        self.discard(number)
        self._shares.setdefault(kinds, _Share(kinds)).members.add(number)

    def discard(self, number: int) -> None:
        """Remove the follower."""
        for kinds, share in list(self._shares.items()):
            share.members.discard(number)
            if not share.members:
                del self._shares[kinds]

    def publish(self, lines: bytes) -> None:
        """Add new lines; one of the next calls of ``flush`` returns them."""
        if lines:
            for share in self._shares.values():
                share.add(lines)

    def deadline(self) -> float | None:
        """Return when ``flush`` is due (monotonic seconds); None when nothing has gathered."""
        gathered = any(share.gathered for share in self._shares.values())
        return self._publish_at if gathered else None

    def flush(self, now: float) -> Iterator[tuple[Collection[int], bytes]]:
        """Yield followers and the lines to send them, at most once in ``PUBLISH_SECONDS``: nobody
        reads faster, and each batch costs."""
        if now < self._publish_at or self.deadline() is None:
            return
        self._publish_at = now + PUBLISH_SECONDS
        for share in list(self._shares.values()):
            lines, share.gathered = bytes(share.gathered), bytearray()
            if lines:
                yield list(share.members), lines


# --- requests ------------------------------------------------------------------------------------
# The language of the control socket: one JSON object a line, and the event for each request.
#
# Source: docs/OPERATIONS.md, "Control socket". ``{"control": "bw.status", "control_data": {...}}``
# is answered by one JSON object. ``bw.follow`` sends the journal's lines after it, as they are
# written, or only those of some kinds; ``bw.watch`` sends snapshots.


PREFIX = "bw."
STATUS = "bw.status"
FOLLOW = "bw.follow"
WATCH = "bw.watch"
METRICS = "bw.metrics"
WHY = "bw.why"
STOP = "bw.stop"
EXIT_CODE_MAX = 255


def is_ours(fields: Mapping[str, Any]) -> bool:
    """Return whether a request is one of our own; all others are dispatcherd's."""
    name = fields.get("control")
    return isinstance(name, str) and name.startswith(PREFIX)


def parse_request(fields: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and the data of a request; raises ``ProtocolError``."""
    name = fields.get("control")
    data = fields.get("control_data")
    if not isinstance(name, str):
        raise ProtocolError("no control")
    return name, data if isinstance(data, dict) else {}


def followed(data: Mapping[str, Any]) -> Kinds:
    """Return the kinds of lines that a follower asks for; raises ``ProtocolError``."""
    only = data.get("only")
    if only is None:
        return ALL
    if not isinstance(only, list) or not all(isinstance(kind, str) for kind in only):
        raise ProtocolError("only must be a list of kinds")
    # A newer client may ask for kinds that this version never writes: do not refuse it.
    return frozenset(only).intersection(KINDS)


def event_for(name: str, data: dict[str, Any], ticket: Ticket) -> Event:
    """Return the event that a request stands for; raises ``ProtocolError`` with a reason."""
    maker = _EVENTS.get(name)
    if maker is None:
        raise ProtocolError(f"No control method {name[:60]}")
    return maker(data, ticket)


def _stop(data: Mapping[str, Any], ticket: Ticket) -> Event:
    seconds = as_number(data.get("seconds"))
    if (data.get("seconds") is not None and seconds is None) or (seconds or 0) < 0:
        raise ProtocolError("seconds must be a number, and not negative")
    if not isinstance(data.get("drain", False), bool):
        raise ProtocolError("drain must be true or false")  # Or running work would be killed.
    code = as_integer(data.get("exit_code", 0))
    if code is None or not 0 <= code <= EXIT_CODE_MAX:
        raise ProtocolError(f"exit_code must be a whole number from 0 to {EXIT_CODE_MAX}")
    return ev.StopAsked(drain=data.get("drain") is True, seconds=seconds, exit_code=code)


def _worker_ids(data: Mapping[str, Any]) -> tuple[str, ...]:
    ids = data.get("worker_ids", [])
    if not isinstance(ids, list) or not all(isinstance(i, str) and i for i in ids):
        raise ProtocolError("worker_ids must be a list of ids")
    return tuple(ids)


_EVENTS: dict[str, Callable[[Mapping[str, Any], Ticket], Event]] = {
    **{
        f"{PREFIX}{each.name}": import_module(f"{requests.__name__}.{each.name}").REQUEST.read
        for each in iter_modules(requests.__path__)
    },
    STOP: _stop,
    "bw.pause": lambda data, ticket: ev.PauseAsked(ticket, _worker_ids(data)),
    "bw.resume": lambda data, ticket: ev.ResumeAsked(ticket, _worker_ids(data)),
}


# --- control server ------------------------------------------------------------------------------
# Server of the control socket: requests, followers of the journal, watchers of snapshots.
#
# Source: docs/OPERATIONS.md, "Control socket".


SPARES = 2
"""Spare descriptors, used when no others are left: ``status`` and ``stop`` are needed most then."""


class ControlPlane(Protocol):
    """Server of another system's commands, from the control socket and from running tasks."""

    def asked(self, conn_id: ConnId, asked: ControlAsked, workers: WorkerServer) -> None:
        """Handle a request of a running task, made over the connection of its worker."""

    def complete(self, line: bytes) -> Mapping[str, Any] | None:
        """Return the request that this line completes; None if more of the request is to come."""

    def handle(self, fields: Mapping[str, Any], send: Callable[[bytes], None]) -> None:
        """Carry out a request of the control socket; ``send`` takes the answer."""


class FiguresServer(Protocol):
    """Server of the fleet's figures, ticked by the loop."""

    @property
    def pending(self) -> bool:
        """Whether ``flush`` has work left."""

    def deadline(self) -> float:
        """Return when ``tick`` is due (monotonic seconds)."""

    def tick(self, now: float) -> None:
        """Disconnect clients that take too long."""

    def flush(self, now: float) -> None:
        """Do another slice of work; called once in each turn of the loop."""

    def describe(self) -> dict[str, Any]:
        """Return where the server listens and what it has served."""

    def close(self) -> None:
        """Stop serving: the run is over."""


FOLLOWER_BYTES_MAX = 1 << 20
"""Unread bytes at which a follower misses new lines; far below the number that ends a stream."""


class ControlServer:
    """Server of the control socket. The ``owner`` is the client that started the fleet.

    Followers get lines of the journal, watchers get the snapshots of ``frames``; both are told the
    end. ``status`` returns a snapshot. ``acceptor``: ticked by the loop.
    """

    def __init__(
        self,
        path: Path,
        selector: selectors.BaseSelector,
        tell: Callable[[Event], None],
        status: Callable[[], dict[str, Any]],
        frames: Frames,
        owner: socket.socket | None,
        *,
        quiet: bool = False,
        look: Callable[[], tuple[Board, float]],
        is_within: Callable[[int], bool] = lambda pid: False,
    ) -> None:
        """``quiet``: the owner gets only notes for people, and the end. ``is_within``: return
        whether the process with this pid is part of an attempt, which may not decide."""
        self._selector = selector
        self._tell = tell
        self._status = status
        self._frames = frames
        self._look = look
        self._is_within = is_within
        self._pids: dict[int, int] = {}
        """Pids of the clients, but the owner's."""
        self._refused: set[str] = set()
        """Requests of attempts that a person was told of."""
        self._streams: dict[int, Stream] = {}
        self._followers = Followers()
        self._watchers: set[int] = set()
        self._tickets = Tickets()
        self._last = 0
        self._owner: int | None = None
        self._metrics: FiguresServer | None = None
        name = "the control socket"
        self.acceptor = Acceptor(name, path, selector, tell, self._enter, SPARES)
        if owner is not None:
            self._owner = self._add(owner)
            self._followers.add(self._owner, NOTES if quiet else ALL)

    @cached_property
    def control_plane(self) -> ControlPlane | None:
        """Server of another system's commands; None: not installed. Created when first used: few
        fleets need it, and it imports twenty modules."""
        found = registry.service("control_plane")
        if found is None:
            return None
        plane: ControlPlane = found.open_control(
            self._tickets, self._tell, self._look, self._metrics
        )
        return plane

    def attach(self, workers: WorkerServer, metrics: FiguresServer | None) -> None:
        """Answer requests of running tasks, too, and give ``metrics`` to the control plane."""
        self._metrics = metrics
        not_asked = workers.asked

        def asked(conn_id: ConnId, asked: ControlAsked) -> None:
            if (plane := self.control_plane) is None:
                not_asked(conn_id, asked)
            else:
                plane.asked(conn_id, asked, workers)

        workers.asked = asked

    def _plane(self) -> ControlPlane:
        if (plane := self.control_plane) is None:
            raise ProtocolError(f"no such command: all begin with {PREFIX}")
        return plane

    def publish(self, lines: bytes) -> None:
        """Add new journal lines for followers; one of the next calls of ``flush`` sends them."""
        self._followers.publish(lines)

    def show(self, snapshot: dict[str, Any]) -> None:
        """Send the snapshot of a frame to all watchers, except those that have not read the last
        one."""
        line = json.dumps({"snapshot": snapshot}).encode("ascii") + b"\n"
        if self._watchers:
            self._tell(ev.StatusWanted())
        for number in list(self._watchers):
            stream = self._streams[number]
            if not stream.unsent:
                self._queue(stream, line)

    def deadline(self) -> float | None:
        """Return when ``flush`` is due (monotonic seconds); None when nothing has gathered."""
        return self._followers.deadline()

    def flush(self, now: float) -> None:
        """Send the gathered lines, at most once in ``PUBLISH_SECONDS``."""
        for numbers, lines in self._followers.flush(now):
            for number in numbers:
                # A terminal that is held (Ctrl-S) must not end its fleet: it misses lines instead.
                if (stream := self._streams[number]).unsent < FOLLOWER_BYTES_MAX:
                    self._queue(stream, lines)

    def answer(self, answer: Answer) -> None:
        """Hand the core's answer to the client that waits for it."""
        self._tickets.answer(answer)

    def _answered(self, stream: Stream, answer: Answer) -> None:
        reply: dict[str, Any] = {"text": answer.text}
        if answer.facts is not None:
            reply |= {"facts": to_plain(answer.facts)}
        if answer.error:
            reply |= {"error": answer.error, "not_found": answer.not_found}
        self._reply(stream, reply)

    def close(self, farewell: dict[str, Any]) -> None:
        """Tell every client that waits for the end that the run is over, and remove the socket."""
        # Nothing was read during the tracker's last call: clients that came meanwhile wait, too.
        self.acceptor.let_all_in()
        for stream in list(self._streams.values()):
            self._ready(stream)
        self.flush(float("inf"))
        if (last := self._frames.rest()) is not None:
            self.show(last)
        self.acceptor.close()
        for number, stream in list(self._streams.items()):
            if number in self._followers or number in self._watchers:
                stream.queue(json.dumps({"ended": farewell}).encode() + b"\n")
            # A client that waits for the end reads it; one that does not within a second loses it.
            stream.socket.settimeout(1.0)
            try:
                while stream.flush():
                    pass
            except OSError:
                pass
            self._selector.unregister(stream)
            stream.release()
        self._streams.clear()

    # --- inside -------------------------------------------------------------------------------

    def _enter(self, peers: Peers) -> None:
        for sock, pid in peers:
            self._pids[self._last + 1] = pid
            self._add(sock)

    def _add(self, sock: socket.socket) -> int:
        self._last += 1
        stream = Stream(sock, self._last)
        self._streams[self._last] = stream
        try:
            self._selector.register(stream, selectors.EVENT_READ, lambda mask: self._ready(stream))
        except OSError as error:  # The kernel cannot watch more (ENOSPC, ENOMEM).
            self._unwatched(stream, error)
        return self._last

    def _ready(self, stream: Stream) -> None:
        for framed in stream.read():
            if isinstance(framed, Line) and not stream.closed:
                self._request(stream, framed.text)
        self._pump(stream)

    def _request(self, stream: Stream, line: bytes) -> None:
        try:
            fields: Mapping[str, Any] = parse_object(line)
            if not is_ours(fields):
                if (request := self._plane().complete(line)) is None:
                    return
                fields = request
            self._refuse_attempts(stream, fields.get("control"))
            if not is_ours(fields):
                self._plane().handle(fields, lambda data: self._queue(stream, data))
                return
            name, data = parse_request(fields)
            if name in (STATUS, WATCH, WHY):
                self._tell(ev.StatusWanted())
            if name == STATUS:
                self._reply(stream, self._status())
            elif name == FOLLOW:
                self._follow(stream, followed(data))
            elif name == WATCH:
                self._watch(stream)
            elif name == METRICS:
                self._reply(stream, self._figures())
            elif name == "bw.detach":
                self._detach(stream)
            else:
                self._ask(stream, name, data)
        except ProtocolError as error:
            self._reply(stream, {"error": str(error)})

    def _refuse_attempts(self, stream: Stream, control: object) -> None:
        """Raise ``ProtocolError`` if an attempt asks for something that a person decides."""
        name = str(control).removeprefix(PREFIX)
        if name not in registry.DECIDING or (pid := self._pids.get(stream.conn_id)) is None:
            return
        if self._is_within(pid):
            if name not in self._refused:
                self._refused.add(name)
                self._tell(ev.Warned(f"'{name}' is refused: an attempt asked for it (pid {pid})"))
            raise ProtocolError(refusal(name))

    def _figures(self) -> dict[str, Any]:
        try:
            figures: dict[str, Any] = registry.need("figures").scraped(*self._look())
        except registry.Missing as missing:
            raise ProtocolError(str(missing)) from None
        return figures

    def _ask(self, stream: Stream, name: str, data: dict[str, Any]) -> None:
        ticket = self._tickets.issue()
        event = event_for(name, data, ticket)
        if isinstance(event, StopAsked):
            if stream.conn_id not in self._followers:
                self._followers.add(stream.conn_id, NOTHING)
        else:
            self._tickets.wait(ticket, lambda answer: self._answered(stream, answer))
        self._tell(event)

    def _follow(self, stream: Stream, kinds: Kinds) -> None:
        # The follower's snapshot holds the gathered lines: only the others still need them.
        self.flush(self.deadline() or 0.0)
        self._followers.add(stream.conn_id, kinds)
        self._reply(stream, {"status": self._status()})

    def _watch(self, stream: Stream) -> None:
        self._followers.discard(stream.conn_id)
        self._watchers.add(stream.conn_id)
        self._frames.watched = True
        self._reply(stream, {"snapshot": self._status()})

    def _detach(self, stream: Stream) -> None:
        if stream.conn_id == self._owner:
            self._owner = None
        self._reply(stream, {"text": "detached"})

    def _reply(self, stream: Stream, reply: dict[str, Any]) -> None:
        self._queue(stream, json.dumps(reply).encode("ascii") + b"\n")

    def _queue(self, stream: Stream, data: bytes) -> None:
        stream.queue(data)
        self._pump(stream)

    def _pump(self, stream: Stream) -> None:
        left = stream.flush()
        if stream.closed:
            self._drop(stream)
        elif stream.conn_id in self._streams:
            mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if left else 0)
            try:
                self._selector.modify(stream, mask, lambda mask: self._ready(stream))
            except OSError as error:
                self._unwatched(stream, error)

    def _unwatched(self, stream: Stream, error: OSError) -> None:
        stream.hang_up(f"cannot be watched: {error.strerror}")
        self._drop(stream)

    def _drop(self, stream: Stream) -> None:
        number = stream.conn_id
        if self._streams.pop(number, None) is None:
            return
        if stream in self._selector.get_map():
            self._selector.unregister(stream)
        stream.release()
        self._pids.pop(number, None)
        self.acceptor.room()
        self._followers.discard(number)
        self._watchers.discard(number)
        self._frames.watched = bool(self._watchers)
        if number == self._owner:
            # The client that started the fleet is gone: Ctrl-C, a closed terminal, kill -9.
            self._owner = None
            self._tell(StopAsked(why="the terminal that started this fleet is gone"))
