"""The sockets of an RRQ executor in the loop of the orchestrator: bytes to requests and back."""

from __future__ import annotations

import os
import select
import selectors
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from beads_workers.core.base.model import compile_values
from beads_workers.core.base.plain import from_plain
from beads_workers.core.base.settings import FleetSettings
from beads_workers.core.base.source import Source
from beads_workers.core.schedule import events as ev
from beads_workers.exits import EXIT_ERROR
from beads_workers.integrations.rrq import RrqExecutor
from beads_workers.integrations.rrq import request_table as unanswered
from beads_workers.integrations.rrq.request_table import RequestTable
from beads_workers.integrations.rrq.source import Address, RrqSource, Unix, from_text
from beads_workers.integrations.rrq.wire import FRAME_BYTES_MAX, FrameReader
from beads_workers.runtime.handshake import StartRefused
from beads_workers.runtime.kernel import system
from beads_workers.runtime.sockets import Acceptor, Peers, clear_dead

# --- frame stream --------------------------------------------------------------------------------
# One stream socket of frames: payloads in, bytes out; never blocks, and is bounded.


RECEIVE_BYTES = 1 << 16
"""Size of a read buffer. One of twice this size may be mapped anew for each read, which takes
longer than the read."""
OUTBOX_BYTES_MAX = 4 * FRAME_BYTES_MAX
"""Most unread bytes: a peer that leaves more unread will not read them."""
OUTBOX_BYTES_CALM = 1 << 20
"""Unread bytes above which nothing more is read from the peer."""


class FrameStream:
    """A stream of frames. ``closed``: the other end is gone. ``broken``: why reading ended.

    ``began``: when the current incomplete frame was begun (monotonic seconds). ``unread``: number
    of bytes of that frame that are held.
    """

    __slots__ = ("_outbox", "_reader", "began", "closed", "socket", "unread")

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.closed = False
        self.began = 0.0
        self.unread = 0
        self._reader = FrameReader()
        self._outbox = bytearray()

    @property
    def broken(self) -> str:
        """Reason why nothing more can be read, or ""."""
        return self._reader.broken

    @property
    def unsent(self) -> int:
        """Number of bytes that the peer has not taken yet."""
        return len(self._outbox)

    @property
    def takes_more(self) -> bool:
        """Whether the peer reads what it is sent."""
        return len(self._outbox) <= OUTBOX_BYTES_CALM

    def read(self, now: float) -> list[bytes]:
        """Return the complete payloads; set ``closed`` at the end of the stream."""
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            self.closed = True
            return []
        if not data:
            self.closed = True
            return []
        payloads = self._reader.feed(data)
        if payloads or not self.unread:
            self.began = now
        self.unread = self._reader.unread
        return payloads

    def queue(self, data: bytes) -> None:
        """Add data for the next ``flush``; a peer that leaves too much unread is closed."""
        self._outbox += data
        if len(self._outbox) > OUTBOX_BYTES_MAX:
            self.closed = True

    def flush(self) -> None:
        """Send as much as the socket takes."""
        if self.closed or not self._outbox:
            return
        try:
            sent = self.socket.send(self._outbox)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.closed = True
            return
        del self._outbox[:sent]

    def send_rest(self, until: float) -> None:
        """Send the rest, and wait until the peer has taken it, no longer than ``until``."""
        while self._outbox and not self.closed and (left := until - time.monotonic()) > 0:
            self.socket.settimeout(left)
            self.flush()


# --- ingress -------------------------------------------------------------------------------------
# The sockets of an RRQ executor in the loop of the orchestrator: bytes to requests and back.
#
# ``integrations.rrq.request_table`` decides what is answered. Source: docs/RRQ.md, "Being an RRQ
# executor".


CONNECTIONS_MAX = 1024
"""Most connections: more than any orchestrator opens; further ones are closed at once."""

UNREAD_BYTES_MAX = 64 << 20
"""Most bytes of incomplete frames on all connections together: four of the largest frames."""

FRAME_SECONDS = 60.0
"""Longest time for a frame from its first byte to its last."""

WAITING = (
    "{workers} are worked on, and the deadline of those that wait here runs: "
    "set max_in_flight in rrq.toml to {workers}, or start more workers (-n, --in-flight)"
)
"""Warning text: requests in RRQ's own queue lose no time, but a timed-out request goes to its
dead letters."""

FAREWELL_SECONDS = 1.0
"""Time at the end of the run for answers that are still unsent."""


