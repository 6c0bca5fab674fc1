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
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from beads_workers.conformance.bench import NotClaimed, Timing
from beads_workers.conformance.link import Breach, Message, PeerLink

WAIT_SECONDS_MAX = 6.0
"""Of a WAIT the kit sits out no more."""

CONNECTOR = """
import os, socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
kit = socket.socket(fileno=0)
socket.send_fds(kit, [b"x"], [connection.fileno()])
connection.close()
kit.recv(1)
"""


@dataclass(slots=True)
class Book:
    """Which worker has which issue, over all cases of a run; and how often each was given."""

    holders: dict[str, Peer] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)
    is_alone: threading.Event = field(default_factory=threading.Event)
    """Set when only the cases of ``LAST`` still run: they may take all issues that are left."""
    lock: threading.Lock = field(default_factory=threading.Lock)

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
    """One worker of the kit. ``version``: what it says in all that it says, {} for version 1."""

    link: PeerLink
    process: subprocess.Popen[bytes]
    handle: socket.socket
    book: Book
    timing: Timing
    worker_id: str
    version: Mapping[str, object]
    called: str = ""
    task: Message | None = None

    def say(self, kind: str, **fields: object) -> None:
        """A message of this worker."""
        self.link.send(self.message(kind, **fields))

    def message(self, kind: str, **fields: object) -> Message:
        """One that is not sent yet."""
        base = {"type": kind, "worker_id": self.worker_id, "timestamp": round(time.time(), 6)}
        version = {k: v for k, v in self.version.items() if kind == "READY" or k == "version"}
        return {**base, **fields, **version}

    def read(self, seconds: float) -> Message | None:
        """The next reply, if one comes."""
        message = self.link.read(seconds)
        if message is None:
            return None
        self.called = self.called or message["worker_id"]
        if message["worker_id"] != self.called:
            raise Breach("O-6-2", f"first {self.called!r}, then {message['worker_id']!r}")
        if message["type"] == "TASK":
            self.task = message
            self.book.given(message["issue_id"], self)
        if message["type"] == "SHUTDOWN":
            raise NotClaimed("the orchestrator shuts down")
        return message

    def reply(self, requirement: str) -> Message:
        """What answers READY."""
        message = self.read(self.timing.hold + self.timing.patience)
        if message is None:
            end = "the stream has ended" if self.link.is_over else "nothing came"
            raise Breach(requirement, f"a reply was due, and {end}")
        if message["type"] not in ("TASK", "WAIT"):
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
            if reply["type"] == "TASK":
                return reply
            time.sleep(min(reply["wait_seconds"], WAIT_SECONDS_MAX))
        raise NotClaimed("no issue was ready for this case")

    def finish(self, **fields: object) -> None:
        """DONE for its task."""
        assert self.task is not None
        self.say("DONE", issue_id=self.task["issue_id"], **{"duration_ms": 1, **fields})
        self.let_go()

    def let_go(self) -> None:
        """What it has said ends its task."""
        if self.task is not None:
            self.book.over(self.task["issue_id"])
            self.task = None

    def quiet(self, requirement: str) -> None:
        """Nothing may come for a while, and the connection stays."""
        message = self.read(self.timing.quiet)
        if message is not None:
            raise Breach(requirement, f"nothing was due, and {json.dumps(message)[:200]} came")
        if self.link.is_over:
            raise Breach(requirement, "it has closed the connection")

    def must(self, requirement: str, holds: bool, why: str) -> None:
        """Raises ``Breach`` where it does not hold."""
        if not holds:
            raise Breach(requirement, why)

    def die(self) -> None:
        """The worker is gone, its process too, without a word."""
        issue_id = self.task["issue_id"] if self.task is not None else ""
        self.link.close()
        self.handle.close()
        self.process.wait()
        self.book.over(issue_id)
        self.task = None

    def leave(self) -> None:
        """At the end of a case: what it has is done."""
        if self.task is not None and not self.link.is_over:
            self.finish()
        with suppress(OSError):
            self.link.socket.shutdown(socket.SHUT_WR)
        self.link.socket.close()
        self.handle.close()
        self.process.wait()


@dataclass(slots=True)
class Floor:
    """One case: the workers that it has. Use it in a ``with``."""

    path: str
    timing: Timing
    book: Book
    transcript: list[str] = field(default_factory=list)
    peers: list[Peer] = field(default_factory=list)

    def __enter__(self) -> Floor:
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self.peers:
            peer.leave()

    def worker(self, name: str = "kit", version: str = "") -> Peer:
        """A worker that has connected and said nothing yet; ``version``: its READY opts in."""
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
        says = {"version": version, "features": ["cancel", "grouped"]} if version else {}
        link = PeerLink(connection, self.transcript, "O-3-1", "O-4.1-1", "O-9.2-1", "<")
        peer = Peer(link, process, ours, self.book, self.timing, name, says)
        self.peers.append(peer)
        return peer


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
