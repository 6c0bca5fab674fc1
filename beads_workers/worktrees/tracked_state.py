"""Files below a run directory that git tracks: they came with the repository, no run wrote them."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from beads_workers.runtime.trust import Untrusted, is_in_index
from beads_workers.worktrees.git import GitError, git, names

BELIEVED = ("tracker.db", ".gitignore")
"""Names that are not refused: a tracker may be shared through git; commands of its issues are then
refused."""


def check_untracked(root: Path) -> None:
    """Raise ``Untrusted`` if git tracks a file below ``root`` that would be trusted."""
    if not is_in_index(root):
        return
    try:
        output = git(str(root.parent), "ls-files", "-z", "--", f":(literal){root.name}")
    except GitError as error:
        raise Untrusted(root, f"may be tracked by git, which cannot say ({error})", "") from None
    for name in names(output):
        below = name.removeprefix(root.name).removeprefix("/")
        if below not in BELIEVED:
            path = root.parent / name
            hint = "it came with the repository; look at it, then remove it: git rm --force -- "
            raise Untrusted(path, "is tracked by git", hint + quote(str(path)))
