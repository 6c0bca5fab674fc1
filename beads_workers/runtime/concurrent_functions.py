"""Worker with several slots that call functions.

Functions that are declared concurrent share one process; each other call has its slot's process.

Source: docs/SEMANTICS.md, "Concurrent functions".
"""

from __future__ import annotations

import os
import select
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

from beads_workers.core.base import limits
from beads_workers.core.base.framing import Line, LineReader, ProtocolError
from beads_workers.core.base.model import OutcomeKind
from beads_workers.core.base.plans import Plan, Step
from beads_workers.core.base.settings import Ahead, WorkerSettings
from beads_workers.core.workers.worker_events import StepAnswered, StepNotStarted
from beads_workers.executors.command import functions_environment
from beads_workers.runtime.functions import (
    ANSWER_BYTES_MAX,
    CallAnswer,
    CallStep,
    Functions,
    HostExited,
    HostProcess,
    cancel_line,
    concurrent_call_line,
    parse_concurrent_answer,
)
from beads_workers.runtime.processes import (
    say,
)
from beads_workers.runtime.sessions import sweep
from beads_workers.runtime.slots import Slot, SlotsProcess, of_slot, own_process
from beads_workers.runtime.steps import MACHINE_ERRORS, CannotStart, encoded, step_ended

HOST_MODULE = "beads_workers.runtime.concurrent_host"

OF_A_CALL = (
    *("BW_ISSUE_ID", "BW_ISSUE_TITLE", "BW_ISSUE_PRIORITY", "BW_ATTEMPT", "BW_PROGRESS"),
    *("BW_WORKER_ID", "BW_RUN_ID", "BW_SOCKET", "TRACEPARENT", "TRACESTATE"),
)
"""Variables of an attempt's environment that a call in the shared process is told."""

RECEIVE_BYTES = 1 << 18

SUSPECTS_MAX = 1000
"""Number of suspected issues. More are forgotten, oldest first: their calls share a process
again."""


class NotCalled(Enum):
    """Reason why a call has no answer and is to be made in a process of its own."""

    UNDECLARED = "its function is not declared concurrent"
    ENDED = "the process that it shared has ended, maybe because of another call"


@dataclass(frozen=True, slots=True)
class Flight:
    """A call that the shared process has. ``slot``: the slot that runs it; ``plan``: its task's
    plan."""

    slot: Slot
    plan: Plan
    step: Step


# --- shared process ------------------------------------------------------------------------------


