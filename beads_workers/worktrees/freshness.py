"""When a worktree that has served another commit counts as fresh: it was made with the same
settings, and no file has changed on which its set-up depends.

For attempts, which take worktrees that are over or were made ahead (``reuse``), and for gates,
which keep one for each lane. Source: docs/SEMANTICS.md, "Worktrees".
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from beads_workers.core.base.plain import to_plain
from beads_workers.core.base.settings import Worktrees
from beads_workers.core.base.worlds import SLOTS
from beads_workers.worktrees.git import GitError, git, names, pairs
from beads_workers.worktrees.sparse import cone_of, holds

MANIFESTS = (
    *("package.json", "*-lock.json", "*-lock.y*ml", "*-workspace.y*ml", "*.lock", "*.lockb"),
    *("npm-shrinkwrap.json", ".npmrc", ".yarnrc*", ".nvmrc", ".node-version", ".tool-versions"),
    *("pyproject.toml", "setup.py", "setup.cfg", "*requirements*.txt", "*constraints*.txt"),
    *("Pipfile", "environment.y*ml", ".python-version", "Cargo.toml", "rust-toolchain*"),
    *("go.mod", "go.sum", "go.work", "Gemfile", "*.gemspec", ".ruby-version", "composer.json"),
    *("mix.exs", "pom.xml", "*.gradle*", "gradle.properties", "*.csproj", "*.sln", "*.props"),
    *("Package.swift", "Package.resolved", "pubspec.yaml", "CMakeLists.txt", "*.nix"),
    *("Makefile", "makefile", "GNUmakefile", "*.mk", "justfile", "Justfile", "Taskfile.y*ml"),
    *("Dockerfile*", ".gitmodules", ".gitignore"),
)
"""Files that name a project's dependencies, which set-up hooks read; and ``.gitignore``, which
decides which results of the hook stay."""


def recipe(settings: Worktrees) -> str:
    """Return everything but its base that a worktree depends on, as one text."""
    own = replace(settings.rules.worlds, world=None, teardown=None, slots=SLOTS)
    rules = replace(settings.rules, disk_floor_bytes=0, setup_reads=(), pool=0, worlds=own)
    # Folders of a cone come and go.
    plain = replace(settings, reuse=0, on="", cone=settings.cone and (), rules=rules)
    about = to_plain(replace(plain, base="", base_name="", base_else="", remote=""))
    mask = os.umask(0o022)
    os.umask(mask)
    return json.dumps([mask, about], sort_keys=True)


def changed_files(worktree: str, at: str, commit: str) -> list[tuple[str, str]] | None:
    """Return the change of each file from one commit to the other: git's letter, and the name. None
    if the worktree cannot be moved between them."""
    try:
        listed = names(git(worktree, "ls-files", "-v", "-z"))
        asked = ("diff-tree", "-r", "-z", "--no-renames", "--name-status", at, commit)
        changed = pairs(git(worktree, *asked))
        hidden = [row[2:] for row in listed if row[0] == "S" or row[0].islower()]
        cone = cone_of(worktree) if hidden else None
    except GitError:
        return None
    if any(cone is None or holds(cone, name) for name in hidden):
        return None  # Hidden from git, which would keep the old file.
    if any(name.rpartition("/")[2] == ".gitattributes" for _, name in changed):
        return None  # Line ends of other files may change.
    return changed


def clear_gone(worktree: str, changed: Iterable[tuple[str, str]]) -> None:
    """Remove ignored files in folders that are gone: Python would still import from such a
    folder."""
    gone = [name for state, name in changed if state == "D"]
    for folder in sorted({str(each) for name in gone for each in Path(name).parents} - {"."}):
        if not git(worktree, "ls-files", "-z", "--", f":(literal){folder}"):
            shutil.rmtree(Path(worktree, folder), ignore_errors=True)


def must_set_up(settings: Worktrees, changed: Iterable[tuple[str, str]]) -> str:
    """Return the first of these files that a set-up hook may depend on; "" for none. Such a file is
    a manifest, is named in the hook's line, or is one of ``setup_reads``."""
    if settings.rules.setup is None:
        return ""
    words = re.split(r"[\s;&|()<>'\"=`$]+", settings.rules.setup)
    project = PurePosixPath(settings.prefix)
    named = {project / word for word in words if word} - {project}
    for _, name in changed:
        path = PurePosixPath(name)
        if any(fnmatchcase(path.name, manifest) for manifest in MANIFESTS):
            return name
        if not named.isdisjoint((path, *path.parents)):
            return name
        if any(
            fnmatchcase(name, f"{settings.prefix}{each}") for each in settings.rules.setup_reads
        ):
            return name
    return ""
