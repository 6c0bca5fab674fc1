"""Slots of a worker process, each of which is a worker to the orchestrator; and their loop."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, assert_never

from beads_workers.core.base import limits
from beads_workers.core.base.model import Outcome, kept
from beads_workers.core.base.plans import Plan, Step
from beads_workers.core.base.settings import WorkerSettings
from beads_workers.core.base.wire import Task
from beads_workers.core.workers import worker_events
from beads_workers.core.workers.worker import WorkerHalf
from beads_workers.executors.command import plan
from beads_workers.executors.files import log_file, result_file
from beads_workers.runtime import processes, sessions
from beads_workers.runtime.kernel import system
from beads_workers.runtime.output import keep_result
from beads_workers.runtime.result_spool import spool_result
from beads_workers.runtime.worker import WorkerConnection, dial_path


class Steps(Protocol):
    """Runner of a slot's steps, which reports their ends to the slot."""

    def run_step(self, slot: Slot, plan: Plan, step: Step) -> None:
        """Start this step, which is a call and not a program; report its end once with
        ``slot.tell``."""

    def end_step(self, slot: Slot, *, hard: bool) -> None:
        """End the running step; its end is reported later."""


class Slot:
    """One slot. ``number`` from 1. ``status``: its exit status; None: it goes on.

    ``touch``: called when something has happened, so that ``tick`` is called in this turn.
    """

    def __init__(
        self,
        number: int,
        settings: WorkerSettings,
        connect_delays: Sequence[float],
        selector: selectors.BaseSelector,
        steps: Steps,
        touch: Callable[[Slot], None],
    ) -> None:
        self.number = number
        self.worker_id = settings.worker_id
        self.status: int | None = None
        self.task: Task | None = None
        """The task that the slot has, or had last."""
        self._is_handling = False
        self._settings = settings
        self._steps = steps
        self._touch = touch
        self._half = WorkerHalf(
            settings.worker_id, settings.work, partial(plan, settings=settings), connect_delays
        )
        self._connection = WorkerConnection(
            partial(dial_path, settings.socket_path), settings.worker_id, selector, self._ready
        )
        self._events: deque[worker_events.Event] = deque()

    def start(self) -> None:
        """Connect; call once, before anything else."""
        self._handle_events(self._half.start())
        self._touch(self)

    def deadline(self) -> float | None:
        """Return when ``tick`` is due (monotonic seconds)."""
        return None if self.status is not None else self._half.deadline()

    def tick(self, now: float) -> None:
        """Do what is due; call at the end of a turn if it was touched, or its deadline has
        passed."""
        if self.status is None:
            self._handle_events(self._half.on_deadline(now))
            self._flush()

    def tell(self, event: worker_events.Event) -> None:
        """Handle an event of the slot's step, or of the whole process."""
        self._events.append(event)
        self._handle_events()
        self._touch(self)

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
            processes.say(self.worker_id, f"cannot write {path}: {error.strerror}")

    def kept(self, outcome: Outcome) -> Outcome:
        """Return the outcome; a result that is too long for a message is moved to a file."""
        if len(outcome.result) <= limits.RESULT_CHARS_MAX or self.task is None:
            return outcome
        path = result_file(self._settings.run_directory, self.task.issue_id, self.task.attempt)
        try:
            keep_result(path, outcome.result)
        except OSError:
            # A full disk: the beginning of the result is better than nothing.
            return replace(outcome, result=kept(json.loads(outcome.result)))
        return replace(outcome, result="", result_file=path)

    # --- inside -------------------------------------------------------------------------------

    def _ready(self, mask: int) -> None:
        self._touch(self)
        if mask & selectors.EVENT_READ and self.status is None:
            self._tell_all(self._connection.receive())
        # Data that is due is sent in ``tick``, which is called in this turn.

    def _flush(self) -> None:
        self._tell_all(self._connection.flush())

    def _tell_all(self, events: Iterator[worker_events.Event]) -> None:
        for event in events:
            self._events.append(event)
            self._handle_events()

    def _handle_events(self, commands: Sequence[worker_events.Command] = ()) -> None:
        if self._is_handling:
            # Called from within ``_carry_out``, as when ``run_step`` reports the end at once. The
            # outer loop handles the event.
            return
        self._is_handling = True
        self._carry_out(commands)
        while self._events and self.status is None:
            self._carry_out(self._half.handle(self._events.popleft(), time.monotonic()))
        self._is_handling = False

    def _carry_out(self, commands: Sequence[worker_events.Command]) -> None:
        for command in commands:
            match command:
                case worker_events.Connect():
                    self._events.append(self._connection.connect())
                case worker_events.SendMessage(message):
                    self._connection.send(message)
                case worker_events.SpoolResult(message):
                    spool_result(self._settings.run_directory, message)
                case worker_events.RunStep(of_plan, step):
                    assert self._half.current is not None
                    self.task = self._half.current.task
                    # Send the queued messages about the task before the step starts, so that the
                    # orchestrator reads them before it sees anything that the step does.
                    self._events.extend(self._connection.flush())
                    # Nothing is set up for one task alone.
                    self._events.append(worker_events.StepBegun())
                    self._steps.run_step(self, of_plan, step)
                case worker_events.EndStep(hard):
                    self._steps.end_step(self, hard=hard)
                case worker_events.TellStep() | worker_events.SuspendStep():
                    # Ignored: calls in slots ask the orchestrator nothing, and slots may share a
                    # process, so that one task cannot be suspended (SIGSTOP) alone.
                    pass
                case worker_events.Exit(status):
                    self.status = status
                    self._connection.say_goodbye()
                case worker_events.Log(text):
                    processes.say(self.worker_id, text)
                case _:
                    assert_never(command)


