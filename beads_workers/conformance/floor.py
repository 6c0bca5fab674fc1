"""The means of one case of the orchestrator kit: workers, each with a process of its own.

An orchestrator knows a worker by its connection, and its process from the kernel. So a separate
process connects for each worker of the kit, hands the connection over, and then waits. The kit can
end the connection, the process, or both.
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
from beads_workers.runtime.kernel import system

VERSION_1 = frozenset({"type", "worker_id", "timestamp", "issue_id", "priority", "title"})
"""The keys of a TASK of version 1."""
WAIT_SECONDS_MAX = 6.0
"""Longest time that the kit waits after a WAIT."""

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
"""Program that connects, and connects again for each byte that it is sent."""

ONLY_VERSION_1 = "it speaks version 1"

NEEDS = {"BATCH": "batch", "CANCEL": "cancel", "PAUSE": "pause", "RESUME": "pause"} | {
    "STATUS": "status"
}
"""Features that a worker must have announced to get these messages."""


@dataclass(slots=True)
class Book:
    """The holder of each issue, over all cases of a run, and how often each issue was given."""

    holders: dict[str, Peer] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)
    lost: dict[str, str] = field(default_factory=dict)
    """Issues that were lost with their workers, and the requirement to hand each of them on."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    speaks_1_1: bool = False
    """Whether a TASK of the orchestrator was of version 1.1."""
    pid: int = 0
    """Process id of the orchestrator, once a worker has connected."""

    def acquire(self, issue_id: str, peer: Peer) -> None:
        """Note that a worker has an issue; raise ``Breach`` if another worker has it."""
        with self.lock:
            holder = self.holders.get(issue_id)
            if holder is None:
                self.holders[issue_id] = holder = peer
                self.times[issue_id] += 1
        if holder is not peer:
            raise Breach("O-6-3", f"{issue_id} is with two workers")

    def release(self, issue_id: str) -> None:
        """Note that no worker has the issue any more."""
        with self.lock:
            self.holders.pop(issue_id, None)


@dataclass(slots=True, eq=False)
class Peer:
    """One worker of the kit."""

    link: PeerLink
    process: subprocess.Popen[bytes]
    handle: socket.socket
    book: Book
    timing: Timing
    worker_id: str
    # Fields of its READY; {} for version 1. Their ``version`` is in all messages of the worker.
    says: Mapping[str, Any]
    called: str = ""
    task: Message | None = None
    # Tasks behind the current one.
    queued: list[Message] = field(default_factory=list)
    # The case expects SHUTDOWN.
    may_end: bool = False

    def say(self, kind: str, **fields: object) -> None:
        """Send a message of this worker."""
        self.link.send(self.message(kind, **fields))

    def message(self, kind: str, **fields: object) -> Message:
        """Return a message of this worker, without sending it."""
        base = {"type": kind, "worker_id": self.worker_id, "timestamp": round(time.time(), 6)}
        overrides = {k: v for k, v in self.says.items() if kind == "READY" or k == "version"}
        return {**base, **fields, **overrides}

    def read(self, seconds: float) -> Message | None:
        """Return the next message, or None if none comes in time."""
        message = self.link.read(seconds)
        if message is None:
            return None
        # Messages of unknown types may have no worker_id.
        worker_id = message.get("worker_id", self.called)
        self.called = self.called or worker_id
        if worker_id != self.called:
            raise Breach("O-6-2", f"first {self.called!r}, then {worker_id!r}")
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
        """Note a TASK of 1.1; raise ``NotClaimed`` if the orchestrator only speaks version 1."""
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
        self.book.acquire(task["issue_id"], self)
        if self.task is None or self.task["issue_id"] == task["issue_id"]:
            self.task = task
        elif all(each["issue_id"] != task["issue_id"] for each in self.queued):
            self.queued.append(task)

    def reply(self, requirement: str) -> Message:
        """Return the reply to READY."""
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
        """Send READY; return the reply."""
        self.say("READY")
        return self.reply(requirement)

    def get_task(self, requirement: str = "O-5.1-1") -> Message:
        """Send READY until a TASK comes. Raises ``NotClaimed`` if there is no work."""
        deadline = time.monotonic() + 2 * self.timing.patience
        while time.monotonic() < deadline:
            reply = self.ask(requirement)
            if reply["type"] != "WAIT":
                return reply["tasks"][0] if reply["type"] == "BATCH" else reply
            time.sleep(min(reply["wait_seconds"], WAIT_SECONDS_MAX))
        raise NotClaimed("no issue was ready for this case")

    def finish(self, **fields: object) -> None:
        """Send DONE for the current task."""
        assert self.task is not None
        self.say("DONE", issue_id=self.task["issue_id"], **{"duration_ms": 1, **fields})
        self.let_go()

    def let_go(self) -> None:
        """Forget the current task, which the worker has ended; the next queued one is current."""
        if self.task is not None:
            self.book.release(self.task["issue_id"])
            self.task = self.queued.pop(0) if self.queued else None

    def give_back(self, issue_id: str) -> None:
        """Return a queued task unstarted, after a CANCEL for it."""
        for task in [each for each in self.queued if each["issue_id"] == issue_id]:
            self.queued.remove(task)
            named = {"request_id": task["request_id"]} if "request_id" in task else {}
            fields = {"outcome": "cancelled", "error_detail": "returned_unstarted", **named}
            self.say("FAILED", issue_id=issue_id, error="revoked", duration_ms=0, **fields)
            self.book.release(issue_id)

    def quiet(self, requirement: str, seconds: float | None = None) -> None:
        """Check that no message comes for a while, and the connection stays."""
        message = self.read(self.timing.quiet if seconds is None else seconds)
        if message is not None:
            raise Breach(requirement, f"nothing was due, and {json.dumps(message)[:200]} came")
        if self.link.is_over:
            raise Breach(requirement, "it has closed the connection")

    def must(self, requirement: str, holds: bool, why: str, allowed: float = 0.0) -> None:
        """Raise ``Breach`` if a requirement does not hold. ``allowed``: seconds it had."""
        if not holds:
            raise Breach(requirement, why, allowed)

    def come_back(self) -> None:
        """Close the connection, and connect again from the same process."""
        self.link.close()
        self.handle.sendall(b"x")
        connection = _received(self.handle)
        if connection is None:
            raise Breach("O-2.1-2", "a worker could not connect anew")
        self.link = _link(connection, self.link.transcript, self.says)
        self.called = ""

    def lose(self, requirement: str) -> None:
        """End connection and process during a task; by this requirement the task must be handed
        on."""
        if self.task is not None:
            self.book.lost[self.task["issue_id"]] = requirement
        self.die()

    def die(self) -> None:
        """End connection and process of the worker."""
        self.link.close()
        self.handle.close()
        self.process.wait()
        while self.task is not None:
            self.let_go()

    def leave(self) -> None:
        """Finish all tasks and end the worker, at the end of a case."""
        while self.task is not None and not self.link.is_over:
            self.finish()
        with suppress(OSError):
            self.link.socket.shutdown(socket.SHUT_WR)
        self.link.socket.close()
        self.handle.close()
        self.process.wait()


@dataclass(slots=True)
class Floor:
    """The workers of one case. Use it in a ``with``.

    ``stop``: the command that stops the orchestrator, () for none.
    """

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
        """Return a worker that has connected and sent nothing yet.

        ``version``: its READY opts in, with these features and fields.
        """
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
    return system.peer_of(connection)[0]


def _received(handle: socket.socket) -> socket.socket | None:
    """Return the connection that a connector hands over; None if it could not connect."""
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
