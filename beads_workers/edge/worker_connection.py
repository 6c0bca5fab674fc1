"""A worker's connection to its orchestrator: lines in and out, never waiting for the other side."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Iterator
from typing import assert_never

from beads_workers.core import limits
from beads_workers.core.framing import Framed, Line, LineReader, TooLong, Torn
from beads_workers.core.json_fields import ProtocolError
from beads_workers.core.message_types import (
    Cancel,
    ControlAsked,
    ControlReply,
    FromWorker,
    Shutdown,
    Task,
    ToWorker,
    Wait,
)
from beads_workers.core.messages import encode, parse
from beads_workers.core.worker_events import (
    Connected,
    ConnectFailed,
    ConnectionLost,
    Event,
    Received,
)
from beads_workers.edge.own_process import say
from beads_workers.edge.payloads import with_payload

CONNECT_SECONDS = 5.0
"""A full queue of the listener blocks a connection; longer than this is a failed try."""

FLUSH_SECONDS = 2.0
"""How long a last message may take to leave; a reader that is this slow is not there."""


Dial = Callable[[], socket.socket]
"""Connects to the orchestrator; raises ``OSError``, whose text names what could not be reached."""


def dial_path(path: str) -> socket.socket:
    """Connect to the socket at ``path``; takes ``CONNECT_SECONDS`` at most."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(CONNECT_SECONDS)
    try:
        connection.connect(path)
    except OSError as error:
        connection.close()
        raise OSError(f"{path}: {error.strerror or error}") from None
    return connection


class WorkerConnection:
    """Watches itself in ``selector``; there is none until ``connect`` has given ``Connected``.

    ``ready``: what the selector has as its data.
    """

    def __init__(
        self,
        dial: Dial,
        worker_id: str,
        selector: selectors.BaseSelector,
        ready: Callable[[int], None] | None = None,
    ) -> None:
        self._dial = dial
        self._worker_id = worker_id
        self._selector, self._ready = selector, ready
        self._socket: socket.socket | None = None
        self._reader = LineReader()
        self._outbox = bytearray()
        self._waits_to_write = False
        self._bad_lines = 0

    def fileno(self) -> int:
        """-1 while there is none."""
        return -1 if self._socket is None else self._socket.fileno()

    def connect(self) -> Event:
        """``Connected`` or ``ConnectFailed``."""
        try:
            connection = self._dial()
        except OSError as error:
            return ConnectFailed(str(error))
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ, self._ready)
        self._socket = connection
        return Connected()

    def receive(self) -> Iterator[Event]:
        """Call when it can be read: each message as ``Received``, then maybe its loss."""
        if self._socket is None:
            return
        try:
            received = self._socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        framed = self._reader.feed(received) if received else self._reader.end()
        for item in framed:
            if (message := self._read(item)) is not None and self._socket is not None:
                yield Received(message)
        if not received:
            yield from self._hang_up()

    def send(self, message: FromWorker | ControlAsked) -> None:
        """Goes out with the next ``flush``; is lost where there is no connection."""
        if self._socket is not None:
            self._outbox += encode(message, self._worker_id, time.time(), v1=False)

    def flush(self) -> Iterator[Event]:
        """Write what is due, as far as the other side takes it; one that never does is left."""
        if self._socket is None or not self._outbox:
            return
        try:
            del self._outbox[: self._socket.send(self._outbox)]
        except BlockingIOError:
            pass
        except OSError:
            # Whether it is over is for reading to find out: a SHUTDOWN may be waiting there.
            self._outbox.clear()
        if len(self._outbox) > limits.OUTBOX_BYTES_MAX:
            yield from self._hang_up()
            return
        if bool(self._outbox) is not self._waits_to_write:
            self._waits_to_write = bool(self._outbox)
            writing = selectors.EVENT_WRITE if self._outbox else 0
            self._selector.modify(self._socket, selectors.EVENT_READ | writing, self._ready)

    def say_goodbye(self) -> None:
        """Write what is due, waiting for it a little, and close."""
        if self._socket is None:
            return
        self._socket.settimeout(FLUSH_SECONDS)
        try:
            self._socket.sendall(self._outbox)
        except OSError:
            pass
        self._socket.close()

    def _hang_up(self) -> Iterator[Event]:
        if self._socket is None:
            return
        self._selector.unregister(self._socket)
        self._socket.close()
        self._socket = None
        yield ConnectionLost()

    def _read(self, framed: Framed) -> ToWorker | ControlReply | None:
        match framed:
            case TooLong(head) | Torn(head):
                trouble, raw = "a line that is too long or torn", head
            case Line(raw):
                try:
                    message = parse(raw)
                except ProtocolError as error:
                    trouble = str(error)
                else:
                    if isinstance(message, Task):
                        return with_payload(message)
                    if isinstance(message, Wait | Shutdown | Cancel | ControlReply):
                        return message
                    trouble = "a message that only workers send"
            case _:
                assert_never(framed)
        self._bad_lines += 1
        if self._bad_lines <= limits.BAD_LINES_MAX:
            shown = raw[: limits.LOGGED_BYTES_MAX]
            say(self._worker_id, f"ignored {trouble}: {shown!r}")
        return None
