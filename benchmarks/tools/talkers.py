"""Workers that only talk: DONE and READY the moment a TASK has come, on as many connections.

They do as little as they can (no JSON but for a WAIT, one read and one write for each task),
because they share the machine with the server whose speed is asked for, and must not limit it.
"""

from __future__ import annotations

import json
import select
import socket
import time
from types import TracebackType

RECEIVE_BYTES = 1 << 16
PATIENCE_SECONDS = 60.0
READY = b'{"type": "READY", "worker_id": "W1", "timestamp": 1767225600.0}\n'
DONE = (
    b'{"type": "DONE", "worker_id": "W1", "timestamp": 1767225600.0, "issue_id": "%s", '
    b'"duration_ms": 1}\n'
)
ISSUE = b'"issue_id":'


class Talkers:
    """``count`` connections to the socket ``path``; a context, that drives them when told."""

    def __init__(self, path: str, count: int) -> None:
        self._poll = select.epoll()
        self._socks: dict[int, socket.socket] = {}
        for _ in range(count):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.connect(path)
            self._socks[sock.fileno()] = sock
            self._poll.register(sock.fileno(), select.EPOLLIN)
        self._held: dict[int, bytes] = dict.fromkeys(self._socks, READY)
        """What each says next, while it is not to talk."""
        self._told_to_wait: list[tuple[float, int]] = []
        """Until when, and who."""

    def __enter__(self) -> Talkers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for sock in self._socks.values():
            sock.close()
        self._poll.close()

    def dispatches(self, count: int) -> float:
        """Seconds until so many tasks have come; all ask at once, and then hold what they have.

        Raises ``TimeoutError`` when nothing comes for a minute.
        """
        began = time.perf_counter()
        for number, said in self._held.items():
            self._socks[number].sendall(said)
        self._held = {}
        came = 0
        while len(self._held) < len(self._socks):
            for number, answer in self._answers():
                came += 1
                if came <= count - len(self._socks):
                    self._socks[number].sendall(answer)
                else:
                    self._held[number] = answer
        return time.perf_counter() - began

    def _answers(self) -> list[tuple[int, bytes]]:
        ready = self._poll.poll(0.1 if self._told_to_wait else PATIENCE_SECONDS)
        if not ready and not self._told_to_wait:
            raise TimeoutError("no answer")
        answers = []
        for number, _ in ready:
            data = self._socks[number].recv(RECEIVE_BYTES)
            if (found := data.find(ISSUE)) < 0:
                self._wait(number, data)
                continue
            start = data.index(b'"', found + len(ISSUE)) + 1
            issue_id = data[start : data.index(b'"', start)]
            answers.append((number, DONE % issue_id + READY))
        self._ask_again()
        return answers

    def _wait(self, number: int, data: bytes) -> None:
        """The server has nothing at the moment: a full disk, or a tracker that takes seconds."""
        message = json.loads(data)
        if message["type"] != "WAIT":
            raise TimeoutError(f"no task: {data[:200]!r}")
        self._told_to_wait.append((time.perf_counter() + message["wait_seconds"], number))

    def _ask_again(self) -> None:
        now = time.perf_counter()
        for until, number in [entry for entry in self._told_to_wait if entry[0] <= now]:
            self._told_to_wait.remove((until, number))
            self._socks[number].sendall(READY)