class RrqIngress:
    """The ingress of RRQ requests: tells the core what has arrived, and sends what is pending.

    See ``runtime.sources.Ingress``.
    """

    def __init__(
        self,
        address: Address,
        serving: RequestTable,
        selector: selectors.BaseSelector,
        tell: Callable[[ev.Event], None],
        *,
        workers: int = 0,
        alone_seconds: float | None = None,
        open_by: float = 0.0,
        unread_bytes_max: int = UNREAD_BYTES_MAX,
    ) -> None:
        """Listen, at ``open`` or at ``open_by`` (monotonic seconds).

        Peers that can connect take us for ready. ``workers``: people are told once if there are
        more requests than workers; 0 for never. ``alone_seconds``: the run ends if nobody has
        connected for this long. Raises ``OSError`` if the address cannot be used.
        """
        self._workers = workers
        self._alone_seconds = alone_seconds
        self._alone_at = inf
        self._open_by = open_by
        self._stopped_accepting = False
        self._unread_bytes_max = unread_bytes_max
        self._serving = serving
        self._selector = selector
        self._tell = tell
        self._streams: dict[ev.ConnId, FrameStream] = {}
        self._masks: dict[ev.ConnId, int] = {}
        self._touched: set[ev.ConnId] = set()
        """Connections whose selector mask may have changed."""
        self._full: set[ev.ConnId] = set()
        """Connections that are not read from: too many of their requests are unanswered."""
        self._arrived = False
        """Whether the core was told since the last ``flush``: once is enough."""
        self._last = 0
        self._unread = 0
        self._look_at = inf
        place: Path | tuple[str, int]
        if isinstance(address, Unix):
            place = Path(address.path)
            place.parent.mkdir(parents=True, exist_ok=True)
        else:
            place = (address.host, address.port)
        self._place = place
        self._acceptor: Acceptor | None = None
        if time.monotonic() >= open_by:
            self._listen()
        else:
            look_at(place)

    def deadline(self) -> float:
        """Return when ``tick`` is due (monotonic seconds)."""
        due = [self._look_at, self._alone_at, self._open_by]
        if self._acceptor is not None:
            due.append(self._acceptor.deadline())
        if (at := self._serving.deadline()) is not None:
            due.append(at)
        return min(due)

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self._acceptor is not None:
            self._acceptor.tick(now)
        self._serving.on_deadline(now)
        if now >= self._look_at:
            self._look_for_unfinished(now)
        if now >= self._open_by:
            self.open()
        if now >= self._alone_at:
            self._alone_at = inf
            text = f"nobody has connected for {self._alone_seconds:g} s (--no-parent)"
            self._tell(ev.StopAsked(why=text))

    def open(self) -> None:
        """Listen from now on: a worker is ready."""
        if self._open_by < inf:
            try:
                self._listen()
            except OSError as error:
                self._tell(ev.FatalError(f"cannot listen at {self._place}: {error.strerror}"))

    def flush(self) -> None:
        """Carry out the commands, and send what is pending; once in each turn of the loop."""
        self._arrived = False
        self._gather()
        for conn_id in list(self._full):
            if not self._serving.is_full(conn_id):
                self._full.discard(conn_id)
                self._touched.add(conn_id)
        while self._touched:
            self._pump(self._touched.pop())
        if self._serving.has_commands:
            self.flush()  # A peer has disconnected while data was sent to it.

    def stop_accepting(self) -> None:
        """Accept no more connections and begin no more requests: the run is ending."""
        if self._stopped_accepting:
            return
        self._stopped_accepting, self._open_by = True, inf
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
        self._serving.finish()

    def close(self) -> None:
        """Send the last answers, as far as the peers take them, and close the connections."""
        self.stop_accepting()
        self._serving.abandon()
        self.flush()
        until = time.monotonic() + FAREWELL_SECONDS
        for conn_id, stream in list(self._streams.items()):
            stream.send_rest(until)
            self._drop(conn_id)

    # --- inside -------------------------------------------------------------------------------

    def _listen(self) -> None:
        self._open_by = inf
        compile_values()  # Otherwise the first request would do that.
        if self._alone_seconds is not None:
            self._alone_at = time.monotonic() + self._alone_seconds
        name = "the RRQ socket"
        self._acceptor = Acceptor(name, self._place, self._selector, self._tell, self._enter)

    def _gather(self) -> None:
        for command in self._serving.collect():
            self._carry_out(command)

    def _carry_out(self, command: unanswered.Command) -> None:
        match command:
            case unanswered.SendFrame(conn_id, data):
                if (stream := self._streams.get(conn_id)) is not None:
                    stream.queue(data)
                    self._touched.add(conn_id)
            case unanswered.CloseConnection(conn_id):
                self._drop(conn_id)
            case unanswered.Offer() if not self._arrived:
                self._arrived = True
                self._tell(ev.Arrived())
            case unanswered.Withdraw(issue_id, why):
                self._tell(ev.Withdrawn((issue_id,), why))

    def _enter(self, peers: Peers) -> None:
        if peers:
            self._alone_at = inf
        for sock, _ in peers:
            if len(self._streams) >= CONNECTIONS_MAX:
                sock.close()
                continue
            self._add(sock)

    def _add(self, sock: socket.socket) -> None:
        self._last += 1
        conn_id = ev.ConnId(self._last)
        self._streams[conn_id] = FrameStream(sock)
        self._masks[conn_id] = selectors.EVENT_READ
        self._selector.register(sock, selectors.EVENT_READ, partial(self._ready, conn_id))
        self._serving.connected(conn_id)
        # A peer that connects has something to say, and mostly has said it by now.
        self._ready(conn_id, selectors.EVENT_READ)

    def _ready(self, conn_id: ev.ConnId, mask: int) -> None:
        stream = self._streams[conn_id]
        if mask & selectors.EVENT_READ:
            self._read(conn_id, stream)
        if stream.closed or mask & selectors.EVENT_WRITE or conn_id in self._full:
            self._touched.add(conn_id)
        # The core is told now: it takes the request in the turn that begins, with all other
        # arrivals.
        self._gather()

    def _read(self, conn_id: ev.ConnId, stream: FrameStream) -> None:
        now, before = time.monotonic(), stream.unread
        payloads = stream.read(now)
        self._unread += stream.unread - before
        if payloads:
            epoch = time.time()
            for payload in payloads:
                self._serving.received(conn_id, payload, now, epoch)
            self._warn_of_waiting()
        if stream.unread:
            self._look_at = min(self._look_at, stream.began + FRAME_SECONDS)
        if stream.broken:
            self._serving.misread(conn_id, stream.broken)
        elif self._unread > self._unread_bytes_max:
            self._serving.misread(conn_id, "too many large frames at once")
        if self._serving.is_full(conn_id):
            self._full.add(conn_id)

    def _warn_of_waiting(self) -> None:
        at_once, workers = self._serving.unanswered, self._workers
        if 0 < workers < at_once:
            self._workers = 0
            self._tell(ev.Warned(f"{at_once} requests at once: {WAITING.format(workers=workers)}"))

    def _pump(self, conn_id: ev.ConnId) -> None:
        stream = self._streams.get(conn_id)
        if stream is None:
            return
        stream.flush()
        if stream.closed:
            self._drop(conn_id)
            return
        reads = conn_id not in self._full and stream.takes_more
        mask = selectors.EVENT_READ if reads else 0
        mask |= selectors.EVENT_WRITE if stream.unsent else 0
        self._watch(conn_id, stream, mask)

    def _watch(self, conn_id: ev.ConnId, stream: FrameStream, mask: int) -> None:
        before, self._masks[conn_id] = self._masks[conn_id], mask
        if mask == before:
            return
        if not mask:
            self._selector.unregister(stream.socket)
        elif not before:
            self._selector.register(stream.socket, mask, partial(self._ready, conn_id))
        else:
            self._selector.modify(stream.socket, mask, partial(self._ready, conn_id))

    def _drop(self, conn_id: ev.ConnId) -> None:
        stream = self._streams.pop(conn_id, None)
        if stream is None:
            return
        self._unread -= stream.unread
        self._full.discard(conn_id)
        if self._masks.pop(conn_id):
            self._selector.unregister(stream.socket)
        stream.socket.close()
        if self._acceptor is not None:
            self._acceptor.room()
        self._serving.gone(conn_id)

    def _look_for_unfinished(self, now: float) -> None:
        self._look_at = inf
        for conn_id, stream in list(self._streams.items()):
            if not stream.unread:
                continue
            if now >= stream.began + FRAME_SECONDS:
                self._serving.misread(conn_id, "a frame was never finished")
            else:
                self._look_at = min(self._look_at, stream.began + FRAME_SECONDS)


