"""The orchestrator's end of the worker protocol for tests: a real Unix socket, real lines."""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 10.0


class Peer:
    """Listens on ``path``; talks to one worker at a time. Every wait has a deadline."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._listener.settimeout(PATIENCE_SECONDS)
        self._connection: socket.socket | None = None
        self._buffer = b""

    def accept(self) -> int:
        """Wait for the next worker; it is the one that is talked to from now on. Returns the pid
        at its end, as the kernel knows it."""
        self._connection, _ = self._listener.accept()
        self._connection.settimeout(PATIENCE_SECONDS)
        self._buffer = b""
        told = self._connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(told[:4], sys.byteorder)

    def nobody_came(self) -> bool:
        """Whether no worker has connected that was not accepted."""
        return not select.select([self._listener], [], [], 0)[0]

    def receive(self) -> dict[str, Any]:
        """The next message, or {} at the end of the connection."""
        assert self._connection is not None
        while b"\n" not in self._buffer:
            try:
                received = self._connection.recv(65536)
            except ConnectionResetError:
                received = b""
            if not received:
                return {}
            self._buffer += received
        line, self._buffer = self._buffer.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def expect(self, kind: str) -> dict[str, Any]:
        """The next message, which must be of this type."""
        message = self.receive()
        assert message.get("type") == kind, message
        return message

    def hears_nothing(self, seconds: float = 0.2) -> bool:
        """Whether the worker says nothing for a moment."""
        assert self._connection is not None
        return not self._buffer and not select.select([self._connection], [], [], seconds)[0]

    def send(self, kind: str, **fields: Any) -> None:
        """Send one message with the base fields filled in."""
        self.send_raw(
            json.dumps(
                {"type": kind, "worker_id": "W1", "timestamp": time.time(), **fields}
            ).encode()
            + b"\n"
        )

    def send_raw(self, data: bytes) -> None:
        assert self._connection is not None
        self._connection.sendall(data)

    def task(self, issue_id: str = "t-1", title: str = "A title", **fields: Any) -> None:
        """TASK of 1.1, or of version 1 with ``version=None``."""
        fields = {"version": "1.1", **fields}
        said = {name: field for name, field in fields.items() if field is not None}
        self.send("TASK", issue_id=issue_id, priority=2, title=title, **said)

    def hang_up(self) -> None:
        assert self._connection is not None
        self._connection.close()

    def close(self) -> None:
        """Close everything and remove the socket."""
        if self._connection is not None:
            self._connection.close()
        self._listener.close()
        self.path.unlink(missing_ok=True)


def wait_for(path: Path, seconds: float = PATIENCE_SECONDS) -> str:
    """Wait until a file has a whole line in it; returns its text."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and "\n" in (text := path.read_text()):
            return text
        time.sleep(0.01)
    raise AssertionError(f"nothing in {path}")


def gone(pid: int, seconds: float = PATIENCE_SECONDS) -> bool:
    """Whether a process ends (or is a zombie) within the time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state in "ZX":
            return True
        time.sleep(0.01)
    return False


def descriptors(pid: int) -> dict[int, str]:
    """What a process has open, by number: as ``/proc`` names it, such as ``socket:[4711]``.

    Raises ``FileNotFoundError`` where there is no such process."""
    found = {}
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # One that it has just closed.
            found[int(entry.name)] = str(entry.readlink())
    return found


def fork_worker(run: Any) -> int:
    """Run a function that returns an exit status in a forked child; returns its pid."""
    pid = os.fork()
    if pid == 0:
        status = 99
        try:
            status = run()
        finally:
            os._exit(status)
    return pid
