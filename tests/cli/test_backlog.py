"""The backlog while somebody looks: asked for beside the dashboard, at a calm rate."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from beads_workers.cli.backlog import BacklogWatch, pause_seconds
from beads_workers.ui.backlog import IssueBacklog
from beads_workers.ui.words import State
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import call, until
from tests.ui.snapshots import after

SNAPSHOT = after()


def told(watch: BacklogWatch, *titles: str) -> IssueBacklog:
    """The answer with these titles, which is waited for."""

    def answer() -> IssueBacklog | None:
        found = watch.of(SNAPSHOT)
        there = found is not None and [row.title for row in found.rows()] == list(titles)
        return found if there else None

    found = until(answer)
    assert found is not None
    return found


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddedProject:
    found = EmbeddedProject(tmp_path)
    found.create_many([{"title": "One"}])
    monkeypatch.chdir(found.folder)
    return found


@pytest.fixture
def watch(project: EmbeddedProject) -> BacklogWatch:
    """A watch of the project's backlog, without a fleet."""
    return BacklogWatch(project.folder / ".beads-workers")


def test_nothing_is_waited_for_and_the_answer_comes_beside(
    watch: BacklogWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, look = Event(), watch._list
    monkeypatch.setattr(watch, "_list", lambda: looked.wait() and look())
    at_once = watch.of(SNAPSHOT)
    assert at_once is None or at_once.unseen
    looked.set()
    found = told(watch, "One")
    assert found.counts[State.READY] == 1 and found.listed_at is not None and not found.unseen


def test_the_fleet_is_asked_often_and_the_tracker_seldom_unless_somebody_hurries(
    project: EmbeddedProject, watch: BacklogWatch
) -> None:
    first = told(watch, "One")
    call(project, "add", "Two")
    until(lambda: watch.of(SNAPSHOT) is not first)
    assert told(watch, "One").listed_at == first.listed_at
    watch.hurry()
    assert told(watch, "One", "Two").listed_at != first.listed_at


@pytest.mark.parametrize(("took", "pause"), [(0.0, 5.0), (0.2, 5.0), (1.0, 20.0), (30.0, 60.0)])
def test_a_tracker_that_takes_long_is_asked_less_often(took: float, pause: float) -> None:
    assert pause_seconds(took) == pause


def test_a_tracker_that_cannot_be_read_is_said_and_asked_again(
    project: EmbeddedProject, watch: BacklogWatch
) -> None:
    database = project.folder / ".beads-workers" / "tracker.db"
    whole = database.read_bytes()
    database.write_bytes(b"no database" * 100)
    until(lambda: (found := watch.of(SNAPSHOT)) and "not a database" in found.unseen)
    database.write_bytes(whole)
    watch.hurry()
    assert not told(watch, "One").unseen
