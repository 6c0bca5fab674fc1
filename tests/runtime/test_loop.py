"""What a fleet needs of the machine: told when it fails, and when it holds again."""

from __future__ import annotations

import subprocess
from pathlib import Path

from beads_workers.core.schedule.events import ConditionRecovered, Degraded, Event
from beads_workers.runtime.loop import AGAIN_SECONDS, Conditions, RequiredFolder, judge
from tests.support.shortage import small_disk


def test_a_folder_that_goes_and_comes_back_is_told_once_each(tmp_path: Path) -> None:
    folder, events = tmp_path / "here", list[Event]()
    folder.mkdir()
    conditions = Conditions([RequiredFolder("the folder", folder)], events.append)
    conditions.look(conditions.deadline())
    assert events == []
    folder.rmdir()
    conditions.look(conditions.deadline())
    (event,) = events
    assert isinstance(event, Degraded) and event.stops and str(folder) in event.text
    folder.mkdir()
    conditions.look(conditions.deadline() - 0.01)
    assert events == [event], "not before it is due"
    conditions.look(conditions.deadline())
    assert events == [event, ConditionRecovered("the folder")]


def test_what_is_in_the_way_is_looked_at_more_often(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    conditions = Conditions([RequiredFolder("the folder", folder)], lambda event: None)
    now = 100.0
    conditions.look(now)
    assert conditions.deadline() == now + AGAIN_SECONDS
    folder.mkdir()
    conditions.look(now := conditions.deadline())
    assert conditions.deadline() > now + AGAIN_SECONDS


def test_a_folder_that_cannot_be_written_any_more_is_noticed(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "16m") as folder:
        (folder / "alive").touch()
        place = RequiredFolder("the folder", folder, writes=True, file="alive")
        assert judge(place) is None
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        found = judge(place)
    assert found is not None
    assert found.text == f"the folder cannot be written: {folder}: Read-only file system"
