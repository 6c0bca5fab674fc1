"""The zygote's own side: fork on request, bury the dead, leave when the orchestrator is gone."""

from __future__ import annotations

import json
import os
import resource
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from beads_workers.core import limits
from beads_workers.core.framing import Line, LineReader
from beads_workers.core.settings import WorkerSettings, worker_from_json
from beads_workers.edge import orphans
from beads_workers.edge.sessions import kill_sessions, start_time
from beads_workers.edge.worker import run_worker

ORPHAN_SECONDS = limits.STOP_SECONDS
"""How long workers may take to leave on their own after the orchestrator has died: they end
their tasks (one grace) and may owe the tracker a write."""

LINE_BYTES_MAX = 4 << 20
"""A request holds a whole prompt template; it comes from our own process."""


@dataclass(slots=True)
class _Child:
    settings: WorkerSettings
    pid: int
    pidfd: int


@dataclass(slots=True)
class _Zygote:
    connection: socket.socket
    nofile_soft: int | None = None
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    children: dict[int, _Child] = field(default_factory=dict)
    outbox: bytearray = field(default_factory=bytearray)
    unreported: list[int] = field(default_factory=list)
    reader: LineReader = field(default_factory=lambda: LineReader(LINE_BYTES_MAX))
    orphaned_at: float | None = None

    def run(self) -> None:
        self.connection.setblocking(False)
        self.selector.register(self.connection, selectors.EVENT_READ)
        while self.orphaned_at is None or self.children:
            ready = self.selector.select(self._patience())
            dead = [key.data for key, _ in ready if key.data is not None]
            if dead:
                self._bury(dead)
            if any(key.data is None for key, _ in ready):
                self._talk()
            if self.orphaned_at is not None and time.monotonic() >= self.orphaned_at:
                self._kill_all()
            self._flush()

    def _patience(self) -> float | None:
        if self.orphaned_at is None:
            return None
        return max(0.0, self.orphaned_at - time.monotonic()) or 0.2

    # --- requests -----------------------------------------------------------------------------

    def _talk(self) -> None:
        try:
            received = self.connection.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self.selector.unregister(self.connection)
            self.outbox.clear()
            self.orphaned_at = time.monotonic() + ORPHAN_SECONDS
            return
        for line in self.reader.feed(received):
            # The peer is our own code: a line that is too long or wrong is a bug, and ends us.
            assert isinstance(line, Line), line
            self._obey(json.loads(line.text))

    def _obey(self, request: dict[str, Any]) -> None:
        if "spawn" in request:
            self._spawn(worker_from_json(request["spawn"]))
        elif child := self.children.get(request["kill"]):
            # Not reaped yet, so the pidfd still means this worker.
            try:
                signal.pidfd_send_signal(child.pidfd, request["signal"])
            except ProcessLookupError:
                pass

    def _spawn(self, settings: WorkerSettings) -> None:
        # The worker starts only when it was reported, and never when that did not happen: the
        # orchestrator knows every worker of its own by its pid before that can connect.
        try:
            child = self._fork(settings)
        except OSError as error:
            # No process or no descriptor left: the orchestrator asks again, later.
            self._report({"refused": settings.worker_id, "error": error.strerror or str(error)})
            self._flush()
            return
        self.children[child.pid] = child
        self.selector.register(child.pidfd, selectors.EVENT_READ, child)
        started = start_time(child.pid) or 0
        self._report({"spawned": settings.worker_id, "pid": child.pid, "started": started})
        self._flush()

    def _fork(self, settings: WorkerSettings) -> _Child:
        wait_end, report_end = os.pipe()
        try:
            pid = os.fork()
            if pid == 0:
                self.unreported.append(report_end)
                self._become_worker(settings, wait_end)
        except OSError:
            os.close(report_end)
            raise
        finally:
            os.close(wait_end)
        try:
            child = _Child(settings, pid, os.pidfd_open(pid))
        except OSError:
            os.kill(pid, signal.SIGKILL)  # It waits to be reported, and has done nothing yet.
            os.waitpid(pid, 0)
            os.close(report_end)
            raise
        self.unreported.append(report_end)
        return child

    def _become_worker(self, settings: WorkerSettings, reported: int) -> None:
        status = 1
        try:
            for report_end in self.unreported:
                os.close(report_end)
            if not os.read(reported, 1):
                # The zygote died first: nobody knows of this worker, and its id is another's soon.
                os._exit(0)
            os.close(reported)
            os.setsid()
            for number in IGNORED:
                signal.signal(number, signal.SIG_DFL)
            self.selector.close()
            self.connection.close()
            for child in self.children.values():
                os.close(child.pidfd)
            _name_process(f"bw-{settings.worker_id}")
            if self.nofile_soft is not None:
                _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
                resource.setrlimit(resource.RLIMIT_NOFILE, (self.nofile_soft, hard))
            status = run_worker(settings)
        except BaseException:
            # A worker that fails must never run on as a second zygote.
            traceback.print_exc()
        finally:
            os._exit(status)

    # --- ends ---------------------------------------------------------------------------------

    def _bury(self, dead: list[_Child]) -> None:
        """Kill what the dead have left while their pids are still theirs, then reap them."""
        by_run: dict[str, list[_Child]] = {}
        for child in dead:
            by_run.setdefault(child.settings.run_id, []).append(child)
        for run_id, children in by_run.items():
            workers = {child.settings.worker_id for child in children}
            # A worker that was started anew under its old id is alive, and so is its task.
            workers -= self._alive_ids(dead)
            kill_sessions({child.pid for child in children}, run_id, workers)
        # What the dead had adopted is ours now; the living keep theirs.
        orphans.end(self.children)
        for child in dead:
            self.selector.unregister(child.pidfd)
            os.close(child.pidfd)
            del self.children[child.pid]
            _, status = os.waitpid(child.pid, 0)
            code = os.waitstatus_to_exitcode(status)
            report = {"exited": child.settings.worker_id, "pid": child.pid, "status": code}
            self._report(report)

    def _alive_ids(self, dead: list[_Child]) -> set[str]:
        gone = {child.pid for child in dead}
        return {c.settings.worker_id for pid, c in self.children.items() if pid not in gone}

    def _kill_all(self) -> None:
        for child in self.children.values():
            signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)

    # --- reports ------------------------------------------------------------------------------

    def _report(self, fields: dict[str, Any]) -> None:
        if self.orphaned_at is None:
            self.outbox += json.dumps(fields).encode("ascii") + b"\n"

    def _let_go(self, *, reported: bool) -> None:
        for report_end in self.unreported:
            if reported:
                _say_reported(report_end)
            os.close(report_end)
        self.unreported.clear()

    def _flush(self) -> None:
        # Never waits: a zygote that waits for a busy orchestrator would stop reading from it.
        if self.orphaned_at is not None:
            self._let_go(reported=False)
            return
        if self.outbox:
            try:
                sent = self.connection.send(self.outbox)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.outbox.clear()
                self._let_go(reported=False)
                return
            del self.outbox[:sent]
        if not self.outbox:
            self._let_go(reported=True)
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.outbox else 0)
        self.selector.modify(self.connection, wanted)


