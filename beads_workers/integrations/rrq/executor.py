"""One executor of a driver: its process and its connections, as ``driving`` asks."""

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

from beads_workers.core.framing import ProtocolError
from beads_workers.core.plans import Plan, Step, StepKind
from beads_workers.core.settings import Executor as Described
from beads_workers.core.settings import WorkerSettings
from beads_workers.core.worker_events import StepEnded
from beads_workers.integrations.rrq import executor_process as ev
from beads_workers.integrations.rrq import wire
from beads_workers.integrations.rrq.executor_process import ExecutorProcess
from beads_workers.integrations.rrq.ingress import FrameStream
from beads_workers.integrations.rrq.requests import error_lines, version_of
from beads_workers.runtime.output import AttemptOutput
from beads_workers.runtime.processes import say
from beads_workers.runtime.sessions import kill, with_variable
from beads_workers.runtime.steps import CannotStart, RunningStep, launch

# --- places --------------------------------------------------------------------------------------
# Where an executor is to listen: a Unix socket below the run, or a port of this machine.


UNIX_PATH_BYTES_MAX = 107
"""What the kernel's address of a Unix socket holds, without the zero behind it."""
LOOPBACK = "127.0.0.1"
REACH_SECONDS = 1.0
"""Connecting takes microseconds here, but for a process whose queue is full."""

Address = str | tuple[str, int]
"""A path, or a host and a port."""


