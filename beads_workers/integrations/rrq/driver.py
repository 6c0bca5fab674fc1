"""The driver: a worker process with several slots, whose work is done by executors."""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, assert_never

from beads_workers.core import limits
from beads_workers.core.model import Outcome, kept
from beads_workers.core.plans import Plan, Step
from beads_workers.core.settings import WorkerSettings
from beads_workers.core.wire import Task
from beads_workers.core.worker import WorkerHalf
from beads_workers.core.worker_events import (
    Command,
    Connect,
    EndStep,
    Event,
    Exit,
    Interrupted,
    Log,
    RunStep,
    SendMessage,
    SpoolResult,
    StepAnswered,
    StepBegun,
    StepNotStarted,
    SuspendStep,
    TellStep,
)
from beads_workers.executors.command import plan
from beads_workers.executors.files import log_file, result_file
from beads_workers.integrations.rrq import executor_process as ev
from beads_workers.integrations.rrq import wire
from beads_workers.integrations.rrq.executor import TERM_SECONDS, DrivenExecutor, SocketFolder
from beads_workers.integrations.rrq.requests import find, route, to_request
from beads_workers.integrations.rrq.wire import FRAME_BYTES_MAX
from beads_workers.runtime import sessions
from beads_workers.runtime.output import keep_result
from beads_workers.runtime.processes import (
    ASK_TO_END,
    heard,
    keep_from_tasks,
    raise_file_limit,
    say,
    wake_on,
)
from beads_workers.runtime.result_spool import spool_result
from beads_workers.runtime.worker import WorkerConnection, dial_path

# --- slot ----------------------------------------------------------------------------------------
# One slot of a driver: to the orchestrator a worker like any other.


class Steps(Protocol):
    """Who runs the slot's steps, and tells it of their ends."""

    def run_step(self, slot: Slot, plan: Plan, step: Step) -> None:
        """Start the step that is a call; ``slot.tell`` its end, once."""

    def end_step(self, slot: Slot, *, hard: bool) -> None:
        """End what runs; its end follows."""

    def touch(self, slot: Slot) -> None:
        """Something happened: call ``tick`` in this turn."""


