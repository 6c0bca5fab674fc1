"""dispatcherd's control commands for any fleet, with the keys of the real service."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from beads_workers.core.base import limits
from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.model import value
from beads_workers.core.base.wire import ControlAsked
from beads_workers.core.records.issues import Place
from beads_workers.core.schedule.commands import Answer, FoundTask, FoundTasks
from beads_workers.core.schedule.events import ConnId, Event, TaskFilter, TasksAsked, Warned
from beads_workers.core.views.snapshot import Board, WorkerRow, worker_order
from beads_workers.integrations.dispatcherd.wire import (
    SOCKET_BYTES_MAX,
    ControlRequest,
    from_fields,
)
from beads_workers.integrations.dispatcherd.wire_chunks import (
    ChunkAccumulator,
    read_object,
    split_message,
)
from beads_workers.runtime.control_socket import FiguresServer, Tickets
from beads_workers.runtime.worker_server import WorkerServer

ALIVE, RUNNING, CANCEL, RUN, STATUS = "alive", "running", "cancel", "run", "status"
SET_LOG_LEVEL = "set_log_level"
NEED_TASKS = frozenset({RUNNING, CANCEL, "workers", "main", STATUS})
"""Commands whose answer needs ``FoundTasks``."""
NEED_WAITING = frozenset({RUNNING, CANCEL, STATUS})
"""Commands that show the tasks that wait in an ingress, however many."""

LOGGER = "dispatcherd"
_LEVEL_NAMES = {
    50: "CRITICAL",
    40: "ERROR",
    30: "WARNING",
    20: "INFO",
    10: "DEBUG",
    0: "NOTSET",
}
LEVELS = {name: number for number, name in _LEVEL_NAMES.items()} | {"FATAL": 50, "WARN": 30}
"""Levels by name, as in Python's ``logging``."""

TASKS_BYTES_MAX = 2 << 20
"""Most bytes of tasks in one answer, as JSON: half of what a connection holds. Further tasks are
only counted."""

PARTIALS_MAX = 500
"""Most incomplete messages shown in full; ``active_messages`` counts all of them."""


@dataclass(slots=True)
class Service:
    """State that only the receiver of requests knows."""

    controls: int = 0
    # The level as last set.
    level: int = 0
    # Accumulators of all listeners.
    chunks: list[ChunkAccumulator] = field(default_factory=list)
    # Producers of tasks besides the source.
    producers: dict[str, dict[str, Any]] = field(default_factory=dict)
    # Status of the metrics server, None without one.
    metrics: dict[str, Any] | None = None
    # Number of tasks that arrived; None if equal to the number of claims.
    received: int | None = None
    # Number of the tasks that arrived that nobody has taken.
    queued: int = 0
    # Number of invalid messages.
    refused: int = 0


@value
class Scene:
    """The data of an answer."""

    board: Board
    # Seconds of the run.
    elapsed: float
    # Monotonic seconds.
    now: float
    service: Service
    # Tasks of the scheduler.
    found: FoundTasks
    # Tasks that wait in the ingress.
    waiting: tuple[FoundTask, ...] = ()


def answer_to(command: str, data: Mapping[str, Any], scene: Scene) -> dict[str, Any]:
    """Return the reply without ``node_id``; ``error`` is set for an unknown command."""
    if command == SET_LOG_LEVEL:
        return set_level(scene.service, data.get("level"))
    made = _COMMANDS.get(command)
    return made(scene) if made is not None else {"error": f"No control method {command}"}


def tasks(scene: Scene) -> dict[str, Any]:
    """Answer ``running`` and ``cancel``: worker-N, blocked-N, queued-N, delayed-N."""
    shown: dict[str, Any] = {}
    numbers = dict.fromkeys(("blocked", "queued", "delayed"), 0)
    room = TASKS_BYTES_MAX
    found = scene.found.tasks + scene.waiting
    for task in sorted(found, key=_place):
        if task.place == "worker":
            name = f"worker-{_number(task.worker_id)}"
        else:
            name = f"{task.place}-{numbers[task.place]}"
            numbers[task.place] += 1
        room -= len(json.dumps(task.message))
        if room >= 0:
            shown[name] = dict(task.message)
    if (more := len(found) - len(shown)) > 0:
        shown["not-shown"] = {"count": more}
    return shown