def open_ingress(
    settings: FleetSettings,
    source: Source,
    selector: selectors.BaseSelector,
    tell: Callable[[ev.Event], None],
    control: Callable[[], Any],
) -> RrqIngress:
    """See ``kinds.SourceKind.ingress``."""
    assert isinstance(source, RrqSource)
    rrq = from_plain(RrqExecutor, settings.source_options)
    end_with(rrq.parent, selector)
    address, workers = from_text(rrq.address), settings.workers * settings.work.in_flight
    alone, open_by = rrq.alone_seconds, rrq.open_by
    made = address, source.serving, selector, tell
    return RrqIngress(*made, workers=workers, alone_seconds=alone, open_by=open_by)


def look_at(place: Path | tuple[str, int]) -> None:
    """Raise ``OSError`` if nobody could listen at this place; nobody can connect meanwhile."""
    if isinstance(place, Path):
        clear_dead(place)
        return
    with socket.socket(socket.AF_INET6 if ":" in place[0] else socket.AF_INET) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(place)


def end_with(parent: int, selector: selectors.BaseSelector) -> None:
    """Raise SIGTERM here as soon as the parent process is gone.

    A killed RRQ orchestrator tells nobody, and the next one wants the port. The kernel's own means
    (``PR_SET_PDEATHSIG``) are not used: they report the end of the thread that started us. Raises
    ``StartRefused`` if the parent is gone already.
    """
    if not parent:
        return
    try:
        watched = system.exit_descriptor(parent)
        is_dead = bool(select.select([watched], (), (), 0)[0])
    except ProcessLookupError:
        is_dead = True
    if is_dead:
        text = f"whoever has started it is gone (pid {parent})"
        raise StartRefused(text, "--no-parent serves all the same", EXIT_ERROR)

    def gone(mask: int) -> None:
        selector.unregister(watched)
        os.close(watched)
        signal.raise_signal(signal.SIGTERM)

    selector.register(watched, selectors.EVENT_READ, gone)
