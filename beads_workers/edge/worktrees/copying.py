"""Files that git ignores and an attempt needs all the same (``.env``): copied into its worktree."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from beads_workers.core.settings import Worktrees
from beads_workers.edge.git import git


def copy_files(settings: Worktrees, worktree: str) -> Iterator[str]:
    """Copy what ``settings.copy`` names; gives a warning for each part that is left out.

    Only what git ignores, here and there, so that no attempt commits it; only from inside the
    project, and over nothing that is there. Raises ``GitError`` and ``OSError``.
    """
    target = Path(worktree, settings.prefix)
    copied: set[str] = set()
    for pattern in settings.copy:
        found = matching(settings, pattern)
        if not found:
            yield f"copy: nothing that git ignores matches {pattern}"
        for name in found:
            if name in copied:
                continue
            if trouble := _copy(Path(settings.checkout), target, name):
                yield f"copy: {name} left out, {trouble}"
            else:
                copied.add(name)
    shown = git(str(target), "ls-files", "-z", "--others", "--exclude-standard").split("\0")
    for name in sorted(copied & set(shown)):
        (target / name).unlink()
        yield f"copy: {name} left out, the .gitignore of the base does not name it"


def matching(settings: Worktrees, pattern: str) -> list[str]:
    """The ignored files of the project that a pattern names, seen from the project's folder."""
    listed = git(
        settings.checkout,
        *("ls-files", "-z", "--others", "--ignored", "--exclude-standard"),
        *("--", f":(glob){pattern}"),
    )
    ours = [Path(place).resolve() for place in (settings.state_directory, settings.folder)]
    names = [name for name in listed.split("\0") if name and not name.endswith("/")]
    root = Path(settings.checkout).resolve()
    return [name for name in names if not any((root / name).is_relative_to(o) for o in ours)]


def _copy(project: Path, target: Path, name: str) -> str | None:
    """Copy one file; returns why not."""
    source, goal = project / name, target / name
    if not source.resolve().is_relative_to(project.resolve()):
        return "it leads out of the project"
    if os.path.lexists(goal):
        return "it is in the repository"
    goal.parent.mkdir(parents=True, exist_ok=True)
    if not goal.parent.resolve().is_relative_to(target.resolve()):
        return "its place leads out of the worktree"
    shutil.copy2(source, goal, follow_symlinks=False)
    return None