_PLACES = ("worker", "blocked", "queued", "delayed")


def _place(task: FoundTask) -> int:
    return _PLACES.index(task.place)


def workers(scene: Scene) -> dict[str, Any]:
    """Answer ``workers``: one entry for each worker that exists or is about to start."""
    rows = sorted(scene.board.workers.values(), key=lambda row: worker_order(row.worker_id))
    messages = {task.worker_id: task.message for task in scene.found.tasks if task.worker_id}
    return {
        f"worker-{_number(row.worker_id)}": _worker(row, messages.get(row.worker_id), scene)
        for row in rows
    }


def _worker(row: WorkerRow, message: Mapping[str, Any] | None, scene: Scene) -> dict[str, Any]:
    return {
        "worker_id": _number(row.worker_id),
        "pid": row.pid,
        "status": _STATUS.get(row.state, row.state),
        "finished_count": row.finished,
        "current_task": message.get("task") if message else None,
        "current_task_uuid": message.get("uuid") if message else None,
        "active_cancel": row.worker_id in scene.found.cancelling,
        "age": max(0.0, scene.elapsed - row.began),
    }


_STATUS = {"idle": "ready", "busy": "ready"}
"""dispatcherd's status by ours: to dispatcherd, a worker with a task is ready, too."""


def _number(worker_id: str) -> int | str:
    """Return 1 for W1; the name of a process's second slot only loses its letter."""
    number = worker_id.removeprefix("W")
    return int(number) if number.isdecimal() and len(number) < 10 else number


def producers(scene: Scene) -> dict[str, Any]:
    """Answer ``producers``: the brokers or, without any, the source."""
    if scene.service.producers:
        return dict(scene.service.producers)
    run = scene.board.run
    made = {
        "produced_count": scene.board.claims,
        "uptime_seconds": scene.elapsed,
        "recycle_count": 0,
    }
    return {f"{run.source if run else 'source'}-producer": made}


def metrics(scene: Scene) -> dict[str, Any]:
    """Answer ``metrics``: the server of ``start --metrics``."""
    status = scene.service.metrics
    return {"enabled": False} if status is None else {"enabled": True, "status": status}


def main(scene: Scene) -> dict[str, Any]:
    """Answer ``main``: counts of this run.

    ``refused_count``, unknown to the real service, is added if it is not 0.
    """
    board, service = scene.board, scene.service
    received = board.claims if service.received is None else service.received
    numbers = [worker_order(worker_id)[0] for worker_id in board.workers]
    cancelled = finished = 0
    for (outcome, _), count in board.counters.attempts.items():
        # To dispatcherd, a task that timed out is a cancelled one.
        if outcome in ("cancelled", "timeout"):
            cancelled += count
        else:
            finished += count
    there = [row for row in board.workers.values() if row.state != "stopping"]
    at_once = [task for task in scene.found.tasks if task.place in ("worker", "queued")]
    return {
        "received_count": received + service.controls,
        "control_count": service.controls,
        **({"refused_count": service.refused} if service.refused else {}),
        "pid": board.run.pid if board.run else None,
        "pool": {
            "next_worker_id": max(numbers, default=0) + 1,
            "finished_count": finished,
            "canceled_count": cancelled,
            "retirement_count": 0,
            "worker_ct": len(there),
            "running_ct": board.places()[Place.RUNNING],
            "active_task_ct": len(at_once) + service.queued,
            "usage": {"count": 0, "top5": {}, "near_worker_ct": {}},
        },
    }


def chunks(scene: Scene) -> dict[str, Any]:
    """Answer ``chunks``: the sum over all accumulators."""
    names = ("total_chunks_received", "successful_assemblies", "errored_assemblies")
    counted = dict.fromkeys((*names, "timed_out_assemblies", "active_messages"), 0)
    partials: dict[str, Any] = {}
    for accumulator in scene.service.chunks:
        for name in counted:
            counted[name] += getattr(accumulator, name)
        for partial in accumulator.partials(scene.now, PARTIALS_MAX):
            partials[partial.message_id] = {
                "seconds_since_start": partial.seconds_since_start,
                "expected_total": partial.expected_total,
                "chunks": [{"chunk_id": i, "length": length} for i, length in partial.chunks],
            }
    return {"status": counted, "partials": partials}


