"""The worker process: carries out the commands of ``core.workers.worker``, and decides nothing."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import assert_never

from beads_workers.core.base import framing, limits, wire
from beads_workers.core.base.plans import Plan, Step
from beads_workers.core.base.settings import WorkerSettings
from beads_workers.core.workers import worker_events
from beads_workers.core.workers.worker import WorkerHalf, last_line
from beads_workers.executors.command import functions_environment, plan
from beads_workers.runtime import processes, sessions
from beads_workers.runtime.functions import CallStep, Functions
from beads_workers.runtime.kernel import system
from beads_workers.runtime.result_spool import spool_result
from beads_workers.runtime.sessions import sweep
from beads_workers.runtime.steps import CannotStart, RunningStep, start_step

# --- payloads ------------------------------------------------------------------------------------
# Payloads that are too large for a line, read from the file that the TASK names.


def with_payload(task: wire.Task) -> wire.Task:
    """Read a large payload from its file, and delete the file: it may hold secrets, and each
    attempt gets its own. If the file cannot be read, the task keeps its name."""
    if task.payload_file is None:
        return task
    try:
        with open(task.payload_file, "rb") as file:
            payload = framing.parse_object(file.read())
    except (OSError, ValueError, framing.ProtocolError):
        return task
    try:
        os.unlink(task.payload_file)  # noqa: PTH108 - no Path here
    except OSError:
        pass  # A folder that cannot be written: the file goes with the run.
    return replace(task, payload=payload, payload_file=None)


# --- worker connection ---------------------------------------------------------------------------
# A worker's connection to its orchestrator: lines in and out, never waiting for the other side.


CONNECT_SECONDS = 5.0
"""Seconds that a connection may take while the listener's queue is full; then the try has
failed."""

FLUSH_SECONDS = 2.0
"""Seconds that a last message may take to leave; a slower reader counts as gone."""


Dial = Callable[[], socket.socket]
"""Function that connects to the orchestrator; raises ``OSError`` with a text that names the
address."""


def dial_path(path: str) -> socket.socket:
    """Connect to the socket at ``path``; takes ``CONNECT_SECONDS`` at most.

    Raises ``OSError``, also if the server is another user's: anybody can name a socket after a pid,
    and a task says what is to be run.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(CONNECT_SECONDS)
    try:
        connection.connect(path)
    except OSError as error:
        connection.close()
        raise OSError(f"{path}: {error.strerror or error}") from None
    _, uid = system.peer_of(connection)
    if uid != os.geteuid():
        connection.close()
        raise OSError(f"{path}: its server is another user's (uid {uid})")
    return connection


