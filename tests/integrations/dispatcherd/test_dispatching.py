"""dispatcherd's control commands over the control socket: replies, chunks, what an ingress adds."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.wire import ControlAsked, ControlReply, Task, encode, parse
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Answer, FoundTask, FoundTasks, Send
from beads_workers.core.schedule.events import ConnId, TaskFilter
from beads_workers.core.views.snapshot import Board
from beads_workers.integrations.dispatcherd.control import DispatcherControl, Service
from beads_workers.integrations.dispatcherd.wire import SOCKET_BYTES_MAX, ControlRequest
from beads_workers.integrations.dispatcherd.wire_chunks import ChunkAccumulator, split_message
from beads_workers.integrations.metrics.listener import listen, serve
from beads_workers.runtime.control_socket import Tickets
from beads_workers.runtime.worker_server import WorkerServer
from tests.runtime.test_control_server import Served
from tests.support.fleet import until


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    began = rec.RunStarted("run-1", 7, "actor/run-1", "bd", "/project")
    made.frames.board.apply(Entry(began, 0.0, 0.0))
    yield made
    made.server.close({})
    made.selector.close()


class Ingress:
    """An ingress with one task that waits in it, which it can forget."""

    node_id = "the-node"

    def __init__(self) -> None:
        self.waiting = [FoundTask("d", "delayed", {"uuid": "d", "task": "m.f"})]
        self.submitted: list[Mapping[str, Any]] = []

    def find(self, wanted: TaskFilter) -> Iterable[FoundTask]:
        return [task for task in self.waiting if wanted.matches(task.message)]

    def cancel(self, keys: Iterable[str]) -> None:
        gone = set(keys)
        self.waiting = [task for task in self.waiting if task.key not in gone]

    def submit(self, message: Mapping[str, Any]) -> str:
        self.submitted.append(message)
        return "" if "task" in message else "no task"

    def describe(self, service: Service) -> None:
        service.received = 5


def send(served: Served, client: socket.socket, **message: Any) -> None:
    """One message on a line."""
    client.sendall(json.dumps(message).encode() + b"\n")
    served.turn()


def replies(client: socket.socket) -> list[Any]:
    """What came, joined where it came in chunks; nothing may be longer than a broker's limit."""
    client.setblocking(False)
    received = b""
    while True:
        try:
            received += client.recv(1 << 16)
        except BlockingIOError:
            break
    whole, accumulator = [], ChunkAccumulator()
    for line in received.splitlines():
        assert len(line) <= SOCKET_BYTES_MAX
        _, message, _ = accumulator.ingest_dict(json.loads(line))
        whole += [] if message is None else [message]
    return whole


def answered(served: Served, *tasks: FoundTask) -> ev.TasksAsked:
    """The core answers what it was asked last."""
    asked = [each for each in served.events if isinstance(each, ev.TasksAsked)][-1]
    served.server.answer(Answer(asked.ticket, found=FoundTasks(tasks)))
    return asked


def test_alive_is_answered_at_once_with_the_node(served: Served) -> None:
    with served.client() as client:
        send(served, client, control="alive", reply_to="anything")
        assert replies(client) == [{"node_id": "run-1"}]
        assert served.events == []


def test_whoever_wants_no_reply_gets_none(served: Served) -> None:
    with served.client() as client:
        send(served, client, control="cancel")
        assert answered(served).cancel
        send(served, client, control="nothing")
        send(served, client, control="main", reply_to="r")
        answered(served)
        (main,) = replies(client)
        assert main["control_count"] == 3


def test_an_unknown_command_is_an_error_with_its_name(served: Served) -> None:
    with served.client() as client:
        send(served, client, control="dance", reply_to="r")
        assert replies(client) == [{"error": "No control method dance", "node_id": "run-1"}]


def test_a_filter_reaches_the_core_and_its_tasks_come_back(served: Served) -> None:
    with served.client() as client:
        send(served, client, control="running", reply_to="r", control_data={"uuid": "u", "x": 1})
        asked = answered(served, FoundTask("u", "worker", {"uuid": "u"}, "W3"))
        assert (asked.wanted, asked.cancel) == (TaskFilter({"uuid": "u"}), False)
        assert replies(client) == [{"worker-3": {"uuid": "u"}, "node_id": "run-1"}]


def test_a_long_reply_and_a_long_request_go_in_chunks(served: Served) -> None:
    title = "ü" * 3000
    request = json.dumps({"control": "running", "reply_to": "r", "control_data": {"task": title}})
    parts = split_message(request, max_bytes=SOCKET_BYTES_MAX, message_id="ab")
    assert len(parts) > 3
    with served.client() as client:
        client.sendall("".join(f"{part}\n" for part in reversed(parts)).encode())
        served.turn()
        assert (
            answered(served, FoundTask("u", "queued", {"t": title})).wanted.fields["task"] == title
        )
        assert replies(client) == [{"queued-0": {"t": title}, "node_id": "run-1"}]
        send(served, client, control="chunks", reply_to="r")
        (shown,) = replies(client)
        assert shown["status"]["successful_assemblies"] == 1


