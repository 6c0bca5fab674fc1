"""One executor of a driver: its process and its connections."""

from __future__ import annotations

import errno
import os
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import assert_never

from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.plans import Plan, Step, StepKind
from beads_workers.core.base.settings import Executor as Described
from beads_workers.core.base.settings import WorkerSettings
from beads_workers.core.workers.worker_events import StepEnded
from beads_workers.integrations.rrq import executor_process as ev
from beads_workers.integrations.rrq import wire
from beads_workers.integrations.rrq.executor_process import ExecutorProcess
from beads_workers.integrations.rrq.ingress import FrameStream
from beads_workers.integrations.rrq.requests import error_lines, version_of
from beads_workers.runtime.kernel import system
from beads_workers.runtime.output import AttemptOutput
from beads_workers.runtime.processes import say
from beads_workers.runtime.sessions import kill, with_variable
from beads_workers.runtime.steps import CannotStart, RunningStep, launch

# --- places --------------------------------------------------------------------------------------
# Addresses that an executor listens at: a Unix socket below the run, or a port of this machine.


UNIX_PATH_BYTES_MAX = 107
"""Longest path that the kernel accepts for a Unix socket, without the closing zero."""
LOOPBACK = "127.0.0.1"
REACH_SECONDS = 1.0
"""Longest time for a connection: it takes microseconds here, unless the executor's queue is
full."""

Address = str | tuple[str, int]
"""A path, or a host and a port."""


