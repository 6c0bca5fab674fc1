"""The worker socket: bytes become events, commands become bytes."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.wire import Ready, Task, Wait
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Send
from beads_workers.core.schedule.events import ConnId
from beads_workers.runtime.sessions import start_time
from beads_workers.runtime.worker_server import WorkerServer
from tests.runtime.test_acceptor import FullSelector

READY = b'{"type":"READY","worker_id":"w","timestamp":1.5}\n'


class Acceptor:
    """A worker server, its events, and the turning of its selector."""

    def __init__(self, folder: Path) -> None:
        self.selector = FullSelector()
        self.events: list[ev.Event] = []
        self.now = 0.0
        self.path = folder / "s"
        self.server = WorkerServer(
            self.path, self.selector, self.events.append, lambda: None, folder
        )

    def turn(self) -> list[ev.Event]:
        """Handle whatever is ready; returns the new events."""
        before = len(self.events)
        while True:
            ready = self.selector.select(0)
            for key, mask in ready:
                key.data(mask)
            if not ready and self.server.deadline() is None:
                return self.events[before:]
            self.read_waiting()

    def read_waiting(self) -> list[ev.Event]:
        """Hear those who wait, once, and a second later than the last time."""
        before = len(self.events)
        self.now += 1.0
        self.server.read_waiting(self.now)
        return self.events[before:]

    def client(self) -> socket.socket:
        """Somebody connects, and is accepted."""
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(20)
        client.connect(str(self.path))
        self.turn()
        return client


@pytest.fixture
def acceptor(tmp_path: Path) -> Iterator[Acceptor]:
    made = Acceptor(tmp_path)
    yield made
    made.server.close()
    made.selector.close()


def test_a_connection_is_told_with_the_pid_and_each_has_its_own_number(acceptor: Acceptor) -> None:
    own = start_time(os.getpid()) or 0
    with acceptor.client(), acceptor.client():
        assert acceptor.events == [
            ev.Connected(ConnId(1), os.getpid(), own),
            ev.Connected(ConnId(2), os.getpid(), own),
        ]


def test_each_line_is_an_event_and_wrong_ones_end_nothing(acceptor: Acceptor) -> None:
    with acceptor.client() as client:
        client.sendall(b"nonsense\n" + READY + b'{"type":"TASK"}\n' + READY)
        kinds = [type(e) for e in acceptor.turn()]
        assert kinds == [ev.Misread, ev.Received, ev.Misread, ev.Received]
        assert acceptor.events[2] == ev.Received(ConnId(1), Ready("w"))


def test_a_worker_may_not_say_what_only_an_orchestrator_says(acceptor: Acceptor) -> None:
    with acceptor.client() as client:
        client.sendall(b'{"type":"WAIT","worker_id":"w","timestamp":1,"wait_seconds":3}\n')
        (wrong,) = acceptor.turn()
        assert isinstance(wrong, ev.Misread) and wrong.reason == "not a worker's message"


def test_a_message_of_an_unknown_type_is_no_wrong_line(acceptor: Acceptor) -> None:
    with acceptor.client() as client:
        lines = (b'{"type":"NEWS","version":"1.1"}', b'{"type":""}', b'{"type":7}')
        client.sendall(b"\n".join(lines) + b"\n")
        unknown, *wrong = acceptor.turn()
        head = '{"type":"NEWS","version":"1.1"}'
        assert unknown == ev.Unknown(ConnId(1), "NEWS", head)
        assert [type(e) for e in wrong] == [ev.Misread] * 2


@pytest.mark.parametrize("v1", [None, True])
def test_who_has_no_task_of_1_1_is_answered_nothing(acceptor: Acceptor, v1: bool | None) -> None:
    with acceptor.client() as client:
        if v1 is not None:
            acceptor.server.send(Send(ConnId(1), "W1", Wait(2), v1=v1))
            acceptor.server.flush()
            client.recv(1000)
        client.sendall(b'{"type":"CONTROL","worker_id":"w","timestamp":1,"command":"alive"}\n')
        assert acceptor.turn() == [ev.Unknown(ConnId(1), "CONTROL", "CONTROL 'alive'")]
        acceptor.server.flush()
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)


def test_wrong_lines_reach_the_log_short_and_escaped(acceptor: Acceptor) -> None:
    with acceptor.client() as client:
        client.sendall(b"\x1b[2J" + b"x" * 5000 + b"\n")
        (wrong,) = acceptor.turn()
        assert isinstance(wrong, ev.Misread)
        assert "\x1b" not in wrong.head and len(wrong.head) <= limits.LOGGED_BYTES_MAX * 4


def test_last_words_come_before_the_end_and_a_half_line_is_told(acceptor: Acceptor) -> None:
    client = acceptor.client()
    client.sendall(READY + b'{"type":"DO')
    client.close()
    kinds = [type(e) for e in acceptor.turn()]
    assert kinds == [ev.Received, ev.Misread, ev.Disconnected]


def test_last_words_are_read_though_something_was_sent_to_the_dead(acceptor: Acceptor) -> None:
    client = acceptor.client()
    acceptor.server.send(Send(ConnId(1), "W1", Wait(2), v1=True))
    acceptor.server.flush()
    client.sendall(READY)
    client.close()  # With the WAIT unread: the next write fails with ECONNRESET.
    acceptor.server.send(Send(ConnId(1), "W1", Wait(2), v1=True))
    acceptor.server.flush()
    assert [type(e) for e in acceptor.events] == [ev.Connected]
    assert [type(e) for e in acceptor.turn()] == [ev.Received, ev.Disconnected]


def test_a_message_leaves_with_the_flush(acceptor: Acceptor) -> None:
    with acceptor.client() as client:
        acceptor.server.send(Send(ConnId(1), "W1", Wait(2), v1=True))
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.recv(1)
        acceptor.server.flush()
        assert json.loads(client.recv(1000))["wait_seconds"] == 2


def test_a_message_to_somebody_who_left_is_dropped(acceptor: Acceptor) -> None:
    acceptor.server.send(Send(ConnId(9), "W1", Wait(2), v1=True))
    acceptor.server.flush()
    assert acceptor.events == []


def test_hanging_up_is_told_like_any_other_end(acceptor: Acceptor) -> None:
    with acceptor.client() as client:
        acceptor.server.hang_up(ConnId(1), "too many wrong lines")
        assert acceptor.events[-1] == ev.Disconnected(ConnId(1), "too many wrong lines")
        assert client.recv(10) == b""
        acceptor.server.hang_up(ConnId(1), "again")
        assert len(acceptor.events) == 2


def test_a_slow_reader_gets_everything_in_the_end(acceptor: Acceptor) -> None:
    with acceptor.client() as client:
        title = "x" * 60_000
        for number in range(20):
            task = Task(IssueId(f"i{number}"), 2, title)
            acceptor.server.send(Send(ConnId(1), "W1", task, v1=True))
        acceptor.server.flush()
        received = b""
        while received.count(b"\n") < 20:
            received += client.recv(1 << 20)
            acceptor.turn()
        assert [json.loads(m)["issue_id"] for m in received.splitlines()] == [
            f"i{n}" for n in range(20)
        ]


def test_a_large_payload_travels_as_a_file_that_is_ours_alone(acceptor: Acceptor) -> None:
    payload: dict[str, Any] = {"issue": {"text": "x" * limits.INLINE_BYTES_MAX}}
    with acceptor.client() as client:
        acceptor.server.send(
            Send(ConnId(1), "W1", Task(IssueId("a"), 2, "t", payload=payload), False)
        )
        acceptor.server.flush()
        task = json.loads(client.recv(1 << 20))
    file = Path(task["payload_file"])
    assert "payload" not in task and file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text())["issue"] == payload["issue"]


# --- a flood --------------------------------------------------------------------------------------


def look(acceptor: Acceptor) -> list[ev.Event]:
    """One look at the selector, without hearing those who wait."""
    before = len(acceptor.events)
    for key, mask in acceptor.selector.select(0):
        key.data(mask)
    return acceptor.events[before:]


def test_a_worker_is_heard_at_once_while_strangers_wait_for_their_turn(acceptor: Acceptor) -> None:
    strangers = [acceptor.client() for _ in range(3 * limits.STRANGERS_AT_ONCE)]
    worker = acceptor.client()
    worker.sendall(READY)
    acceptor.turn()
    for stranger in strangers:
        stranger.sendall(b"junk\n" * 1000)
    worker.sendall(READY)
    assert [type(e) for e in look(acceptor)] == [ev.Received]
    at_once = limits.STRANGERS_AT_ONCE * limits.LINES_AT_ONCE
    for _ in range(3):
        assert [type(e) for e in acceptor.read_waiting()] == [ev.Misread] * at_once
        worker.sendall(READY)
        assert [type(e) for e in look(acceptor)] == [ev.Received]
    for client in (*strangers, worker):
        client.close()


def test_between_turns_of_nonsense_there_is_a_pause_and_none_after_a_good_word(
    acceptor: Acceptor,
) -> None:
    with acceptor.client() as good, acceptor.client() as bad:
        good.sendall(READY)
        look(acceptor)
        acceptor.server.read_waiting(10.0)
        assert acceptor.events[-1] == ev.Received(ConnId(1), Ready("w"))
        bad.sendall(b"junk\n" * 20)
        look(acceptor)
        assert acceptor.server.deadline() is not None
        acceptor.server.read_waiting(10.0)
        assert acceptor.server.deadline() == 10.0 + limits.NONSENSE_PAUSE_SECONDS
        count = len(acceptor.events)
        acceptor.server.read_waiting(10.0)
        assert len(acceptor.events) == count


def test_who_talks_much_is_heard_to_the_end_in_order_and_then_is_gone(acceptor: Acceptor) -> None:
    with acceptor.client() as client:
        client.sendall(b"".join(b"%d\n" % number for number in range(100)) + b"half")
    events = acceptor.turn()
    heads = [e.head for e in events if isinstance(e, ev.Misread)]
    assert heads == [*map(str, range(100)), "half"]
    assert isinstance(events[-1], ev.Disconnected)


def test_a_slow_reader_that_talks_much_gets_everything_too(acceptor: Acceptor) -> None:
    with acceptor.client() as client:
        client.sendall(READY)
        acceptor.turn()
        for _ in range(8):
            acceptor.server.send(
                Send(ConnId(1), "W1", Task(IssueId("a"), 1, "t", "x" * 200_000), v1=False)
            )
        acceptor.server.flush()
        client.sendall(b"junk\n" * 100)
        look(acceptor)
        got = 0
        while got < 8 * 200_000:
            got += len(client.recv(1 << 16))
            acceptor.turn()
        assert sum(isinstance(e, ev.Misread) for e in acceptor.events) == 100


def test_who_cannot_be_watched_is_let_go_and_nobody_else(acceptor: Acceptor) -> None:
    early = acceptor.client()
    acceptor.turn()
    acceptor.selector.full = True
    before = len(acceptor.events)
    late = acceptor.client()
    events = acceptor.events[before:]
    assert [type(event) for event in events] == [ev.Connected, ev.Disconnected]
    assert "cannot be watched" in events[1].reason  # type: ignore[union-attr]
    assert late.recv(100) == b""
    acceptor.selector.full = False
    early.sendall(READY)
    assert isinstance(acceptor.turn()[0], ev.Received)
    early.close()
    late.close()
