"""The control socket: questions, followers, the owner, and those who wait for the end."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.model import IssueId
from beads_workers.core.requests.retry import RetryAskedFor
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Answer
from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import Frames
from beads_workers.registry import DECIDING
from beads_workers.runtime.control_socket import _EVENTS, ControlServer
from tests.runtime.test_acceptor import FullSelector


class Served:
    """A control server, its events, and the turning of its selector."""

    def __init__(
        self, folder: Path, owner: socket.socket | None = None, *, attempt: int = 0
    ) -> None:
        """``attempt``: pid of the only process that is part of one."""
        self.path = folder / "control.sock"
        self.selector = FullSelector()
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
            is_within=lambda pid: pid == attempt,
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
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.server.close({})
    made.selector.close()


def lines(client: socket.socket) -> list[Any]:
    """Everything that has arrived."""
    return [json.loads(line) for line in client.recv(1 << 16).splitlines()]


def test_status_is_one_object(served: Served) -> None:
    with served.client() as client:
        served.ask(client, "bw.status")
        assert lines(client) == [{"state": "running"}]


@pytest.mark.parametrize(
    "line",
    [
        b"{\n",
        b"\xff\n",
        b"[]\n",
        b"{}\n",
        b'{"control": "bw.nothing"}\n',
        b'{"control": "bw.scale", "control_data": {"workers": -1}}\n',
        b'{"control": "bw.scale", "control_data": {"workers": 1.5}}\n',
        b'{"control": "bw.scale", "control_data": {"workers": true}}\n',
        b'{"control": "bw.scale", "control_data": {"workers": 1e999}}\n',
        b'{"control": "bw.stop", "control_data": {"seconds": -1}}\n',
        b'{"control": "bw.stop", "control_data": {"seconds": "x"}}\n',
        b'{"control": "bw.stop", "control_data": {"seconds": []}}\n',
        b'{"control": "bw.stop", "control_data": {"drain": "yes"}}\n',
        b'{"control": "bw.stop", "control_data": {"exit_code": -1}}\n',
        b'{"control": "bw.stop", "control_data": {"exit_code": 256}}\n',
        b'{"control": "bw.stop", "control_data": {"exit_code": 1e300}}\n',
        b'{"control": "bw.retry", "control_data": {"issue_ids": []}}\n',
        b'{"control": "bw.retry", "control_data": {"issue_ids": [7]}}\n',
        b'{"control": "bw.__init__"}\n',
        b'{"control": "bw.follow", "control_data": {"only": "claimed"}}\n',
        b'{"control": "bw.follow", "control_data": {"only": ["claimed", 7]}}\n',
        b'{"control": "bw.follow", "control_data": {"only": [["claimed"]]}}\n',
        b'{"control": "bw.follow", "control_data": {"only": {"claimed": 1}}}\n',
    ],
)
def test_a_wrong_request_is_answered_with_an_error_and_nothing_happens(
    served: Served, line: bytes
) -> None:
    with served.client() as client:
        client.sendall(line)
        served.turn()
        (answer,) = lines(client)
        assert list(answer) == ["error"] and answer["error"]
        assert served.events == []
        served.ask(client, "bw.status")
        assert lines(client) == [{"state": "running"}], "the connection goes on"


def test_each_answer_finds_the_one_who_asked(served: Served) -> None:
    with served.client() as first, served.client() as second:
        served.ask(first, "bw.pause")
        served.ask(second, "bw.retry", issue_ids=["x"])
        pause, retry = served.events
        assert isinstance(pause, ev.PauseAsked) and isinstance(retry, RetryAskedFor)
        assert retry.issue_ids == (IssueId("x"),)
        served.server.answer(Answer(retry.ticket, error="nothing to retry: x", not_found=True))
        served.server.answer(Answer(pause.ticket, "paused"))
        assert lines(first) == [{"text": "paused"}]
        assert lines(second) == [{"text": "", "error": "nothing to retry: x", "not_found": True}]


def test_an_answer_for_somebody_who_left_goes_nowhere(served: Served) -> None:
    with served.client() as client:
        served.ask(client, "bw.pause")
    served.turn()
    (pause,) = served.events
    assert isinstance(pause, ev.PauseAsked)
    served.server.answer(Answer(pause.ticket, "paused"))


def test_a_follower_gets_the_status_first_and_then_every_line(served: Served) -> None:
    with served.client() as follower, served.client() as other:
        served.ask(follower, "bw.follow")
        served.ask(other, "bw.status")
        served.server.publish(b'{"e":"claimed"}\n')
        due = served.server.deadline()
        assert due is not None
        served.server.flush(due)
        assert lines(follower) == [{"status": {"state": "running"}}, {"e": "claimed"}]
        assert lines(other) == [{"state": "running"}]


def test_a_new_follower_is_not_sent_what_its_status_shows_already(served: Served) -> None:
    with served.client() as old, served.client() as new:
        served.ask(old, "bw.follow")
        served.server.publish(b'{"e":"claimed"}\n')
        served.ask(new, "bw.follow")
        assert served.server.deadline() is None
        assert lines(old) == [{"status": {"state": "running"}}, {"e": "claimed"}]
        assert lines(new) == [{"status": {"state": "running"}}]


def test_who_follows_some_kinds_is_told_these_and_the_end(tmp_path: Path) -> None:
    served = Served(tmp_path)
    with served.client() as waiting, served.client() as follower:
        served.ask(waiting, "bw.follow", only=["run_changed", "of a newer version"])
        served.ask(follower, "bw.follow", only=None)
        served.server.publish(b'{"v":1,"e":"claimed","t":1}\n{"v":1,"e":"run_changed","t":2}\n')
        served.server.publish(b'{"v":1,"e":"claimed","t":3}\n')
        served.server.close({"exit_code": 7})
        status, changed, ended = lines(waiting)
        assert status == {"status": {"state": "running"}}
        assert (changed["e"], changed["t"]) == ("run_changed", 2)
        assert ended == {"ended": {"exit_code": 7}}
        assert [line.get("t") for line in lines(follower)[1:-1]] == [1, 2, 3]


def test_a_run_does_not_wake_for_who_waits_for_its_end_only(served: Served) -> None:
    with served.client() as waiting:
        served.ask(waiting, "bw.follow", only=[])
        served.server.publish(b'{"v":1,"e":"run_changed","t":2}\n')
        assert served.server.deadline() is None


def test_whoever_asked_while_nobody_listened_is_told_the_end(tmp_path: Path) -> None:
    served = Served(tmp_path)
    with served.client() as before, served.client() as knocking, served.client() as silent:
        served.ask(before, "bw.status")
        lines(before)
        request = b'{"control": "bw.follow", "control_data": {"only": []}}\n'
        before.sendall(request)
        knocking.sendall(request)
        served.server.close({"exit_code": 0})
        for client in (before, knocking):
            assert lines(client) == [{"status": {"state": "running"}}, {"ended": {"exit_code": 0}}]
        assert silent.recv(10) == b""


def test_a_follower_that_is_gone_before_it_is_answered_is_forgotten(served: Served) -> None:
    with served.client() as follower:
        follower.sendall(b'{"control": "bw.follow"}\n' * 2)
    served.turn()
    served.server.publish(b'{"v":1,"e":"claimed","t":1}\n')
    served.server.flush(float("inf"))
    assert served.events == []


def test_a_follower_that_leaves_changes_nothing(served: Served) -> None:
    with served.client() as follower:
        served.ask(follower, "bw.follow")
    served.turn()
    served.server.publish(b"{}\n")
    assert served.events == []


def test_who_asked_for_a_stop_waits_for_the_end_and_is_told(tmp_path: Path) -> None:
    served = Served(tmp_path)
    with served.client() as stopper, served.client() as other:
        served.ask(stopper, "bw.stop", seconds=3, drain=True)
        assert served.events == [ev.StopAsked(drain=True, seconds=3.0)]
        served.ask(other, "bw.status")
        served.server.close({"exit_code": 0})
        assert lines(stopper) == [{"ended": {"exit_code": 0}}]
        assert lines(other) == [{"state": "running"}]
        assert other.recv(10) == b""
    assert not served.path.exists()


def test_a_follower_that_asks_for_a_stop_goes_on_following(tmp_path: Path) -> None:
    served = Served(tmp_path)
    with served.client() as follower:
        served.ask(follower, "bw.follow")
        served.ask(follower, "bw.stop")
        served.server.publish(b'{"e":"settled"}\n')
        served.server.close({})
        assert lines(follower)[1:] == [{"e": "settled"}, {"ended": {}}]


def test_the_end_of_the_owners_connection_is_a_stop(tmp_path: Path) -> None:
    ours, owner = socket.socketpair()
    served = Served(tmp_path, ours)
    owner.close()
    served.turn()
    (stop,) = served.events
    assert isinstance(stop, ev.StopAsked) and not stop.drain and stop.seconds is None
    served.server.close({})


def test_an_owner_that_detached_may_leave(tmp_path: Path) -> None:
    ours, owner = socket.socketpair()
    served = Served(tmp_path, ours)
    served.ask(owner, "bw.detach")
    assert json.loads(owner.recv(1000)) == {"text": "detached"}
    owner.close()
    served.turn()
    assert served.events == []
    served.server.close({})


def test_the_owner_follows_from_the_start_and_hears_of_the_end(tmp_path: Path) -> None:
    ours, owner = socket.socketpair()
    served = Served(tmp_path, ours)
    served.server.publish(b'{"e":"claimed"}\n')
    served.server.close({"exit_code": 7})
    assert lines(owner) == [{"e": "claimed"}, {"ended": {"exit_code": 7}}]
    owner.close()


def test_who_cannot_be_watched_is_let_go_and_comes_again(served: Served) -> None:
    served.selector.full = True
    with served.client() as client:
        served.turn()
        assert client.recv(100) == b""
    served.selector.full = False
    with served.client() as client:
        served.ask(client, "bw.status")
        assert lines(client) == [{"state": "running"}]


# --- attempts -------------------------------------------------------------------------------------

READING = {"why"}
"""Requests that anybody may make, beside those that the server answers itself."""


def test_every_request_is_a_persons_or_only_reads() -> None:
    names = {name.removeprefix("bw.") for name in _EVENTS}
    assert names - READING <= DECIDING and not READING & DECIDING


def test_an_attempt_is_refused_what_a_person_decides_and_the_person_is_told_once(
    tmp_path: Path,
) -> None:
    ours, owner = socket.socketpair()
    served = Served(tmp_path, owner, attempt=os.getpid())
    with served.client() as client, ours:
        for name in ("bw.pause", "bw.answer", "bw.pause", "cancel"):
            served.ask(client, name)
            (answer,) = lines(client)
            word = name.removeprefix("bw.")
            said = f"an agent's attempt may not '{word}' in its own project, only a person may"
            assert answer == {"error": said}
        texts = [event.text for event in served.events if isinstance(event, ev.Warned)]
        assert [text.split(" ")[0] for text in texts] == ["'pause'", "'answer'", "'cancel'"]
        assert len(texts) == len(served.events), "nothing else is asked of the fleet"
        served.ask(client, "bw.status")
        assert lines(client) == [{"state": "running"}]
        served.ask(ours, "bw.pause")  # Whoever has started the fleet, whatever its pid.
        assert isinstance(served.events[-1], ev.PauseAsked)
    served.server.close({})
    served.selector.close()