class WorkerConnection:
    """A worker's connection, watched in ``selector``; there is none until ``connect`` returns
    ``OrchestratorConnected``.

    ``ready``: the data of the selector's key.
    """

    def __init__(
        self,
        dial: Dial,
        worker_id: str,
        selector: selectors.BaseSelector,
        ready: Callable[[int], None] | None = None,
    ) -> None:
        self._dial = dial
        self._worker_id = worker_id
        self._selector, self._ready = selector, ready
        self._socket: socket.socket | None = None
        self._reader = framing.LineReader()
        self._outbox = bytearray()
        self._waits_to_write = False
        self._bad_lines = 0

    def fileno(self) -> int:
        """Return the descriptor; -1 while there is no connection."""
        return -1 if self._socket is None else self._socket.fileno()

    def connect(self) -> worker_events.Event:
        """Connect; return ``OrchestratorConnected`` or ``ConnectFailed``."""
        try:
            connection = self._dial()
        except OSError as error:
            return worker_events.ConnectFailed(str(error))
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ, self._ready)
        self._socket = connection
        return worker_events.OrchestratorConnected()

    def receive(self) -> Iterator[worker_events.Event]:
        """Yield each message as ``MessageReceived``, then maybe the loss of the connection. Call
        when it is readable."""
        if self._socket is None:
            return
        try:
            received = self._socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        framed = self._reader.feed(received) if received else self._reader.end()
        for item in framed:
            if (message := self._read(item)) is not None and self._socket is not None:
                yield worker_events.MessageReceived(message)
        if not received:
            yield from self._hang_up()

    def send(self, message: wire.FromWorker | wire.ControlAsked, *, v1: bool = False) -> None:
        """Queue a message for the next ``flush``; without a connection, the message is lost."""
        if self._socket is not None:
            self._outbox += wire.encode(message, self._worker_id, time.time(), v1=v1)

    def flush(self) -> Iterator[worker_events.Event]:
        """Write what is due, as far as the other side takes it; close the connection to a peer that
        never reads."""
        if self._socket is None or not self._outbox:
            return
        try:
            del self._outbox[: self._socket.send(self._outbox)]
        except OSError as error:
            if error.errno not in processes.SEND_LATER:
                # The connection is over, except for unread data: a SHUTDOWN may be waiting there.
                self._outbox.clear()
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_WR)
        if len(self._outbox) > limits.OUTBOX_BYTES_MAX:
            yield from self._hang_up()
            return
        if bool(self._outbox) is not self._waits_to_write:
            self._waits_to_write = bool(self._outbox)
            writing = selectors.EVENT_WRITE if self._outbox else 0
            self._selector.modify(self._socket, selectors.EVENT_READ | writing, self._ready)

    def say_goodbye(self) -> None:
        """Write what is due, waiting a little, and close the connection."""
        if self._socket is None:
            return
        self._socket.settimeout(FLUSH_SECONDS)
        try:
            self._socket.sendall(self._outbox)
        except OSError:
            pass
        self._socket.close()

    def _hang_up(self) -> Iterator[worker_events.Event]:
        if self._socket is None:
            return
        self._selector.unregister(self._socket)
        self._socket.close()
        self._socket = None
        yield worker_events.ConnectionLost()

    def _read(self, framed: framing.Framed) -> wire.ToWorker | wire.ControlReply | None:
        match framed:
            case framing.TooLong(head) | framing.Torn(head):
                trouble, raw = "a line that is too long or torn", head
            case framing.Line(raw):
                try:
                    message = wire.parse(raw)
                except framing.ProtocolError as error:
                    trouble = str(error)
                else:
                    if isinstance(message, wire.Task):
                        return with_payload(message)
                    if isinstance(message, wire.Batch):
                        return wire.Batch(tuple(map(with_payload, message.tasks)))
                    if isinstance(message, wire.ToWorker | wire.ControlReply):
                        return message
                    trouble = "a message that only workers send"
            case _:
                assert_never(framed)
        self._bad_lines += 1
        if self._bad_lines <= limits.BAD_LINES_MAX:
            shown = raw[: limits.LOGGED_BYTES_MAX]
            processes.say(self._worker_id, f"ignored {trouble}: {shown!r}")
        return None


# --- worker --------------------------------------------------------------------------------------
# The worker process: carries out the commands of ``core.workers.worker``, and decides nothing.
#
# One loop over the socket, the running step's pidfd, and signals. It stays small: the zygote forks
# it by the hundred, so nothing heavy is imported here.


SPARES = 3
"""Descriptors that reading or killing a process needs at once, at most."""


def run_worker(
    settings: WorkerSettings,
    connect_delays: Sequence[float] = limits.CONNECT_DELAYS_SECONDS,
    dial: Dial | None = None,
) -> int:
    """Run a worker until told to leave; return the exit status.

    ``dial`` connects to the orchestrator in some other way than by its socket's path.

    0 after SHUTDOWN or a signal, 1 if the orchestrator could not be reached or was lost. The
    process must be able to call this its own: it changes folder and signal handlers, and becomes a
    subreaper. No process that it started is left running.
    """
    try:
        for name in ("logs", "issues"):
            os.makedirs(f"{settings.run_directory}/{name}", 0o700, exist_ok=True)  # noqa: PTH103
        os.chdir(settings.project)
    except OSError as error:
        processes.say(settings.worker_id, f"cannot use {error.filename}: {error.strerror}")
        return 1
    processes.keep_from_tasks()
    system.adopt()
    hidden = processes.NOT_FOR_WORKTREES if settings.work.worktrees is not None else ()
    for name in hidden:
        os.environ.pop(name, None)
    processes.hide(settings.secrets)
    half = WorkerHalf(
        settings.worker_id, settings.work, partial(plan, settings=settings), connect_delays
    )
    # One of its three descriptors changes with each step: ``poll`` needs no system call for that.
    selector = selectors.PollSelector()
    dial = dial or partial(dial_path, settings.socket_path)
    connection = WorkerConnection(dial, settings.worker_id, selector)
    events: deque[worker_events.Event] = deque()
    functions = Functions(
        settings.work.allow_modules,
        lambda name, data: events.append(worker_events.StepSaid(wire.ControlAsked(name, data))),
        lambda: events.append(worker_events.StepBegun()),
    )
    process = _Process(settings, half, selector, connection, functions, events)
    for name in settings.work.hidden_variables:
        process.inherited.pop(name.encode(), None)
    return process.run()


