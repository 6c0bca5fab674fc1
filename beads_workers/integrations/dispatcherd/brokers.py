"""Brokers of dispatcherd: what a broker is, and the one on a Unix socket."""

from __future__ import annotations

import selectors
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from beads_workers.core import limits
from beads_workers.core.events import Event
from beads_workers.core.framing import Framed, Line, LineReader
from beads_workers.integrations.dispatcherd.wire import SOCKET_BYTES_MAX
from beads_workers.integrations.dispatcherd.wire_chunks import split_message
from beads_workers.runtime.sockets import Acceptor, Peers

Answer = Callable[[str], None]
"""Sends a text back to where a request came from; cut into chunks as its broker needs it."""


class Broker(Protocol):
    """One way in."""

    producer: str
    """What dispatcherd calls that which reads from it."""

    def deadline(self) -> float:
        """When ``tick`` is due (monotonic seconds)."""

    def tick(self, now: float) -> None:
        """Whatever time has come for."""

    def status(self) -> dict[str, Any]:
        """For dispatcherd's ``producers``, without its uptime."""

    def pause(self, paused: bool) -> None:
        """Read nothing more, or go on; called while it hands over, too."""

    def stop_accepting(self) -> None:
        """Nobody is let in any more; what has come already is handed over."""

    def close(self) -> None:
        """The end: what is still to be sent goes, and all connections end."""


class Receiver(Protocol):
    """Takes what a broker reads."""

    def receive(self, payload: bytes, channel: str, answer: Callable[[str], Answer]) -> None:
        """A whole payload. ``answer(reply_to)`` gives what sends a reply there."""

    def warn(self, text: str) -> None:
        """Something that people should know; not shown without end."""

    def refuse(self, text: str) -> None:
        """The same of a message that is not taken: it is counted."""


def in_chunks(text: str, max_bytes: int) -> list[str]:
    """A reply as its broker takes it."""
    return split_message(text, max_bytes=max_bytes, message_id=uuid.uuid4().hex)


# --- unix broker ---------------------------------------------------------------------------------
# The broker on a Unix socket: a connection per message, which ends at once or waits for a reply.
#
# The socket is 0600, and only the same user is let in. Source: docs/DISPATCHERD.md, "The messages".


RECEIVE_BYTES = 1 << 16
READS_AT_ONCE = 2
"""So much of one connection, a few hundred tasks, is read before workers have their turn again."""
VISITORS_MAX = 512
"""More connections than that at a time wait outside: most are over as soon as they are read."""
LAST_READS = 1024
"""At the end, of one that still sends."""
UNREAD_BYTES_MAX = 64 << 20
"""Of lines that are not complete, on all connections together."""
SILENT_SECONDS = 60.0
"""A connection that has sent nothing whole for so long is closed, unless it awaits a reply."""


class BrokerClient:
    """One connection. ``number``: of those before it. ``asked``: it has sent a whole line.
    ``since``: when it came, or said something last. ``held``: bytes of a line that is not
    complete."""

    def __init__(self, sock: socket.socket, now: float, number: int) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.number = number
        self.since = now
        self.asked = False
        self.over = False
        self.outbox = bytearray()
        self.held = 0
        self._reader = LineReader()

    def read(self) -> list[Framed] | None:
        """What is complete; None where nothing has come. ``over``: the stream has ended."""
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            data = b""
        if not data:
            self.over = True
            # The last line may come without its end; cut short, it would be no JSON.
            rest = self._reader.feed(b"\n") if self.held else []
            self.held = 0
            return rest
        end = data.rfind(b"\n") + 1
        self.held = len(data) - end if end else self.held + len(data)
        return self._reader.feed(data)

    def send(self) -> None:
        """Send what the socket takes."""
        if not self.outbox:
            return
        try:
            del self.outbox[: self.socket.send(self.outbox)]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.over = True


