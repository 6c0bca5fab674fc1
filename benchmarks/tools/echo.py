"""The peer of ``dispatch``: a bare selector server that answers READY with TASK, and no more.

    python -m benchmarks.tools.echo SOCKET

It reads the same lines and writes the same fields; it has no tracker, no journal, no limits and
no states. What it costs is what sockets, JSON and Python cost.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from pathlib import Path

RECEIVE_BYTES = 1 << 16


class Echo:
    """Serves until it is killed."""

    def __init__(self, path: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(f"{path}.new")
        self._listener.listen(1024)
        Path(f"{path}.new").rename(path)  # Whoever sees it can connect.
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._given = 0

    def serve(self) -> None:
        """Accept, read, answer."""
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    sock, _ = self._listener.accept()
                    self._selector.register(sock, selectors.EVENT_READ, [b""])
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._read(key.fileobj, key.data)

    def _read(self, sock: socket.socket, kept: list[bytes]) -> None:
        try:
            data = sock.recv(RECEIVE_BYTES)
        except ConnectionResetError:
            data = b""
        if not data:
            self._selector.unregister(sock)
            sock.close()
            return
        *lines, kept[0] = (kept[0] + data).split(b"\n")
        answers = [self._task() for line in lines if json.loads(line)["type"] == "READY"]
        if answers:
            sock.sendall(b"".join(answers))

    def _task(self) -> bytes:
        self._given += 1
        task = {
            "type": "TASK",
            "worker_id": "W1",
            "timestamp": time.time(),
            "issue_id": f"bench-{self._given}",
            "priority": 2,
            "title": f"number {self._given}",
        }
        return json.dumps(task).encode() + b"\n"


if __name__ == "__main__":
    Echo(sys.argv[1]).serve()
