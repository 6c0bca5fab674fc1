"""The control socket: ``status``, ``stop`` and the rest, followers of the journal, watchers.

Source: docs/PROTOCOL.md, "The control socket".
"""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beads_workers.core.board import Board
from beads_workers.core.commands import Answer
from beads_workers.core.events import Event, StopAsked
from beads_workers.core.frames import Frames
from beads_workers.core.framing import Line
from beads_workers.core.json_fields import ProtocolError, parse_object
from beads_workers.edge import requests
from beads_workers.edge.door import Door, Peers
from beads_workers.edge.followers import ALL, NOTHING, Followers, Kinds
from beads_workers.edge.streams import Stream
from beads_workers.edge.tickets import Tickets

if TYPE_CHECKING:
    from beads_workers.edge.dispatching import DispatcherControl
    from beads_workers.edge.metrics.server import MetricsServer
    from beads_workers.edge.worker_server import WorkerServer

SPARES = 2
"""Kept for when no descriptor is left: ``status`` and ``stop`` are needed most then."""


def scraped(board: Board, elapsed: float) -> dict[str, Any]:
    """The answer to ``bw.metrics``: the figures, and whose use the client is to read."""
    from beads_workers.core.metrics import exposition, figures, usage  # Few fleets are asked.

    whose = usage.watched(board)
    return {
        "families": exposition.to_json(figures.families(board, elapsed)),
        "orchestrator": whose.orchestrator,
        "workers": whose.workers,
        "own": sorted(whose.own),
    }


FOLLOWER_BYTES_MAX = 1 << 20
"""A follower that has so much unread misses what comes now; far below what ends a stream."""


