"""The executor's sockets: bytes in and out, whatever the peers do, without ever blocking."""

from __future__ import annotations

import os
import selectors
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.model import IssueId, Outcome, OutcomeKind
from beads_workers.core.schedule.events import (
    Arrived,
    Event,
    FatalError,
    StopAsked,
    Warned,
    Withdrawn,
)
from beads_workers.integrations.rrq.ingress import FRAME_SECONDS, RrqIngress, end_with
from beads_workers.integrations.rrq.request_table import UNANSWERED_MAX, RequestTable
from beads_workers.integrations.rrq.source import Tcp, Unix
from beads_workers.integrations.rrq.wire import FRAME_BYTES_MAX, V1, V2
from beads_workers.runtime.handshake import StartRefused
from tests.support.rrq_client import Client, request

PATIENCE_SECONDS = 10.0


class Bench:
    """A server and the loop's part in it, step by step."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        self.path = folder / "deep" / "rrq.sock"
        self.selector = selectors.DefaultSelector()
        self.events: list[Event] = []
        self.serving = RequestTable()
        self.server = RrqIngress(
            Unix(str(self.path)), self.serving, self.selector, self.events.append, **limits
        )

    def warnings(self) -> list[str]:
        """What people were told."""
        return [event.text for event in self.events if isinstance(event, Warned)]

    def step(self) -> None:
        """One turn of the loop, as far as it is this server's."""
        for key, mask in self.selector.select(0.01):
            key.data(mask)
        self.server.tick(time.monotonic())
        self.server.flush()

    def until(self, kind: type[Event]) -> Event:
        """Step until the core is told that."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := [e for e in self.events if isinstance(e, kind)]):
            assert time.monotonic() < deadline, self.events
            self.step()
        return found[-1]

    def read(self) -> None:
        """Step until nothing more comes in."""
        for _ in range(5):
            self.step()

    def settle(self, issue_id: str, result: str = "1") -> None:
        """It went well."""
        self.serving.settled(IssueId(issue_id), Outcome(OutcomeKind.SUCCESS, result=result))
        self.server.flush()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.server.close()


def test_it_is_ours_alone_and_gone_at_the_end(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert bench.path.stat().st_mode & 0o777 == 0o600
    bench.server.close()
    assert not bench.path.exists()


@pytest.mark.parametrize("late", [True, False])
def test_nobody_can_connect_before_a_worker_is_ready_or_the_time_is_over(
    tmp_path: Path, late: bool
) -> None:
    bench = Bench(tmp_path, open_by=time.monotonic() + 8.0)
    bench.step()
    assert not bench.path.exists() and bench.server.deadline() <= time.monotonic() + 8.0
    if late:
        bench.server.tick(time.monotonic() + 8.0)
    else:
        bench.server.open()
        bench.server.open()
    Client(bench.path).close()
    bench.server.close()
    bench.server.open()
    assert not bench.path.exists(), "the run is over"


def test_what_is_in_the_way_is_an_error_at_once_and_what_comes_later_ends_the_run() -> None:
    events: list[Event] = []
    selector = selectors.DefaultSelector()
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = Tcp("127.0.0.1", other.getsockname()[1])
        made = partial(RrqIngress, address, RequestTable(), selector, events.append)
        with pytest.raises(OSError, match="in use"):
            made(open_by=time.monotonic() + 8.0)
    server = made(open_by=time.monotonic() + 8.0)
    with socket.create_server((address.host, address.port)):
        server.open()
    assert isinstance(events.pop(), FatalError)
    server.close()


def test_a_request_arrives_and_its_answer_goes_out(bench: Bench) -> None:
    with Client(bench.path) as client:
        client.send(asked := request("f"))
        bench.until(Arrived)
        (unanswered,) = bench.serving.take(9)
        bench.settle(str(unanswered.issue_id))
        answer = client.answer()
    assert answer is not None and (answer.request_id, answer.result) == (asked.request_id, 1)


def test_what_has_come_is_told_as_soon_as_it_is_read(bench: Bench) -> None:
    with Client(bench.path) as client:
        client.send(request("f"))
        while not bench.events:
            for key, mask in bench.selector.select(PATIENCE_SECONDS):
                key.data(mask)
        assert bench.events == [Arrived()], "before anything is sent"
        assert len(bench.serving.take(9)) == 1
        bench.server.flush()
        assert bench.events == [Arrived()], "and only once"


def test_who_leaves_takes_its_requests_along(bench: Bench) -> None:
    with Client(bench.path) as client:
        client.send(request("f", job_id="j"))
        bench.until(Arrived)
        bench.serving.take(9)
    assert bench.until(Withdrawn) == Withdrawn((IssueId("j"),), "whoever asked for it has left")


def test_a_peer_that_does_not_read_is_not_read_from_and_then_gets_everything(bench: Bench) -> None:
    large = '"' + "x" * (FRAME_BYTES_MAX // 4) + '"'
    with Client(bench.path) as client:
        client.send(*(request("f", version=V2, job_id=f"j{n}") for n in range(3)))
        bench.until(Arrived)
        for unanswered in bench.serving.take(9):
            bench.settle(str(unanswered.issue_id), large)
        client.send(request("f", version=V2, job_id="later"))
        for _ in range(3):
            bench.step()
        assert bench.serving.waiting == 0, "it was read from, although it does not read"
        client.socket.settimeout(0.01)
        answers = []
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(answers) < 3 and time.monotonic() < deadline:
            bench.step()
            try:
                answers.append(client.answer())
            except TimeoutError:
                pass
        assert [len(a.result) for a in answers if a is not None] == [FRAME_BYTES_MAX // 4] * 3
        bench.step()
        assert bench.serving.waiting == 1


def test_who_asks_for_too_much_at_once_is_heard_again_when_it_is_answered(bench: Bench) -> None:
    with Client(bench.path) as client:
        many = (request("f", version=V2, job_id=f"j{n}") for n in range(UNANSWERED_MAX))
        client.send(*many)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while bench.serving.waiting < UNANSWERED_MAX and time.monotonic() < deadline:
            bench.step()
        client.send(request("f", version=V2, job_id="later"))
        for _ in range(3):
            bench.step()
        assert bench.serving.waiting == UNANSWERED_MAX
        bench.serving.take(1)
        bench.settle("j0")
        bench.step()
        bench.step()
        assert [str(unanswered.issue_id) for unanswered in bench.serving.take(999)][-1] == "later"


def test_a_frame_that_is_never_finished_ends_its_connection(bench: Bench) -> None:
    with Client(bench.path) as client:
        client.raw(struct.pack(">I", 100) + b"{")
        bench.read()
        bench.server.tick(time.monotonic() + FRAME_SECONDS - 1)
        bench.server.flush()
        assert client.silent()
        bench.server.tick(time.monotonic() + FRAME_SECONDS + 1)
        bench.server.flush()
        assert client.answer() is None


def test_unfinished_frames_are_bounded_together(tmp_path: Path) -> None:
    bench = Bench(tmp_path, unread_bytes_max=100_000)
    with Client(bench.path) as first, Client(bench.path) as second:
        for client in (first, second):
            client.raw(struct.pack(">I", FRAME_BYTES_MAX) + b"x" * 60_000)
            bench.read()
        bench.server.flush()
        assert second.answer() is None
        assert first.silent()
    bench.server.close()


def test_when_the_run_ends_nobody_new_is_let_in_and_everybody_is_answered(bench: Bench) -> None:
    with Client(bench.path) as client, Client(bench.path) as other:
        client.send(request("f", job_id="taken"))
        bench.until(Arrived)
        bench.serving.take(9)
        bench.server.stop_accepting()
        assert not bench.path.exists()
        other.send(request("f", version=V1, job_id="late"))
        bench.step()
        bench.step()
        bench.server.close()
        for each in (client, other):
            answer = each.answer()
            assert answer is not None and answer.error and answer.error.type == "cancelled"
            assert each.answer() is None


def test_a_port_is_served_as_well(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    selector = selectors.DefaultSelector()
    events: list[Event] = []
    server = RrqIngress(Tcp("127.0.0.1", port), RequestTable(), selector, events.append)
    with Client(port) as client:
        client.send(request("f", version=V2))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while Arrived() not in events and time.monotonic() < deadline:
            for key, mask in selector.select(0.01):
                key.data(mask)
            server.flush()
        server.close()
        assert client.answer() is not None


@pytest.mark.parametrize("version", [V1, V2])
def test_more_requests_than_workers_are_told_once(tmp_path: Path, version: str) -> None:
    bench = Bench(tmp_path, workers=2)
    clients = [Client(bench.path) for _ in range(5)]
    for number, client in enumerate(clients[:2]):
        client.send(request("add", version=version, request_id=f"r{number}"))
    bench.read()
    assert bench.serving.unanswered == 2 and bench.warnings() == []
    for number, client in enumerate(clients[2:]):
        client.send(request("add", version=version, request_id=f"s{number}"))
    bench.read()
    assert bench.serving.unanswered == 5
    (told,) = bench.warnings()
    assert "requests at once: 2 are worked on" in told
    assert "set max_in_flight in rrq.toml to 2" in told
    for client in clients:
        client.close()
    bench.server.close()


@pytest.mark.parametrize("connects", [True, False])
def test_one_that_may_have_no_orchestrator_ends_when_nobody_has_connected(
    tmp_path: Path, connects: bool
) -> None:
    bench, began = Bench(tmp_path, alone_seconds=60.0), time.monotonic()
    if connects:
        Client(bench.path).close()
        bench.read()
    bench.server.tick(began + 59)
    assert bench.events == []
    bench.server.tick(began + 61)
    bench.server.tick(began + 62)
    ends = [StopAsked(why="nobody has connected for 60 s (--no-parent)")]
    assert bench.events == ([] if connects else ends)
    bench.server.close()


@pytest.mark.parametrize("reaped", [True, False])
def test_a_fleet_does_not_begin_whose_orchestrator_is_gone(reaped: bool) -> None:
    with subprocess.Popen(["true"], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None and parent.stdout.read() == b""
        if reaped:
            parent.wait()
        else:
            os.waitid(os.P_PID, parent.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(StartRefused, match="is gone"):
            end_with(parent.pid, selectors.DefaultSelector())
