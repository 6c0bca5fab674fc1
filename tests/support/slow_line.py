"""A slow line to a server of this machine: each byte comes late, and only so many in a second."""

from __future__ import annotations

import socket
import threading
import time
from collections import deque

CHUNK = 1460


class SlowLine:
    """Forwards connections to ``port``; ``delay``: seconds one way; ``rate``: bytes in a second.

    All connections share the rate of a direction, as those in a tunnel do. ``received``: bytes that
    came from the server.
    """

    def __init__(self, port: int, *, delay: float, rate: float) -> None:
        self._to, self._delay, self._rate = port, delay, rate
        self.received = 0
        self._free = [0.0, 0.0]
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._to))
            # What the line cannot take stays with the server, not in a buffer in between.
            far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * CHUNK)
            for way, (one, other) in enumerate(((near, far), (far, near))):
                self._start(one, other, way)

    def _start(self, one: socket.socket, other: socket.socket, way: int) -> None:
        """Carry bytes from one to the other: one thread takes them up, one hands them over."""
        under_way: deque[tuple[float, bytes]] = deque()
        more = threading.Condition()

        def take() -> None:
            data = b"-"
            while data:
                try:
                    data = one.recv(CHUNK)
                except OSError:
                    data = b""
                with self._lock:
                    self.received += len(data) * way
                    now = time.monotonic()
                    self._free[way] = max(now, self._free[way]) + len(data) / self._rate
                    sent = self._free[way]
                with more:
                    under_way.append((sent + self._delay, data))
                    more.notify()
                time.sleep(max(0.0, sent - now))

        def hand_over() -> None:
            while True:
                with more:
                    more.wait_for(lambda: under_way)
                    at, data = under_way.popleft()
                time.sleep(max(0.0, at - time.monotonic()))
                try:
                    if not data:
                        other.shutdown(socket.SHUT_WR)
                        return
                    other.sendall(data)
                except OSError:
                    return

        for each in (take, hand_over):
            threading.Thread(target=each, daemon=True).start()
