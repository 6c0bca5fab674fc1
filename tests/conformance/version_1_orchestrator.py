"""A whole orchestrator of version 1 of docs/PROTOCOL.md. Its tracker is a list in memory.

    python version_1_orchestrator.py SOCKET

It prints a line once it listens, and stops at TERM. The tests have mutants of this text.
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

LINE_BYTES_MAX = 1 << 20
UNSENT_BYTES_MAX = 4 << 20
HELLO_SECONDS = 10.0
WRONG_MAX = 1000


class Worker:
    """A connection, with what it has and what is owed to it."""

    def __init__(self, link: socket.socket, name: str) -> None:
        self.link, self.name, self.began = link, name, time.monotonic()
        credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        self.pid, self.uid, _ = struct.unpack("3i", credentials)
        self.unread, self.unsent = b"", bytearray()
        self.task = ""
        self.is_known = self.is_ready = self.is_told = self.skips = self.is_gone = False
        self.wrong: list[float] = []


class Orchestrator:
    def __init__(self, path: str) -> None:
        self.issues = [f"one-{number}" for number in range(250)]
        self.workers: dict[int, Worker] = {}
        self.lost: list[tuple[int, str]] = []
        self.count, self.stops = 0, False
        self.listener = socket.socket(socket.AF_UNIX)
        os.umask(0o177)
        self.listener.bind(path)
        self.listener.listen(512)

    def run(self) -> None:
        while not self.stops or self.workers:
            reads = [self.listener, *(each.link for each in self.workers.values())]
            writes = [each.link for each in self.workers.values() if each.unsent]
            for link in select.select(reads, writes, [], 0.1)[0]:
                if link is self.listener:
                    self.accept()
                elif link.fileno() in self.workers:
                    self.receive(self.workers[link.fileno()])
            for worker in list(self.workers.values()):
                self.look_after(worker)
            for pid, issue in list(self.lost):
                if not Path(f"/proc/{pid}").exists():
                    self.lost.remove((pid, issue))
                    self.issues.append(issue)

    def accept(self) -> None:
        link, _ = self.listener.accept()
        self.count += 1
        worker = Worker(link, f"W{self.count}")
        if worker.uid == os.getuid():
            self.workers[link.fileno()] = worker

    def look_after(self, worker: Worker) -> None:
        silent = time.monotonic() - worker.began > HELLO_SECONDS
        if self.stops and worker.task and not worker.is_told:
            self.shut_down(worker)
        if worker.is_ready:
            self.answer(worker)
        self.flush(worker)
        too_slow = len(worker.unsent) > UNSENT_BYTES_MAX
        if worker.is_gone or too_slow or (silent and not worker.is_known):
            self.hang_up(worker)

    def hang_up(self, worker: Worker) -> None:
        if self.workers.pop(worker.link.fileno(), None) and worker.task:
            self.lost.append((worker.pid, worker.task))
        worker.link.close()

    def receive(self, worker: Worker) -> None:
        try:
            data = worker.link.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            worker.is_gone = True
        *lines, worker.unread = (worker.unread + data).split(b"\n")
        for line in lines:
            if worker.skips:
                worker.skips = False
            elif line.removesuffix(b"\r"):
                self.read(worker, line)
        if len(worker.unread) > LINE_BYTES_MAX:
            worker.unread, worker.skips = b"", True
            self.note_wrong(worker)

    def read(self, worker: Worker, line: bytes) -> None:
        try:
            message = json.loads(line.decode())
            kind, issue = message["type"], message.get("issue_id")
            whole = isinstance(message.get("timestamp"), int | float) and message.get("worker_id")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            self.note_wrong(worker)
            return
        if kind == "READY" and isinstance(whole, str) and whole:
            worker.is_known = worker.is_ready = True
            self.answer(worker)
        elif kind in ("DONE", "FAILED") and isinstance(issue, str):
            worker.is_known = True
            self.ended(worker, kind, issue)
        elif kind in ("READY", "DONE", "FAILED") or not isinstance(kind, str):
            self.note_wrong(worker)

    def note_wrong(self, worker: Worker) -> None:
        now = time.monotonic()
        worker.wrong = [at for at in worker.wrong if at > now - 60.0] + [now]
        worker.is_gone |= len(worker.wrong) >= WRONG_MAX

    def ended(self, worker: Worker, kind: str, issue: str) -> None:
        if issue == worker.task:
            worker.task = ""
            self.issues += [issue] if kind == "FAILED" else []
        elif not worker.is_told:
            self.say(worker, "WAIT", wait_seconds=1)

    def answer(self, worker: Worker) -> None:
        worker.is_ready = False
        if worker.is_told:
            return
        if self.stops:
            self.shut_down(worker)
            return
        if not worker.task and self.issues:
            worker.task = self.issues.pop(0)
        if worker.task:
            self.say(worker, "TASK", issue_id=worker.task, priority=2, title="Try it")
        else:
            self.say(worker, "WAIT", wait_seconds=1)

    def shut_down(self, worker: Worker) -> None:
        worker.is_told = True
        self.say(worker, "SHUTDOWN", reason="user_requested")

    def say(self, worker: Worker, kind: str, **fields: Any) -> None:
        message = {"type": kind, "worker_id": worker.name, "timestamp": time.time(), **fields}
        worker.unsent += json.dumps(message).encode() + b"\n"

    def flush(self, worker: Worker) -> None:
        try:
            if worker.unsent:
                del worker.unsent[: worker.link.send(worker.unsent, socket.MSG_DONTWAIT)]
        except BlockingIOError:
            pass
        except OSError:
            worker.is_gone = True

    def stop(self, *_: object) -> None:
        self.stops = True


if __name__ == "__main__":
    orchestrator = Orchestrator(sys.argv[1])
    signal.signal(signal.SIGTERM, orchestrator.stop)
    print("listens", flush=True)
    orchestrator.run()
