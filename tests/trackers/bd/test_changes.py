"""What the files of ``bd`` show without a call; the contract of all sources has the rest."""

from __future__ import annotations

import json
from pathlib import Path

from beads_workers.core.base.model import IssueId
from beads_workers.trackers.bd.changes import ChangeWatch
from tests.support.bd import BdProject

US = "beads-workers/host/run-1"


def changes(project: BdProject) -> ChangeWatch:
    return ChangeWatch(project.folder / ".beads", US)


def test_reading_is_no_change(project: BdProject) -> None:
    project.create("one")
    seen = changes(project)
    before = seen.stamp()
    project.bd("ready", "--json")
    project.bd("list", "--json")
    assert seen.stamp() == before


def test_each_write_is_a_change(project: BdProject) -> None:
    seen = changes(project)
    stamps = [seen.stamp()]
    # By bd itself, not copied as what ``create`` makes in a fresh project.
    issue_id = IssueId(json.loads(project.bd("create", "--json", "--title=one"))["id"])
    stamps.append(seen.stamp())
    project.put(issue_id, "in_progress", "alice")
    stamps.append(seen.stamp())
    project.close_as(issue_id, "alice")
    stamps.append(seen.stamp())
    assert len(set(stamps)) == 4


def test_what_this_run_and_its_workers_write_is_none(project: BdProject) -> None:
    issue_id = project.create("one")
    seen = changes(project)
    before = seen.stamp()
    with seen.own():
        project.bd("update", "--claim", issue_id, actor=US)
    assert seen.stamp() == before


def test_what_a_worker_of_this_run_writes_by_itself_is_none_on_old_bd(
    project_old: BdProject,
) -> None:
    issue_id = project_old.create("one")
    seen = changes(project_old)
    before = seen.stamp()
    project_old.close_as(issue_id, f"{US}/W1")
    assert seen.stamp() == before


def test_where_there_is_no_file_nothing_shows(tmp_path: Path) -> None:
    assert ChangeWatch(tmp_path / ".beads", US).stamp() == (0, 0)


def test_a_file_that_is_no_database_is_no_change(tmp_path: Path) -> None:
    (tmp_path / "other.db").write_bytes(b"junk" * 1000)
    seen = ChangeWatch(tmp_path, US)
    before = seen.stamp()
    (tmp_path / "other.db").write_bytes(b"more" * 1000)
    assert seen.stamp() == before
