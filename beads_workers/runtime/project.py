"""The project of a folder: found by walking up, never by the name of a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from beads_workers.core.base.model import value
from beads_workers.runtime.trust import check_owner, check_state

STATE_FOLDER = ".beads-workers"
"""Folder beside ``.beads``: the run directory and, if there is one, the built-in tracker."""

TRACKER_FILE = "tracker.db"

WORKTREE_MARK = "beads-workers.json"
"""File in the git directory of a worktree that we created: names its project and run directory."""


@value
class Project:
    """A project."""

    # Holds ``beads``, ``tracker``, or both.
    folder: Path
    # The folder ``.beads``.
    beads: Path | None
    # A database.
    tracker: Path | None


OF_BD_ITSELF = frozenset(
    {"machine-id", "eventsData", "registry.json", "registry.lock", "formulas", "shared-server"}
)
"""Files that ``bd`` 1.x keeps in ``~/.beads`` for a user, with or without a project."""


def is_tracker(beads: Path) -> bool:
    """Return whether a folder ``.beads`` is that of a project. An empty one is: ``bd`` reports what
    it lacks."""
    if not beads.is_dir():
        return False
    try:
        names = {each.name for each in beads.iterdir()}
    except OSError:
        return True
    return not names or not names <= OF_BD_ITSELF


def find_project(start: Path) -> Project | None:
    """Return the nearest project, from ``start`` upwards, with a tracker of either kind.

    Raises ``Untrusted`` if the files there are not to be trusted.
    """
    start = start.resolve()
    for folder in upwards(start):
        project = _project_at(folder, start)
        if project is not None:
            return project
    return None


def find_tracker(start: Path) -> Path | None:
    """Return the nearest built-in tracker, from ``start`` upwards; ``.beads`` does not hide it.

    Raises ``Untrusted`` as ``find_project`` does.
    """
    start = start.resolve()
    for folder in upwards(start):
        project = _project_at(folder, start)
        if project is not None and project.tracker is not None:
            return project.tracker
    return None


@value
class Mark:
    """Mark of a worktree that we created: ``copy`` is the copy of the folder ``project`` in it."""

    copy: Path
    project: Path
    state_directory: Path


def upwards(start: Path) -> Iterator[Path]:
    """Yield ``start`` and the folders above it; from a worktree of ours, continue in the project.

    The copy of the project in a worktree may look like a project, but is skipped.
    """
    mark = worktree_mark(start)
    for folder in (start, *start.parents):
        if mark is not None and mark.copy.is_relative_to(folder):
            yield from (mark.project, *mark.project.parents)
            return
        yield folder


def worktree_mark(folder: Path) -> Mark | None:
    """Return the mark of the worktree of ours that holds this folder; None: there is none."""
    for above in (folder, *folder.parents):
        dot_git = above / ".git"
        if dot_git.is_file():
            check_owner(dot_git, folder)
            import json

            try:
                git_directory = dot_git.read_text().removeprefix("gitdir:").strip()
                mark = json.loads((dot_git.parent / git_directory / WORKTREE_MARK).read_bytes())
                copy = dot_git.parent / mark["prefix"]
                return Mark(copy, Path(mark["project"]), Path(mark["state"]))
            except (OSError, ValueError, KeyError, TypeError):
                return None
        if dot_git.is_dir():
            return None
    return None


def _project_at(folder: Path, start: Path) -> Project | None:
    beads = folder / ".beads"
    tracker = folder / STATE_FOLDER / TRACKER_FILE
    check_owner(beads, start)
    check_state(tracker.parent, start)
    found = Project(
        folder,
        beads if is_tracker(beads) else None,
        tracker if tracker.is_file() else None,
    )
    return found if found.beads or found.tracker else None
