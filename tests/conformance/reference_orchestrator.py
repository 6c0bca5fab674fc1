"""A whole orchestrator of the protocol, and one mutant for each of its requirements.

    python reference_orchestrator.py SOCKET [--break ID]

Its tracker is a list of issues in memory; it prints a line once it listens.
"""

import json
import os
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

ISSUES = 200
LINE_BYTES_MAX = 1 << 20
UNSENT_BYTES_MAX = 4 << 20
HELLO_SECONDS = 10.0
WRONG_MAX = 1000
TURNS = frozenset({"READY", "DONE", "FAILED"})
BESIDE = frozenset({"PROGRESS", "HEARTBEAT", "STATUS", "PRIORITY", "PAUSE", "RESUME", "CONTROL"})
KEYS = frozenset(
    {"type", "worker_id", "timestamp", "version", "features", "issue_id", "duration_ms", "error"}
    | {"outcome", "percent", "activity", "prefetch_count", "batch_size", "heartbeat_seconds"}
    | {"priorities", "labels", "issue_types", "reason", "state", "is_stopping", "command"}
    | {"control_data"}
)
ADDITIONS = {"description": "", "issue_type": "task", "labels": [], "attempt": 1}


def priority_of(issue: str) -> int:
    """Every third one is less urgent."""
    return 2 if int(issue.removeprefix("ref-")) % 3 else 3


