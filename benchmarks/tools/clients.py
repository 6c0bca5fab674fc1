"""Raw version 1 workers on one selector: they take tasks, "work" a while, and time the answer."""

from __future__ import annotations

import heapq
import json
import random
import selectors
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

RECEIVE_BYTES = 1 << 16
PATIENCE_SECONDS = 60.0


@dataclass(slots=True)
class Client:
    """One connection. ``asked_at`` is when its DONE and READY left it."""

    sock: socket.socket
    asked_at: float = 0.0
    first: bool = True
    issue_id: str = ""
    kept: bytes = b""


@dataclass(slots=True)
class Fleet:
    """``count`` clients that work ``work_seconds`` on each task, give or take the share ``spread``.

    ``latencies``: seconds from just before DONE and READY are sent until TASK has been read, the
    first task of each client left out. ``waits`` counts WAIT replies: asked for nothing.
    """

    path: str
    count: int
    work_seconds: float
    latencies: list[float] = field(default_factory=list)
    waits: int = 0
    spread: float = 0.0
    _random: random.Random = field(default_factory=lambda: random.Random(1))
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _busy: list[tuple[float, int, Client]] = field(default_factory=list)
    """Until when, and who."""
    _paused_at: float | None = None

    def run_for(self, seconds: float) -> list[float]:
        """The latencies of so much time, within ``with``, again and again.

        Raises ``TimeoutError`` when nothing comes for a minute.
        """
        self._resume()
        end, before = time.perf_counter() + seconds, len(self.latencies)
        while time.perf_counter() < end:
            self._turn()
        return self.latencies[before:]

    def pause(self) -> None:
        """Hear every answer that is due, then let the tasks stand still until ``run_for``.

        So two fleets can be driven in turn, and neither begins its turn with a queue.
        """
        while len(self._busy) < self.count:
            if not (ready := self._selector.select(PATIENCE_SECONDS)):
                raise TimeoutError("no answer")
            self._hear(ready)
        self._paused_at = time.perf_counter()

    def __enter__(self) -> Fleet:
        for number in range(self.count):
            # Not all at once: a real fleet is out of step.
            heapq.heappush(
                self._busy, (time.perf_counter() + self._shift(number), number, self._connect())
            )
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._selector.get_map().values()):
            key.data.sock.close()
        self._selector.close()

    def _turn(self) -> None:
        busy = self._busy
        ready = self._selector.select(self._timeout(busy))
        if not ready and not busy:
            raise TimeoutError("no answer")
        self._hear(ready)
        while busy and busy[0][0] <= time.perf_counter():
            self._finish(heapq.heappop(busy)[2])

    def _hear(self, ready: list[tuple[selectors.SelectorKey, int]]) -> None:
        now = time.perf_counter()
        for key, _ in ready:
            for wait in self._read(key.data):
                heapq.heappush(self._busy, (now + wait, id(key.data), key.data))

    def _resume(self) -> None:
        if self._paused_at is None:
            return
        stood = time.perf_counter() - self._paused_at
        self._busy = [(until + stood, number, client) for until, number, client in self._busy]
        self._paused_at = None

    def _shift(self, number: int) -> float:
        return self.work_seconds * number / self.count

    @staticmethod
    def _timeout(busy: list[tuple[float, int, Client]]) -> float:
        return max(0.0, busy[0][0] - time.perf_counter()) if busy else PATIENCE_SECONDS

    def _connect(self) -> Client:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(self.path)
        client = Client(sock)
        self._selector.register(sock, selectors.EVENT_READ, client)
        return client

    def _finish(self, client: Client) -> None:
        lines = b""
        if client.issue_id:
            lines = self._line("DONE", issue_id=client.issue_id, duration_ms=1)
            client.issue_id = ""
        lines += self._line("READY")
        client.asked_at = time.perf_counter()
        client.sock.sendall(lines)

    @staticmethod
    def _line(kind: str, **fields: object) -> bytes:
        message = {"type": kind, "worker_id": "W1", "timestamp": time.time(), **fields}
        return json.dumps(message).encode() + b"\n"

    def _read(self, client: Client) -> Iterator[float]:
        data = client.sock.recv(RECEIVE_BYTES)
        arrived = time.perf_counter()
        if not data:
            raise ConnectionResetError("the server hung up")
        *lines, client.kept = (client.kept + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if message["type"] == "TASK":
                client.issue_id = message["issue_id"]
                if not client.first:
                    self.latencies.append(arrived - client.asked_at)
                client.first = False
                yield self.work_seconds * self._random.uniform(1 - self.spread, 1 + self.spread)
            elif message["type"] == "WAIT":
                self.waits += 1
                yield float(message["wait_seconds"])