def test_a_wrong_chunk_is_told_to_people_and_the_connection_goes_on(served: Served) -> None:
    with served.client() as client:
        send(served, client, __dispatcherd_chunk__="v2")
        (warned,) = served.events
        assert isinstance(warned, ev.Warned) and "v2" in warned.text
        send(served, client, control="alive", reply_to="r")
        assert replies(client) == [{"node_id": "run-1"}]


def test_a_task_for_a_fleet_that_takes_none_is_refused_and_told(served: Served) -> None:
    with served.client() as client:
        send(served, client, task="m.f", uuid="u")
        (refused,) = replies(client)
        assert list(refused) == ["error"]
        (warned,) = served.events
        assert isinstance(warned, ev.Warned)
        send(served, client, control="run", control_data={"task": "m.f"}, reply_to="r")
        assert "no dispatcherd broker" in replies(client)[0]["error"]


def test_tasks_that_wait_in_an_ingress_are_shown_and_cancelled_with_the_others(
    served: Served,
) -> None:
    ingress = served.server.control_plane.ingress = Ingress()
    with served.client() as client:
        send(served, client, control="running", reply_to="r")
        answered(served, FoundTask("u", "worker", {"uuid": "u"}, "W1"))
        both = {"worker-1": {"uuid": "u"}, "delayed-0": {"uuid": "d", "task": "m.f"}}
        assert replies(client) == [both | {"node_id": "the-node"}]
        send(served, client, control="cancel", control_data={"uuid": "other"})
        answered(served)
        assert len(ingress.waiting) == 1
        send(served, client, control="cancel", reply_to="r")
        answered(served)
        assert "delayed-0" in replies(client)[0]
        assert ingress.waiting == []


def test_an_ingress_is_handed_what_is_run(served: Served) -> None:
    ingress = served.server.control_plane.ingress = Ingress()
    with served.client() as client:
        send(served, client, control="run", control_data={"task": "m.f"}, reply_to="r")
        assert replies(client) == [{"ack": {"task": "m.f"}, "node_id": "the-node"}]
        send(served, client, control="run", reply_to="r")
        assert replies(client) == [{"error": "no task", "node_id": "the-node"}]
        send(served, client, task="m.g")
        assert ingress.submitted[-1] == {"task": "m.g"}
        assert replies(client) == []
        send(served, client, control="main", reply_to="r")
        answered(served)
        assert replies(client)[0]["received_count"] == 5 + 3


def test_figures_are_enabled_where_a_port_serves_them(served: Served) -> None:
    listener = listen(0)
    assert listener is not None
    server = serve(listener, served.selector, served.events.append, lambda: (Board(), 0.0))
    answers: list[dict[str, Any]] = []
    DispatcherControl(Tickets(), served.events.append, lambda: (Board(), 0.0), server).ask(
        ControlRequest("metrics"), answers.append
    )
    server.close()
    (answer,) = answers
    assert answer["enabled"] and answer["status"] == server.describe()


def test_a_task_asks_over_the_connection_of_its_worker(served: Served, tmp_path: Path) -> None:
    workers = WorkerServer(
        tmp_path / "workers.sock", served.selector, served.events.append, lambda: None, tmp_path
    )
    served.server.attach(workers, None)

    def is_asked() -> bool:
        served.turn()
        workers.read_waiting(time.monotonic())
        return any(isinstance(each, ev.TasksAsked) for each in served.events)

    with socket.socket(socket.AF_UNIX) as worker:
        worker.connect(str(tmp_path / "workers.sock"))
        until(lambda: (served.turn(), len(served.events) > 0)[1])
        workers.send(Send(ConnId(1), "W7", Task(IssueId("t"), 2, "t"), v1=False))
        workers.flush()
        worker.recv(1 << 16)
        asked = ControlAsked("running", {"uuid": "u"})
        worker.sendall(encode(asked, "W1", 0.0, v1=False))
        until(is_asked)
        wanted = answered(served, FoundTask("u", "worker", {"uuid": "u"}, "W1")).wanted
        assert wanted == TaskFilter({"uuid": "u"})
        workers.flush()
        line = worker.recv(1 << 16).rstrip()
        assert parse(line) == ControlReply({"worker-1": {"uuid": "u"}})
        assert json.loads(line)["worker_id"] == "W7"
        long = {"t": "x" * limits.LINE_BYTES_MAX}
        served.events.clear()
        worker.sendall(encode(asked, "W1", 0.0, v1=False))
        until(is_asked)
        answered(served, FoundTask("u", "worker", long, "W1"))
        workers.flush()
        reply = parse(worker.recv(1 << 16).rstrip())
        assert isinstance(reply, ControlReply) and "ask for less" in reply.reply["error"]
    workers.close()
