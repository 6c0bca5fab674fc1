"""What one case of the orchestrator kit works with: workers, each with a process of its own.

An orchestrator knows a worker by its connection, and its process from the kernel. So each worker of
the kit is connected by a process of its own, which hands the connection over and then waits: the
kit can let a connection end, a process, or both.
"""

from __future__ import annotations

import array
import json
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from beads_workers.conformance.bench import NotClaimed, Timing
from beads_workers.conformance.link import Breach, Message, PeerLink

VERSION_1 = frozenset({"type", "worker_id", "timestamp", "issue_id", "priority", "title"})
"""The keys of a TASK of version 1."""
WAIT_SECONDS_MAX = 6.0
"""Of a WAIT the kit sits out no more."""

CONNECTOR = """
import socket, sys
kit = socket.socket(fileno=0)
while True:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    socket.send_fds(kit, [b"x"], [connection.fileno()])
    connection.close()
    if not kit.recv(1):
        break
"""
"""Connects, and once more for each byte that it is sent."""

ONLY_VERSION_1 = "it speaks version 1"

NEEDS = {"BATCH": "batch", "CANCEL": "cancel", "PAUSE": "pause", "RESUME": "pause"} | {
    "STATUS": "status"
}
"""What an orchestrator says only to workers that announced a feature."""


