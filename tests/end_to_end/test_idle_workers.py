"""Workers that wait, and issues that come: who is idle has work within seconds of an import."""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.end_to_end.conftest import StartFleet
from tests.support.bd import BdProject
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import PATIENCE_SECONDS, until

WORKERS, ISSUES = 100, 20


class IdleWorkers:
    """Connections that have said READY, and count what they are told."""

    def __init__(self, path: Path) -> None:
        self._selector = selectors.DefaultSelector()
        self._heard: dict[socket.socket, bytes] = {}
        ready = {"type": "READY", "worker_id": "idle", "timestamp": 1.5, "version": "1.1"}
        for _ in range(WORKERS):
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            client.connect(str(path))
            client.sendall(json.dumps(ready | {"features": ["grouped"]}).encode() + b"\n")
            self._selector.register(client, selectors.EVENT_READ)
            self._heard[client] = b""

    def told(self, seconds: float = 0.0) -> list[dict[str, Any]]:
        """All that they have been told so far."""
        for key, _ in self._selector.select(seconds):
            client = key.fileobj
            assert isinstance(client, socket.socket)
            self._heard[client] += client.recv(65536)
        return [json.loads(line) for heard in self._heard.values() for line in heard.splitlines()]

    def close(self) -> None:
        for client in self._heard:
            client.close()
        self._selector.close()


@contextmanager
def idle_workers(path: Path) -> Iterator[IdleWorkers]:
    workers = IdleWorkers(path)
    try:
        yield workers
    finally:
        workers.close()


def test_idle_workers_are_held_and_have_what_is_imported_at_once(
    any_project: EmbeddedProject | BdProject, start: StartFleet
) -> None:
    fleet = start(any_project, "-n", "0", "--poll", "1h", "--", "true")
    with idle_workers(fleet.socket) as workers:
        until(lambda: len(fleet.journal("worker_joined")) == WORKERS, what=fleet.said())
        fleet.wait_for("spent")
        ids = any_project.create_many([{} for _ in range(ISSUES)])
        ends = time.monotonic() + PATIENCE_SECONDS
        while len(told := workers.told(1.0)) < ISSUES and time.monotonic() < ends:
            pass
        assert sorted(m["issue_id"] for m in told if m["type"] == "TASK") == sorted(ids)
        assert len(told) == ISSUES, "nobody was told to wait"
        stop = fleet.call("stop", "--timeout", "1")
        told = workers.told(1.0)
        assert [m["type"] for m in told].count("SHUTDOWN") == WORKERS, stop
