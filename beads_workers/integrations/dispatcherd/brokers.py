"""Brokers of dispatcherd: their interface, and the broker on a Unix socket."""

from __future__ import annotations

import selectors
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from beads_workers.core.base import limits
from beads_workers.core.base.framing import Framed, Line, LineReader
from beads_workers.core.schedule.events import Event
from beads_workers.integrations.dispatcherd.wire import SOCKET_BYTES_MAX
from beads_workers.integrations.dispatcherd.wire_chunks import split_message
from beads_workers.runtime.sockets import Acceptor, Peers

Answer = Callable[[str], None]
"""Sends a text to the origin of a request, cut into chunks as its broker needs it."""


class Broker(Protocol):
    """A source of messages."""

    producer: str
    """dispatcherd's name for the producer that reads from this broker."""

    def deadline(self) -> float:
        """Return when ``tick`` is due (monotonic seconds)."""

    def tick(self, now: float) -> None:
        """Do what is due."""

    def status(self) -> dict[str, Any]:
        """Return the entry in dispatcherd's ``producers``, without its uptime."""

    def pause(self, paused: bool) -> None:
        """Stop reading, or go on; may be called while the broker delivers a message."""

    def stop_accepting(self) -> None:
        """Accept no more connections; deliver what has arrived already."""

    def close(self) -> None:
        """Send what is still to be sent, and close all connections."""


class Receiver(Protocol):
    """Receiver of what a broker reads."""

    def receive(self, payload: bytes, channel: str, answer: Callable[[str], Answer]) -> None:
        """Handle a whole payload.

        ``answer(reply_to)`` returns a function that sends a reply there.
        """

    def warn(self, text: str) -> None:
        """Show a warning to people; repeated ones are limited."""

    def refuse(self, text: str) -> None:
        """Warn about a message that is refused, and count it."""


def in_chunks(text: str, max_bytes: int) -> list[str]:
    """Return a reply as chunks of the size that its broker takes."""
    return split_message(text, max_bytes=max_bytes, message_id=uuid.uuid4().hex)


# --- unix broker ---------------------------------------------------------------------------------
# The broker on a Unix socket: a connection per message, which ends at once or waits for a reply.
#
# The socket has mode 0600, and only the same user may connect. Source: docs/DISPATCHERD.md, "The
# messages".


RECEIVE_BYTES = 1 << 16
READS_AT_ONCE = 2
"""Reads of one connection, a few hundred tasks, before workers have their turn again."""
VISITORS_MAX = 512
"""Most open connections: further ones wait in the kernel. Most end as soon as they are read."""
LAST_READS = 1024
"""Reads at the end of the run, of a connection that still sends."""
UNREAD_BYTES_MAX = 64 << 20
"""Most bytes of incomplete lines, on all connections together."""
SILENT_SECONDS = 60.0
"""Time after which a connection without a whole line is closed, unless it awaits a reply."""


