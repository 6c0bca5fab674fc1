"""Answers dispatcherd's control commands for a fleet, whoever asks: over the control socket, a
broker, or from a task that runs.

What the answers are stands in ``core.dispatching``. Source: docs/DISPATCHERD.md, "The control
plane".
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from beads_workers.core import limits
from beads_workers.core.board import Board
from beads_workers.core.commands import Answer
from beads_workers.core.dispatching import answers
from beads_workers.core.dispatching.answers import (
    CANCEL,
    NEED_TASKS,
    NEED_WAITING,
    RUN,
    Scene,
    Service,
)
from beads_workers.core.dispatching.found import FoundTask, FoundTasks, TaskFilter
from beads_workers.core.events import ConnId, Event, TasksAsked, Warned
from beads_workers.core.json_fields import ProtocolError
from beads_workers.core.message_types import ControlAsked
from beads_workers.edge.tickets import Tickets
from beads_workers.edge.worker_server import WorkerServer
from beads_workers.protocols.dispatcherd import SOCKET_BYTES_MAX
from beads_workers.protocols.dispatcherd.chunks import (
    ChunkAccumulator,
    read_object,
    split_message,
)
from beads_workers.protocols.dispatcherd.messages import Control, from_fields

if TYPE_CHECKING:
    from beads_workers.edge.metrics.server import MetricsServer

Reply = Callable[[dict[str, Any]], None]

NO_TASKS = "this fleet takes no tasks: its source is no dispatcherd broker"


class Dispatches(Protocol):
    """What a front adds through which tasks of dispatcherd come."""

    @property
    def node_id(self) -> str:
        """Names this service in every reply."""

    def find(self, wanted: TaskFilter) -> Iterable[FoundTask]:
        """Tasks that wait here and that the core knows nothing of."""

    def cancel(self, keys: Iterable[str]) -> None:
        """Forget these of them."""

    def submit(self, message: Mapping[str, Any]) -> str:
        """Take a task as if it had come through a broker; returns why not, "" where it did."""

    def describe(self, service: Service) -> None:
        """Write into it what is known here: producers, accumulators, how many were received."""


class DispatcherControl:
    """``ask`` is all that a broker needs. ``front`` is set where there is one; ``metrics``: the
    figures that are served."""

    def __init__(
        self,
        tickets: Tickets,
        tell: Callable[[Event], None],
        look: Callable[[], tuple[Board, float]],
        metrics: MetricsServer | None,
    ) -> None:
        self._tickets = tickets
        self._tell = tell
        self._look = look
        self._metrics = metrics
        self._chunks = ChunkAccumulator()
        self._service = Service()
        self._ran = self._warned = 0
        self.front: Dispatches | None = None

    def ask(self, control: Control, reply: Reply) -> None:
        """Have a command carried out; ``reply`` gets the answer, now or in this turn of the loop.

        It is called whether anybody wants an answer or not: look at ``control.reply_to``.
        """
        self._service.controls += 1
        name, data = control.control, control.control_data
        if name == RUN:
            error = self._run(data)
            reply(self._named({"error": error} if error else {"ack": dict(data)}))
        elif name not in NEED_TASKS:
            reply(self._named(answers.answer(name, data, self._scene())))
        else:
            wanted = TaskFilter.from_data(data if name in (answers.RUNNING, CANCEL) else {})
            ticket = self._tickets.issue()
            self._tickets.wait(ticket, lambda answer: self._found(control, wanted, answer, reply))
            self._tell(TasksAsked(ticket, wanted, cancel=name == CANCEL))

    def asked(self, conn_id: ConnId, asked: ControlAsked, workers: WorkerServer) -> None:
        """A task that runs wants to know: it is told no ``node_id``, because there is only this."""

        def reply(answer: dict[str, Any]) -> None:
            del answer["node_id"]
            workers.reply(conn_id, answer)

        self.ask(Control(asked.command, asked.control_data, "its worker"), reply)

    # --- as lines of a socket -----------------------------------------------------------------

    def whole(self, line: bytes) -> Mapping[str, Any] | None:
        """The message that a line holds, or completes; None while pieces of it are missing.

        Raises ``ProtocolError`` for what is no message.
        """
        now = time.monotonic()
        is_chunk, message, _ = self._chunks.ingest_dict(read_object(line), now)
        if is_chunk:
            self._chunks.expire_partial_messages(now)
            troubles, self._chunks.troubles[:] = list(self._chunks.troubles), []
            for trouble in troubles:
                self._warn(f"the control socket: {trouble}")
        return message

    def heard(self, fields: Mapping[str, Any], send: Callable[[bytes], None]) -> None:
        """A message that is none of our own; raises ``ProtocolError``. The reply is sent in lines,
        where one is wanted."""
        message = from_fields(fields)
        if not isinstance(message, Control):
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
        # Whoever sends nothing else must not fill the journal.
        self._warned += 1
        if self._warned <= limits.BAD_LINES_SHOWN:
            self._tell(Warned(text))

    def _run(self, message: Mapping[str, Any]) -> str:
        if self.front is None:
            return NO_TASKS
        error = self.front.submit(message)
        self._ran += not error
        return error

    def _found(self, control: Control, wanted: TaskFilter, answer: Answer, reply: Reply) -> None:
        found, more = answer.found or FoundTasks(), tuple[FoundTask, ...]()
        if self.front is not None and control.control in NEED_WAITING:
            waiting = tuple(self.front.find(wanted))
            if control.control == CANCEL:
                self.front.cancel(task.key for task in waiting)
            known = {task.key for task in found.tasks}
            more = tuple(task for task in waiting if task.key not in known)
        scene = self._scene(found, more)
        reply(self._named(answers.answer(control.control, control.control_data, scene)))

    def _scene(self, found: FoundTasks | None = None, waiting: tuple[FoundTask, ...] = ()) -> Scene:
        service = self._service
        service.chunks[:] = [self._chunks]
        board, elapsed = self._look()
        if self.front is not None:
            self.front.describe(service)
            counted = {"produced_count": self._ran, "uptime_seconds": elapsed}
            service.producers["control-producer"] = counted
        if self._metrics is not None:
            service.metrics = self._metrics.describe()
        return Scene(board, elapsed, time.monotonic(), service, found or FoundTasks(), waiting)

    def _named(self, answer: dict[str, Any]) -> dict[str, Any]:
        if self.front is not None:
            return {**answer, "node_id": self.front.node_id}
        run = self._look()[0].run
        return {**answer, "node_id": run.run_id if run else ""}


def lines(answer: Mapping[str, Any]) -> bytes:
    """A reply as the lines that go over a socket: one, or the chunks of a longer one."""
    text = json.dumps(answer)
    parts = split_message(text, max_bytes=SOCKET_BYTES_MAX, message_id=os.urandom(16).hex())
    return "".join(f"{part}\n" for part in parts).encode("ascii")