class SocketFolder:
    """The folder of the executors' sockets: only our user can enter it.

    It belongs to the run and is removed with it, whichever process is killed.
    """

    def __init__(self, run_directory: str, worker_id: str) -> None:
        self._prefix = worker_id
        self._folder = f"{run_directory}/executors"
        os.makedirs(self._folder, 0o700, exist_ok=True)  # noqa: PTH103
        self._opened = system.look_only(self._folder)

    def unix(self, name: str, number: int) -> str:
        """Return a free path for a Unix socket: short enough, and valid while this process
        lives."""
        path = self._path(self._folder, name, number)
        if len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX:
            # The same folder under a name that is short, however deep the folder lies.
            path = self._path(
                system.path_in(self._opened, "", os.getpid()).rstrip("/"), name, number
            )
        if len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
        _remove(path)
        return path

    def log(self, name: str) -> str:
        """Return the path of the file that keeps the output of the executor."""
        return f"{self._folder}/{name}.{self._prefix}.log"

    def note_works(self, name: str) -> None:
        """Record that a process of this executor accepts connections. Raises ``OSError``."""
        os.close(os.open(self._works(name), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def works(self, name: str) -> bool:
        """Return whether a process of this executor ever accepted a connection in this run.

        It may have been that of another driver. If so, a failed start is no fault of the
        description.
        """
        return os.path.exists(self._works(name))  # noqa: PTH110

    def close(self) -> None:
        """Close the folder's descriptor."""
        os.close(self._opened)

    def _works(self, name: str) -> str:
        return f"{self._folder}/{name}.works"

    def _path(self, folder: str, name: str, number: int) -> str:
        return f"{folder}/{name}.{self._prefix}.{number}.sock"


def tcp() -> tuple[str, int]:
    """Return a loopback port that is free now.

    If another process takes the port meanwhile, the executor ends and is started again.
    """
    with socket.socket() as found:
        found.bind((LOOPBACK, 0))
        return LOOPBACK, int(found.getsockname()[1])


def reach(address: Address) -> socket.socket:
    """Return a connection; raise ``OSError``. Takes ``REACH_SECONDS`` at most."""
    unix = isinstance(address, str)
    connection = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
    try:
        connection.settimeout(REACH_SECONDS)
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def begin(address: Address) -> socket.socket:
    """Return a connection that does not block; over TCP it may not be established yet.

    Raises ``BlockingIOError`` if too many connect at once: try again later. Raises ``OSError``.
    """
    unix = isinstance(address, str)
    connection = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
    connection.setblocking(False)
    if not unix:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    failed = connection.connect_ex(address)
    if failed not in (0, errno.EINPROGRESS):
        connection.close()
        raise OSError(failed, os.strerror(failed))
    return connection


def forget(address: Address | None) -> None:
    """Remove the socket that a dead executor has left at its address."""
    if isinstance(address, str):
        _remove(address)


def _remove(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108
    except OSError:
        pass


# --- line ----------------------------------------------------------------------------------------
# The connection of one slot to an executor: at most one frame at a time in each direction.


class InvalidReply(Exception):
    """The executor sent something that is no reply; the connection is useless. ``str()``: why."""


class ConnectionClosed(Exception):
    """The executor has closed the connection, maybe because it died."""


class ExecutorConnection:
    """A connection that is made at once, and watched by the given selector."""

    def __init__(
        self, address: Address, selector: selectors.BaseSelector, ready: Callable[[int], None]
    ) -> None:
        self._selector, self._ready = selector, ready
        self._waits_to_write = False
        self._stream = FrameStream(begin(address))
        selector.register(self._stream.socket, selectors.EVENT_READ, ready)

    def send(self, payload: bytes) -> None:
        """Send as much as possible; ``flush`` sends the rest. Raises ``ConnectionClosed``."""
        assert not self._stream.unsent, "one request at a time"
        self._stream.queue(wire.frame(payload))
        self.flush()

    def flush(self) -> None:
        """Send the rest: call when the connection is writable. Raises ``ConnectionClosed``."""
        stream = self._stream
        stream.flush()
        if stream.closed:
            raise ConnectionClosed
        if bool(stream.unsent) is not self._waits_to_write:
            self._waits_to_write = bool(stream.unsent)
            writing = selectors.EVENT_WRITE if stream.unsent else 0
            self._selector.modify(stream.socket, selectors.EVENT_READ | writing, self._ready)

    def read(self) -> list[wire.RequestOutcome]:
        """Return the replies: call when the connection is readable.

        Raises ``InvalidReply`` for anything that is no reply, and ``ConnectionClosed``.
        """
        payloads = self._stream.read(time.monotonic())
        if self._stream.closed:
            raise ConnectionClosed
        answers = [_answer(payload) for payload in payloads]
        if self._stream.broken:
            raise InvalidReply(self._stream.broken)
        return answers

    def close(self) -> None:
        """Close our end of the connection."""
        self._selector.unregister(self._stream.socket)
        self._stream.socket.close()


def send_once(address: Address, payload: bytes) -> None:
    """Send the payload on a connection of its own, and close it; raise ``OSError``."""
    with reach(address) as connection:
        connection.sendall(wire.frame(payload))


def _answer(payload: bytes) -> wire.RequestOutcome:
    try:
        envelope = wire.parse(payload)
    except ProtocolError as error:
        raise InvalidReply(f"it sent what is no answer: {error}") from None
    if not isinstance(envelope, wire.RequestOutcome):
        raise InvalidReply("it sent what only we send")
    return envelope


# --- executor ------------------------------------------------------------------------------------
# One executor of a driver: its process and its connections, on behalf of
# ``integrations.rrq.executor_process``.
#
# Source: docs/RRQ.md, "RRQ executors".


MARK = "BW_EXECUTOR"
"""Environment variable of an executor and every process it starts: run, worker, executor name."""
CONNECT_AGAIN_SECONDS = 0.02
TERM_SECONDS = 1.0
"""Seconds that an executor has to end once asked to leave; there is no request in it."""


class DrivenExecutor:
    """One executor. Call ``ask`` and ``end``; ``answer`` is called once for each request."""

    def __init__(
        self,
        described: Described,
        settings: WorkerSettings,
        sockets: SocketFolder,
        selector: selectors.BaseSelector,
        answer: Callable[[int, ev.SlotAnswer, str], None],
    ) -> None:
        self.described = described
        self._settings = settings
        self._sockets = sockets
        self._selector = selector
        self._answer = answer
        self._core = ExecutorProcess(version_of(described))
        self._events: deque[ev.Event] = deque()
        self._draining = False
        self._process: RunningStep | None = None
        self._address: Address | None = None
        self._starts = 0
        self._lines: dict[int, ExecutorConnection] = {}
        self._payloads: dict[int, bytes] = {}
        self._queued: dict[int, None] = {}
        """Slots that could not connect yet, because too many connect at once."""
        self._connect_at = 0.0
        self._log_lines: dict[int, str] = {}
        self._look_at = 0.0
        self._mark = f"{settings.run_id}/{settings.worker_id}/{described.name}"

    @property
    def pid(self) -> int | None:
        """Process id of the executor until the process has been reaped, else None."""
        return None if self._process is None else self._process.pid

    def ask(self, slot: int, request: wire.Request, payload: bytes) -> None:
        """Send a request for a slot that has none; ``payload`` is its encoded form."""
        self._payloads[slot] = payload
        self._tell(ev.RequestArrived(slot, request))

    def end(self, slot: int, *, hard: bool) -> None:
        """Cancel the slot's request or, if ``hard``, kill the process; the answer follows."""
        self._tell(ev.EndAsked(slot, hard))

    def deadline(self) -> float | None:
        """Return when ``tick`` is due (monotonic seconds)."""
        due = self._core.deadline()
        if self._process is None:
            return due
        look_at = min(self._look_at, self._connect_at) if self._queued else self._look_at
        return look_at if due is None else min(due, look_at)

    def tick(self, now: float) -> None:
        """Do what is due; harmless before ``deadline()``."""
        self._drain(self._core.on_deadline(now))
        if self._queued and now >= self._connect_at:
            queued, self._queued = self._queued, {}
            for slot in queued:
                self._send(slot)
            self._drain()
        if self._process is not None and now >= self._look_at:
            self._process.output.look()
            self._look_at = now + self._process.output.look_seconds

    def leave(self) -> None:
        """Send TERM: no request is left in the executor. Call ``close`` afterwards."""
        if self._process is not None:
            self._process.end(hard=False)

    def close(self, until: float) -> None:
        """Wait until then for the process to end, and KILL what is left."""
        if self._process is not None:
            with selectors.DefaultSelector() as waiting:
                waiting.register(self._process.fd, selectors.EVENT_READ)
                waiting.select(max(0.0, until - time.monotonic()))
            self._process.end(hard=True)
            self._finish()

    # --- events and commands ------------------------------------------------------------------

    def _tell(self, event: ev.Event) -> None:
        self._events.append(event)
        self._drain()

    def _drain(self, commands: Sequence[ev.Command] = ()) -> None:
        if self._draining:
            return  # A caller that was answered asks for something new: that waits for its turn.
        self._draining = True
        self._carry_out(commands)
        while self._events:
            event = self._events.popleft()
            self._carry_out(self._core.handle(event, time.monotonic()))
        self._draining = False

    def _carry_out(self, commands: Sequence[ev.Command]) -> None:
        for command in commands:
            match command:
                case ev.StartProcess():
                    self._events.append(self._start())
                case ev.Probe():
                    self._events.append(ev.Probed(self._accepts()))
                case ev.SendRequest(slot):
                    self._send(slot)
                case ev.SendCancel(cancel):
                    self._cancel(cancel)
                case ev.Kill():
                    if self._process is not None:
                        self._process.end(hard=True)
                case ev.SlotAnswer(slot):
                    self._payloads.pop(slot, None)
                    self._answer(slot, command, self._log_lines.pop(slot, ""))
                case ev.ExecutorLog(text):
                    say(self._settings.worker_id, f"executor {self.described.name}: {text}")
                case _:
                    assert_never(command)

    # --- the process --------------------------------------------------------------------------

    def _start(self) -> ev.ProcessStarted | ev.ProcessNotStarted:
        self._starts += 1
        log = self._sockets.log(self.described.name)
        try:
            os.chdir(self._settings.project)
            os.close(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._address = self._new_address()
            step = self._step(self._address)
            output = AttemptOutput(Plan((), "", "", log, "", self._settings.work.log_bytes_max))
        except OSError as error:
            return ev.ProcessNotStarted(str(error), missing=False)
        try:
            self._process = launch(step, output, inherited())
        except CannotStart as error:
            works = self._sockets.works(self.described.name)
            return ev.ProcessNotStarted(str(error), error.missing and not works)
        self._look_at = time.monotonic() + output.look_seconds
        self._selector.register(self._process.fd, selectors.EVENT_READ, lambda mask: self._bury())
        return ev.ProcessStarted()

    def _new_address(self) -> Address:
        if self.described.protocol == "rrq":
            return self._sockets.unix(self.described.name, self._starts)
        return tcp()

    def _step(self, address: Address) -> Step:
        argv = self.described.argv
        added = {
            "BW_RUN_ID": self._settings.run_id,
            "BW_WORKER_ID": self._settings.worker_id,
            MARK: self._mark,
            # What an executor starts is killed with it: no shared daemon may be started there.
            "BEADS_AUTO_START_DAEMON": "false",
        }
        if isinstance(address, str):
            added[wire.SOCKET_VARIABLE] = address
        else:
            added[wire.TCP_VARIABLE] = f"{address[0]}:{address[1]}"
        if self.described.protocol == "rrq2":
            argv = (*argv, wire.TCP_OPTION, added.pop(wire.TCP_VARIABLE))
        return Step(StepKind.RUN, argv, added)

    def _bury(self) -> None:
        ended = self._finish()
        killed = f"killed by signal {ended.signal}"
        why = killed if ended.status < 0 else f"exit status {ended.status}"
        self._tell(ev.ProcessEnded(why, self._sockets.works(self.described.name)))

    def _finish(self) -> StepEnded:
        process, self._process = self._process, None
        assert process is not None
        self._selector.unregister(process.fd)
        ended = process.finish()
        for left in with_variable(f"{MARK}={self._mark}"):
            kill(left.pid, left.started, signal.SIGKILL)
        self._queued.clear()
        for slot in list(self._lines):
            self._drop(slot)
        forget(self._address)
        return ended

    # --- its connections ----------------------------------------------------------------------

    def _accepts(self) -> bool:
        assert self._address is not None
        try:
            reach(self._address).close()
        except OSError:
            return False
        with suppress(OSError):  # The disk is full: other drivers find out on their own.
            self._sockets.note_works(self.described.name)
        return True

    def _send(self, slot: int) -> None:
        assert self._address is not None
        try:
            if slot not in self._lines:
                ready = partial(self._line_ready, slot)
                self._lines[slot] = ExecutorConnection(self._address, self._selector, ready)
            self._lines[slot].send(self._payloads.pop(slot))
        except BlockingIOError:
            self._queued[slot] = None
            self._connect_at = time.monotonic() + CONNECT_AGAIN_SECONDS
        except (OSError, ConnectionClosed):
            self._drop(slot)
            self._events.append(ev.HungUp(slot))

    def _line_ready(self, slot: int, mask: int) -> None:
        line = self._lines.get(slot)
        if line is None:
            return
        try:
            line.flush()
            answers = line.read() if mask & selectors.EVENT_READ else []
        except ConnectionClosed:
            self._drop(slot)
            self._tell(ev.HungUp(slot))
            return
        except InvalidReply as error:
            self._drop(slot)
            self._tell(ev.Broken(slot, str(error)))
            return
        for answer in answers:
            self._log_lines[slot] = error_lines(answer)
            self._tell(ev.OutcomeReceived(slot, answer))
            if self._log_lines.pop(slot, None) is not None:
                self._drop(slot)  # Unrequested answer: the connection is not trusted any more.
                return

    def _cancel(self, cancel: wire.CancelRequest) -> None:
        assert self._address is not None
        try:
            send_once(self._address, wire.encode(cancel))
        except OSError as error:
            name = self.described.name
            say(self._settings.worker_id, f"executor {name}: cannot be asked to cancel: {error}")

    def _drop(self, slot: int) -> None:
        if (line := self._lines.pop(slot, None)) is not None:
            line.close()


def inherited() -> Mapping[bytes, bytes]:
    """Return our environment without the variables of another RRQ orchestrator."""
    names = (wire.SOCKET_VARIABLE.encode(), wire.TCP_VARIABLE.encode())
    return {name: value for name, value in os.environb.items() if name not in names}