def nothing(scene: Scene) -> dict[str, Any]:
    """Answer ``alive``, which needs no content, and ``aio_tasks``: there is no asyncio."""
    return {}


def status(scene: Scene) -> dict[str, Any]:
    """Answer ``status``: the answers of all commands that change nothing."""
    return {name: _COMMANDS[name](scene) for name in _IN_STATUS}


def set_level(service: Service, level: object) -> dict[str, Any]:
    """Answer ``set_log_level``: the level is stored and reported, and has no other effect."""
    if isinstance(level, str) and level:
        number = LEVELS.get(level.strip().upper())
        if number is None:
            return {"error": f"Unknown log level {level[:60]!r}."}
    elif type(level) is int:
        number = level
    else:
        return {"error": "The level must be given as text or a whole number, in 'level'."}
    previous, service.level = service.level, number
    return {
        "logger": LOGGER,
        "level": _level_name(number),
        "previous_level": _level_name(previous),
    }


def _level_name(number: int) -> str:
    return _LEVEL_NAMES.get(number, f"Level {number}")


_COMMANDS: dict[str, Callable[[Scene], dict[str, Any]]] = {
    RUNNING: tasks,
    CANCEL: tasks,
    ALIVE: nothing,
    "aio_tasks": nothing,
    "workers": workers,
    "producers": producers,
    "metrics": metrics,
    "main": main,
    STATUS: status,
    "chunks": chunks,
}
_IN_STATUS = ("running", "aio_tasks", "workers", "producers", "metrics", "main", "chunks")


# --- dispatch ------------------------------------------------------------------------------------
# Answers to dispatcherd's control commands for a fleet: asked over the control socket, over a
# broker, or by a running task.
#
# Source: docs/DISPATCHERD.md, "The control plane".


Reply = Callable[[dict[str, Any]], None]

NO_TASKS = "this fleet takes no tasks: its source is no dispatcherd broker"


class Dispatches(Protocol):
    """The additional methods of an ingress for tasks of dispatcherd."""

    @property
    def node_id(self) -> str:
        """Name of this service in every reply."""

    def find(self, wanted: TaskFilter) -> Iterable[FoundTask]:
        """Yield the tasks that wait here and are unknown to the core."""

    def cancel(self, keys: Iterable[str]) -> None:
        """Forget the waiting tasks with these keys."""

    def submit(self, message: Mapping[str, Any]) -> str:
        """Take a task as if it came through a broker; return "", or why it was refused."""

    def describe(self, service: Service) -> None:
        """Write producers, accumulators and the number of received tasks into ``service``."""


