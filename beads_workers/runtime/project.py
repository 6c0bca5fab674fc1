"""Which project a folder belongs to: found by walking up, never by the name of a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from beads_workers.core.model import value
from beads_workers.runtime.trust import check_owner, check_state

STATE_FOLDER = ".beads-workers"
"""Beside ``.beads``: the run directory, and the embedded tracker where there is one."""

TRACKER_FILE = "tracker.db"

WORKTREE_MARK = "beads-workers.json"
"""In the git directory of a worktree that we made: which project and run directory it is of."""


@value
class Project:
    """``folder`` holds ``beads`` (the folder ``.beads``), ``tracker`` (a database), or both."""

    folder: Path
    beads: Path | None
    tracker: Path | None


OF_BD_ITSELF = frozenset(
    {"machine-id", "eventsData", "registry.json", "registry.lock", "formulas", "shared-server"}
)
"""What ``bd`` 1.x keeps in ``~/.beads`` for a user, whether or not there is a project."""


def is_tracker(beads: Path) -> bool:
    """Whether a folder ``.beads`` is that of a project; an empty one is: ``bd`` says what it
    lacks."""
    if not beads.is_dir():
        return False
    try:
        names = {each.name for each in beads.iterdir()}
    except OSError:
        return True
    return not names or not names <= OF_BD_ITSELF


def find_project(start: Path) -> Project | None:
    """The nearest folder, from ``start`` upwards, that holds a tracker of either kind.

    Raises ``Untrusted`` for one that is not ours to believe.
    """
    start = start.resolve()
    for folder in upwards(start):
        project = _project_at(folder, start)
        if project is not None:
            return project
    return None


def find_tracker(start: Path) -> Path | None:
    """The nearest embedded tracker, from ``start`` upwards; ``.beads`` does not hide it.

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
    """A worktree that we made: ``copy`` is what stands there for the folder ``project``."""

    copy: Path
    project: Path
    state_directory: Path


def upwards(start: Path) -> Iterator[Path]:
    """``start`` and the folders above it; out of a worktree of ours it goes on in the project.

    The copy of the project in a worktree may hold all that marks one, and it leads to nothing.
    """
    mark = worktree_mark(start)
    for folder in (start, *start.parents):
        if mark is not None and mark.copy.is_relative_to(folder):
            yield from (mark.project, *mark.project.parents)
            return
        yield folder


def worktree_mark(folder: Path) -> Mark | None:
    """The mark of the worktree of ours that holds this folder, if one does."""
    for above in (folder, *folder.parents):
        dot_git = above / ".git"
        if dot_git.is_file():
            check_owner(dot_git, folder)
            return _read_mark(dot_git)
        if dot_git.is_dir():
            return None
    return None


def _read_mark(dot_git: Path) -> Mark | None:
    import json

    try:
        git_directory = dot_git.read_text().removeprefix("gitdir:").strip()
        mark = json.loads((dot_git.parent / git_directory / WORKTREE_MARK).read_bytes())
        copy = dot_git.parent / mark["prefix"]
        return Mark(copy, Path(mark["project"]), Path(mark["state"]))
    except (OSError, ValueError, KeyError, TypeError):
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
