"""What 1.1 adds, on a real fleet: a client with nothing but a socket uses each of it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import StartFleet
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, until


class Client:
    """One connection."""

    def __init__(self, fleet: Fleet) -> None:
        self.link = socket.socket(socket.AF_UNIX)
        self.link.connect(str(fleet.socket))
        self.link.settimeout(20)
        self.lines = self.link.makefile()

    def say(self, kind: str, **fields: Any) -> None:
        """A message of 1.1."""
        head = {"type": kind, "worker_id": "raw", "timestamp": time.time(), "version": "1.1"}
        self.link.sendall(json.dumps(head | fields).encode() + b"\n")

    def ready(self, *features: str, **fields: Any) -> None:
        """READY of a worker that never calls the tracker."""
        self.say("READY", features=["grouped", "cancel", *features], **fields)

    def hear(self, *kinds: str) -> dict[str, Any]:
        """The next message of one of these types, whatever else comes before it."""
        for line in self.lines:
            message: dict[str, Any] = json.loads(line)
            if message["type"] in kinds:
                return message
            assert message["type"] in ("WAIT", "CANCEL", "STATUS"), message
        raise AssertionError("the connection is over")

    def is_silent(self, seconds: float) -> bool:
        """Whether nothing comes for so long."""
        self.link.settimeout(seconds)
        try:
            self.link.recv(1, socket.MSG_PEEK)
            return False
        except TimeoutError:
            return True
        finally:
            self.link.settimeout(20)

    def done(self, issue_id: str) -> None:
        """DONE."""
        self.say("DONE", issue_id=issue_id, duration_ms=1)


@pytest.fixture
def fleet(embedded: EmbeddedProject, start: StartFleet) -> Iterator[Fleet]:
    found: Fleet = start(embedded, "-n", "0", "--orphan-grace", "0.2s", "--", "true")
    yield found


def row(fleet: Fleet) -> dict[str, Any]:
    """The one worker in ``status --json``."""
    (found,) = json.loads(fleet.call("status", "--json").stdout)["workers"]
    return dict(found)


def test_a_raw_client_uses_each_extension(embedded: EmbeddedProject, fleet: Fleet) -> None:
    client = Client(fleet)
    named = ("batch", "heartbeat", "pause", "priority", "status")
    # PRIORITY: only the urgent one of two is sent.
    client.say("PRIORITY", priorities=[0])
    client.ready(*named, heartbeat_seconds=5, batch_size=3)
    low, urgent = embedded.create_many([{"priority": 3}, {"priority": 0}])
    while True:
        message = client.hear("TASK", "WAIT")
        if message["type"] == "TASK":
            break
        time.sleep(0.2)
        client.ready(*named, heartbeat_seconds=5, batch_size=3)
    assert message["issue_id"] == urgent
    # STATUS: asked by whoever looks, and shown.
    fleet.call("status")
    assert "state" not in client.hear("STATUS")
    client.say("STATUS", state="busy", issue_id=urgent, resources={"rss_bytes": 1024})
    until(lambda: (row(fleet)["status"] or {}).get("state") == "busy")
    assert row(fleet)["status"]["resources"]["rss_bytes"] == 1024
    # PAUSE and RESUME by a person: READY is held.
    assert fleet.call("pause", "W1").returncode == 0
    assert client.hear("PAUSE")["reason"]
    client.done(urgent)
    client.say("PRIORITY")
    client.ready(*named, heartbeat_seconds=5, batch_size=3)
    assert client.is_silent(4.0) and row(fleet)["paused"]
    # BATCH, once it is resumed: three that were made meanwhile.
    more = embedded.create_many([{"id": f"bw-more{n}", "priority": 1} for n in range(3)])
    assert fleet.call("resume", "W1").returncode == 0
    client.hear("RESUME")
    seen: list[str] = []
    batches = 0
    while set(seen) != {low, *more}:
        message = client.hear("BATCH", "TASK", "WAIT")
        batches += message["type"] == "BATCH"
        tasks = message.get("tasks", [message] if message["type"] == "TASK" else [])
        seen += [task["issue_id"] for task in tasks]
        for task in tasks:
            client.done(task["issue_id"])
        time.sleep(0.1)
        client.ready(*named, heartbeat_seconds=2, batch_size=3)
    assert batches, "several were ready at once"
    # HEARTBEAT keeps it connected; three intervals without one do not.
    for _ in range(8):
        client.say("HEARTBEAT")
        time.sleep(1.0)
    silent_from = time.monotonic()
    fleet.wait_for("worker_left", 20, worker_id="W1")
    assert time.monotonic() - silent_from > 3.0, "not while it had beats"
    assert fleet.call("stop").returncode == 0
    fleet.leaves_nothing()


def state(pid: int) -> str:
    """What the kernel says: ``T`` for one that is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_paused_worker_stops_what_it_runs_and_its_time_stands_still(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    embedded.create_many([{}])
    pids = embedded.folder / "pids"
    command = f"sleep 100 & echo $! $$ >{pids}; sleep 3; kill $!"
    options = ("-n", "1", "--suspend", "--timeout", "4s", "--until-empty")
    fleet = start(embedded, *options, "--", "sh", "-c", command)
    both = [int(pid) for pid in until(lambda: pids.exists() and pids.read_text().split())]
    fleet.call("pause", "W1")
    until(lambda: [state(pid) for pid in both] == ["T", "T"])
    # Longer than it has for all of its work: no time limit ends it.
    time.sleep(4.5)
    assert [state(pid) for pid in both] == ["T", "T"]
    assert fleet.status()["workers"][0]["paused"]
    fleet.call("resume", "W1")
    assert fleet.wait() == 0, fleet.said()
    assert [end["outcome"] for end in fleet.journal("finished")] == ["success"]
    fleet.leaves_nothing()