class UnixBroker:
    """See ``brokers.Broker``. Replies leave as they are made."""

    producer = "socket-producer"

    def __init__(
        self,
        path: Path,
        selector: selectors.BaseSelector,
        tell: Callable[[Event], None],
        receiver: Receiver,
    ) -> None:
        """Listen. Raises ``OSError`` where something is in the way."""
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
        """When ``tick`` is due (monotonic seconds)."""
        at = self._acceptor.deadline() if self._acceptor is not None else float("inf")
        return min(at, self._look_at)

    def tick(self, now: float) -> None:
        """Whatever time has come for."""
        if self._acceptor is not None:
            self._acceptor.tick(now)
        if now >= self._look_at:
            self._look_for_silent(now)

    def status(self) -> dict[str, Any]:
        """For dispatcherd's ``producers``, without its uptime."""
        return {"produced_count": self._lines, "recycle_count": 0}

    def pause(self, paused: bool) -> None:
        """Read nothing more, or go on."""
        self._paused = paused
        for visitor in list(self._visitors.values()):
            self._hear(visitor)
            self._tidy(visitor)
        self._settle_acceptor()

    def stop_accepting(self) -> None:
        """Nobody is let in any more; who was on the way is heard."""
        if self._acceptor is None:
            return
        self._paused = False
        self._acceptor.let_all_in()
        for visitor in list(self._visitors.values()):
            self._hear(visitor, LAST_READS)
        self._acceptor.close()
        self._acceptor = None

    def close(self) -> None:
        """Everybody goes."""
        self.stop_accepting()
        for visitor in list(self._visitors.values()):
            self._drop(visitor)

    # --- inside -------------------------------------------------------------------------------

    def _enter(self, peers: Peers) -> None:
        now = time.monotonic()
        for sock, _ in peers:
            visitor = BrokerClient(sock, now, self._count)
            self._count += 1
            # Most have sent their message and left before we look: nobody has to watch for them.
            self._hear(visitor)
            if visitor.over:
                sock.close()
                continue
            self._visitors[sock] = visitor
            self._masks[sock] = 0
            self._look_at = min(self._look_at, now + SILENT_SECONDS)
            self._tidy(visitor)
        self._settle_acceptor()

    def _hear(self, visitor: BrokerClient, most: int = READS_AT_ONCE) -> None:
        """What is there, but not all at once of one that sends without end."""
        for _ in range(most):
            if visitor.over or self._paused:
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
                visitor.held, visitor.over = 0, True

    def _line(self, visitor: BrokerClient, line: Framed) -> None:
        if not isinstance(line, Line):
            most = limits.LINE_BYTES_MAX
            self._receiver.refuse(f"dispatcherd: a line of over {most} bytes was skipped")
            return
        visitor.asked, visitor.since = True, time.monotonic()
        self._lines += 1

        def answer(reply_to: str) -> Answer:
            return lambda text: self._answer(visitor, text)

        # A socket has no channels: the real one names the connection, too.
        self._receiver.receive(line.text, str(visitor.number), answer)

    def _answer(self, visitor: BrokerClient, text: str) -> None:
        for chunk in in_chunks(text, SOCKET_BYTES_MAX):
            visitor.outbox += chunk.encode() + b"\n"
        visitor.send()
        if len(visitor.outbox) > limits.OUTBOX_BYTES_MAX:
            visitor.over = True  # It does not read.
        if visitor.socket in self._visitors:
            self._tidy(visitor)

    def _ready(self, visitor: BrokerClient, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            visitor.send()
        if mask & selectors.EVENT_READ:
            self._hear(visitor)
        self._tidy(visitor)
        self._settle_acceptor()

    def _tidy(self, visitor: BrokerClient) -> None:
        """Watch it for what it is to do next, or let it go."""
        sock = visitor.socket
        if visitor.over or sock not in self._visitors:
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
        """Whoever is not let in waits in the kernel's queue, and then in ``connect``."""
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
