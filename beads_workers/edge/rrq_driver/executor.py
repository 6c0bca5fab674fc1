"""One executor of a driver: its process and its connections, as ``executors.rrq.driving`` asks.

Source: docs/PROTOCOL.md, "RRQ executors".
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import assert_never

from beads_workers.core.plans import Plan, Step, StepKind
from beads_workers.core.settings import Executor as Described
from beads_workers.core.settings import WorkerSettings
from beads_workers.core.worker_events import StepEnded
from beads_workers.edge.outputs import Output
from beads_workers.edge.own_process import say
from beads_workers.edge.rrq_driver import places
from beads_workers.edge.rrq_driver.line import HungUp, Line, NoAnswer, send_once
from beads_workers.edge.sessions import kill, with_variable
from beads_workers.edge.steps import CannotStart, RunningStep, launch
from beads_workers.executors.rrq import driving_events as ev
from beads_workers.executors.rrq.driving import Executor
from beads_workers.executors.rrq.requesting import error_lines, version_of
from beads_workers.protocols.rrq import SOCKET_VARIABLE, TCP_OPTION, TCP_VARIABLE
from beads_workers.protocols.rrq import envelopes as wire

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
        sockets: places.SocketFolder,
        selector: selectors.BaseSelector,
        answer: Callable[[int, ev.Answer, str], None],
    ) -> None:
        self.described = described
        self._settings = settings
        self._sockets = sockets
        self._selector = selector
        self._answer = answer
        self._core = Executor(version_of(described))
        self._events: deque[ev.Event] = deque()
        self._draining = False
        self._process: RunningStep | None = None
        self._address: places.Address | None = None
        self._starts = 0
        self._lines: dict[int, Line] = {}
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
        self._tell(ev.Asked(slot, request))

    def end(self, slot: int, *, hard: bool) -> None:
        """Cancel what the slot has, or, ``hard``, end the process; the answer follows."""
        self._tell(ev.EndAsked(slot, hard))

    def deadline(self) -> float | None:
        """When ``tend`` is due (monotonic seconds)."""
        due = self._core.deadline()
        if self._process is None:
            return due
        look_at = min(self._look_at, self._connect_at) if self._queued else self._look_at
        return look_at if due is None else min(due, look_at)

    def tend(self, now: float) -> None:
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
                case ev.Send(slot):
                    self._send(slot)
                case ev.SendCancel(cancel):
                    self._cancel(cancel)
                case ev.Kill():
                    if self._process is not None:
                        self._process.end(hard=True)
                case ev.Answer(slot):
                    self._payloads.pop(slot, None)
                    self._answer(slot, command, self._said.pop(slot, ""))
                case ev.Log(text):
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
            output = Output(Plan((), "", "", log, "", self._settings.work.log_bytes_max))
        except OSError as error:
            return ev.ProcessNotStarted(str(error), missing=False)
        try:
            self._process = launch(step, output, inherited())
        except CannotStart as error:
            return ev.ProcessNotStarted(str(error), error.missing)
        self._look_at = time.monotonic() + output.look_seconds
        self._selector.register(self._process.fd, selectors.EVENT_READ, lambda mask: self._bury())
        return ev.ProcessStarted()

    def _new_address(self) -> places.Address:
        if self.described.protocol == "rrq":
            return self._sockets.unix(self.described.name, self._starts)
        return places.tcp()

    def _step(self, address: places.Address) -> Step:
        argv = self.described.argv
        added = {
            "BW_RUN_ID": self._settings.run_id,
            "BW_WORKER_ID": self._settings.worker_id,
            MARK: self._mark,
            # What an executor starts ends with it: a daemon for everybody must not be born there.
            "BEADS_AUTO_START_DAEMON": "false",
        }
        if isinstance(address, str):
            added[SOCKET_VARIABLE] = address
        else:
            added[TCP_VARIABLE] = f"{address[0]}:{address[1]}"
        if self.described.protocol == "rrq2":
            argv = (*argv, TCP_OPTION, added.pop(TCP_VARIABLE))
        return Step(StepKind.RUN, argv, added)

    def _bury(self) -> None:
        ended = self._finish()
        killed = f"killed by signal {ended.signal}"
        self._tell(ev.ProcessEnded(killed if ended.status < 0 else f"exit status {ended.status}"))

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
        places.forget(self._address)
        return ended

    # --- its connections ----------------------------------------------------------------------

    def _accepts(self) -> bool:
        assert self._address is not None
        try:
            places.reach(self._address).close()
        except OSError:
            return False
        return True

    def _send(self, slot: int) -> None:
        assert self._address is not None
        try:
            if slot not in self._lines:
                ready = partial(self._line_ready, slot)
                self._lines[slot] = Line(self._address, self._selector, ready)
            self._lines[slot].send(self._payloads.pop(slot))
        except BlockingIOError:
            self._queued[slot] = None
            self._connect_at = time.monotonic() + CONNECT_AGAIN_SECONDS
        except (OSError, HungUp):
            self._drop(slot)
            self._events.append(ev.HungUp(slot))

    def _line_ready(self, slot: int, mask: int) -> None:
        line = self._lines.get(slot)
        if line is None:
            return
        try:
            line.flush()
            answers = line.read() if mask & selectors.EVENT_READ else []
        except HungUp:
            self._drop(slot)
            self._tell(ev.HungUp(slot))
            return
        except NoAnswer as error:
            self._drop(slot)
            self._tell(ev.Broken(slot, str(error)))
            return
        for answer in answers:
            self._said[slot] = error_lines(answer)
            self._tell(ev.Heard(slot, answer))
            if self._said.pop(slot, None) is not None:
                self._drop(slot)  # Nobody had asked for that: it has no right to say more.
                return

    def _cancel(self, cancel: wire.Cancel) -> None:
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
    names = (SOCKET_VARIABLE.encode(), TCP_VARIABLE.encode())
    return {name: value for name, value in os.environb.items() if name not in names}