class BrokerClient:
    """One connection. ``number``: count of earlier ones. ``asked``: a whole line has arrived.

    ``since``: when the connection was made, or last sent a line. ``held``: bytes of an incomplete
    line.
    """

    def __init__(self, sock: socket.socket, now: float, number: int) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.number = number
        self.since = now
        self.asked = False
        self.ended = False
        self.outbox = bytearray()
        self.held = 0
        self._reader = LineReader()

    def read(self) -> list[Framed] | None:
        """Return the complete lines; None if nothing has arrived.

        ``ended``: the stream has ended.
        """
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            data = b""
        if not data:
            self.ended = True
            # The last line may lack its newline; a truncated line is no JSON.
            rest = self._reader.feed(b"\n") if self.held else []
            self.held = 0
            return rest
        end = data.rfind(b"\n") + 1
        self.held = len(data) - end if end else self.held + len(data)
        return self._reader.feed(data)

    def send(self) -> None:
        """Send as much as the socket takes."""
        if not self.outbox:
            return
        try:
            del self.outbox[: self.socket.send(self.outbox)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.ended = True


class UnixBroker:
    """See ``brokers.Broker``. Replies are sent as soon as they are made."""

    producer = "socket-producer"

    def __init__(
        self,
        path: Path,
        selector: selectors.BaseSelector,
        tell: Callable[[Event], None],
        receiver: Receiver,
    ) -> None:
        """Listen. Raises ``OSError`` if the path cannot be used."""
        self.path = path
        self._selector = selector
        self._receiver = receiver
        self._visitors: dict[socket.socket, BrokerClient] = {}
        self._count = 0
        self._masks: dict[socket.socket, int] = {}
        self._unread = 0
        self._lines = 0
        self._look_at = float("inf")
        self._paused = False
        path.parent.mkdir(parents=True, exist_ok=True)
        self._acceptor: Acceptor | None = Acceptor(
            "the dispatcherd socket", path, selector, tell, self._enter
        )

    def deadline(self) -> float:
        """Return when ``tick`` is due (monotonic seconds)."""
        at = self._acceptor.deadline() if self._acceptor is not None else float("inf")
        return min(at, self._look_at)

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self._acceptor is not None:
            self._acceptor.tick(now)
        if now >= self._look_at:
            self._look_for_silent(now)

    def status(self) -> dict[str, Any]:
        """Return the entry in dispatcherd's ``producers``, without its uptime."""
        return {"produced_count": self._lines, "recycle_count": 0}

    def pause(self, paused: bool) -> None:
        """Stop reading, or go on."""
        self._paused = paused
        for visitor in list(self._visitors.values()):
            self._read_lines(visitor)
            self._tidy(visitor)
        self._settle_acceptor()

    def stop_accepting(self) -> None:
        """Accept no more connections; read those that were waiting."""
        if self._acceptor is None:
            return
        self._paused = False
        self._acceptor.let_all_in()
        for visitor in list(self._visitors.values()):
            self._read_lines(visitor, LAST_READS)
        self._acceptor.close()
        self._acceptor = None

    def close(self) -> None:
        """Close all connections."""
        self.stop_accepting()
        for visitor in list(self._visitors.values()):
            self._drop(visitor)

    # --- inside -------------------------------------------------------------------------------

    def _enter(self, peers: Peers) -> None:
        now = time.monotonic()
        for sock, _ in peers:
            visitor = BrokerClient(sock, now, self._count)
            self._count += 1
            # Most clients have sent their message and left by now: they need no selector.
            self._read_lines(visitor)
            if visitor.ended:
                sock.close()
                continue
            self._visitors[sock] = visitor
            self._masks[sock] = 0
            self._look_at = min(self._look_at, now + SILENT_SECONDS)
            self._tidy(visitor)
        self._settle_acceptor()

    def _read_lines(self, visitor: BrokerClient, most: int = READS_AT_ONCE) -> None:
        """Read what is there, but only ``most`` times: a client may send without end."""
        for _ in range(most):
            if visitor.ended or self._paused:
                return
            before = visitor.held
            lines = visitor.read()
            self._unread += visitor.held - before
            if lines is None:
                return
            for line in lines:
                self._line(visitor, line)
            if self._unread > UNREAD_BYTES_MAX:
                self._receiver.refuse("dispatcherd: too many unfinished messages, one is dropped")
                self._unread -= visitor.held
                visitor.held, visitor.ended = 0, True

    def _line(self, visitor: BrokerClient, line: Framed) -> None:
        if not isinstance(line, Line):
            most = limits.LINE_BYTES_MAX
            self._receiver.refuse(f"dispatcherd: a line of over {most} bytes was skipped")
            return
        visitor.asked, visitor.since = True, time.monotonic()
        self._lines += 1

        def answer(reply_to: str) -> Answer:
            return lambda text: self._answer(visitor, text)

        # A socket has no channels: the real service uses the number of the connection, too.
        self._receiver.receive(line.text, str(visitor.number), answer)

    def _answer(self, visitor: BrokerClient, text: str) -> None:
        for chunk in in_chunks(text, SOCKET_BYTES_MAX):
            visitor.outbox += chunk.encode() + b"\n"
        visitor.send()
        if len(visitor.outbox) > limits.OUTBOX_BYTES_MAX:
            visitor.ended = True  # The client does not read.
        if visitor.socket in self._visitors:
            self._tidy(visitor)

    def _ready(self, visitor: BrokerClient, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            visitor.send()
        if mask & selectors.EVENT_READ:
            self._read_lines(visitor)
        self._tidy(visitor)
        self._settle_acceptor()

    def _tidy(self, visitor: BrokerClient) -> None:
        """Watch a connection for its next event, or close it if it is over."""
        sock = visitor.socket
        if visitor.ended or sock not in self._visitors:
            self._drop(visitor)
            return
        wanted = 0 if self._paused else selectors.EVENT_READ
        wanted |= selectors.EVENT_WRITE if visitor.outbox else 0
        before, self._masks[sock] = self._masks[sock], wanted
        if wanted == before:
            return

        def ready(mask: int) -> None:
            self._ready(visitor, mask)

        if not wanted:
            self._selector.unregister(sock)
        elif not before:
            self._selector.register(sock, wanted, ready)
        else:
            self._selector.modify(sock, wanted, ready)

    def _drop(self, visitor: BrokerClient) -> None:
        sock = visitor.socket
        if self._visitors.pop(sock, None) is None:
            return
        self._unread -= visitor.held
        if self._masks.pop(sock):
            self._selector.unregister(sock)
        sock.close()
        if self._acceptor is not None:
            self._acceptor.room()

    def _settle_acceptor(self) -> None:
        """Accept connections only if there is room: the others wait in the kernel's queue."""
        if self._acceptor is not None:
            self._acceptor.back_off(self._paused or len(self._visitors) >= VISITORS_MAX)

    def _look_for_silent(self, now: float) -> None:
        self._look_at = float("inf")
        for visitor in list(self._visitors.values()):
            if visitor.asked and not visitor.held:
                continue
            if now >= visitor.since + SILENT_SECONDS:
                self._receiver.refuse("dispatcherd: a message was never finished")
                self._drop(visitor)
            else:
                self._look_at = min(self._look_at, visitor.since + SILENT_SECONDS)
        self._settle_acceptor()
