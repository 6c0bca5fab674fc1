"""The control socket: questions, followers, the owner, and those who wait for the end."""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core import events as ev
from beads_workers.core.commands import Answer
from beads_workers.core.model import IssueId
from beads_workers.core.snapshot import Board
from beads_workers.core.status import Frames
from beads_workers.runtime.control_socket import ControlServer


class Desk:
    """A control server, its events, and the turning of its selector."""

    def __init__(self, folder: Path, owner: socket.socket | None = None) -> None:
        self.path = folder / "control.sock"
        self.selector = selectors.DefaultSelector()
        self.events: list[ev.Event] = []
        self.frames = Frames(Board(), watched=False)
        self.server = ControlServer(
            self.path,
            self.selector,
            self.events.append,
            lambda: {"state": "running"},
            self.frames,
            owner,
            look=lambda: (self.frames.board, 1.5),
        )

    def turn(self) -> None:
        """Handle whatever is ready."""
        while ready := self.selector.select(0):
            for key, mask in ready:
                key.data(mask)

    def client(self) -> socket.socket:
        """Somebody connects."""
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(20)
        client.connect(str(self.path))
        return client

    def ask(self, client: socket.socket, control: object, **data: Any) -> None:
        """Send a request."""
        line = json.dumps({"control": control, "control_data": data}).encode() + b"\n"
        client.sendall(line)
        self.turn()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.server.close({})
    made.selector.close()


def lines(client: socket.socket) -> list[Any]:
    """Everything that has arrived."""
    return [json.loads(line) for line in client.recv(1 << 16).splitlines()]


def test_status_is_one_object(desk: Desk) -> None:
    with desk.client() as client:
        desk.ask(client, "bw.status")
        assert lines(client) == [{"state": "running"}]


@pytest.mark.parametrize(
    "line",
    [
        b"{\n",
        b"\xff\n",
        b"[]\n",
        b"{}\n",
        b'{"control": 7}\n',
        b'{"control": "bw.nothing"}\n',
        b'{"control": "bw.scale", "control_data": {"workers": -1}}\n',
        b'{"control": "bw.scale", "control_data": {"workers": 1.5}}\n',
        b'{"control": "bw.scale", "control_data": {"workers": true}}\n',
        b'{"control": "bw.scale", "control_data": {"workers": 1e999}}\n',
        b'{"control": "bw.stop", "control_data": {"seconds": -1}}\n',
        b'{"control": "bw.stop", "control_data": {"exit_code": -1}}\n',
        b'{"control": "bw.stop", "control_data": {"exit_code": 256}}\n',
        b'{"control": "bw.stop", "control_data": {"exit_code": 1e300}}\n',
        b'{"control": "bw.retry", "control_data": {"issue_ids": []}}\n',
        b'{"control": "bw.retry", "control_data": {"issue_ids": [7]}}\n',
        b'{"control": "bw.follow", "control_data": {"only": "claimed"}}\n',
        b'{"control": "bw.follow", "control_data": {"only": ["claimed", 7]}}\n',
        b'{"control": "bw.follow", "control_data": {"only": [["claimed"]]}}\n',
        b'{"control": "bw.follow", "control_data": {"only": {"claimed": 1}}}\n',
    ],
)
def test_a_wrong_request_is_answered_with_an_error_and_nothing_happens(
    desk: Desk, line: bytes
) -> None:
    with desk.client() as client:
        client.sendall(line)
        desk.turn()
        (answer,) = lines(client)
        assert list(answer) == ["error"] and answer["error"]
        assert desk.events == []
        desk.ask(client, "bw.status")
        assert lines(client) == [{"state": "running"}], "the connection goes on"


def test_each_answer_finds_the_one_who_asked(desk: Desk) -> None:
    with desk.client() as first, desk.client() as second:
        desk.ask(first, "bw.pause")
        desk.ask(second, "bw.retry", issue_ids=["x"])
        pause, retry = desk.events
        assert isinstance(pause, ev.PauseAsked) and isinstance(retry, ev.RetryAskedFor)
        assert retry.issue_ids == (IssueId("x"),)
        desk.server.answer(Answer(retry.ticket, error="nothing to retry: x", not_found=True))
        desk.server.answer(Answer(pause.ticket, "paused"))
        assert lines(first) == [{"text": "paused"}]
        assert lines(second) == [{"text": "", "error": "nothing to retry: x", "not_found": True}]


def test_an_answer_for_somebody_who_left_goes_nowhere(desk: Desk) -> None:
    with desk.client() as client:
        desk.ask(client, "bw.pause")
    desk.turn()
    (pause,) = desk.events
    assert isinstance(pause, ev.PauseAsked)
    desk.server.answer(Answer(pause.ticket, "paused"))


def test_a_follower_gets_the_status_first_and_then_every_line(desk: Desk) -> None:
    with desk.client() as follower, desk.client() as other:
        desk.ask(follower, "bw.follow")
        desk.ask(other, "bw.status")
        desk.server.publish(b'{"e":"claimed"}\n')
        due = desk.server.deadline()
        assert due is not None
        desk.server.flush(due)
        assert lines(follower) == [{"status": {"state": "running"}}, {"e": "claimed"}]
        assert lines(other) == [{"state": "running"}]


