"""One stream socket: lines in, bytes out, never blocking, never growing without bound."""

from __future__ import annotations

import socket
import struct

from beads_workers.core import limits
from beads_workers.core.framing import Framed, LineReader

RECEIVE_BYTES = 1 << 16

_UCRED = struct.Struct("3i")


class Stream:
    """``conn_id`` numbers it. ``closed`` is set once, with the ``reason``."""

    def __init__(self, sock: socket.socket, conn_id: int) -> None:
        sock.setblocking(False)
        self.socket = sock
        self.conn_id = conn_id
        self.closed = False
        self.reason = ""
        self._reader = LineReader()
        self._outbox = bytearray()

    @property
    def unsent(self) -> int:
        """How many bytes the peer has not taken yet."""
        return len(self._outbox)

    def fileno(self) -> int:
        """For the selector."""
        return self.socket.fileno()

    @property
    def pending(self) -> bool:
        """Whether a bounded ``read`` has left lines that the next one may give at once."""
        return self._reader.pending

    def read(self, lines_max: int | None = None) -> list[Framed]:
        """What has arrived, at most so many lines; at the end of the stream ``closed`` is set."""
        if self._reader.pending:
            return self._reader.feed(b"", lines_max)
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as error:
            self._end(error.strerror or "read failed")
            return []
        if not data:
            self._end("the other end closed it")
            return self._reader.end()
        return self._reader.feed(data, lines_max)

    def queue(self, data: bytes) -> None:
        """Send with the next ``flush``; a peer that does not read is closed at a limit."""
        if self.closed:
            return
        self._outbox += data
        if len(self._outbox) > limits.OUTBOX_BYTES_MAX:
            self._end("it does not read")

    def flush(self) -> bool:
        """Send what the socket takes; returns whether something is left for later."""
        if self.closed or not self._outbox:
            return False
        try:
            sent = self.socket.send(self._outbox)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError as error:
            self._end(error.strerror or "write failed")
            return False
        del self._outbox[:sent]
        return bool(self._outbox)

    def hang_up(self, reason: str) -> None:
        """Close it from our side."""
        self._end(reason)

    def _end(self, reason: str) -> None:
        if not self.closed:
            self.closed, self.reason = True, reason


def peer_of(sock: socket.socket) -> tuple[int, int]:
    """The pid and uid at the other end, as the kernel knows them."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, _ = _UCRED.unpack(raw)
    return pid, uid
