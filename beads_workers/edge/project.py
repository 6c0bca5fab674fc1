"""Which project a folder belongs to: found by walking up, never by the name of a process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

STATE_FOLDER = ".beads-workers"
"""Beside ``.beads``: the run directory, and the embedded tracker where there is one."""

TRACKER_FILE = "tracker.db"


@dataclass(frozen=True, slots=True)
class Project:
    """``folder`` holds ``beads`` (the folder ``.beads``), ``tracker`` (a database), or both."""

    folder: Path
    beads: Path | None
    tracker: Path | None


def find_project(start: Path) -> Project | None:
    """The nearest folder, from ``start`` upwards, that holds a tracker of either kind."""
    start = start.resolve()
    for folder in (start, *start.parents):
        project = _project_at(folder)
        if project is not None:
            return project
    return None


def find_tracker(start: Path) -> Path | None:
    """The nearest embedded tracker, from ``start`` upwards; ``.beads`` does not hide it."""
    start = start.resolve()
    for folder in (start, *start.parents):
        project = _project_at(folder)
        if project is not None and project.tracker is not None:
            return project.tracker
    return None


def _project_at(folder: Path) -> Project | None:
    beads = folder / ".beads"
    tracker = folder / STATE_FOLDER / TRACKER_FILE
    found = Project(
        folder,
        beads if beads.is_dir() else None,
        tracker if tracker.is_file() else None,
    )
    return found if found.beads or found.tracker else None