class ControlServer:
    """``status`` gives the snapshot. The ``owner`` is the client that started the fleet.

    Followers get lines of the journal, watchers the snapshots of ``frames``; all of them are told
    the end. ``door``: to be tended by the loop.
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
    ) -> None:
        """``quiet``: the owner is told the end only."""
        self._selector = selector
        self._tell = tell
        self._status = status
        self._frames = frames
        self._look = look
        self._streams: dict[int, Stream] = {}
        self._followers = Followers()
        self._watchers: set[int] = set()
        self._tickets = Tickets()
        self._last = 0
        self._owner: int | None = None
        self._metrics: MetricsServer | None = None
        name = "the control socket"
        self.door = Door(name, path, selector, tell, self._enter, SPARES)
        if owner is not None:
            self._owner = self._add(owner)
            self._followers.add(self._owner, NOTHING if quiet else ALL)

    @cached_property
    def dispatching(self) -> DispatcherControl:
        """Answers dispatcherd's commands; made when somebody has one, because few fleets are asked
        and it brings twenty modules."""
        from beads_workers.edge.dispatching import DispatcherControl

        return DispatcherControl(self._tickets, self._tell, self._look, self._metrics)

    def attach(self, workers: WorkerServer, metrics: MetricsServer | None) -> None:
        """Have tasks that run answered, too, and the figures that are served told of."""
        self._metrics = metrics
        workers.asked = lambda conn_id, asked: self.dispatching.asked(conn_id, asked, workers)

    def publish(self, lines: bytes) -> None:
        """New journal lines, for whoever follows; they leave with one of the next ``flush``es."""
        self._followers.publish(lines)

    def show(self, snapshot: dict[str, Any]) -> None:
        """A frame is over; a watcher that has not read the one before misses this one."""
        line = json.dumps({"snapshot": snapshot}).encode("ascii") + b"\n"
        for number in list(self._watchers):
            stream = self._streams[number]
            if not stream.unsent:
                self._queue(stream, line)

    def deadline(self) -> float | None:
        """When ``flush`` is due (monotonic seconds); None when nothing has gathered."""
        return self._followers.deadline()

    def flush(self, now: float) -> None:
        """Send what has gathered, a few times a second."""
        for numbers, lines in self._followers.flush(now):
            for number in numbers:
                # A terminal that is held (Ctrl-S) must not end its fleet: it misses lines instead.
                if (stream := self._streams[number]).unsent < FOLLOWER_BYTES_MAX:
                    self._queue(stream, lines)

    def answer(self, answer: Answer) -> None:
        """The core's answer to a request."""
        self._tickets.answer(answer)

    def _answered(self, stream: Stream, answer: Answer) -> None:
        reply: dict[str, Any] = {"text": answer.text}
        if answer.facts is not None:
            reply |= {"facts": asdict(answer.facts)}
        if answer.error:
            reply |= {"error": answer.error, "not_found": answer.not_found}
        self._reply(stream, reply)

    def close(self, farewell: dict[str, Any]) -> None:
        """The run is over: tell whoever waits for that, and remove the socket."""
        # Nobody was heard while the tracker's last call ended: whoever came meanwhile waits, too.
        self.door.let_all_in()
        for stream in list(self._streams.values()):
            self._ready(stream)
        self.flush(float("inf"))
        if (last := self._frames.rest()) is not None:
            self.show(last)
        self.door.close()
        for number, stream in list(self._streams.items()):
            if number in self._followers or number in self._watchers:
                stream.queue(json.dumps({"ended": farewell}).encode() + b"\n")
            # Whoever waits reads; whoever does not read within a second has had its chance.
            stream.socket.settimeout(1.0)
            try:
                while stream.flush():
                    pass
            except OSError:
                pass
            self._selector.unregister(stream)
            stream.socket.close()
        self._streams.clear()

    # --- inside -------------------------------------------------------------------------------

    def _enter(self, peers: Peers) -> None:
        for sock, _ in peers:
            self._add(sock)

    def _add(self, sock: socket.socket) -> int:
        self._last += 1
        stream = Stream(sock, self._last)
        self._streams[self._last] = stream
        self._selector.register(stream, selectors.EVENT_READ, lambda mask: self._ready(stream))
        return self._last

    def _ready(self, stream: Stream) -> None:
        for framed in stream.read():
            if isinstance(framed, Line) and not stream.closed:
                self._request(stream, framed.text)
        self._pump(stream)

    def _request(self, stream: Stream, line: bytes) -> None:
        try:
            fields: Mapping[str, Any] = parse_object(line)
            if not requests.is_ours(fields):
                if (whole := self.dispatching.whole(line)) is None:
                    return
                if not requests.is_ours(fields := whole):
                    self.dispatching.heard(fields, lambda data: self._queue(stream, data))
                    return
            name, data = requests.parse_request(fields)
            if name == requests.STATUS:
                self._reply(stream, self._status())
            elif name == requests.FOLLOW:
                self._follow(stream, requests.followed(data))
            elif name == requests.WATCH:
                self._watch(stream)
            elif name == requests.METRICS:
                self._reply(stream, scraped(*self._look()))
            elif name == "bw.detach":
                self._detach(stream)
            else:
                self._ask(stream, name, data)
        except ProtocolError as error:
            self._reply(stream, {"error": str(error)})

    def _ask(self, stream: Stream, name: str, data: dict[str, Any]) -> None:
        ticket = self._tickets.issue()
        event = requests.event_for(name, data, ticket)
        if isinstance(event, StopAsked):
            if stream.conn_id not in self._followers:
                self._followers.add(stream.conn_id, NOTHING)
        else:
            self._tickets.wait(ticket, lambda answer: self._answered(stream, answer))
        self._tell(event)

    def _follow(self, stream: Stream, kinds: Kinds) -> None:
        # Its snapshot holds what has gathered: only the others still need it.
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
            self._selector.modify(stream, mask, lambda mask: self._ready(stream))

    def _drop(self, stream: Stream) -> None:
        number = stream.conn_id
        if self._streams.pop(number, None) is None:
            return
        self._selector.unregister(stream)
        stream.socket.close()
        self.door.room()
        self._followers.discard(number)
        self._watchers.discard(number)
        self._frames.watched = bool(self._watchers)
        if number == self._owner:
            # The client that started the fleet is gone: Ctrl-C, a closed terminal, kill -9.
            self._owner = None
            self._tell(StopAsked(why="the terminal that started this fleet is gone"))