class DispatcherControl:
    """Answers control commands; a broker needs only ``ask``.

    ``ingress``: set if there is one. ``metrics``: the server of figures.
    """

    def __init__(
        self,
        tickets: Tickets,
        tell: Callable[[Event], None],
        look: Callable[[], tuple[Board, float]],
        metrics: FiguresServer | None,
    ) -> None:
        self._tickets = tickets
        self._tell = tell
        self._look = look
        self._metrics = metrics
        self._chunks = ChunkAccumulator()
        self._service = Service()
        self._ran = self._warned = 0
        self.ingress: Dispatches | None = None

    def ask(self, control: ControlRequest, reply: Reply) -> None:
        """Carry out a command; ``reply`` gets the answer, now or in this turn of the loop.

        ``reply`` is called even if nobody wants an answer: look at ``control.reply_to``.
        """
        self._service.controls += 1
        name, data = control.control, control.control_data
        if name == RUN:
            error = self._run(data)
            reply(self._named({"error": error} if error else {"ack": dict(data)}))
        elif name not in NEED_TASKS:
            reply(self._named(answer_to(name, data, self._scene())))
        else:
            wanted = TaskFilter.from_data(data if name in (RUNNING, CANCEL) else {})
            ticket = self._tickets.issue()
            self._tickets.wait(ticket, lambda answer: self._found(control, wanted, answer, reply))
            self._tell(TasksAsked(ticket, wanted, cancel=name == CANCEL))

    def asked(self, conn_id: ConnId, asked: ControlAsked, workers: WorkerServer) -> None:
        """Answer a running task; without ``node_id``, because there is only this service."""

        def reply(answer: dict[str, Any]) -> None:
            del answer["node_id"]
            workers.reply(conn_id, answer)

        self.ask(ControlRequest(asked.command, asked.control_data, "its worker"), reply)

    # --- as lines of a socket -----------------------------------------------------------------

    def complete(self, line: bytes) -> Mapping[str, Any] | None:
        """Return the message that a line holds or completes; None if chunks of it are missing.

        Raises ``ProtocolError`` for anything that is no message.
        """
        now = time.monotonic()
        is_chunk, message, _ = self._chunks.ingest_dict(read_object(line), now)
        if is_chunk:
            self._chunks.expire_partial_messages(now)
            troubles, self._chunks.troubles[:] = list(self._chunks.troubles), []
            for trouble in troubles:
                self._warn(f"the control socket: {trouble}")
        return message

    def handle(self, fields: Mapping[str, Any], send: Callable[[bytes], None]) -> None:
        """Handle a message of dispatcherd; raise ``ProtocolError`` if it is invalid.

        The reply, if one is wanted, is sent as lines.
        """
        message = from_fields(fields)
        if not isinstance(message, ControlRequest):
            if error := self._run(fields):
                self._warn(f"a task came over the control socket: {error}")
                raise ProtocolError(error)
            return

        def reply(answer: dict[str, Any]) -> None:
            if message.reply_to:
                send(lines(answer))

        self.ask(message, reply)

    # --- inside -------------------------------------------------------------------------------

    def _warn(self, text: str) -> None:
        # Limited: a peer that sends nothing else must not fill the journal.
        self._warned += 1
        if self._warned <= limits.BAD_LINES_SHOWN:
            self._tell(Warned(text))

    def _run(self, message: Mapping[str, Any]) -> str:
        if self.ingress is None:
            return NO_TASKS
        error = self.ingress.submit(message)
        self._ran += not error
        return error

    def _found(
        self, control: ControlRequest, wanted: TaskFilter, answer: Answer, reply: Reply
    ) -> None:
        found, more = answer.found or FoundTasks(), tuple[FoundTask, ...]()
        if self.ingress is not None and control.control in NEED_WAITING:
            waiting = tuple(self.ingress.find(wanted))
            if control.control == CANCEL:
                self.ingress.cancel(task.key for task in waiting)
            known = {task.key for task in found.tasks}
            more = tuple(task for task in waiting if task.key not in known)
        scene = self._scene(found, more)
        reply(self._named(answer_to(control.control, control.control_data, scene)))

    def _scene(self, found: FoundTasks | None = None, waiting: tuple[FoundTask, ...] = ()) -> Scene:
        service = self._service
        service.chunks[:] = [self._chunks]
        board, elapsed = self._look()
        if self.ingress is not None:
            self.ingress.describe(service)
            counted = {"produced_count": self._ran, "uptime_seconds": elapsed}
            service.producers["control-producer"] = counted
        if self._metrics is not None:
            service.metrics = self._metrics.describe()
        return Scene(board, elapsed, time.monotonic(), service, found or FoundTasks(), waiting)

    def _named(self, answer: dict[str, Any]) -> dict[str, Any]:
        if self.ingress is not None:
            return {**answer, "node_id": self.ingress.node_id}
        run = self._look()[0].run
        return {**answer, "node_id": run.run_id if run else ""}


def lines(answer: Mapping[str, Any]) -> bytes:
    """Return a reply as lines for a socket: one line, or the chunks of a longer reply."""
    text = json.dumps(answer)
    parts = split_message(text, max_bytes=SOCKET_BYTES_MAX, message_id=os.urandom(16).hex())
    return "".join(f"{part}\n" for part in parts).encode("ascii")


def open_control(
    tickets: Tickets,
    tell: Callable[[Event], None],
    look: Callable[[], tuple[Board, float]],
    metrics: FiguresServer | None,
) -> DispatcherControl:
    """Return the object that answers for a fleet; called at the first request."""
    return DispatcherControl(tickets, tell, look, metrics)
