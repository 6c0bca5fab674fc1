"""Feeds: a replay's snapshots come in time, and who watches a restarted fleet goes on."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from beads_workers.cli import feeds
from beads_workers.cli.client import try_to_connect
from beads_workers.cli.feeds import PAUSE_SECONDS_MAX, FleetFeed, ReplayFeed
from beads_workers.errors import CommandError
from beads_workers.runtime.endings import RESTART_FILE
from beads_workers.ui.viewer import Faster
from tests.support.fleet import until


def snapshots(*seconds: float) -> list[dict[str, Any]]:
    """Of these moments of a run."""
    return [{"uptime_seconds": moment} for moment in seconds]


def test_snapshots_come_as_fast_as_asked_and_what_is_overtaken_is_left_out() -> None:
    feed = ReplayFeed(iter(snapshots(0.25, 0.5, 0.75, 1000.0)), speed=1e6)
    time.sleep(0.001)
    (shown,) = feed.take()
    assert shown["snapshot"]["uptime_seconds"] in (0.75, 1000.0)
    while not feed.ended:
        feed.take()
    assert feed.deadline() is None and feed.take() == []


def test_nothing_is_waited_for_longer_than_people_would() -> None:
    feed = ReplayFeed(iter(snapshots(80_000.0)), speed=1.0)
    deadline = feed.deadline()
    assert deadline is not None and deadline <= time.monotonic() + PAUSE_SECONDS_MAX


def test_a_held_replay_stands_still_until_it_goes_on() -> None:
    feed = ReplayFeed(iter(snapshots(0.25, 50.0)), speed=10.0)
    assert "held" in feed.change_speed(Faster(0.0))
    assert feed.deadline() is None and feed.age() == 0.0
    assert feed.change_speed(Faster(2.0)) == "held", "still, and then twice as fast"
    assert feed.change_speed(Faster(0.0)) == "20 times as fast"
    assert feed.deadline() is not None


def test_the_age_between_two_snapshots_never_passes_the_next() -> None:
    feed = ReplayFeed(iter(snapshots(0.5, 0.75)), speed=1e6)
    time.sleep(0.001)
    assert feed.age() <= 0.5


# --- a fleet that is restarted -------------------------------------------------------------------


class Fleets:
    """A run directory with the control socket of one fleet after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(folder / "control"))
        self._server.listen()
        (folder / "run.json").write_text(json.dumps({"control_socket": str(folder / "control")}))

    def accept(self, run_id: str) -> socket.socket:
        """The fleet's end of the next connection, which shows this run."""
        connection, _ = self._server.accept()
        (self.folder / "runs" / run_id).mkdir(parents=True)
        shown = {"snapshot": {"run_id": run_id, "uptime_seconds": 1.0}}
        connection.sendall(json.dumps(shown).encode() + b"\n")
        return connection

    def restarts(self, run_id: str, pid: int) -> None:
        """As ``restart`` says it."""
        (self.folder / "runs" / run_id / RESTART_FILE).write_text(str(pid))


@pytest.fixture
def fleets() -> Iterator[Fleets]:
    """In a folder with a short path."""
    with tempfile.TemporaryDirectory(prefix="bw-feed-") as folder:
        yield Fleets(Path(folder))


def shown_run(feed: FleetFeed) -> str:
    """The run of the next snapshot, "" if the feed ends before."""
    until = time.monotonic() + 20.0
    while not feed.ended and time.monotonic() < until:
        for message in feed.take():
            if "snapshot" in message:
                return str(message["snapshot"]["run_id"])
        time.sleep(0.01)
    return ""


def begin(fleets: Fleets, directory: Path | None) -> tuple[FleetFeed, socket.socket]:
    """A feed that has shown the first run, and the fleet's end of it."""
    client = try_to_connect(fleets.folder)
    assert client is not None
    feed, fleet = FleetFeed(client, directory), fleets.accept("first")
    assert shown_run(feed) == "first"
    return feed, fleet


def test_who_watches_a_fleet_that_is_restarted_goes_on_with_the_next(fleets: Fleets) -> None:
    feed, fleet = begin(fleets, fleets.folder)
    fleets.restarts("first", os.getpid())
    fleet.close()
    while not (said := feed.take()):
        time.sleep(0.01)
    assert "restarted" in said[0]["text"] and not feed.ended
    assert feed.sockets() == [] and feed.deadline() is not None
    while feed.deadline() is not None:
        feed.take()
    second = fleets.accept("second")
    assert shown_run(feed) == "second" and feed.sockets()
    second.close()
    assert shown_run(feed) == "" and feed.ended, "that one was only stopped"


def test_nobody_waits_for_a_fleet_that_is_stopped_or_whose_restart_has_died(
    fleets: Fleets,
) -> None:
    died = subprocess.Popen(["true"])
    died.wait()
    feed, fleet = begin(fleets, fleets.folder)
    fleets.restarts("first", died.pid)
    fleet.close()
    assert shown_run(feed) == "" and feed.ended


def test_the_owner_of_a_fleet_does_not_go_over_to_another(fleets: Fleets) -> None:
    feed, fleet = begin(fleets, None)
    fleets.restarts("first", os.getpid())
    fleet.close()
    assert shown_run(feed) == "" and feed.ended


@pytest.fixture
def morning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> feeds.MorningFeed:
    """A feed that looks again every 10 ms, and shows how often it has looked."""
    looks = count()
    monkeypatch.setattr(feeds, "REFRESH_SECONDS", 0.01)
    monkeypatch.setattr(feeds, "last_snapshot", lambda directory: {"look": next(looks)})
    return feeds.MorningFeed(tmp_path, {"look": next(looks)})


def told(feed: feeds.MorningFeed, number: int) -> list[feeds.Message]:
    """The next messages, this many or more."""
    messages: list[feeds.Message] = []

    def enough() -> bool:
        messages.extend(feed.take())
        return len(messages) >= number

    until(enough)
    return messages


def test_what_is_decided_elsewhere_is_seen_after_a_while(morning: feeds.MorningFeed) -> None:
    assert told(morning, 3)[:3] == [{"snapshot": {"look": number}} for number in range(3)]


@pytest.mark.parametrize("error", [CommandError("no"), OSError("no"), RuntimeError("no")])
def test_no_error_ends_the_morning(
    morning: feeds.MorningFeed, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(directory: Path, control: str, fields: Mapping[str, Any]) -> feeds.Message:
        raise error

    monkeypatch.setattr(feeds, "decide", fail)
    morning.ask("bw.close", {"issue_ids": ["bw-1"]})
    messages = told(morning, 1)
    while {"error": "no"} not in messages[:-1]:
        messages += told(morning, 1)
    assert "snapshot" in messages[messages.index({"error": "no"}) + 1]
