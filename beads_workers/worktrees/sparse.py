"""Sparse worktrees: while the user's checkout is a cone, worktrees and gates are, too.

A cone is the folders of git's sparse checkout, as seen from the top of the repository. With them
come the files, but not the folders, beside each of them and above. Source:
``git help sparse-checkout`` of 2.39.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from beads_workers.worktrees.git import git, git_or_none, lines
from beads_workers.worktrees.ref_files import places

Cone = tuple[str, ...]

_ASKED = ("config", "--type=bool", "--get-regexp", r"^core\.sparsecheckout(cone)?$")
_NO_FOLDER = {*'\\"*?[\n'}
"""Characters in whose place git reads patterns, now and then."""
_SPARSE, _BY_CONE = "core.sparsecheckout true", "core.sparsecheckoutcone true"


def cone_of(folder: str) -> Cone | None:
    """Return the cone of a checkout; None if it has all files, or those of other patterns. Raises
    ``GitError``."""
    if {*lines(git_or_none(folder, *_ASKED) or "")} != {_SPARSE, _BY_CONE}:
        return None
    return tuple(sorted(map(_plain, lines(git(folder, "sparse-checkout", "list")))))


def take_cone(worktree: str, cone: Cone | None) -> None:
    """Check these folders out, or with None all files; what is checked out by then moves along.
    ``git worktree add`` has copied what the user's checkout has. Raises ``GitError``."""
    if cone is None:
        if _SPARSE in lines(git_or_none(worktree, *_ASKED) or ""):
            git(worktree, "sparse-checkout", "disable")
    elif cone_of(worktree) != cone:
        quoted = (each.replace("\\", "\\\\").replace('"', '\\"') for each in cone)
        stdin = "".join(f'"{each}"\n' for each in quoted)
        git(worktree, "sparse-checkout", "set", "--cone", "--stdin", stdin=stdin)


def is_sparse(worktree: str) -> bool:
    """Return whether a worktree may have files that are not checked out."""
    found = places(Path(worktree))
    return found is None or Path(found[0], "info/sparse-checkout").exists()


def widened(cone: Cone, folders: Iterable[str]) -> Cone:
    """Return the cone with further folders; what can be none of a cone is left out."""
    plain = (os.path.normpath(each) for each in folders if _NO_FOLDER.isdisjoint(each))
    wanted = {*cone, *(each for each in plain if each.partition("/")[0] not in ("", ".", ".."))}
    return tuple(sorted(each for each in wanted if wanted.isdisjoint(_above(each))))


def holds(cone: Cone, name: str) -> bool:
    """Return whether a file is in the cone."""
    folder = name.rpartition("/")[0]
    inside = {folder, *_above(folder)}
    return not folder or any(each in inside or each.startswith(f"{folder}/") for each in cone)


def _above(folder: str) -> list[str]:
    parts = folder.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _plain(row: str) -> str:
    """Return the name that git has quoted, as C does."""
    if not row.startswith('"'):
        return row
    escaped = row[1:-1].encode("utf-8", "surrogateescape").decode("unicode_escape")
    return escaped.encode("latin-1").decode("utf-8", "surrogateescape")
