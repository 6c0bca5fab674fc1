"""The backlog while somebody looks: asked for beside the dashboard, at a calm rate."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from beads_workers.cli.backlog import LISTED_SECONDS, LISTED_SHARE, BacklogWatch
from beads_workers.ui.backlog import IssueBacklog
from beads_workers.ui.words import State
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import call, until
from tests.ui.snapshots import after

SNAPSHOT = after()


class Watched:
    """A watch of the project's backlog, and the clock that it goes by."""

    def __init__(self, project: EmbeddedProject) -> None:
        self.now = 1000.0
        self.watch = BacklogWatch(project.folder / ".beads-workers", lambda: self.now)

    def told(self, *titles: str, after: float = 0.0) -> IssueBacklog:
        """The answer with these titles, which is waited for, so much later."""
        self.now += after

        def answer() -> IssueBacklog | None:
            found = self.watch.of(SNAPSHOT)
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


def test_nothing_is_waited_for_and_the_answer_comes_beside(project: EmbeddedProject) -> None:
    watched = Watched(project)
    assert watched.watch.of(SNAPSHOT) is None
    found = watched.told("One")
    assert found.counts[State.READY] == 1 and found.listed_at is not None and not found.unseen


def test_the_tracker_is_asked_again_after_a_while_or_when_somebody_hurries(
    project: EmbeddedProject,
) -> None:
    watched = Watched(project)
    first = watched.told("One")
    call(project, "add", "Two")
    # Within this time only the fleet is asked, which here is none.
    watched.now += LISTED_SECONDS - 1.0
    until(lambda: watched.watch.of(SNAPSHOT) is not first)
    assert watched.told("One").listed_at == first.listed_at
    watched.told("One", "Two", after=1.0)
    call(project, "add", "Three")
    watched.watch.hurry()
    watched.told("One", "Two", "Three")


def test_a_tracker_that_takes_long_is_asked_seldom(project: EmbeddedProject) -> None:
    watched, looks = Watched(project), count()
    # Each look at this clock is a second later than the last one: so a listing takes a second.
    watched.watch = BacklogWatch(project.folder / ".beads-workers", lambda: float(next(looks)))
    watched.told("One")
    began = next(looks)
    call(project, "add", "Two")
    watched.told("One", "Two")
    assert next(looks) - began >= LISTED_SHARE - 5


def test_a_tracker_that_cannot_be_read_is_said_and_asked_again(project: EmbeddedProject) -> None:
    watched = Watched(project)
    database = project.folder / ".beads-workers" / "tracker.db"
    whole = database.read_bytes()
    database.write_bytes(b"no database" * 100)
    assert "not a database" in watched.told().unseen
    database.write_bytes(whole)
    watched.told("One", after=LISTED_SECONDS)