class SharedProcess:
    """The process in which calls run together: started when it is first needed, and after its end.

    ``answered`` is called once for each call: with the answer, with ``HostExited`` if the process
    ended because of this call, or with ``NotCalled``.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        inherited: Mapping[bytes, bytes],
        selector: selectors.BaseSelector,
        answered: Callable[[Flight, CallAnswer | HostExited | NotCalled], None],
    ) -> None:
        # A name of its own, so that no sweep for a slot's processes finds it.
        named = replace(settings, worker_id=f"{settings.worker_id}.0")
        self._environment = {**inherited, **encoded(functions_environment(named))}
        self._settings = settings
        self._selector = selector
        self._answered = answered
        self._host: HostProcess | None = None
        self._reader = LineReader(ANSWER_BYTES_MAX)
        self._flights: dict[int, Flight] = {}
        self._numbers: dict[int, int] = {}
        self._outbox = bytearray()
        self._waits_to_write = False
        self._number = 0
        self._guilty = 0
        """Number of the call because of which the process was killed; 0: none."""

    @property
    def pid(self) -> int | None:
        """Pid of the process; None: there is none."""
        return None if self._host is None else self._host.pid

    def start(self) -> None:
        """Start the process and have it get ready; raises ``OSError``."""
        os.chdir(self._settings.project)
        self._host = HostProcess(self._settings.work.allow_modules, self._environment, HOST_MODULE)
        self._host.set_up({}, Ahead.MODULES)
        self._reader = LineReader(ANSWER_BYTES_MAX)
        self._selector.register(self._host.socket, selectors.EVENT_READ, self._ready)

    def wait_warm(self, wake: socket.socket, seconds: float) -> None:
        """Wait until the process is ready or has ended, a signal has come, or the time is over."""
        if self._host is not None:
            select.select([self._host.socket, wake], (), (), seconds)
            self._host.warms()

    def call(self, slot: Slot, plan: Plan, step: Step) -> None:
        """Have the function called. Raises ``OSError`` if there is no process, ``ValueError`` if
        the arguments are too long."""
        assert step.call is not None
        if self._host is None:
            self.start()
        known = step.environment
        variables = {name: known[name] for name in OF_A_CALL if name in known}
        self._number += 1
        self._outbox += concurrent_call_line(self._number, step.call, variables, plan)
        self._flights[self._number] = Flight(slot, plan, step)
        self._numbers[slot.number] = self._number

    def end(self, slot: Slot, *, hard: bool) -> bool:
        """Cancel the slot's call, or, if ``hard``, kill the process. Return False if there is no
        call."""
        number = self._numbers.get(slot.number, 0)
        if number not in self._flights:
            return False
        if not hard:
            self._outbox += cancel_line(number)
        elif self._host is not None:
            self._guilty = number
            self._host.end(hard=True)
        return True

    def flush(self) -> None:
        """Send what is due; call at the end of each turn."""
        if self._host is None or not (self._outbox or self._waits_to_write):
            return
        try:
            del self._outbox[: self._host.socket.send(self._outbox)]
        except BlockingIOError:
            pass
        except OSError:
            self._outbox.clear()  # It has ended, as the next read reports.
        if bool(self._outbox) is not self._waits_to_write:
            self._waits_to_write = bool(self._outbox)
            writing = selectors.EVENT_WRITE if self._outbox else 0
            events = selectors.EVENT_READ | writing
            self._selector.modify(self._host.socket, events, self._ready)

    def look(self) -> None:
        """Check after the end of a child: a process left behind may keep the connection open."""
        if self._host is not None and self._host.is_dead():
            self._ended()

    def close(self) -> None:
        """Kill the process: it is no longer needed."""
        if self._host is not None:
            self._host.close()

    def _ready(self, mask: int) -> None:
        host = self._host
        if host is None or not mask & selectors.EVENT_READ:
            return
        try:
            received = host.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        try:
            for framed in self._reader.feed(received):
                if not isinstance(framed, Line):
                    raise ProtocolError("too long for an answer")
                self._take(*parse_concurrent_answer(framed.text))
        except ProtocolError as error:
            say(self._settings.worker_id, f"the shared process said what is no answer: {error}")
            received = b""
        if not received:
            self._ended()

    def _take(self, number: int, answer: CallAnswer | None) -> None:
        if (flight := self._flights.pop(number, None)) is None:
            raise ProtocolError("an answer to no call")
        self._answered(flight, NotCalled.UNDECLARED if answer is None else answer)

    def _ended(self) -> None:
        assert self._host is not None
        host, self._host = self._host, None
        self._selector.unregister(host.socket)
        ended = host.bury()
        dead, self._flights = self._flights, {}
        guilty, self._guilty = self._guilty, 0
        self._outbox.clear()
        self._waits_to_write = False
        why = step_ended(ended.status, "")
        text = f"signal {why.signal}" if why.signal else f"exit status {why.status}"
        say(self._settings.worker_id, f"the shared process ended with {len(dead)} calls: {text}")
        for number, flight in dead.items():
            alone = len(dead) == 1 or number == guilty
            self._answered(flight, ended if alone else NotCalled.ENDED)


# --- worker --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Isolated:
    """A slot's own process: one call at a time, as in a worker without slots."""

    slot: Slot
    functions: Functions
    step: CallStep | None = None
    watched: int = -1
    look_at: float = 0.0


def run_concurrent(
    settings: WorkerSettings, connect_delays: Sequence[float] = limits.CONNECT_DELAYS_SECONDS
) -> int:
    """Run a worker with slots that call functions; return the exit status, as ``run_worker``
    does."""
    return own_process(settings, lambda: _Worker(settings, connect_delays))