class Slots:
    """All slots of one process, each with a connection of its own; a free slot is READY."""

    def __init__(
        self,
        settings: WorkerSettings,
        connect_delays: Sequence[float],
        selector: selectors.BaseSelector,
        steps: Steps,
    ) -> None:
        self._slots = [
            Slot(n, of_slot(settings, n), connect_delays, selector, steps, self._touch)
            for n in range(1, settings.work.in_flight + 1)
        ]
        self._touched: set[int] = set()
        self._dues: dict[int, float] = {}
        """Deadlines of slots that have one, by number (monotonic seconds)."""
        self._leaving = False

    def __getitem__(self, number: int) -> Slot:
        """Return the slot with that number, from 1."""
        return self._slots[number - 1]

    @property
    def is_over(self) -> bool:
        """Whether all slots have ended."""
        return all(slot.status is not None for slot in self._slots)

    @property
    def status(self) -> int:
        """Exit status of the process, once all slots have ended."""
        return max(slot.status or 0 for slot in self._slots)

    def start(self) -> None:
        """Connect all slots; call once, before anything else."""
        for slot in self._slots:
            slot.start()
        self.tend(time.monotonic())

    def tend(self, now: float) -> None:
        """Do what is due; call at the end of each turn."""
        # Only touched slots: there may be hundreds, and thousands of turns.
        self._touched |= {number for number, at in self._dues.items() if at <= now}
        while self._touched:
            slot = self[self._touched.pop()]
            slot.tick(now)
            if (at := slot.deadline()) is None:
                self._dues.pop(slot.number, None)
            else:
                self._dues[slot.number] = at
        if not self._leaving and any(slot.status for slot in self._slots):
            # A process that has lost the orchestrator, or cannot reach it, cannot use its other
            # slots.
            self._leaving = True
            self.interrupt()
            self.tend(now)

    def deadline(self) -> float | None:
        """Return when ``tend`` is due (monotonic seconds)."""
        return min(self._dues.values(), default=None)

    def interrupt(self) -> None:
        """Tell all slots that the process is asked to end."""
        for slot in self._slots:
            slot.tell(worker_events.Interrupted())

    def _touch(self, slot: Slot) -> None:
        self._touched.add(slot.number)


