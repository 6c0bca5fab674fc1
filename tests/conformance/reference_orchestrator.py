"""A whole orchestrator of the protocol, and one mutant for each of its requirements.

    python reference_orchestrator.py SOCKET [--break ID]

Its tracker is a list of issues in memory; it prints a line once it listens.
"""

import json
import os
import select
import socket
import sys
import time
from typing import Any

ISSUES = 80
LINE_BYTES_MAX = 1 << 20
HELLO_SECONDS = 10.0
WRONG_MAX = 1000
KNOWN = frozenset({"READY", "DONE", "FAILED", "PROGRESS"})
KEYS = frozenset(
    {"type", "worker_id", "timestamp", "version", "features", "issue_id", "duration_ms", "error"}
    | {"outcome", "percent", "activity"}
)
ADDITIONS = {"description": "", "issue_type": "task", "labels": [], "attempt": 1}


class Connection:
    """A worker, as the orchestrator knows it."""

    def __init__(self, link: socket.socket, name: str) -> None:
        self.link, self.name = link, name
        self.buffer = b""
        self.began = time.monotonic()
        self.is_known = self.is_1_1 = self.is_long = False
        self.wrong = self.replies = 0
        self.task = ""
        self.unanswered = 0


class Orchestrator:
    """``broken``: the requirement that this one breaks."""

    def __init__(self, path: str, broken: str) -> None:
        self.broken = broken
        self.issues = [f"ref-{number}" for number in range(ISSUES)]
        self.connections: dict[int, Connection] = {}
        self.numbers = 0
        self.listener = socket.socket(socket.AF_UNIX)
        os.umask(0o022 if self.breaks("O-2.1-1") else 0o177)
        self.listener.bind(path)
        self.listener.listen(1 if self.breaks("O-2.1-2") else 512)
        self.listener.setblocking(False)

    def breaks(self, *requirements: str) -> bool:
        return self.broken in requirements

    def run(self) -> None:
        while True:
            readable = [self.listener, *(each.link for each in self.connections.values())]
            for ready in select.select(readable, [], [], 0.05)[0]:
                if ready is self.listener:
                    self.accept()
                else:
                    self.receive(self.connections[ready.fileno()])
            for connection in list(self.connections.values()):
                silent = time.monotonic() - connection.began > HELLO_SECONDS
                if silent and not connection.is_known and not self.breaks("O-7-1"):
                    self.lost(connection)

    def accept(self) -> None:
        try:
            link, _ = self.listener.accept()
        except BlockingIOError:
            return
        self.numbers += 1
        self.connections[link.fileno()] = Connection(link, f"W{self.numbers}")
        if self.breaks("O-2.1-2"):
            time.sleep(0.05)

    def lost(self, connection: Connection) -> None:
        if self.connections.pop(connection.link.fileno(), None) is None:
            return
        connection.link.close()
        if connection.task and not self.breaks("O-7-2"):
            self.issues.append(connection.task)

    def receive(self, connection: Connection) -> None:
        try:
            data = connection.link.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.lost(connection)
            return
        if self.breaks("O-3-2"):
            self.read_line(connection, data)
        else:
            connection.buffer += data
            *lines, connection.buffer = connection.buffer.split(b"\n")
            for line in lines:
                self.read_line(connection, line)
            if len(connection.buffer) > LINE_BYTES_MAX:
                connection.is_long, connection.buffer = True, b""
        while connection.unanswered and connection.link.fileno() in self.connections:
            connection.unanswered -= 1
            self.answer(connection)

    def read_line(self, connection: Connection, line: bytes) -> None:
        if connection.link.fileno() not in self.connections:
            return
        if connection.is_long:
            connection.is_long = False
            self.count(connection, self.breaks("O-3-4"))
            return
        if not line.removesuffix(b"\r"):
            if self.breaks("O-3-3"):
                self.lost(connection)
            return
        try:
            message = json.loads(line.decode())
            assert isinstance(message, dict) and isinstance(message.get("type"), str)
        except (ValueError, AssertionError, RecursionError):
            self.count(connection, self.breaks("O-8-1"))
            return
        if message["type"] not in KNOWN:
            if self.breaks("O-8-2"):
                self.say(connection, "WAIT", wait_seconds=2)
            return
        if self.breaks("O-4.1-2") and message.keys() - KEYS:
            return
        self.hear(connection, message)

    def count(self, connection: Connection, closes: bool) -> None:
        connection.wrong += 1
        if closes or (connection.wrong >= WRONG_MAX and not self.breaks("O-8-4")):
            self.lost(connection)

    def hear(self, connection: Connection, message: dict[str, Any]) -> None:
        connection.is_known = True
        if message["type"] == "READY":
            name, stamp = message.get("worker_id"), message.get("timestamp")
            if not isinstance(name, str) or not name or not isinstance(stamp, int | float):
                self.count(connection, False)
                return
            version = str(message.get("version"))
            connection.is_1_1 = version == "1.1" if self.breaks("O-9.1-3") else version[:2] == "1."
            if self.breaks("O-6-1"):
                connection.name = name
            connection.unanswered += 1
        elif message["type"] == "PROGRESS":
            if self.breaks("O-9.6-1"):
                self.say(connection, "WAIT", wait_seconds=2)
        else:
            self.ended(connection, message)

    def ended(self, connection: Connection, message: dict[str, Any]) -> None:
        lean = self.breaks("O-8-3") and "duration_ms" not in message
        if not connection.task or message.get("issue_id") != connection.task or lean:
            if self.breaks("O-5.3-4"):
                connection.task = ""
            if self.breaks("O-5.3-3"):
                connection.unanswered = 0
            if not self.breaks("O-5.3-2"):
                self.say(connection, "WAIT", wait_seconds=1)
            return
        connection.task = ""
        if self.breaks("O-5.1-2"):
            self.say(connection, "WAIT", wait_seconds=2)

    def answer(self, connection: Connection) -> None:
        connection.replies += 1
        if connection.task and self.breaks("O-5.3-1"):
            connection.task = ""
        if not connection.task and self.issues:
            connection.task = self.issues[0] if self.breaks("O-6-3") else self.issues.pop(0)
        if not connection.task:
            self.say(connection, "WAIT", wait_seconds=1)
            return
        additions = ADDITIONS if connection.is_1_1 else {}
        if self.breaks("O-9.2-1"):
            additions = {k: v for k, v in additions.items() if k != "labels"}
        if self.breaks("O-9.1-1"):
            additions = {**additions, "version": "1.1", **ADDITIONS}
        fields = {"issue_id": connection.task, "priority": 2, "title": "Reference"}
        for _ in range(2 if self.breaks("O-5.1-1") else 1):
            self.say(connection, "TASK", **fields, **additions)

    def say(self, connection: Connection, kind: str, **fields: Any) -> None:
        name = connection.name
        if self.breaks("O-6-2"):
            name = f"{name}.{connection.replies}"
        stamp: Any = "now" if self.breaks("O-4.1-1") else time.time()
        if connection.is_1_1 and not self.breaks("O-9.1-2"):
            fields["version"] = "1.1"
        message = {"type": kind, "worker_id": name, "timestamp": stamp, **fields}
        text = json.dumps(message, indent=1 if self.breaks("O-3-1") else None)
        try:
            connection.link.sendall(text.encode() + b"\n")
        except OSError:
            pass  # Its end is read next.


if __name__ == "__main__":
    options = sys.argv[2:]
    orchestrator = Orchestrator(sys.argv[1], options[1] if options else "")
    print("listens", flush=True)
    orchestrator.run()
