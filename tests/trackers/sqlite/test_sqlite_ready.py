"""What is ready changes with the time, with what others do, and with the version of the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.model import Filters, IssueId
from beads_workers.core.base.source import Action, Settlement
from beads_workers.trackers.issue import BadIssue, from_object, microseconds
from beads_workers.trackers.sqlite.exchange import export_lines, write_issues
from beads_workers.trackers.sqlite.source import SqliteSource
from beads_workers.trackers.sqlite.store import SqliteStore, connect, create, transaction

MADE, NOON = "2026-01-02T03:04:05Z", "2026-03-01T12:00:00Z"


class World:
    """A tracker, a source on it, and its clock."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "tracker.db"
        create(self.database, "t")
        self.now = microseconds(NOON) / 1e6 - 1
        self.source = SqliteSource(
            self.database, actor="a", filters=Filters(), listed_max=99, clock=lambda: self.now
        )

    def add(self, name: str, *needs: tuple[str, str], **fields: Any) -> None:
        """Add an issue; ``needs``: ids and the kinds of dependencies."""
        wanted = [{"depends_on_id": other, "type": kind} for other, kind in needs]
        row = {"id": name, "title": name, "created_at": MADE, "dependencies": wanted, **fields}
        with closing(connect(self.database)) as connection, transaction(connection):
            write_issues(SqliteStore(connection), [from_object(row)])

    def listed(self) -> list[str]:
        """What could be taken now."""
        return sorted(each.issue_id for each in self.source.take(0, ()).listed)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.source.close()


def test_what_is_deferred_comes_back_once_its_time_has_come(world: World) -> None:
    world.add("put-off", status="deferred", defer_until=NOON)
    world.add("later", defer_until="2026-03-01T17:00:00+05:00")
    world.add("child", ("later", "parent-child"))
    world.add("on-ice", status="deferred")
    assert world.listed() == sorted(world.source.ready()) == []
    world.now += 1
    assert world.source.ready() == {"put-off", "later", "child"}
    assert world.listed() == ["child", "later", "put-off"]
    with closing(connect(world.database)) as connection, closing(export_lines(connection)) as lines:
        assert sum("defer_until" in line for line in lines) == 1, "what is open again has none"


def test_what_waits_for_children_goes_when_the_last_is_closed(world: World) -> None:
    world.add("spawner")
    world.add("first", ("spawner", "parent-child"), status="closed")
    world.add("last", ("spawner", "parent-child"), assignee="a", status="in_progress")
    world.add("all", ("spawner", "waits-for"))
    assert world.listed() == ["spawner"]
    assert world.source.look([IssueId("all")])[IssueId("all")].waits_for == ("last",)
    world.source.settle([Settlement(Action.CLOSE, IssueId("last"))])
    assert world.listed() == ["all", "spawner"]
    world.add("late", ("spawner", "parent-child"))
    assert world.listed() == ["late", "spawner"]
    world.add("late")
    assert world.listed() == ["all", "late", "spawner"], "it is no child any more"


def test_a_tracker_of_version_1_is_brought_up_to_date(world: World) -> None:
    world.add("build")
    world.add("deploy", ("build", "conditional-blocks"))
    world.add("mail", issue_type="message")
    world.add("note", pinned=True)
    world.add("later", defer_until=NOON)
    with closing(sqlite3.connect(world.database)) as file, file:
        file.executescript(
            "DROP INDEX due; ALTER TABLE issues DROP COLUMN due_us;"
            " UPDATE issues SET blocked = 0; PRAGMA user_version = 1"
        )
    assert world.listed() == ["build"]
    world.now += 1
    assert world.listed() == ["build", "later"]


def test_a_deferral_that_is_no_time_is_refused() -> None:
    with pytest.raises(BadIssue, match="defer_until 'soon' is not a time"):
        from_object({"id": "t-1", "title": "t", "defer_until": "soon"})