class SocketFolder:
    """Nobody else may reach into it. It is the run's, and goes with that, whoever is killed."""

    def __init__(self, run_directory: str, worker_id: str) -> None:
        self._prefix = worker_id
        self._folder = f"{run_directory}/executors"
        os.makedirs(self._folder, 0o700, exist_ok=True)  # noqa: PTH103
        self._opened = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def unix(self, name: str, number: int) -> str:
        """A path that is short enough, and holds while this process lives; nothing is there."""
        path = self._path(self._folder, name, number)
        if len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX:
            # The same folder by another name, which is short however far down it lies.
            path = self._path(f"/proc/{os.getpid()}/fd/{self._opened}", name, number)
        if len(os.fsencode(path)) > UNIX_PATH_BYTES_MAX:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
        _remove(path)
        return path

    def log(self, name: str) -> str:
        """Where what the executor prints is kept."""
        return f"{self._folder}/{name}.{self._prefix}.log"

    def note_works(self, name: str) -> None:
        """A process of this executor accepts connections. Raises ``OSError``."""
        os.close(os.open(self._works(name), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def works(self, name: str) -> bool:
        """Whether one ever did in this run, at whatever driver: that it does not start is no fault
        of its description then."""
        return os.path.exists(self._works(name))  # noqa: PTH110

    def close(self) -> None:
        """It is not needed any more."""
        os.close(self._opened)

    def _works(self, name: str) -> str:
        return f"{self._folder}/{name}.works"

    def _path(self, folder: str, name: str, number: int) -> str:
        return f"{folder}/{name}.{self._prefix}.{number}.sock"


def tcp() -> tuple[str, int]:
    """A loopback port that is free now; who takes it meanwhile has the executor end, and start
    anew."""
    with socket.socket() as found:
        found.bind((LOOPBACK, 0))
        return LOOPBACK, int(found.getsockname()[1])


def reach(address: Address) -> socket.socket:
    """A connection; raises ``OSError``. Takes ``REACH_SECONDS`` at most."""
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
    """A connection that does not block; over TCP one that may still have to come to stand.

    Raises ``BlockingIOError`` where so many connect at once that another one has to come back, and
    ``OSError``.
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
    """What a dead executor has left of its address."""
    if isinstance(address, str):
        _remove(address)


def _remove(path: str) -> None:
    try:
        os.unlink(path)  # noqa: PTH108
    except OSError:
        pass


# --- line ----------------------------------------------------------------------------------------
# One slot's connection to an executor: frames out, frames in, and never more than one of each.


class InvalidReply(Exception):
    """What came is none, and nothing more can; ``str()`` says why."""


class ConnectionClosed(Exception):
    """The executor has closed the connection, maybe because it died."""


class ExecutorConnection:
    """It connects at once, and is watched by the selector that it is given."""

    def __init__(
        self, address: Address, selector: selectors.BaseSelector, ready: Callable[[int], None]
    ) -> None:
        self._selector, self._ready = selector, ready
        self._waits_to_write = False
        self._stream = FrameStream(begin(address))
        selector.register(self._stream.socket, selectors.EVENT_READ, ready)

    def send(self, payload: bytes) -> None:
        """Send what fits; ``flush`` sends the rest. Raises ``ConnectionClosed``."""
        assert not self._stream.unsent, "one request at a time"
        self._stream.queue(wire.frame(payload))
        self.flush()

    def flush(self) -> None:
        """Call when it can be written to. Raises ``ConnectionClosed``."""
        stream = self._stream
        stream.flush()
        if stream.closed:
            raise ConnectionClosed
        if bool(stream.unsent) is not self._waits_to_write:
            self._waits_to_write = bool(stream.unsent)
            writing = selectors.EVENT_WRITE if stream.unsent else 0
            self._selector.modify(stream.socket, selectors.EVENT_READ | writing, self._ready)

    def read(self) -> list[wire.RequestOutcome]:
        """Call when it can be read. Raises ``InvalidReply`` for what is none, and
        ``ConnectionClosed``."""
        payloads = self._stream.read(time.monotonic())
        if self._stream.closed:
            raise ConnectionClosed
        answers = [_answer(payload) for payload in payloads]
        if self._stream.broken:
            raise InvalidReply(self._stream.broken)
        return answers

    def close(self) -> None:
        """It is over, for us at least."""
        self._selector.unregister(self._stream.socket)
        self._stream.socket.close()


def send_once(address: Address, payload: bytes) -> None:
    """On a connection of its own, which is closed again; raises ``OSError``."""
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
# One executor of a driver: its process and its connections, as
# ``integrations.rrq.executor_process`` asks.
#
# Source: docs/RRQ.md, "RRQ executors".


MARK = "BW_EXECUTOR"
"""In the environment of an executor, and of all that it starts: which one of which worker."""
CONNECT_AGAIN_SECONDS = 0.02
TERM_SECONDS = 1.0
"""What one that is asked to leave has for that; there is no request in it."""


class DrivenExecutor:
    """Tell ``ask`` and ``end``; ``answer`` is called once for each that was asked."""

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
        """Slots that could not connect yet: so many others do."""
        self._connect_at = 0.0
        self._said: dict[int, str] = {}
        self._look_at = 0.0
        self._mark = f"{settings.run_id}/{settings.worker_id}/{described.name}"

    @property
    def pid(self) -> int | None:
        """Of its process, while that is not buried."""
        return None if self._process is None else self._process.pid

    def ask(self, slot: int, request: wire.Request, payload: bytes) -> None:
        """Have it executed, ``payload`` is how it is sent; the slot has nothing else under way."""
        self._payloads[slot] = payload
        self._tell(ev.RequestArrived(slot, request))

    def end(self, slot: int, *, hard: bool) -> None:
        """Cancel what the slot has, or, ``hard``, end the process; the answer follows."""
        self._tell(ev.EndAsked(slot, hard))

    def deadline(self) -> float | None:
        """When ``tick`` is due (monotonic seconds)."""
        due = self._core.deadline()
        if self._process is None:
            return due
        look_at = min(self._look_at, self._connect_at) if self._queued else self._look_at
        return look_at if due is None else min(due, look_at)

    def tick(self, now: float) -> None:
        """Call when ``deadline()`` has passed; harmless when it has not."""
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
        """TERM: there is nothing left for it to do; ``close`` follows."""
        if self._process is not None:
            self._process.end(hard=False)

    def close(self, until: float) -> None:
        """Wait for its end until then, and KILL what is left."""
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
            return  # Whoever was answered asks for something: that waits for its turn.
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
                    self._answer(slot, command, self._said.pop(slot, ""))
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
            # What an executor starts ends with it: a daemon for everybody must not be born there.
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
        with suppress(OSError):  # A disk that is full: others learn it by themselves.
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
            self._said[slot] = error_lines(answer)
            self._tell(ev.Heard(slot, answer))
            if self._said.pop(slot, None) is not None:
                self._drop(slot)  # Nobody had asked for that: it has no right to say more.
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
    """Our own environment, but for what another orchestrator of RRQ may have put there."""
    names = (wire.SOCKET_VARIABLE.encode(), wire.TCP_VARIABLE.encode())
    return {name: value for name, value in os.environb.items() if name not in names}
