"""The zygote's own side: forks on request, reaps the dead, leaves when the orchestrator is gone."""

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
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from beads_workers import registry
from beads_workers.core.base import limits
from beads_workers.core.base.framing import Line, LineReader
from beads_workers.core.base.model import compile_values
from beads_workers.core.base.plain import from_plain
from beads_workers.core.base.settings import WorkerSettings
from beads_workers.core.base.wire import Shutdown, StatusAsked, Wait, encode
from beads_workers.executors.command import step_modules
from beads_workers.runtime import sessions, warm_steps
from beads_workers.runtime.kernel import system
from beads_workers.runtime.processes import SEND_LATER
from beads_workers.runtime.sessions import kill_sessions, start_time
from beads_workers.runtime.worker import run_worker

# --- zygote reports ------------------------------------------------------------------------------
# Reports of the zygote to the orchestrator, and the workers that wait until they are reported.


class Reports:
    """Reports to the orchestrator. Never waits: a zygote that waited for a busy orchestrator would
    stop reading from it."""

    def __init__(self, connection: socket.socket, selector: selectors.BaseSelector) -> None:
        self._connection = connection
        self._selector = selector
        self._outbox = bytearray()
        self._waiting: list[tuple[int, int]] = []
        self._is_over = False

    def say(self, fields: dict[str, Any]) -> None:
        """Gather a report; ``flush`` sends it."""
        if not self._is_over:
            self._outbox += json.dumps(fields).encode("ascii") + b"\n"

    def hold(self, report_end: int, workers: int) -> None:
        """Hold the end of a pipe from which so many workers read. Each gets a byte once all reports
        so far have been sent; if that never happens, the pipe is closed."""
        self._waiting.append((report_end, workers))

    def forget(self) -> None:
        """Close the pipes in a worker, which must not hold them."""
        for report_end, _ in self._waiting:
            os.close(report_end)

    def end(self) -> None:
        """Drop all reports: the orchestrator is gone."""
        self._is_over = True
        self._outbox.clear()
        self._let_go(reported=False)

    def flush(self) -> None:
        """Send as many reports as the socket takes."""
        if self._is_over:
            self._let_go(reported=False)
            return
        if self._outbox:
            try:
                sent = self._connection.send(self._outbox)
            except OSError as error:
                if error.errno not in SEND_LATER:
                    self._give_up()
                    return
                sent = 0
            del self._outbox[:sent]
        if not self._outbox:
            self._let_go(reported=True)
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outbox else 0)
        self._selector.modify(self._connection, wanted)

    def _give_up(self) -> None:
        """Close the connection after a lost report: an orchestrator that still lives must not wait
        for it. It finds this zygote closed, and takes over the workers itself."""
        self._outbox.clear()
        self._let_go(reported=False)
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _let_go(self, *, reported: bool) -> None:
        for report_end, workers in self._waiting:
            if reported:
                _say_reported(report_end, workers)
            os.close(report_end)
        self._waiting.clear()


def _say_reported(report_end: int, workers: int) -> None:
    try:
        os.write(report_end, b"1" * workers)
    except OSError:
        pass  # They were killed while they waited; their end is noticed like any other.


# --- warm-up -------------------------------------------------------------------------------------
# Work that every worker does first, done in the zygote before it forks one.
#
# A page of memory is shared by the zygote and its workers until somebody writes to it. Running
# Python writes: to code that is being specialised, to caches of attributes, to free lists. What was
# written before the fork need not be written again by each of a hundred workers.


TIMES = 4


def warm_up(settings: WorkerSettings) -> None:
    """Run a worker that is asked for its status, told to wait, and then to leave; report errors on
    stderr.

    There must be no child yet. Afterwards INT, TERM, HUP and CHLD do nothing until they are set
    again.
    """
    messages = (StatusAsked(), Wait(1), Shutdown("user_requested"))
    settings = replace(settings, work=replace(settings.work, functions_ahead=""))
    lines = b"".join(encode(m, settings.worker_id, time.time(), v1=False) for m in messages)
    for _ in range(TIMES):
        try:
            ours, theirs = socket.socketpair()
        except OSError:
            return  # No descriptor left.
        try:
            theirs.sendall(lines)
            if run_worker(settings, dial=partial(_dial, ours)):
                return
        except Exception:  # Any error: the workers do without the warm-up, and meet it themselves.
            traceback.print_exc()
            return
        finally:
            ours.close()
            theirs.close()
            if (wake := signal.set_wakeup_fd(-1)) >= 0:
                os.close(wake)


