"""One slot of a driver: to the orchestrator a worker like any other."""

from __future__ import annotations

import json
import os
import selectors
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, assert_never

from beads_workers.core import limits
from beads_workers.core.message_types import Task
from beads_workers.core.outcomes import Outcome, kept
from beads_workers.core.plans import Plan, Step
from beads_workers.core.settings import WorkerSettings
from beads_workers.core.worker import WorkerHalf
from beads_workers.core.worker_events import (
    Command,
    Connect,
    EndStep,
    Event,
    Exit,
    LeaveWord,
    Log,
    RunStep,
    Send,
    TellStep,
)
from beads_workers.edge.last_words import leave_word
from beads_workers.edge.own_process import say
from beads_workers.edge.spoken import keep_result
from beads_workers.edge.worker_connection import WorkerConnection, dial_path
from beads_workers.executors.files import log_file, result_file
from beads_workers.executors.plans import plan


class Steps(Protocol):
    """Who runs the slot's steps, and tells it of their ends."""

    def run_step(self, slot: Slot, plan: Plan, step: Step) -> None:
        """Start the step that is a call; ``slot.tell`` its end, once."""

    def end_step(self, slot: Slot, *, hard: bool) -> None:
        """End what runs; its end follows."""

    def touch(self, slot: Slot) -> None:
        """Something happened: call ``tend`` in this turn."""


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
        """When ``tend`` is due (monotonic seconds)."""
        return None if self.status is not None else self._half.deadline()

    def tend(self, now: float) -> None:
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
        # What is due goes out in ``tend``, which is called in every turn.

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
                case Send(message):
                    self._connection.send(message)
                case LeaveWord(message):
                    leave_word(self._settings.run_directory, message)
                case RunStep(of_plan, step):
                    assert self._half.current is not None
                    self.task = self._half.current.task
                    # What is to be read first leaves first: what was said of the task before this.
                    self._events.extend(self._connection.flush())
                    self._steps.run_step(self, of_plan, step)
                case EndStep(hard):
                    self._steps.end_step(self, hard=hard)
                case TellStep():
                    pass  # No executor of RRQ asks anything.
                case Exit(status):
                    self.status = status
                    self._connection.say_goodbye()
                case Log(text):
                    say(self.worker_id, text)
                case _:
                    assert_never(command)
