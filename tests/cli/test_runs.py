"""``runs``: every run that wrote anything, the last one first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from beads_workers.cli.application import build
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import call
from tests.support.journals import night

OLD, NEW = "20261120-010101.000-aaaaaa", "20261121-010101.000-bbbbbb"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The run directory of a project with two runs, and one that has not written anything."""
    night(10, 2, seed=1).write(tmp_path, OLD)
    night(30, 2, seed=2).write(tmp_path, NEW)
    (tmp_path / "runs" / "20261122-010101.000-cccccc").mkdir()
    return tmp_path


def rows(state: Path, *arguments: str) -> list[dict[str, Any]]:
    """What ``--json`` lists."""
    words = ["runs", "--state-dir", str(state), "--json", *arguments]
    done = CliRunner().invoke(build(["runs"]), words)
    assert done.exit_code == 0, done.output
    found: list[dict[str, Any]] = json.loads(done.stdout)["runs"]
    return found


def test_the_last_one_stands_first(state: Path) -> None:
    assert [row["run_id"] for row in rows(state)] == [NEW, OLD]


def test_only_so_many_are_listed_as_were_asked_for(state: Path) -> None:
    assert [row["run_id"] for row in rows(state, "-n", "1")] == [NEW]


def test_a_line_begins_with_what_report_takes(state: Path) -> None:
    done = CliRunner().invoke(build(["runs"]), ["runs", "--state-dir", str(state)])
    assert [line.split()[0] for line in done.stdout.splitlines()] == [NEW, OLD]


def test_it_counts_what_became_of_the_issues(tmp_path: Path) -> None:
    project = EmbeddedProject(tmp_path)
    project.create_many([{"command": ["false"]}, {"command": ["true"]}])
    call(project, "start", "-n", "2", "--until-empty", "--max-attempts", "1")
    (row,) = rows(project.folder / ".beads-workers")
    assert (row["closed"], row["failed"], row["quarantined"], row["exit_code"]) == (1, 1, 1, 7)
    assert not row["running"] and 0 < row["seconds"] < 60
    assert row["seconds"] == pytest.approx(row["ended_at"] - row["began_at"], abs=0.01)


def test_without_a_run_the_list_is_empty(tmp_path: Path) -> None:
    assert rows(tmp_path) == []
