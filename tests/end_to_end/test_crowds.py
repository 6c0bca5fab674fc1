"""Many at once, and junk on the socket: nobody who works notices anything."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Ran, StartFleet
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, until


def line(kind: str, **fields: object) -> bytes:
    message = {"type": kind, "worker_id": "stranger", "timestamp": 1.5, **fields}
    return json.dumps(message).encode() + b"\n"


def connect(path: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(20)
    client.connect(str(path))
    return client


@pytest.mark.timeout(180)
def test_a_hundred_workers_connect_at_once_and_drain_hundreds_of_issues(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    ids = embedded.create_many([{"priority": n % 5} for n in range(300)])
    fleet: Fleet = start(
        embedded,
        *("-n", "100", "--until-empty", "--"),
        *("sh", "-c", 'echo "end $BW_ISSUE_ID" >>"$RAN"'),
        environment=ran.environment,
    )
    assert fleet.wait(120) == 0, fleet.said()
    assert Counter(ran.ended()) == Counter(ids)
    assert {s for s, _ in embedded.read_all().values()} == {"closed"}
    assert len(fleet.journal("worker_joined")) == 100
    assert {r["status"] for r in fleet.journal("worker_exited")} == {0}
    fleet.leaves_nothing()


def test_a_hundred_clients_that_report_without_end_hold_up_nobody(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    ids = embedded.create_many([{} for _ in range(100)])
    fleet: Fleet = start(
        embedded,
        *("-n", "2", "--until-empty", "--stop-timeout", "1s", "--"),
        *ran.command("sleep 0.05"),
        environment=ran.environment,
    )
    clients = [connect(fleet.socket) for _ in range(100)]
    over = threading.Event()

    def report() -> None:
        while not over.wait(0.1):
            for client in clients:
                try:
                    client.sendall(line("DONE", issue_id="bw-1", duration_ms=1))
                except OSError:
                    pass

    reporter = threading.Thread(target=report)
    reporter.start()
    try:
        until(lambda: len(ran.ended()) >= 50)
        assert fleet.status()["totals"]["done"] >= 40
        assert fleet.wait(60) == 0, fleet.said()
    finally:
        over.set()
        reporter.join()
        for client in clients:
            client.close()
    ran.each_once(list(ids))
    assert not [r for r in fleet.journal("finished") if r["outcome"] != "success"]
    fleet.leaves_nothing()


def _ready(**more: object) -> bytes:
    return line("READY", **more)


JUNK: dict[str, tuple[bytes, ...]] = {
    "random bytes": (os.urandom(100_000), b"\n"),
    "ten megabytes without an end": (b"x" * 10_000_000,),
    "ten megabytes in a line": (b'{"type":"READY","x":"' + b"y" * 10_000_000 + b'"}\n',),
    "NaN": (b'{"type":"READY","worker_id":"W","timestamp":NaN}\n',),
    "a huge number": (b'{"type":"READY","worker_id":"W","timestamp":' + b"9" * 9_000 + b"}\n",),
    "deep nesting": (b"[" * 100_000 + b"\n", b'{"a":' * 100_000 + b"\n"),
    "lone surrogates": (b'{"type":"DONE","issue_id":"\\ud800","worker_id":"W","timestamp":1}\n',),
    "no UTF-8": (b'{"type":"READY","worker_id":"\xff\xfe","timestamp":1}\n',),
    "a NUL": (b"\0\0\0\n", line("DONE", issue_id="a\0b", duration_ms=1)),
    "half a line": (b'{"type":"REA',),
    "nothing but newlines": (b"\n" * 100_000,),
    "wrong shapes": (b"null\n", b"[]\n", b"1\n", b'"READY"\n', b"{}\n", b'{"type":{}}\n'),
    "unknown types": (line("FROBNICATE"), line("TASK", issue_id="bw-1", title="mine")),
    "reports for nothing": (
        *(line("DONE", issue_id="bw-1", duration_ms=1), line("FAILED", issue_id="../x", error="")),
        *(line("DONE", issue_id=True), line("DONE", issue_id=""), line("DONE")),
    ),
    "an escape": (line("FROBNICATE\x1b[2J\x1b]0;owned\x07"), b"\x1b[2J\n"),
    "a flood of wrong lines": (b"junk\n" * 5_000,),
}


def _more_notes(fleet: Fleet, than: int) -> bool:
    return len(fleet.journal("noted")) > than


def test_junk_is_survived_and_the_others_notice_nothing(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    ids = embedded.create_many([{} for _ in range(60)])
    fleet: Fleet = start(
        embedded,
        *("-n", "3", "--until-empty", "--stop-timeout", "1s", "--"),
        *ran.command('sleep 0.05; while ! [ -e "$RAN.gate" ]; do sleep 0.2; done'),
        environment=ran.environment,
    )
    silent = [connect(fleet.socket) for _ in range(200)]
    until(lambda: len(ran.begun()) == 3)
    for name, pieces in JUNK.items():
        noted = len(fleet.journal("noted"))
        client = connect(fleet.socket)
        for piece in pieces:
            try:
                client.sendall(piece)
            except OSError:
                break  # The connection was closed on the flood.
        client.close()
        if name not in ("nothing but newlines",):
            until(partial(_more_notes, fleet, noted), 10, name)
        assert fleet.status()["state"] == "running"
    Path(f"{ran.file}.gate").touch()
    assert fleet.wait() == 0, fleet.said()
    for client in silent:
        client.close()
    ran.each_once(list(ids))
    finished = fleet.journal("finished")
    assert {r["outcome"] for r in finished} == {"success"}
    assert {r["worker_id"] for r in finished} == {"W1", "W2", "W3"}
    assert "\x1b" not in fleet.output and "\x07" not in fleet.output
    assert max(len(text) for text in fleet.output.splitlines()) < 1500
    fleet.leaves_nothing()


def test_connections_that_say_nothing_are_closed_after_ten_seconds_and_workers_are_not(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    fleet: Fleet = start(embedded, "-n", "1", "--", "true")
    silent = [connect(fleet.socket) for _ in range(200)]
    worker = connect(fleet.socket)
    worker.sendall(_ready())
    began = time.monotonic()
    assert [client.recv(1) for client in silent] == [b""] * 200
    assert time.monotonic() - began > 8
    assert fleet.call("stop", "--timeout", "0.5").returncode == 0
    assert b"SHUTDOWN" in worker.recv(1 << 16), "its READY was held all the time"
    fleet.leaves_nothing()


class Stranger:
    """A plain v1 worker, line by line."""

    def __init__(self, path: Path) -> None:
        self._socket = connect(path)
        self._file = self._socket.makefile("rb")

    def say(self, kind: str, **fields: object) -> None:
        self._socket.sendall(line(kind, **fields))

    def hear(self) -> dict[str, object]:
        message: dict[str, object] = json.loads(self._file.readline())
        return message


def test_a_stranger_that_says_ready_twice_has_one_task_and_finishes_it(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    embedded.create_many([{} for _ in range(3)])
    fleet: Fleet = start(embedded, "-n", "0", "--", "true")
    stranger = Stranger(fleet.socket)
    stranger.say("READY")
    task = stranger.hear()
    assert set(task) == {"type", "worker_id", "timestamp", "issue_id", "priority", "title"}
    stranger.say("READY")
    assert stranger.hear() | {"timestamp": 0} == task | {"timestamp": 0}
    stranger.say("DONE", issue_id="bw-other", duration_ms=1)
    assert stranger.hear()["type"] == "WAIT"
    stranger.say("DONE", issue_id=task["issue_id"], duration_ms=1)
    until(lambda: embedded.read_all()[task["issue_id"]][0] == "closed")  # type: ignore[index]
    stranger.say("READY")
    second = stranger.hear()["issue_id"]
    assert second != task["issue_id"]
    # It is still there, with its next task: that is said, and nobody else gets that one.
    assert fleet.call("stop", "--timeout", "0.5").returncode == 1
    assert stranger.hear()["reason"] == "user_requested"
    assert embedded.read_all()[second][0] == "in_progress"  # type: ignore[index]
