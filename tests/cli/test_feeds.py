"""Replays: each snapshot when its time has come, and never a long wait for nothing."""

from __future__ import annotations

import time
from typing import Any

from beads_workers.cli.feeds import PAUSE_SECONDS_MAX, ReplayFeed
from beads_workers.ui.viewer import Faster


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
