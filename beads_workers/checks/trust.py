"""Trust in what came with a project: docs/TRUST.md, "What a project brings".

Without it, everybody who can write to a repository would decide what runs on the machines of all
who clone it. ``runtime.trust_store`` has what the user has trusted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from beads_workers.options import RiskyLine
from beads_workers.runtime.project import worktree_mark
from beads_workers.runtime.trust import in_repository, is_in_index
from beads_workers.runtime.trust_store import TrustStore


def trusted_lines(lines: Collection[RiskyLine], path: Path) -> frozenset[RiskyLine]:
    """Return the trusted lines of the file at ``path``; all lines are of one folder."""
    folder = next((line.folder for line in lines), None)
    if folder is None:
        return frozenset()
    store = store_of(folder)
    # The user wrote what git does not track, unless ``.git`` came with a stranger's folder.
    if store.is_known and is_own(path):
        return frozenset(lines)
    return frozenset(line for line in lines if store.trusts(line.digest))


def is_own(path: Path) -> bool:
    """Return whether this file is in a repository, but not tracked by git."""
    return in_repository(path.parent) and not is_tracked(path)


def is_tracked(path: Path) -> bool:
    """Return whether git tracks this file or its link target; True if git cannot say."""
    return any(is_in_index(each) and _is_listed(each) for each in {path.absolute(), path.resolve()})


def _is_listed(path: Path) -> bool:
    from beads_workers.worktrees.git import GitError, git, names

    try:
        return bool(names(git(str(path.parent), "ls-files", "-z", "--", f":(literal){path.name}")))
    except GitError:
        return True


def store_of(folder: Path) -> TrustStore:
    """Return the trust store of the folder; for a worktree of ours, that of its project."""
    folder = folder.resolve()
    mark = worktree_mark(folder)
    if mark is not None and folder.is_relative_to(mark.copy):
        folder = mark.project / folder.relative_to(mark.copy)
    return TrustStore(folder)


def trust(lines: Iterable[RiskyLine], *folders: Path) -> None:
    """Trust these lines from now on. Raise ``OSError``.

    ``folders``: folders in which no other line is untrusted; they become known.
    """
    by_folder: dict[Path, list[RiskyLine]] = {folder: [] for folder in folders}
    for line in lines:
        by_folder.setdefault(line.folder, []).append(line)
    for folder, some in by_folder.items():
        texts = ((line.digest, line.text) for line in some)
        store_of(folder).add(texts, known=folder in folders)