@dataclass(slots=True)
class Book:
    """Which worker has which issue, over all cases of a run; and how often each was given."""

    holders: dict[str, Peer] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)
    lost: dict[str, str] = field(default_factory=dict)
    """Issues that were lost with their workers, and the requirement that hands each on."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    speaks_1_1: bool = False
    """The orchestrator has said so in a TASK."""
    pid: int = 0
    """Of the orchestrator, once somebody has connected."""

    def given(self, issue_id: str, peer: Peer) -> None:
        """Raises ``Breach`` where somebody else has it."""
        with self.lock:
            holder = self.holders.get(issue_id)
            if holder is None:
                self.holders[issue_id] = holder = peer
                self.times[issue_id] += 1
        if holder is not peer:
            raise Breach("O-6-3", f"{issue_id} is with two workers")

    def over(self, issue_id: str) -> None:
        """Nobody has it any more."""
        with self.lock:
            self.holders.pop(issue_id, None)


@dataclass(slots=True, eq=False)
class Peer:
    """One worker of the kit. ``says``: the fields of its READY, of which ``version`` stands in all
    that it says; {} for version 1. ``queued``: the tasks behind the one at hand. ``may_end``:
    SHUTDOWN is what its case is about."""

    link: PeerLink
    process: subprocess.Popen[bytes]
    handle: socket.socket
    book: Book
    timing: Timing
    worker_id: str
    says: Mapping[str, Any]
    called: str = ""
    task: Message | None = None
    queued: list[Message] = field(default_factory=list)
    may_end: bool = False

    def say(self, kind: str, **fields: object) -> None:
        """A message of this worker."""
        self.link.send(self.message(kind, **fields))

    def message(self, kind: str, **fields: object) -> Message:
        """One that is not sent yet."""
        base = {"type": kind, "worker_id": self.worker_id, "timestamp": round(time.time(), 6)}
        said = {k: v for k, v in self.says.items() if kind == "READY" or k == "version"}
        return {**base, **fields, **said}

    def read(self, seconds: float) -> Message | None:
        """The next message, if one comes."""
        message = self.link.read(seconds)
        if message is None:
            return None
        # A type that nobody knows may have none.
        said = message.get("worker_id", self.called)
        self.called = self.called or said
        if said != self.called:
            raise Breach("O-6-2", f"first {self.called!r}, then {said!r}")
        self._check_announced(message["type"])
        for task in message["tasks"] if message["type"] == "BATCH" else [message]:
            if "issue_id" in task and message["type"] in ("TASK", "BATCH"):
                self._take(task)
        if message["type"] == "TASK" and self.says:
            self._check_version(message)
        if message["type"] == "SHUTDOWN" and not self.may_end:
            raise NotClaimed("the orchestrator shuts down")
        return message

    def _check_version(self, task: Message) -> None:
        """A TASK of version 1 to a worker of 1.1: whoever sent it speaks no other."""
        if "version" in task:
            self.book.speaks_1_1 = True
        elif not self.book.speaks_1_1 and task.keys() <= VERSION_1:
            raise NotClaimed(ONLY_VERSION_1)

    def _check_announced(self, kind: str) -> None:
        needed = NEEDS.get(kind, "")
        if needed and not self.says:
            raise Breach("O-9.1-1", f"{kind} came to a worker of version 1")
        if needed and needed not in self.says.get("features", ()):
            raise Breach("O-9.1-4", f"{kind} came, and its READY did not announce {needed}")

    def _take(self, task: Message) -> None:
        self.book.given(task["issue_id"], self)
        if self.task is None or self.task["issue_id"] == task["issue_id"]:
            self.task = task
        elif all(each["issue_id"] != task["issue_id"] for each in self.queued):
            self.queued.append(task)

    def reply(self, requirement: str) -> Message:
        """What answers READY."""
        message = self.read(self.timing.hold + self.timing.patience)
        if message is None:
            is_over = self.link.is_over
            end = "the stream has ended" if is_over else "nothing came"
            allowed = 0.0 if is_over else self.timing.patience
            raise Breach(requirement, f"a reply was due, and {end}", allowed)
        if message["type"] not in ("TASK", "WAIT", "BATCH"):
            raise Breach(requirement, f"{message['type']} came in place of a reply")
        return message

    def ask(self, requirement: str = "O-5.1-1") -> Message:
        """READY, and its reply."""
        self.say("READY")
        return self.reply(requirement)

    def get_task(self, requirement: str = "O-5.1-1") -> Message:
        """READY until a TASK comes. Raises ``NotClaimed`` where there is no work."""
        deadline = time.monotonic() + 2 * self.timing.patience
        while time.monotonic() < deadline:
            reply = self.ask(requirement)
            if reply["type"] != "WAIT":
                return reply["tasks"][0] if reply["type"] == "BATCH" else reply
            time.sleep(min(reply["wait_seconds"], WAIT_SECONDS_MAX))
        raise NotClaimed("no issue was ready for this case")

    def finish(self, **fields: object) -> None:
        """DONE for its task."""
        assert self.task is not None
        self.say("DONE", issue_id=self.task["issue_id"], **{"duration_ms": 1, **fields})
        self.let_go()

    def let_go(self) -> None:
        """What it has said ends its task; the next one of its queue is at hand."""
        if self.task is not None:
            self.book.over(self.task["issue_id"])
            self.task = self.queued.pop(0) if self.queued else None

    def give_back(self, issue_id: str) -> None:
        """CANCEL has come for a task that is queued on it: it is returned unstarted."""
        for task in [each for each in self.queued if each["issue_id"] == issue_id]:
            self.queued.remove(task)
            named = {"request_id": task["request_id"]} if "request_id" in task else {}
            said = {"outcome": "cancelled", "error_detail": "returned_unstarted", **named}
            self.say("FAILED", issue_id=issue_id, error="revoked", duration_ms=0, **said)
            self.book.over(issue_id)

    def quiet(self, requirement: str, seconds: float | None = None) -> None:
        """Nothing may come for a while, and the connection stays."""
        message = self.read(self.timing.quiet if seconds is None else seconds)
        if message is not None:
            raise Breach(requirement, f"nothing was due, and {json.dumps(message)[:200]} came")
        if self.link.is_over:
            raise Breach(requirement, "it has closed the connection")

    def must(self, requirement: str, holds: bool, why: str, allowed: float = 0.0) -> None:
        """Raises ``Breach`` where it does not hold; ``allowed``: within so many seconds."""
        if not holds:
            raise Breach(requirement, why, allowed)

    def come_back(self) -> None:
        """Its connection is lost, and its process connects anew."""
        self.link.close()
        self.handle.sendall(b"x")
        connection = _received(self.handle)
        if connection is None:
            raise Breach("O-2.1-2", "a worker could not connect anew")
        self.link = _link(connection, self.link.transcript, self.says)
        self.called = ""

    def lose(self, requirement: str) -> None:
        """The worker is gone with its task, its process too, without a word; by this requirement
        the task has to be handed on."""
        if self.task is not None:
            self.book.lost[self.task["issue_id"]] = requirement
        self.die()

    def die(self) -> None:
        """The worker is gone, its process too."""
        self.link.close()
        self.handle.close()
        self.process.wait()
        while self.task is not None:
            self.let_go()

    def leave(self) -> None:
        """At the end of a case: what it has is done."""
        while self.task is not None and not self.link.is_over:
            self.finish()
        with suppress(OSError):
            self.link.socket.shutdown(socket.SHUT_WR)
        self.link.socket.close()
        self.handle.close()
        self.process.wait()


@dataclass(slots=True)
class Floor:
    """One case: the workers that it has. Use it in a ``with``. ``stop``: the command that has the
    orchestrator stop, () for none."""

    path: str
    timing: Timing
    book: Book
    stop: Sequence[str] = ()
    transcript: list[str] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)

    def __enter__(self) -> Floor:
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self.peers:
            peer.leave()

    def worker(
        self,
        name: str = "kit",
        version: str = "",
        features: Sequence[str] = ("cancel", "grouped"),
        **fields: object,
    ) -> Peer:
        """A worker that has connected and said nothing yet; ``version``: its READY opts in, with
        these features and fields."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-S", "-E", "-c", CONNECTOR, self.path]
        process: subprocess.Popen[bytes] = subprocess.Popen(
            command, stdin=theirs.fileno(), stderr=subprocess.DEVNULL
        )
        theirs.close()
        ours.settimeout(10.0)
        connection = _received(ours)
        if connection is None:
            process.wait()
            ours.close()
            raise Breach("O-2.1-2", "a worker could not connect")
        self.book.pid = self.book.pid or _pid_of(connection)
        says = {"version": version, "features": [*features], **fields} if version else {}
        link = _link(connection, self.transcript, says)
        peer = Peer(link, process, ours, self.book, self.timing, name, says)
        self.peers.append(peer)
        return peer


def _link(connection: socket.socket, transcript: list[str], says: Mapping[str, Any]) -> PeerLink:
    additions = "O-9.2-1" if says else "O-9.1-1"
    return PeerLink(connection, transcript, "O-3-1", "O-4.1-1", additions, "<")


def _pid_of(connection: socket.socket) -> int:
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(found[:4], sys.byteorder)


def _received(handle: socket.socket) -> socket.socket | None:
    """The connection that a connector hands over; None where it could not connect."""
    room = socket.CMSG_LEN(array.array("i").itemsize)
    try:
        data, ancillary, *_ = handle.recvmsg(1, room)
    except OSError:
        return None
    if not data or not ancillary:
        return None
    descriptors = array.array("i")
    descriptors.frombytes(ancillary[0][2][: descriptors.itemsize])
    return socket.socket(fileno=descriptors[0])