class SlotsProcess:
    """A worker process with slots: one loop over their connections, the work of a subclass, and
    signals. Methods that do nothing here are for subclasses."""

    def __init__(self, settings: WorkerSettings, connect_delays: Sequence[float]) -> None:
        self.settings = settings
        self.selector = selectors.DefaultSelector()
        self.slots = Slots(settings, connect_delays, self.selector, self)

    def run_step(self, slot: Slot, plan: Plan, step: Step) -> None:
        """See ``Steps``."""
        raise NotImplementedError

    def end_step(self, slot: Slot, *, hard: bool) -> None:
        """See ``Steps``."""
        raise NotImplementedError

    def begin(self, wake: socket.socket) -> None:
        """Prepare before any slot connects; ``wake`` can be read when a signal has come."""

    def deadlines(self) -> Iterable[float | None]:
        """Return when ``tick`` is due (monotonic seconds); None: never."""
        return ()

    def tick(self, now: float) -> None:
        """Do what is due in each turn, before the slots do."""

    def flush(self) -> None:
        """Do what is due at the end of each turn."""

    def pids(self) -> list[int]:
        """Return the pids of children that the subclass reaps itself."""
        return []

    def child_ended(self) -> None:
        """Check whether one of these children has ended."""

    def leave(self) -> None:
        """Clean up: no slot is left."""

    def run(self) -> int:
        """Run until told to leave; return the exit status."""
        wake = processes.wake_on((*processes.ASK_TO_END, signal.SIGCHLD))
        self.selector.register(
            wake,
            selectors.EVENT_READ,
            lambda mask: self._signalled(processes.received_signals(wake)),
        )
        self.begin(wake)
        self.slots.start()
        while not self.slots.is_over:
            dues = [*self.deadlines(), self.slots.deadline()]
            for key, mask in self.selector.select(patience(dues)):
                # A connection that was closed in this turn reads nothing.
                key.data(mask)
            now = time.monotonic()
            self.tick(now)
            self.slots.tend(now)
            self.flush()
        self.leave()
        sessions.end(())
        return self.slots.status

    def _signalled(self, numbers: bytes) -> None:
        if signal.SIGCHLD in numbers:
            sessions.reap(self.pids())
            self.child_ended()
        if any(number in numbers for number in processes.ASK_TO_END):
            self.slots.interrupt()


def own_process(settings: WorkerSettings, make: Callable[[], SlotsProcess]) -> int:
    """Run a worker with slots until told to leave; return the exit status, as ``run_worker`` does.

    Call it only in a process that does nothing else. It changes the working folder, adopts and
    reaps orphans, and kills all children that are left at the end.
    """
    try:
        os.makedirs(f"{settings.run_directory}/logs", 0o700, exist_ok=True)  # noqa: PTH103
        os.chdir(settings.project)
        process = make()
    except OSError as error:
        what = error.filename or "a descriptor"
        processes.say(settings.worker_id, f"cannot use {what}: {error.strerror}")
        return 1
    processes.keep_from_tasks()
    # Each slot needs descriptors for two connections (RRQ), or for one and perhaps a process of its
    # own (functions).
    processes.raise_file_limit()
    system.adopt()
    return process.run()


def patience(dues: Iterable[float | None]) -> float | None:
    """Return how many seconds a process may wait for events, with these deadlines; None: for
    ever."""
    due = min((at for at in dues if at is not None), default=None)
    if due is None:
        return None
    return min(max(0.0, due - time.monotonic()), limits.WAIT_AT_ONCE_SECONDS_MAX)


def of_slot(settings: WorkerSettings, number: int) -> WorkerSettings:
    """Return the settings of one slot: the first slot has the name of the process itself."""
    if number == 1:
        return settings
    return replace(settings, worker_id=f"{settings.worker_id}.{number}")
