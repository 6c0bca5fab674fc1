"""The driver: a worker process with several slots, whose work is done by executors."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence

from beads_workers.core.base import limits
from beads_workers.core.base.plans import Plan, Step
from beads_workers.core.base.settings import WorkerSettings
from beads_workers.core.workers.worker_events import Event, StepAnswered, StepNotStarted
from beads_workers.integrations.rrq import executor_process as ev
from beads_workers.integrations.rrq import wire
from beads_workers.integrations.rrq.executor import TERM_SECONDS, DrivenExecutor, SocketFolder
from beads_workers.integrations.rrq.requests import find, route, to_request
from beads_workers.integrations.rrq.wire import FRAME_BYTES_MAX
from beads_workers.runtime.slots import Slot, SlotsProcess, own_process

# --- driver --------------------------------------------------------------------------------------
# To the orchestrator each slot is a worker, with a connection of its own; a free slot is READY. One
# loop over all connections, the executors' processes, and signals.


def run_driver(
    settings: WorkerSettings, connect_delays: Sequence[float] = limits.CONNECT_DELAYS_SECONDS
) -> int:
    """Run a worker with slots until told to leave; return the exit status, as ``run_worker``."""
    return own_process(settings, lambda: _Driver(settings, connect_delays))


class _Driver(SlotsProcess):
    def __init__(self, settings: WorkerSettings, connect_delays: Sequence[float]) -> None:
        super().__init__(settings, connect_delays)
        self._sockets = SocketFolder(settings.run_directory, settings.worker_id)
        around = settings, self._sockets, self.selector, self._answered
        self._described = settings.work.executors
        self._executors = {each.name: DrivenExecutor(each, *around) for each in self._described}
        self._at: dict[int, DrivenExecutor] = {}
        """Executor that has the request, by slot number."""
        self._prefix, self._asked = str(uuid.uuid4())[:-12], 0
        """Prefix of request ids, each of which is a UUID: the last twelve digits are counted up."""

    def run(self) -> int:
        """Run until told to leave; return the exit status."""
        try:
            return super().run()
        finally:
            self._sockets.close()

    def deadlines(self) -> Iterable[float | None]:
        """Return when each executor needs attention; see ``DrivenExecutor.deadline``."""
        return [each.deadline() for each in self._executors.values()]

    def tick(self, now: float) -> None:
        """Call ``tick`` of every executor."""
        for executor in self._executors.values():
            executor.tick(now)

    def pids(self) -> list[int]:
        """Return the process ids of the executors that run."""
        return [each.pid for each in self._executors.values() if each.pid is not None]

    # --- what a slot asks for -----------------------------------------------------------------

    def run_step(self, slot: Slot, plan: Plan, step: Step) -> None:
        """See ``Steps``."""
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
        """See ``Steps``."""
        if (executor := self._at.get(slot.number)) is not None:
            executor.end(slot.number, hard=hard)

    def _answered(self, number: int, answer: ev.SlotAnswer, log: str) -> None:
        del self._at[number]
        slot = self.slots[number]
        slot.log(log)
        event: Event = StepAnswered(slot.kept(answer.outcome))
        if answer.unusable:
            event = StepNotStarted(answer.outcome.error, missing=True)
        slot.tell(event)

    def leave(self) -> None:
        """Ask all executors to end, and wait until they have."""
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
