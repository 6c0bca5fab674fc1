"""One stream socket of frames: payloads in, bytes out, never blocking, never without bound."""

from __future__ import annotations

import socket
import time

from beads_workers.protocols.rrq.frames import FRAME_BYTES_MAX, FrameReader

RECEIVE_BYTES = 1 << 16
"""One of twice that size may be mapped anew for each read, which takes longer than the read."""
OUTBOX_BYTES_MAX = 4 * FRAME_BYTES_MAX
"""A peer that leaves so much unread is not going to."""
OUTBOX_BYTES_CALM = 1 << 20
"""With more than this unread, nothing more is read from it either."""


class FrameStream:
    """``closed`` is set when the other end is gone; ``broken`` says what came that is no frame.

    ``began``: when the frame was begun that is not complete yet (monotonic seconds). ``unread``:
    how many bytes of it are held.
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
        """Why nothing more can be read."""
        return self._reader.broken

    @property
    def unsent(self) -> int:
        """How many bytes the peer has not taken yet."""
        return len(self._outbox)

    @property
    def takes_more(self) -> bool:
        """Whether it reads what it is sent."""
        return len(self._outbox) <= OUTBOX_BYTES_CALM

    def read(self, now: float) -> list[bytes]:
        """What is complete; at the end of the stream ``closed`` is set."""
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
        """Send with the next ``flush``; a peer that does not read is closed at a limit."""
        self._outbox += data
        if len(self._outbox) > OUTBOX_BYTES_MAX:
            self.closed = True

    def flush(self) -> None:
        """Send what the socket takes."""
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
        """Send the rest, and wait for its being taken, no longer than that."""
        while self._outbox and not self.closed and (left := until - time.monotonic()) > 0:
            self.socket.settimeout(left)
            self.flush()