class Slot:
    """``number`` from 1. ``status``: the exit status that it would have; None: it goes on."""

    def __init__(
        self,
        number: int,
        settings: WorkerSettings,
        connect_delays: Sequence[float],
        selector: selectors.BaseSelector,
        steps: Steps,
    ) -> None:
        self.number = number
        self.worker_id = settings.worker_id
        self.status: int | None = None
        self.task: Task | None = None
        """The one that it has, or had last."""
        self._draining = False
        self._settings = settings
        self._steps = steps
        self._half = WorkerHalf(
            settings.worker_id, settings.work, partial(plan, settings=settings), connect_delays
        )
        self._connection = WorkerConnection(
            partial(dial_path, settings.socket_path), settings.worker_id, selector, self._ready
        )
        self._events: deque[Event] = deque()

    def start(self) -> None:
        """Connect; once, before anything else."""
        self._drain(self._half.start())
        self._steps.touch(self)

    def deadline(self) -> float | None:
        """When ``tick`` is due (monotonic seconds)."""
        return None if self.status is not None else self._half.deadline()

    def tick(self, now: float) -> None:
        """Call at the end of a turn in which it was touched, or its deadline has passed."""
        if self.status is None:
            self._drain(self._half.on_deadline(now))
            self._flush()

    def tell(self, event: Event) -> None:
        """Something happened to its step, or to the whole process."""
        self._events.append(event)
        self._drain()
        self._steps.touch(self)

    def log(self, text: str) -> None:
        """Add to the log of the attempt."""
        if not text or self.task is None:
            return
        path = log_file(self._settings.run_directory, self.task.issue_id, self.task.attempt)
        try:
            with open(path, "a", encoding="utf-8", errors="backslashreplace") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(text)
        except OSError as error:
            say(self.worker_id, f"cannot write {path}: {error.strerror}")

    def kept(self, outcome: Outcome) -> Outcome:
        """The same, with a result that is too long for a message in a file."""
        if len(outcome.result) <= limits.RESULT_CHARS_MAX or self.task is None:
            return outcome
        path = result_file(self._settings.run_directory, self.task.issue_id, self.task.attempt)
        try:
            keep_result(path, outcome.result)
        except OSError:
            # A machine that is full: the beginning of it is better than nothing.
            return replace(outcome, result=kept(json.loads(outcome.result)))
        return replace(outcome, result="", result_file=path)

    # --- inside -------------------------------------------------------------------------------

    def _ready(self, mask: int) -> None:
        self._steps.touch(self)
        if mask & selectors.EVENT_READ and self.status is None:
            self._tell_all(self._connection.receive())
        # What is due goes out in ``tick``, which is called in every turn.

    def _flush(self) -> None:
        self._tell_all(self._connection.flush())

    def _tell_all(self, events: Iterator[Event]) -> None:
        for event in events:
            self._events.append(event)
            self._drain()

    def _drain(self, commands: Sequence[Command] = ()) -> None:
        if self._draining:
            return  # A step that ended at its start: its end waits for its turn.
        self._draining = True
        self._carry_out(commands)
        while self._events and self.status is None:
            self._carry_out(self._half.handle(self._events.popleft(), time.monotonic()))
        self._draining = False

    def _carry_out(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Connect():
                    self._events.append(self._connection.connect())
                case SendMessage(message):
                    self._connection.send(message)
                case SpoolResult(message):
                    spool_result(self._settings.run_directory, message)
                case RunStep(of_plan, step):
                    assert self._half.current is not None
                    self.task = self._half.current.task
                    # What is to be read first leaves first: what was said of the task before this.
                    self._events.extend(self._connection.flush())
                    self._events.append(StepBegun())  # Executors are up, or no task of theirs runs.
                    self._steps.run_step(self, of_plan, step)
                case EndStep(hard):
                    self._steps.end_step(self, hard=hard)
                case TellStep() | SuspendStep():
                    pass  # No executor of RRQ asks anything, and none can be stopped for one job.
                case Exit(status):
                    self.status = status
                    self._connection.say_goodbye()
                case Log(text):
                    say(self.worker_id, text)
                case _:
                    assert_never(command)


# --- driver --------------------------------------------------------------------------------------
# To the orchestrator each slot is a worker, with a connection of its own; a free slot is READY. One
# loop over all connections, the executors' processes, and signals.


def run_driver(
    settings: WorkerSettings, connect_delays: Sequence[float] = limits.CONNECT_DELAYS_SECONDS
) -> int:
    """Be a worker with slots until told to leave; returns the exit status, as ``run_worker``.

    The process must be able to call this its own. It leaves nothing running of what it started.
    """
    try:
        os.makedirs(f"{settings.run_directory}/logs", 0o700, exist_ok=True)  # noqa: PTH103
        sockets = SocketFolder(settings.run_directory, settings.worker_id)
        os.chdir(settings.project)
    except OSError as error:
        say(settings.worker_id, f"cannot use {error.filename}: {error.strerror}")
        return 1
    keep_from_tasks()
    raise_file_limit()  # Two connections for each slot; executors may have as many as we.
    sessions.adopt()
    try:
        return _Driver(settings, sockets, connect_delays).run()
    finally:
        sockets.close()


class _Driver:
    def __init__(
        self, settings: WorkerSettings, sockets: SocketFolder, connect_delays: Sequence[float]
    ) -> None:
        self._selector = selectors.DefaultSelector()
        self._executors = {
            each.name: DrivenExecutor(each, settings, sockets, self._selector, self._answered)
            for each in settings.work.executors
        }
        self._described = settings.work.executors
        self._slots = [
            Slot(number, _of_slot(settings, number), connect_delays, self._selector, self)
            for number in range(1, settings.work.in_flight + 1)
        ]
        self._at: dict[int, DrivenExecutor] = {}
        """Whose request each slot has."""
        self._prefix, self._asked = str(uuid.uuid4())[:-12], 0
        """Of request ids: their last twelve digits are counted up, and each is a UUID, too."""
        self._touched: set[int] = set()
        self._dues: dict[int, float] = {}
        """Of slots that wait for a time."""
        self._leaving = False

    def run(self) -> int:
        wake = wake_on((*ASK_TO_END, signal.SIGCHLD))
        self._selector.register(
            wake, selectors.EVENT_READ, lambda mask: self._signalled(heard(wake))
        )
        for slot in self._slots:
            slot.start()
        self._tend_slots(time.monotonic())
        while any(slot.status is None for slot in self._slots):
            for key, mask in self._selector.select(self._patience()):
                # Who was closed in this turn looks for nothing, and finds nothing.
                key.data(mask)
            now = time.monotonic()
            for executor in self._executors.values():
                executor.tick(now)
            self._tend_slots(now)
            self._leave_together()
        self._end_executors()
        sessions.end(())
        return max(slot.status or 0 for slot in self._slots)

    # --- what a slot asks for -----------------------------------------------------------------

    def run_step(self, slot: Slot, plan: Plan, step: Step) -> None:
        """See ``Slot``."""
        assert step.call is not None and slot.task is not None
        name, _ = route(step.call.path)
        described = find(name, self._described)
        assert described is not None, "the plan has seen to that"
        self._asked += 1
        request_id = f"{self._prefix}{self._asked:012x}"
        request = to_request(
            slot.task, step.call, described, request_id, slot.worker_id, time.time()
        )
        try:
            payload = _payload(request)
        except ValueError as error:
            slot.tell(StepNotStarted(f"the arguments cannot be sent: {error}"))
            return
        self._at[slot.number] = executor = self._executors[described.name]
        executor.ask(slot.number, request, payload)

    def end_step(self, slot: Slot, *, hard: bool) -> None:
        """See ``Slot``."""
        if (executor := self._at.get(slot.number)) is not None:
            executor.end(slot.number, hard=hard)

    def _answered(self, number: int, answer: ev.SlotAnswer, said: str) -> None:
        del self._at[number]
        slot = self._slots[number - 1]
        slot.log(said)
        event: Event = StepAnswered(slot.kept(answer.outcome))
        if answer.unusable:
            event = StepNotStarted(answer.outcome.error, missing=True)
        slot.tell(event)

    # --- inside -------------------------------------------------------------------------------

    def _tend_slots(self, now: float) -> None:
        # Only those that something happened to: there may be hundreds, and thousands of turns.
        self._touched |= {number for number, at in self._dues.items() if at <= now}
        while self._touched:
            slot = self._slots[self._touched.pop() - 1]
            slot.tick(now)
            if (at := slot.deadline()) is None:
                self._dues.pop(slot.number, None)
            else:
                self._dues[slot.number] = at

    def touch(self, slot: Slot) -> None:
        """See ``Slot``."""
        self._touched.add(slot.number)

    def _patience(self) -> float | None:
        dues = [each.deadline() for each in self._executors.values()]
        dues.append(min(self._dues.values(), default=None))
        due = min((at for at in dues if at is not None), default=None)
        if due is None:
            return None
        return min(max(0.0, due - time.monotonic()), limits.WAIT_AT_ONCE_SECONDS_MAX)

    def _leave_together(self) -> None:
        """Who has lost the orchestrator, or cannot reach it, is of no use with its other slots."""
        if not self._leaving and any(slot.status for slot in self._slots):
            self._leaving = True
            self._interrupt()

    def _interrupt(self) -> None:
        for slot in self._slots:
            slot.tell(Interrupted())

    def _signalled(self, numbers: bytes) -> None:
        if signal.SIGCHLD in numbers:
            sessions.reap([each.pid for each in self._executors.values() if each.pid is not None])
        if any(number in numbers for number in ASK_TO_END):
            self._interrupt()

    def _end_executors(self) -> None:
        for executor in self._executors.values():
            executor.leave()
        until = time.monotonic() + TERM_SECONDS
        for executor in self._executors.values():
            executor.close(until)


def _of_slot(settings: WorkerSettings, number: int) -> WorkerSettings:
    if number == 1:
        return settings
    return replace(settings, worker_id=f"{settings.worker_id}.{number}")


def _payload(request: wire.Request) -> bytes:
    payload = wire.encode(request)
    if len(payload) > FRAME_BYTES_MAX:
        raise ValueError(f"{len(payload)} bytes; {FRAME_BYTES_MAX} are allowed")
    return payload