class Connection:
    """A worker, as the orchestrator knows it."""

    def __init__(self, link: socket.socket, name: str) -> None:
        self.link, self.name = link, name
        self.buffer = b""
        self.unsent = bytearray()
        self.began = time.monotonic()
        self.is_known = self.is_1_1 = self.is_long = False
        self.wrong = self.replies = 0
        self.tasks: list[str] = []
        self.unanswered = 0
        self.ready: dict[str, Any] = {}
        self.wants: dict[str, list[Any]] = {}
        self.questions: list[dict[str, Any]] = []
        self.is_paused = self.leaves = self.is_told = False
        self.heard_at = time.monotonic()
        self.pid: int = struct.unpack(
            "3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        )[0]

    def announced(self, feature: str) -> bool:
        """Whether its last READY did."""
        return self.is_1_1 and feature in self.ready.get("features", [])


class Orchestrator:
    """``broken``: the requirement that this one breaks."""

    def __init__(self, path: str, broken: str) -> None:
        self.broken = broken
        self.issues = [f"ref-{number}" for number in range(ISSUES)]
        self.connections: dict[int, Connection] = {}
        self.lost_tasks: list[tuple[int, str]] = []
        self.stops = False
        self.numbers = 0
        self.listener = socket.socket(socket.AF_UNIX)
        os.umask(0o022 if self.breaks("O-2.1-1") else 0o177)
        self.listener.bind(path)
        self.listener.listen(1 if self.breaks("O-2.1-2") else 512)
        self.listener.setblocking(False)

    def stop(self, *_: object) -> None:
        self.stops = True

    def breaks(self, *requirements: str) -> bool:
        return self.broken in requirements

    def run(self) -> None:
        while True:
            readable = [self.listener, *(each.link for each in self.connections.values())]
            behind = [each.link for each in self.connections.values() if each.unsent]
            readable_now, writable, _ = select.select(readable, behind, [], 0.05)
            for link in writable:
                self.flush(self.connections[link.fileno()])
            for ready in readable_now:
                if ready is self.listener:
                    self.accept()
                elif ready.fileno() in self.connections:
                    self.receive(self.connections[ready.fileno()])
            for connection in list(self.connections.values()):
                silent = time.monotonic() - connection.began > HELLO_SECONDS
                if silent and not connection.is_known and not self.breaks("O-7-1"):
                    self.lost(connection)
                beat = connection.ready.get("heartbeat_seconds", 0)
                beat = 0 if not connection.announced("heartbeat") else beat
                is_dead = beat and time.monotonic() - connection.heard_at > 3 * beat
                if is_dead and not self.breaks("O-9.8-1"):
                    self.lost(connection)
                if self.stops and connection.tasks and not connection.is_told:
                    self.shut_down(connection, "user_requested")
                self.serve(connection)
            for pid, issue in list(self.lost_tasks):
                if not Path(f"/proc/{pid}").exists():
                    self.lost_tasks.remove((pid, issue))
                    self.issues.append(issue)

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
        if not self.breaks("O-7-2"):
            self.lost_tasks += [(connection.pid, issue) for issue in connection.tasks]

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
        questions, connection.questions = connection.questions, []
        for each in reversed(questions) if self.breaks("O-9.7-1") else questions:
            self.reply_to(connection, each)
        self.serve(connection)

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
        if message["type"] not in TURNS and (
            message["type"] not in BESIDE
            or not (connection.is_known or message["type"] == "PRIORITY")
        ):
            if self.breaks("O-8-2"):
                self.say(connection, "WAIT", wait_seconds=2)
            return
        if self.breaks("O-4.1-2") and message.keys() - KEYS:
            return
        self.handle(connection, message)

    def count(self, connection: Connection, closes: bool) -> None:
        connection.wrong += 1
        if closes or (connection.wrong >= WRONG_MAX and not self.breaks("O-8-4")):
            self.lost(connection)

    def handle(self, connection: Connection, message: dict[str, Any]) -> None:
        connection.is_known = True
        connection.heard_at = time.monotonic()
        if connection.is_told and message["type"] == "READY":
            connection.unanswered += self.breaks("O-5.3-5")
        elif message["type"] == "READY":
            name, stamp = message.get("worker_id"), message.get("timestamp")
            if not isinstance(name, str) or not name or not isinstance(stamp, int | float):
                self.count(connection, False)
                return
            version = str(message.get("version"))
            connection.is_1_1 = version == "1.1" if self.breaks("O-9.1-3") else version[:2] == "1."
            if self.breaks("O-6-1"):
                connection.name = name
            if not (self.breaks("O-9.1-4") and connection.ready):
                connection.ready = message
            connection.unanswered += 1
        elif message["type"] in BESIDE:
            self.hear_beside(connection, message)
        else:
            self.ended(connection, message)

    def hear_beside(self, connection: Connection, message: dict[str, Any]) -> None:
        kind, trusts = message["type"], self.breaks("O-8-5")
        if kind == "PROGRESS" and self.breaks("O-9.6-1"):
            self.say(connection, "WAIT", wait_seconds=2)
        if kind in ("PAUSE", "RESUME") and (connection.is_1_1 or trusts):
            connection.is_paused = kind == "PAUSE" and not self.breaks("O-9.10-1")
        is_first = not connection.ready
        if kind == "PRIORITY" and (connection.announced("priority") or trusts or is_first):
            names = ("priorities", "labels", "issue_types")
            connection.wants = {name: message[name] for name in names if name in message}
        if kind == "CONTROL" and connection.is_1_1 and connection.replies:
            connection.questions.append(message)

    def reply_to(self, connection: Connection, asked: dict[str, Any]) -> None:
        command, data = asked["command"], asked["control_data"]
        known = command in ("alive", "cancel")
        self.say(connection, "CONTROL_REPLY", reply={"node_id" if known else "error": command})
        is_its = command == "cancel" and data["uuid"] in connection.tasks
        if is_its and connection.announced("cancel"):
            self.say(connection, "CANCEL", issue_id=data["uuid"], reason="a person")
            if self.breaks("O-9.4-1"):
                connection.tasks.remove(data["uuid"])

    def ended(self, connection: Connection, message: dict[str, Any]) -> None:
        lean = self.breaks("O-8-3") and "duration_ms" not in message
        issue = message.get("issue_id")
        if issue not in connection.tasks or lean:
            if self.breaks("O-7-3"):
                self.lost_tasks = [each for each in self.lost_tasks if each[1] != issue]
            if self.breaks("O-5.3-4"):
                connection.tasks.clear()
            if self.breaks("O-5.3-3"):
                connection.unanswered = 0
            if not self.breaks("O-5.3-2") and not connection.is_told:
                self.say(connection, "WAIT", wait_seconds=1)
            return
        connection.tasks.remove(issue)
        connection.leaves |= message.get("is_stopping") is True and not self.breaks("O-9.2-2")
        if self.breaks("O-5.1-2"):
            self.say(connection, "WAIT", wait_seconds=2)

    def serve(self, connection: Connection) -> None:
        ends = self.stops or connection.leaves
        while connection.unanswered and connection.link.fileno() in self.connections:
            if connection.is_paused and not ends:
                return
            connection.unanswered -= 1
            if ends and not self.breaks("O-4.7-1"):
                self.shut_down(connection, "user_requested")
            else:
                self.answer(connection)

    def shut_down(self, connection: Connection, reason: str) -> None:
        connection.is_told = True
        self.say(connection, "SHUTDOWN", reason=reason)

    def answer(self, connection: Connection) -> None:
        connection.replies += 1
        if connection.tasks and self.breaks("O-5.3-1"):
            connection.tasks.clear()
        said, last = connection.ready, connection.tasks[:1]
        room = 0
        if connection.announced("grouped") and connection.announced("cancel"):
            room = said.get("prefetch_count", 0)
            if connection.announced("batch"):
                room = max(room, said.get("batch_size", 1) - 1 + self.breaks("O-9.12-1"))
        if last and room and not self.breaks("O-9.5-1"):
            return  # What was sent has crossed this READY.
        for _ in range(0 if last else 1 + room):
            if issue := self.take(connection):
                connection.tasks.append(issue)
        if not connection.tasks:
            self.say(connection, "WAIT", wait_seconds=1)
            return
        tasks = [self.fields(connection, each) for each in last or connection.tasks]
        if connection.announced("batch") and len(tasks) > 1:
            self.say(connection, "BATCH", tasks=tasks)
            return
        for task in tasks * (2 if self.breaks("O-5.1-1") else 1):
            self.say(connection, "TASK", **task)

    def take(self, connection: Connection) -> str:
        """The next issue that it wants."""
        wants = {} if self.breaks("O-9.11-1") else connection.wants
        if wants.get("labels") or wants.get("issue_types", ["task"]) != ["task"]:
            return ""
        for issue in self.issues:
            if priority_of(issue) in wants.get("priorities", range(5)):
                if not self.breaks("O-6-3"):
                    self.issues.remove(issue)
                return issue
        return ""

    def fields(self, connection: Connection, issue: str) -> dict[str, Any]:
        additions = ADDITIONS if connection.is_1_1 else {}
        if self.breaks("O-9.2-1"):
            additions = {k: v for k, v in additions.items() if k != "labels"}
        if self.breaks("O-9.1-1"):
            additions = {**additions, "version": "1.1", **ADDITIONS}
        return {
            "issue_id": issue,
            "priority": priority_of(issue),
            "title": "Reference",
            **additions,
        }

    def say(self, connection: Connection, kind: str, **fields: Any) -> None:
        name = connection.name
        if self.breaks("O-6-2"):
            name = f"{name}.{connection.replies}"
        stamp: Any = "now" if self.breaks("O-4.1-1") else time.time()
        if connection.is_1_1 and not self.breaks("O-9.1-2"):
            fields["version"] = "1.1"
        message = {"type": kind, "worker_id": name, "timestamp": stamp, **fields}
        text = json.dumps(message, indent=1 if self.breaks("O-3-1") else None)
        connection.unsent += text.encode() + b"\n"
        self.flush(connection)

    def flush(self, connection: Connection) -> None:
        try:
            sent = connection.link.send(connection.unsent, socket.MSG_DONTWAIT)
            del connection.unsent[:sent]
        except BlockingIOError:
            if len(connection.unsent) > UNSENT_BYTES_MAX and not self.breaks("O-7-4"):
                self.lost(connection)
        except OSError:
            connection.unsent.clear()  # Its end is read next.


if __name__ == "__main__":
    options = sys.argv[2:]
    orchestrator = Orchestrator(sys.argv[1], options[1] if options else "")
    signal.signal(signal.SIGTERM, orchestrator.stop)
    print("listens", flush=True)
    orchestrator.run()
