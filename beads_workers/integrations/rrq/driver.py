"""The driver: a worker process with several slots, whose work is done by executors."""

from __future__ import annotations

import os
import selectors
import signal
import time
import uuid
from collections.abc import Sequence

from beads_workers.core import limits
from beads_workers.core.plans import Plan, Step
from beads_workers.core.settings import WorkerSettings
from beads_workers.core.worker_events import Event, StepAnswered, StepNotStarted
from beads_workers.integrations.rrq import executor_process as ev
from beads_workers.integrations.rrq import wire
from beads_workers.integrations.rrq.executor import TERM_SECONDS, DrivenExecutor, SocketFolder
from beads_workers.integrations.rrq.requests import find, route, to_request
from beads_workers.integrations.rrq.wire import FRAME_BYTES_MAX
from beads_workers.runtime import sessions
from beads_workers.runtime.processes import (
    ASK_TO_END,
    heard,
    keep_from_tasks,
    raise_file_limit,
    say,
    wake_on,
)
from beads_workers.runtime.slots import Slot, Slots, patience

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
        self._slots = Slots(settings, connect_delays, self._selector, self)
        self._at: dict[int, DrivenExecutor] = {}
        """Whose request each slot has."""
        self._prefix, self._asked = str(uuid.uuid4())[:-12], 0
        """Of request ids: their last twelve digits are counted up, and each is a UUID, too."""

    def run(self) -> int:
        wake = wake_on((*ASK_TO_END, signal.SIGCHLD))
        self._selector.register(
            wake, selectors.EVENT_READ, lambda mask: self._signalled(heard(wake))
        )
        self._slots.start()
        while not self._slots.is_over:
            dues = [each.deadline() for each in self._executors.values()]
            for key, mask in self._selector.select(patience([*dues, self._slots.deadline()])):
                # Who was closed in this turn looks for nothing, and finds nothing.
                key.data(mask)
            now = time.monotonic()
            for executor in self._executors.values():
                executor.tick(now)
            self._slots.tend(now)
        self._end_executors()
        sessions.end(())
        return self._slots.status

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
        slot = self._slots[number]
        slot.log(said)
        event: Event = StepAnswered(slot.kept(answer.outcome))
        if answer.unusable:
            event = StepNotStarted(answer.outcome.error, missing=True)
        slot.tell(event)

    # --- inside -------------------------------------------------------------------------------

    def _signalled(self, numbers: bytes) -> None:
        if signal.SIGCHLD in numbers:
            sessions.reap([each.pid for each in self._executors.values() if each.pid is not None])
        if any(number in numbers for number in ASK_TO_END):
            self._slots.interrupt()

    def _end_executors(self) -> None:
        for executor in self._executors.values():
            executor.leave()
        until = time.monotonic() + TERM_SECONDS
        for executor in self._executors.values():
            executor.close(until)


def _payload(request: wire.Request) -> bytes:
    payload = wire.encode(request)
    if len(payload) > FRAME_BYTES_MAX:
        raise ValueError(f"{len(payload)} bytes; {FRAME_BYTES_MAX} are allowed")
    return payload