def _say_reported(report_end: int) -> None:
    try:
        os.write(report_end, b"1")
    except BrokenPipeError:
        pass  # The worker was killed while it waited; its end is seen like any other.


IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_zygote(
    connection: socket.socket, signal_mask: Iterable[int], nofile_soft: int | None = None
) -> int:
    """Serve until the other end is closed and every worker is gone; returns an exit status.

    INT, TERM and HUP are ignored: a signal to the whole group (a person's ``kill -- -PGID``, the
    machine going down) is the orchestrator's to answer, and without the zygote nobody would see
    the workers out. It leaves when the orchestrator does. ``signal_mask`` is set once they are.
    ``nofile_soft``: the limit of open files that workers and tasks get back.
    """
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, signal_mask)
    _name_process("bw-zygote")
    orphans.adopt()
    try:
        _Zygote(connection, nofile_soft).run()
    except BaseException:  # The copy of the orchestrator must end here, whatever it met.
        # This process may only end in the caller's _exit, never as a copy of the orchestrator.
        traceback.print_exc(file=sys.stderr)
        return 1
    return 0


def _name_process(name: str) -> None:
    # For people who look at ``ps`` or ``top``; the kernel keeps 15 characters.
    with open("/proc/self/comm", "wb", buffering=0) as file:
        file.write(os.fsencode(name)[:15])