class _Worker(SlotsProcess):
    def __init__(self, settings: WorkerSettings, connect_delays: Sequence[float]) -> None:
        super().__init__(settings, connect_delays)
        self._inherited = dict(os.environb)
        for name in settings.work.hidden_variables:
            self._inherited.pop(name.encode(), None)
        self._shared = SharedProcess(settings, self._inherited, self.selector, self._answered)
        self._isolated: dict[int, Isolated] = {}
        self._undeclared: set[str] = set()
        """Paths of functions that are not declared concurrent: each call needs the slot's
        process."""
        self._suspects: dict[str, None] = {}
        """Issues whose calls died with the shared process and have had no answer since."""
        self._ending: set[int] = set()
        """Slots whose call is being ended."""

    def begin(self, wake: socket.socket) -> None:
        """Start the shared process and wait until it is ready: no slot says READY before, so that
        no task waits for the process."""
        try:
            self._shared.start()
            self._shared.wait_warm(wake, limits.WARM_SECONDS)
        except OSError:
            pass  # The next call reports the error.

    def deadlines(self) -> Iterable[float | None]:
        """Return when the output of each running call is to be checked (monotonic seconds)."""
        return [each.look_at for each in self._isolated.values() if each.step is not None]

    def tick(self, now: float) -> None:
        """Check the output of each running call if that is due."""
        for each in self._isolated.values():
            self._look_at_output(each, now)

    def flush(self) -> None:
        """Send what is due to the shared process."""
        self._shared.flush()

    def leave(self) -> None:
        """End the shared process and those of the slots."""
        self._shared.close()
        for each in self._isolated.values():
            each.functions.retire()

    def pids(self) -> list[int]:
        """Return the pids of the shared process and of the slots' processes."""
        own = [pid for each in self._isolated.values() for pid in each.functions.pids()]
        return [*own, *([self._shared.pid] if self._shared.pid else [])]

    def child_ended(self) -> None:
        """Read what has come of the calls: a process has ended."""
        self._shared.look()
        for each in list(self._isolated.values()):
            if each.step is not None:
                self._read(each)

    # --- what a slot asks for -----------------------------------------------------------------

    def run_step(self, slot: Slot, plan: Plan, step: Step) -> None:
        """See ``slots.Steps``."""
        assert step.call is not None and slot.task is not None
        self._ending.discard(slot.number)
        alone = step.call.path in self._undeclared or slot.task.issue_id in self._suspects
        if alone or plan.log_copy or plan.secrets:
            self._isolate(slot, plan, step)
            return
        try:
            self._shared.call(slot, plan, step)
        except (OSError, ValueError) as error:
            degraded = isinstance(error, OSError) and error.errno in MACHINE_ERRORS
            slot.tell(StepNotStarted(f"cannot call {step.name}: {error}", degraded=degraded))

    def end_step(self, slot: Slot, *, hard: bool) -> None:
        """See ``slots.Steps``."""
        self._ending.add(slot.number)
        if self._shared.end(slot, hard=hard):
            return
        isolated = self._isolated.get(slot.number)
        if isolated is not None and isolated.step is not None:
            isolated.step.end(hard=hard)

    # --- the shared process -------------------------------------------------------------------

    def _answered(self, flight: Flight, answer: CallAnswer | HostExited | NotCalled) -> None:
        slot, plan, step = flight.slot, flight.plan, flight.step
        assert step.call is not None and slot.task is not None
        match answer:
            case CallAnswer(outcome, in_file):
                if in_file:
                    outcome = replace(outcome, result_file=plan.result_file)
                slot.tell(StepAnswered(outcome))
            case HostExited(status):
                self._suspect(slot.task.issue_id)
                slot.tell(step_ended(status, ""))
            case NotCalled() if slot.number in self._ending:
                slot.tell(step_ended(-signal.SIGKILL, ""))
            case NotCalled.UNDECLARED:
                self._undeclared.add(step.call.path)
                self._isolate(slot, plan, step)
            case NotCalled.ENDED:
                self._suspect(slot.task.issue_id)
                slot.log(f"{answer.value}: called again, in a process of its own\n")
                self._isolate(slot, plan, step)
            case _:
                assert_never(answer)

    def _suspect(self, issue_id: str) -> None:
        self._suspects[issue_id] = None
        if len(self._suspects) > SUSPECTS_MAX:
            del self._suspects[next(iter(self._suspects))]

    # --- slots' own processes -----------------------------------------------------------------

    def _isolate(self, slot: Slot, plan: Plan, step: Step) -> None:
        isolated = self._isolated.get(slot.number)
        if isolated is None:
            functions = Functions(
                self.settings.work.allow_modules, lambda name, data: None, lambda: None
            )
            isolated = self._isolated[slot.number] = Isolated(slot, functions)
        try:
            os.chdir(self.settings.project)
            isolated.step = isolated.functions.start(plan, step, self._inherited)
        except OSError as error:
            text = f"cannot use {error.filename}: {error.strerror}"
            slot.tell(StepNotStarted(text, degraded=True))
        except CannotStart as error:
            slot.tell(StepNotStarted(str(error), error.missing, error.degraded))
        else:
            isolated.look_at = time.monotonic() + isolated.step.output.look_seconds
        self._watch(isolated)

    def _watch(self, isolated: Isolated) -> None:
        fd = isolated.functions.fd
        if fd == isolated.watched:
            return
        if isolated.watched >= 0:
            self.selector.unregister(isolated.watched)
        if fd >= 0:
            self.selector.register(fd, selectors.EVENT_READ, lambda mask: self._read(isolated))
        isolated.watched = fd

    def _read(self, isolated: Isolated) -> None:
        if (step := isolated.step) is None:
            # The process speaks, or ends, while it has no call.
            isolated.functions.close()
            self._watch(isolated)
            return
        if (ended := step.finish()) is None:
            return
        isolated.step = None
        if step.ended_by_us:
            isolated.functions.close()
            sweep(self.settings.run_id, of_slot(self.settings, isolated.slot.number).worker_id)
        self._watch(isolated)
        slot = isolated.slot
        answered = isinstance(ended, StepAnswered) and ended.outcome.kind is not OutcomeKind.TIMEOUT
        if answered and slot.task is not None:
            self._suspects.pop(slot.task.issue_id, None)
        slot.tell(ended)

    def _look_at_output(self, isolated: Isolated, now: float) -> None:
        if isolated.step is not None and now >= isolated.look_at:
            output = isolated.step.output
            try:
                output.look()
            except OSError:
                pass  # A failing disk: the task goes on, and so do we.
            isolated.look_at = now + output.look_seconds