@dataclass(slots=True)
class _Process:
    settings: WorkerSettings
    half: WorkerHalf
    selector: selectors.BaseSelector
    connection: WorkerConnection
    functions: Functions
    events: deque[worker_events.Event]
    step: RunningStep | CallStep | None = None
    status: int | None = None
    inherited: dict[bytes, bytes] = field(default_factory=lambda: dict(os.environb))
    spares: processes.Spares = field(default_factory=lambda: processes.Spares(SPARES))
    watched: int = -1
    """Descriptor of the process for functions; -1: there is none."""
    captured: int = -1
    """Descriptor of a captured step's pipe, while somebody may still write to it; -1: none."""
    look_at: float = 0.0
    """When to look at the output of the running step (monotonic seconds)."""
    unsaid: worker_events.SendMessage | None = None
    """READY, held back while the process for functions gets ready; sent at ``say_at`` in any
    case."""
    say_at: float = 0.0

    def run(self) -> int:
        wake = processes.wake_on((*processes.ASK_TO_END, signal.SIGCHLD))
        self.selector.register(wake, selectors.EVENT_READ)
        self._start_functions_ahead()
        self._carry_out(self.half.start())
        self._drain()
        self._tell_all(self.connection.flush())
        while self.status is None:
            # The step goes first: work that is done before SHUTDOWN is read is still DONE.
            ready = {key.fd for key, _ in self.selector.select(self._patience())}
            called = isinstance(self.step, CallStep)
            if self.watched in ready and not called:
                self.functions.on_input()
                self._watch_functions()
            self._listen(ready)
            if over := self.step is not None and self.step.fd in ready:
                self._bury()
            if (over and not called) or wake.fileno() in ready:
                # The end of a step comes with a SIGCHLD: handle both in one turn.
                self._signalled(processes.received_signals(wake))
            if self.connection.fileno() in ready:
                self._tell_all(self.connection.receive())
            self._look_at_output(time.monotonic())
            if self.unsaid is not None:
                self._say_ready()
            if self.status is None:
                self._carry_out(self.half.on_deadline(time.monotonic()))
                self._drain()
                self._tell_all(self.connection.flush())
        self.connection.say_goodbye()
        self.functions.retire()
        self.spares.do(lambda: sessions.end(()))
        return self.status

    def _patience(self) -> float | None:
        deadline = self.half.deadline()
        if self.unsaid is not None:
            deadline = self.say_at if deadline is None else min(deadline, self.say_at)
        if self.step is not None:
            deadline = self.look_at if deadline is None else min(deadline, self.look_at)
        if deadline is None:
            return None
        return min(max(0.0, deadline - time.monotonic()), limits.WAIT_AT_ONCE_SECONDS_MAX)

    def _look_at_output(self, now: float) -> None:
        if self.step is not None and now >= self.look_at:
            with suppress(OSError):  # A failing disk: the task goes on, and so do we.
                self.step.output.look()
            self.look_at = time.monotonic() + self.step.output.look_seconds
            if isinstance(self.step, RunningStep) and self.step.is_attempt:
                return  # It reports its progress itself.
            if line := last_line(self.step.output.news()):
                self.events.append(worker_events.StepSaid(wire.Progress.read(line)))

    # --- events and commands ------------------------------------------------------------------

    def _tell(self, event: worker_events.Event) -> None:
        self.events.append(event)
        self._drain()

    def _tell_all(self, events: Iterator[worker_events.Event]) -> None:
        for event in events:
            self._tell(event)

    def _drain(self) -> None:
        while self.events and self.status is None:
            self._carry_out(self.half.handle(self.events.popleft(), time.monotonic()))

    def _carry_out(self, commands: list[worker_events.Command]) -> None:
        for command in commands:
            match command:
                case worker_events.Connect():
                    self.unsaid = None
                    self.events.append(self.connection.connect())
                case worker_events.SendMessage(wire.Ready()) if self.functions.is_cold:
                    self.unsaid, self.say_at = command, time.monotonic() + limits.WARM_SECONDS
                case worker_events.SendMessage(wire.Status() as status):
                    self.connection.send(replace(status, resources=self._resources()))
                case worker_events.SendMessage(message, v1):
                    self.connection.send(message, v1=v1)
                case worker_events.SpoolResult(message):
                    spool_result(self.settings.run_directory, message)
                case worker_events.TellStep(reply):
                    if isinstance(self.step, CallStep):
                        self.step.tell(reply)
                case worker_events.RunStep(of_plan, step):
                    # Send the queued messages about the task before the step starts, so that the
                    # orchestrator reads them before it sees anything that the step does.
                    self.events.extend(self.connection.flush())
                    self._start(of_plan, step)
                case worker_events.EndStep(hard, ask):
                    if isinstance(self.step, CallStep):
                        self.step.end(hard=hard, ask=ask)
                    elif self.step is not None:
                        self.step.end(hard=hard)
                case worker_events.SuspendStep(on):
                    if isinstance(self.step, RunningStep):
                        self.step.suspend(on=on)
                case worker_events.Exit(status):
                    self.status = status
                case worker_events.Log(text):
                    processes.say(self.settings.worker_id, text)
                case _:
                    assert_never(command)

    def _say_ready(self) -> None:
        """Send READY if the process for functions is warm: READY means that the next task begins at
        once."""
        assert self.unsaid is not None
        if not self.functions.is_cold or time.monotonic() >= self.say_at:
            self.connection.send(self.unsaid.message, v1=self.unsaid.v1)
            self.unsaid = None

    def _resources(self) -> wire.Resources:
        """Return the resources of this process, and of the running step with the children it has
        reaped."""
        pids = (os.getpid(), *([self.step.pid] if isinstance(self.step, RunningStep) else []))
        found = [stat for pid in pids if (stat := system.stat_of(pid)) is not None]
        seconds = sum(stat.cpu_seconds + stat.reaped_seconds for stat in found)
        return wire.Resources(sum(stat.resident_bytes for stat in found), round(seconds, 2))

    def _start(self, of_plan: Plan, step: Step) -> None:
        try:
            if step.call is None or self.functions.fd < 0:
                # Each time anew: the folder may have been deleted and created again.
                os.chdir(self.settings.project)
        except OSError as error:
            text = f"cannot use {error.filename}: {error.strerror}"
            self.events.append(worker_events.StepNotStarted(text, degraded=True))
            return
        try:
            if step.call is not None:
                self.step = self.functions.start(of_plan, step, self.inherited)
            else:
                self.functions.let_go()
                self.step = start_step(of_plan, step, self.inherited)
        except CannotStart as error:
            self.events.append(
                worker_events.StepNotStarted(str(error), error.missing, error.degraded)
            )
        else:
            self.look_at = time.monotonic() + self.step.output.look_seconds
            if isinstance(self.step, RunningStep):
                self.selector.register(self.step.fd, selectors.EVENT_READ)
                if self.step.captured is not None:
                    self.captured = self.step.captured.fd
                    self.selector.register(self.captured, selectors.EVENT_READ)
        # Its process stays watched from call to call.
        self._watch_functions()

    def _start_functions_ahead(self) -> None:
        ahead = self.settings.work.functions_ahead
        if not ahead or self.functions.fd >= 0:
            return
        try:
            os.chdir(self.settings.project)
            self.functions.start_ahead(functions_environment(self.settings), self.inherited, ahead)
        except OSError:
            pass  # The next call reports the error.
        self._watch_functions()

    def _listen(self, ready: Collection[int]) -> None:
        """Read the running step's pipe, if it has one: its result, or its progress."""
        if self.captured not in ready:
            return
        assert isinstance(self.step, RunningStep) and self.step.captured is not None
        captured = self.step.captured
        if not captured.pump():
            self._deafen()
        if (news := captured.progress()) is not None:
            self.events.append(worker_events.StepSaid(wire.Progress.of_attempt(news)))

    def _deafen(self) -> None:
        if self.captured >= 0:
            self.selector.unregister(self.captured)
            self.captured = -1

    def _watch_functions(self) -> None:
        fd = self.functions.fd
        if fd == self.watched:
            return
        if self.watched >= 0:
            self.selector.unregister(self.watched)
        if fd >= 0:
            self.selector.register(fd, selectors.EVENT_READ)
        self.watched = fd

    def _signalled(self, numbers: bytes) -> None:
        if signal.SIGCHLD in numbers:
            running = (self.step.pid,) if isinstance(self.step, RunningStep) else ()
            keep = (*running, *self.functions.pids())
            self.spares.do(lambda: sessions.reap(keep))
            if isinstance(self.step, CallStep):
                self._bury()  # A child that it has left may keep its connection open.
        if any(number in numbers for number in processes.ASK_TO_END):
            self._tell(worker_events.Interrupted())

    def _bury(self) -> None:
        step = self.step
        assert step is not None
        self._deafen()
        if (ended := step.finish()) is None:
            self._drain()  # Its request.
            return
        self.step = None
        if isinstance(step, RunningStep):
            self.selector.unregister(step.fd)
        if step.ended_by_us or (isinstance(step, RunningStep) and step.is_attempt):
            # The next holder of the issue must not meet a tool that the agent had detached.
            self.functions.close()
            self.spares.do(lambda: sessions.end(()))
            self.spares.do(lambda: sweep(self.settings.run_id, self.settings.worker_id))
        self._watch_functions()
        if isinstance(step, CallStep):
            self._start_functions_ahead()
        answer = step.answer if isinstance(step, RunningStep) else None
        self._tell(answer or ended)
