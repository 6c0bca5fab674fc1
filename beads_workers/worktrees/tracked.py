"""What git tracks below a run directory: it came with the repository, no run has written it."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from beads_workers.runtime.trust import Untrusted, is_in_index
from beads_workers.worktrees.git import GitError, git, names

BELIEVED = ("tracker.db", ".gitignore")
"""A tracker may be shared through git; its issues' commands are then refused."""


def check_untracked(root: Path) -> None:
    """Raise ``Untrusted`` if git brings something below ``root`` that would be believed."""
    if not is_in_index(root):
        return
    try:
        told = git(str(root.parent), "ls-files", "-z", "--", f":(literal){root.name}")
    except GitError as error:
        raise Untrusted(root, f"may be tracked by git, which cannot say ({error})", "") from None
    for name in names(told):
        below = name.removeprefix(root.name).removeprefix("/")
        if below not in BELIEVED:
            path = root.parent / name
            hint = "it came with the repository; look at it, then remove it: git rm --force -- "
            raise Untrusted(path, "is tracked by git", hint + quote(str(path)))
