"""Slots of a worker process, each to the orchestrator a worker like any other; and their loop."""

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

from beads_workers.core import limits, worker_events
from beads_workers.core.model import Outcome, kept
from beads_workers.core.plans import Plan, Step
from beads_workers.core.settings import WorkerSettings
from beads_workers.core.wire import Task
from beads_workers.core.worker import WorkerHalf
from beads_workers.executors.command import plan
from beads_workers.executors.files import log_file, result_file
from beads_workers.runtime import processes, sessions
from beads_workers.runtime.output import keep_result
from beads_workers.runtime.result_spool import spool_result
from beads_workers.runtime.worker import WorkerConnection, dial_path


class Steps(Protocol):
    """Who runs the slot's steps, and tells it of their ends."""

    def run_step(self, slot: Slot, plan: Plan, step: Step) -> None:
        """Start the step that is a call; ``slot.tell`` its end, once."""

    def end_step(self, slot: Slot, *, hard: bool) -> None:
        """End what runs; its end follows."""


class Slot:
    """``number`` from 1. ``status``: the exit status that it would have; None: it goes on.

    ``touch``: told that something has happened, so that ``tick`` is called in this turn.
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
        """The one that it has, or had last."""
        self._draining = False
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
        """Connect; once, before anything else."""
        self._drain(self._half.start())
        self._touch(self)

    def deadline(self) -> float | None:
        """When ``tick`` is due (monotonic seconds)."""
        return None if self.status is not None else self._half.deadline()

    def tick(self, now: float) -> None:
        """Call at the end of a turn in which it was touched, or its deadline has passed."""
        if self.status is None:
            self._drain(self._half.on_deadline(now))
            self._flush()

    def tell(self, event: worker_events.Event) -> None:
        """Something happened to its step, or to the whole process."""
        self._events.append(event)
        self._drain()
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
        self._touch(self)
        if mask & selectors.EVENT_READ and self.status is None:
            self._tell_all(self._connection.receive())
        # What is due goes out in ``tick``, which is called in every turn.

    def _flush(self) -> None:
        self._tell_all(self._connection.flush())

    def _tell_all(self, events: Iterator[worker_events.Event]) -> None:
        for event in events:
            self._events.append(event)
            self._drain()

    def _drain(self, commands: Sequence[worker_events.Command] = ()) -> None:
        if self._draining:
            return  # A step that ended at its start: its end waits for its turn.
        self._draining = True
        self._carry_out(commands)
        while self._events and self.status is None:
            self._carry_out(self._half.handle(self._events.popleft(), time.monotonic()))
        self._draining = False

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
                    # What is to be read first leaves first: what was said of the task before this.
                    self._events.extend(self._connection.flush())
                    self._events.append(
                        worker_events.StepBegun()
                    )  # Nothing is set up for one task alone.
                    self._steps.run_step(self, of_plan, step)
                case worker_events.EndStep(hard):
                    self._steps.end_step(self, hard=hard)
                case worker_events.TellStep() | worker_events.SuspendStep():
                    pass  # Nothing here asks anything, and none can be stopped for one task.
                case worker_events.Exit(status):
                    self.status = status
                    self._connection.say_goodbye()
                case worker_events.Log(text):
                    processes.say(self.worker_id, text)
                case _:
                    assert_never(command)


class Slots:
    """All slots of one process, each with a connection of its own; a free one is READY."""

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
        """Of slots that wait for a time."""
        self._leaving = False

    def __getitem__(self, number: int) -> Slot:
        """The one with that number, from 1."""
        return self._slots[number - 1]

    @property
    def is_over(self) -> bool:
        """Whether all of them have ended."""
        return all(slot.status is not None for slot in self._slots)

    @property
    def status(self) -> int:
        """The exit status of the process, once they have ended."""
        return max(slot.status or 0 for slot in self._slots)

    def start(self) -> None:
        """Connect them; once, before anything else."""
        for slot in self._slots:
            slot.start()
        self.tend(time.monotonic())

    def tend(self, now: float) -> None:
        """Call at the end of each turn."""
        # Only those that something happened to: there may be hundreds, and thousands of turns.
        self._touched |= {number for number, at in self._dues.items() if at <= now}
        while self._touched:
            slot = self[self._touched.pop()]
            slot.tick(now)
            if (at := slot.deadline()) is None:
                self._dues.pop(slot.number, None)
            else:
                self._dues[slot.number] = at
        if not self._leaving and any(slot.status for slot in self._slots):
            # Who has lost the orchestrator, or cannot reach it, is of no use with its other slots.
            self._leaving = True
            self.interrupt()
            self.tend(now)

    def deadline(self) -> float | None:
        """When ``tend`` is due (monotonic seconds)."""
        return min(self._dues.values(), default=None)

    def interrupt(self) -> None:
        """The process is asked to end."""
        for slot in self._slots:
            slot.tell(worker_events.Interrupted())

    def _touch(self, slot: Slot) -> None:
        self._touched.add(slot.number)


class SlotsProcess:
    """A worker process with slots: one loop over their connections, whatever does their work, and
    signals. What does nothing here is for its kinds."""

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
        """Before any slot connects; ``wake`` can be read when a signal has come."""

    def deadlines(self) -> Iterable[float | None]:
        """When ``tick`` is due (monotonic seconds)."""
        return ()

    def tick(self, now: float) -> None:
        """In each turn, before the slots have theirs."""

    def flush(self) -> None:
        """At the end of each turn."""

    def pids(self) -> list[int]:
        """Processes of its own, which it reaps itself."""
        return []

    def child_ended(self) -> None:
        """One of them has, maybe."""

    def leave(self) -> None:
        """No slot is left."""

    def run(self) -> int:
        """Until told to leave; returns the exit status."""
        wake = processes.wake_on((*processes.ASK_TO_END, signal.SIGCHLD))
        self.selector.register(
            wake, selectors.EVENT_READ, lambda mask: self._signalled(processes.heard(wake))
        )
        self.begin(wake)
        self.slots.start()
        while not self.slots.is_over:
            dues = [*self.deadlines(), self.slots.deadline()]
            for key, mask in self.selector.select(patience(dues)):
                # Who was closed in this turn looks for nothing, and finds nothing.
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
    """Be a worker with slots until told to leave; returns the exit status, as ``run_worker``.

    The process must be able to call this its own. It leaves nothing running of what it started.
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
    processes.raise_file_limit()  # Two connections for each slot; or one, and maybe a process.
    sessions.adopt()
    return process.run()


def patience(dues: Iterable[float | None]) -> float | None:
    """How long a process may wait for what it watches, with these deadlines."""
    due = min((at for at in dues if at is not None), default=None)
    if due is None:
        return None
    return min(max(0.0, due - time.monotonic()), limits.WAIT_AT_ONCE_SECONDS_MAX)


def of_slot(settings: WorkerSettings, number: int) -> WorkerSettings:
    """The settings of one slot: the first has the name of the process itself."""
    if number == 1:
        return settings
    return replace(settings, worker_id=f"{settings.worker_id}.{number}")