def _dial(connection: socket.socket) -> socket.socket:
    return connection


# --- zygote loop ---------------------------------------------------------------------------------
# The zygote's own side: forks on request, reaps the dead, leaves when the orchestrator is gone.


ORPHAN_SECONDS = limits.STOP_SECONDS
"""Seconds that workers may take to leave on their own after the orchestrator has died: they end
their tasks (one grace) and may have a write pending."""

BATCH = 16
"""Workers forked one right after the other: each page that the zygote writes in between is copied
once more for each."""

FDS_MAX = 8
"""Descriptors that come with one request, at most."""

LINE_BYTES_MAX = 4 << 20
"""Bytes of the longest request: it holds a whole prompt template, and comes from our own
process."""


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
    reader: LineReader = field(default_factory=lambda: LineReader(LINE_BYTES_MAX))
    orphaned_at: float | None = None
    warmed_up: bool = False
    reports: Reports = field(init=False)
    kept: list[int] = field(default_factory=list)
    """Descriptors that stay open as long as this process or a worker lives."""

    def __post_init__(self) -> None:
        self.reports = Reports(self.connection, self.selector)

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
            self.reports.flush()

    def _patience(self) -> float | None:
        if self.orphaned_at is None:
            return None
        return max(0.0, self.orphaned_at - time.monotonic()) or 0.2

    # --- requests -----------------------------------------------------------------------------

    def _talk(self) -> None:
        fds: list[int] = []
        try:
            received, fds, _, _ = socket.recv_fds(self.connection, 1 << 18, FDS_MAX)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if not received:
            self.selector.unregister(self.connection)
            self.reports.end()
            self.orphaned_at = time.monotonic() + ORPHAN_SECONDS
            return
        spawn: list[WorkerSettings] = []
        for line in self.reader.feed(received):
            # The peer is our own code: a line that is too long or wrong is a bug, and ends this
            # process.
            assert isinstance(line, Line), line
            request = json.loads(line.text)
            if "spawn" in request:
                spawn.append(from_plain(WorkerSettings, request["spawn"]))
            elif "begin" in request:
                self._begin(request["begin"], fds)
            else:
                self._kill(request["kill"], request["signal"])
        for batch in range(0, len(spawn), BATCH):
            self._spawn(spawn[batch : batch + BATCH])

    def _begin(self, fields: dict[str, Any], fds: list[int]) -> None:
        self.nofile_soft = fields["nofile_soft"]
        for number, fd in enumerate(fds[:3]):
            os.dup2(fd, number)
            os.close(fd)
        self.kept = fds[3:]

    def _kill(self, pid: int, number: int) -> None:
        if child := self.children.get(pid):
            # Not reaped yet, so the pidfd still means this worker.
            try:
                system.send(child.pidfd, number)
            except ProcessLookupError:
                pass

    def _spawn(self, batch: list[WorkerSettings]) -> None:
        if not self.warmed_up:
            self.warmed_up = True
            compile_values()
            if not batch[0].work.executors:
                warm_up(batch[0])
            if modules := step_modules(batch[0].work, away=batch[0].place is not None):
                warm_steps.load(modules)
            _ignore_signals()
        # Workers start only after they were reported, and never if that fails: so the orchestrator
        # knows the pid of every worker of its own before that worker can connect.
        try:
            wait_end, report_end = os.pipe()
        except OSError as error:
            for settings in batch:
                self._refuse(settings, error)
            return
        forked = self._fork(batch, wait_end, report_end)
        os.close(wait_end)
        started = sum(self._watch(settings, pid) for settings, pid in forked)
        self.reports.hold(report_end, started)
        self.reports.flush()

    def _fork(
        self, batch: list[WorkerSettings], wait_end: int, report_end: int
    ) -> list[tuple[WorkerSettings, int]]:
        """Fork the workers of a batch, and do nothing else in between (``BATCH``)."""
        pids: list[int] = []
        for settings in batch:
            try:
                pid = os.fork()
            except OSError as error:
                for left in batch[len(pids) :]:
                    self._refuse(left, error)
                break
            if pid == 0:
                os.close(report_end)
                self._become_worker(settings, wait_end)
            pids.append(pid)
        return list(zip(batch, pids, strict=False))

    def _watch(self, settings: WorkerSettings, pid: int) -> bool:
        try:
            pidfd = system.exit_descriptor(pid)
        except OSError as error:
            os.kill(pid, signal.SIGKILL)  # It waits to be reported, and has done nothing yet.
            os.waitpid(pid, 0)
            self._refuse(settings, error)
            return False
        child = self.children[pid] = _Child(settings, pid, pidfd)
        self.selector.register(pidfd, selectors.EVENT_READ, child)
        self.reports.say(
            {"spawned": settings.worker_id, "pid": pid, "started": start_time(pid) or 0}
        )
        return True

    def _refuse(self, settings: WorkerSettings, error: OSError) -> None:
        # No process or no descriptor left: the orchestrator asks again, later.
        self.reports.say({"refused": settings.worker_id, "error": error.strerror or str(error)})

    def _become_worker(self, settings: WorkerSettings, reported: int) -> None:
        status = 1
        try:
            self.reports.forget()
            if not os.read(reported, 1):
                # The zygote died first: nobody knows of this worker, and its id will soon be
                # another's.
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
            status = _run(settings)
        except BaseException:
            # A worker that fails must never run on as a second zygote.
            traceback.print_exc()
        finally:
            os._exit(status)

    # --- ends ---------------------------------------------------------------------------------

    def _bury(self, dead: list[_Child]) -> None:
        """Kill what the dead workers have left while their pids are still theirs, then reap the
        workers."""
        by_run: dict[str, list[_Child]] = {}
        for child in dead:
            by_run.setdefault(child.settings.run_id, []).append(child)
        for run_id, children in by_run.items():
            workers = {child.settings.worker_id for child in children}
            # A worker that was started again under its old id is alive, and so is its task.
            workers -= self._alive_ids(dead)
            kill_sessions({child.pid for child in children}, run_id, workers)
        # Children that the dead had adopted are ours now; the living keep theirs.
        sessions.end(self.children)
        for child in dead:
            self.selector.unregister(child.pidfd)
            os.close(child.pidfd)
            del self.children[child.pid]
            _, status = os.waitpid(child.pid, 0)
            code = os.waitstatus_to_exitcode(status)
            report = {"exited": child.settings.worker_id, "pid": child.pid, "status": code}
            self.reports.say(report)

    def _alive_ids(self, dead: list[_Child]) -> set[str]:
        gone = {child.pid for child in dead}
        return {c.settings.worker_id for pid, c in self.children.items() if pid not in gone}

    def _kill_all(self) -> None:
        for child in self.children.values():
            system.send(child.pidfd, signal.SIGKILL)


