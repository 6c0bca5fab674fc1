"""Finding the project."""

from __future__ import annotations

from pathlib import Path

from beads_workers.runtime.project import Project, find_project, find_tracker


def tracker_in(folder: Path) -> Path:
    path = folder / ".beads-workers" / "tracker.db"
    path.parent.mkdir()
    path.touch()
    return path


def test_both_trackers_are_found_from_any_folder_below(tmp_path: Path) -> None:
    tracker = tracker_in(tmp_path)
    (tmp_path / ".beads").mkdir()
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert find_project(below) == Project(tmp_path, tmp_path / ".beads", tracker)


def test_the_nearest_folder_wins(tmp_path: Path) -> None:
    tracker = tracker_in(tmp_path)
    inner = tmp_path / "inner"
    (inner / ".beads").mkdir(parents=True)
    assert find_project(inner) == Project(inner, inner / ".beads", None)
    assert find_tracker(inner) == tracker, "a .beads folder does not hide the built-in tracker"


def test_a_state_folder_without_a_tracker_is_no_project(tmp_path: Path) -> None:
    (tmp_path / ".beads-workers").mkdir()
    found = find_project(tmp_path)
    assert found is None or found.folder != tmp_path


def test_what_bd_keeps_for_a_user_is_no_project(tmp_path: Path) -> None:
    beads, below = tmp_path / ".beads", tmp_path / "a"
    below.mkdir()
    (beads / "eventsData").mkdir(parents=True)
    (beads / "machine-id").touch()
    assert find_project(below) is None
    (beads / "config.yaml").touch()
    assert find_project(below) == Project(tmp_path, beads, None)