def test_a_new_follower_is_not_sent_what_its_status_shows_already(desk: Desk) -> None:
    with desk.client() as old, desk.client() as new:
        desk.ask(old, "bw.follow")
        desk.server.publish(b'{"e":"claimed"}\n')
        desk.ask(new, "bw.follow")
        assert desk.server.deadline() is None
        assert lines(old) == [{"status": {"state": "running"}}, {"e": "claimed"}]
        assert lines(new) == [{"status": {"state": "running"}}]


def test_who_follows_some_kinds_is_told_these_and_the_end(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    with desk.client() as waiting, desk.client() as follower:
        desk.ask(waiting, "bw.follow", only=["run_changed", "of a newer version"])
        desk.ask(follower, "bw.follow", only=None)
        desk.server.publish(b'{"v":1,"e":"claimed","t":1}\n{"v":1,"e":"run_changed","t":2}\n')
        desk.server.publish(b'{"v":1,"e":"claimed","t":3}\n')
        desk.server.close({"exit_code": 7})
        status, changed, ended = lines(waiting)
        assert status == {"status": {"state": "running"}}
        assert (changed["e"], changed["t"]) == ("run_changed", 2)
        assert ended == {"ended": {"exit_code": 7}}
        assert [line.get("t") for line in lines(follower)[1:-1]] == [1, 2, 3]


def test_a_run_does_not_wake_for_who_waits_for_its_end_only(desk: Desk) -> None:
    with desk.client() as waiting:
        desk.ask(waiting, "bw.follow", only=[])
        desk.server.publish(b'{"v":1,"e":"run_changed","t":2}\n')
        assert desk.server.deadline() is None


def test_whoever_asked_while_nobody_listened_is_told_the_end(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    with desk.client() as before, desk.client() as knocking, desk.client() as silent:
        desk.ask(before, "bw.status")
        lines(before)
        request = b'{"control": "bw.follow", "control_data": {"only": []}}\n'
        before.sendall(request)
        knocking.sendall(request)
        desk.server.close({"exit_code": 0})
        for client in (before, knocking):
            assert lines(client) == [{"status": {"state": "running"}}, {"ended": {"exit_code": 0}}]
        assert silent.recv(10) == b""


def test_a_follower_that_is_gone_before_it_is_answered_is_forgotten(desk: Desk) -> None:
    with desk.client() as follower:
        follower.sendall(b'{"control": "bw.follow"}\n' * 2)
    desk.turn()
    desk.server.publish(b'{"v":1,"e":"claimed","t":1}\n')
    desk.server.flush(float("inf"))
    assert desk.events == []


def test_a_follower_that_leaves_changes_nothing(desk: Desk) -> None:
    with desk.client() as follower:
        desk.ask(follower, "bw.follow")
    desk.turn()
    desk.server.publish(b"{}\n")
    assert desk.events == []


def test_who_asked_for_a_stop_waits_for_the_end_and_is_told(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    with desk.client() as stopper, desk.client() as other:
        desk.ask(stopper, "bw.stop", seconds=3, drain=True)
        assert desk.events == [ev.StopAsked(drain=True, seconds=3.0)]
        desk.ask(other, "bw.status")
        desk.server.close({"exit_code": 0})
        assert lines(stopper) == [{"ended": {"exit_code": 0}}]
        assert lines(other) == [{"state": "running"}]
        assert other.recv(10) == b""
    assert not desk.path.exists()


def test_a_follower_that_asks_for_a_stop_goes_on_following(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    with desk.client() as follower:
        desk.ask(follower, "bw.follow")
        desk.ask(follower, "bw.stop")
        desk.server.publish(b'{"e":"settled"}\n')
        desk.server.close({})
        assert lines(follower)[1:] == [{"e": "settled"}, {"ended": {}}]


def test_the_end_of_the_owners_connection_is_a_stop(tmp_path: Path) -> None:
    ours, owner = socket.socketpair()
    desk = Desk(tmp_path, ours)
    owner.close()
    desk.turn()
    (stop,) = desk.events
    assert isinstance(stop, ev.StopAsked) and not stop.drain and stop.seconds is None
    desk.server.close({})


def test_an_owner_that_detached_may_leave(tmp_path: Path) -> None:
    ours, owner = socket.socketpair()
    desk = Desk(tmp_path, ours)
    desk.ask(owner, "bw.detach")
    assert json.loads(owner.recv(1000)) == {"text": "detached"}
    owner.close()
    desk.turn()
    assert desk.events == []
    desk.server.close({})


def test_the_owner_follows_from_the_start_and_hears_of_the_end(tmp_path: Path) -> None:
    ours, owner = socket.socketpair()
    desk = Desk(tmp_path, ours)
    desk.server.publish(b'{"e":"claimed"}\n')
    desk.server.close({"exit_code": 7})
    assert lines(owner) == [{"e": "claimed"}, {"ended": {"exit_code": 7}}]
    owner.close()


def test_figures_are_told_with_the_processes_whose_use_the_client_reads(desk: Desk) -> None:
    client = desk.client()
    desk.ask(client, "bw.metrics")
    told = json.loads(client.makefile("rb").readline())
    assert {each["name"] for each in told["families"]} >= {"beads_workers_uptime_seconds"}
    assert (told["orchestrator"], told["workers"], told["own"]) == (0, [], [])
    client.close()