def _run(settings: WorkerSettings) -> int:
    if settings.work.in_flight == 1 and not settings.work.executors:
        return run_worker(settings)
    # Imported here: otherwise every other worker would hold it in memory, too.
    if not settings.work.executors:
        from beads_workers.runtime.concurrent_functions import run_concurrent

        return run_concurrent(settings)
    return int(registry.need("executor_driver").run_driver(settings))


IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_zygote(connection: socket.socket, signal_mask: Iterable[int]) -> int:
    """Serve until the other end is closed and every worker is gone; return an exit status.

    INT, TERM and HUP are ignored. The orchestrator answers a signal to the whole group (a person's
    ``kill -- -PGID``, a shutdown of the machine), and without the zygote nobody would end the
    workers. The zygote leaves when the orchestrator does. ``signal_mask`` is set once the signals
    are ignored.
    """
    _ignore_signals()
    signal.pthread_sigmask(signal.SIG_SETMASK, signal_mask)
    _name_process("bw-zygote")
    system.adopt()
    try:
        _Zygote(connection).run()
    except BaseException:  # Any error: the copy of the orchestrator must end here.
        # This process may only end in the caller's _exit, never as a copy of the orchestrator.
        traceback.print_exc(file=sys.stderr)
        return 1
    return 0


def _ignore_signals() -> None:
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _name_process(name: str) -> None:
    system.name_process(name)
