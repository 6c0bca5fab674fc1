"""Submodules: whether what lies in the folder of a gitlink is what the gitlink names.

A tree names a commit for each submodule, and ``git submodule`` fills the folder in a worktree. git
does not move that folder when the gitlink moves, and does not show all that differs: ``ignore`` in
``.gitmodules``, a bit in the index, or a folder that is no repository hide it. So the folders are
looked at themselves, nested ones, too. An empty folder differs from nothing: nobody has filled it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from beads_workers.core.base.model import value
from beads_workers.core.base.text import some
from beads_workers.worktrees.git import (
    GITLINK,
    GitError,
    git,
    is_object,
    is_outside,
    lines,
    names,
)
from beads_workers.worktrees.remote import (
    LostRace,
    RefMove,
    RemoteTrouble,
    answered,
    push,
    remote_heads,
)
from beads_workers.worktrees.removal import status
from beads_workers.worktrees.sweep import make_writable


@value
class Submodule:
    """A gitlink of an index, and its folder."""

    # From the top of the worktree.
    path: str
    # What the gitlink names.
    commit: str
    # What is checked out; "" if that is no repository.
    head: str
    # Changed and new files, except those of nested submodules.
    files: tuple[str, ...]

    @property
    def is_elsewhere(self) -> bool:
        """Whether another commit is checked out than the gitlink names."""
        return self.head not in ("", self.commit)

    @property
    def differs(self) -> str:
        """How the folder differs from the gitlink, in a few words; "" if it does not."""
        if self.is_elsewhere:
            return f"{self.head[:12]} is checked out there, and not {self.commit[:12]}"
        how = "changed there" if self.head else "there, without a repository"
        return f"{some(self.files)} {how}" if self.files else ""


def look(top: str) -> Iterator[Submodule]:
    """Yield the submodules of the index at the top of a worktree, nested ones before the one that
    they are in. Raises ``GitError``."""
    for name, commit in gitlinks(top):
        head, files = _inside(f"{top}/{name}")
        nested = list(look(f"{top}/{name}")) if head else []
        yield from (replace(each, path=f"{name}/{each.path}") for each in nested)
        inner = {each.path for each in nested}
        yield Submodule(name, commit, head, tuple(file for file in files if file not in inner))


def restore(top: str, before: Iterable[tuple[str, str]] = ()) -> bool:
    """Make each filled submodule what its gitlink names; ignored files stay. One that cannot be
    moved there is emptied, so that set-up fills it. Folders of gitlinks that were there ``before``,
    and are not any more, are removed. Return whether one was moved or emptied. Raises ``GitError``
    and ``OSError``."""
    moved = False
    for name, _ in before:
        if not git(top, "ls-files", "-z", "--", f":(literal){name}"):
            shutil.rmtree(f"{top}/{name}", ignore_errors=True)
    for name, commit in gitlinks(top):
        folder = f"{top}/{name}"
        head, files = _inside(folder)
        if head != commit and (head or files):
            moved = True
            if not (head and _update(top, name, commit)):
                shutil.rmtree(folder, onerror=make_writable)
                Path(folder).mkdir()
        elif files:
            clean(folder)
        moved = restore(folder) or moved
    return moved


def clean(folder: str) -> None:
    """Take back all changes in a submodule, and remove its new files; raises ``GitError``."""
    git(folder, "reset", "--quiet", "--hard")
    git(folder, "clean", "--quiet", "-ffd")


def _update(top: str, name: str, commit: str) -> bool:
    """Have git move a submodule, without its own ``update`` setting, which may name a program;
    return whether it is there now."""
    update = ("submodule", "--quiet", "update", "--checkout", "--force", "--", name)
    try:
        answered(top, name, *update)
    except RemoteTrouble:
        return False
    clean(f"{top}/{name}")  # Also of submodules that its new commit has not any more.
    return _inside(f"{top}/{name}")[0] == commit


# --- its remote ----------------------------------------------------------------------------------


def is_public(folder: str, commit: str) -> bool:
    """Return whether the remote of the submodule in this folder has the commit, so that others can
    fetch it. Raises ``GitError``, also if the remote cannot be reached."""
    remote = _remote(folder)
    asked = ("rev-list", "--max-count=1")
    if not remote or not git(folder, *asked, commit, "--not", f"--remotes={remote}"):
        return remote != ""
    rows = lines(answered(folder, remote, "ls-remote", "--", remote))
    heads = (row.partition("\t")[0] for row in rows)
    stdin = "".join(f"{each}\n" for each in (commit, *(f"^{at}" for at in heads if is_object(at))))
    return not git(folder, *asked, "--ignore-missing", "--stdin", stdin=stdin)


def publish(folder: str, commit: str, branch: str) -> None:
    """Push the commit to this branch of the submodule's remote; raises ``GitError``."""
    ref, remote = f"refs/heads/{branch}", _remote(folder) or "origin"
    try:
        old = remote_heads(folder, remote, (ref,)).get(ref, "")
        push(folder, remote, RefMove(ref, old, commit))
    except LostRace:
        raise GitError(f"somebody else pushes {branch} to {remote} of {folder}") from None


def _remote(folder: str) -> str:
    """Return the name of the remote that git fetches a submodule from; "" if there is none."""
    found = lines(git(folder, "remote"))
    return "origin" if "origin" in found else "".join(found[:1])


def gitlinks(top: str) -> list[tuple[str, str]]:
    """Return the gitlinks of the index at the top of a worktree, each with the commit that it
    names. Raises ``GitError``."""
    # Without this file git fills none, and most projects have none.
    if not Path(top, ".gitmodules").exists():
        return []
    rows = (row.partition("\t") for row in names(git(top, "ls-files", "-z", "--stage")))
    found = ((*about.split(" "), name) for about, _, name in rows)
    return [(name, at) for mode, at, stage, name in found if (mode, stage) == (GITLINK, "0")]


def _inside(folder: str) -> tuple[str, tuple[str, ...]]:
    """Return the commit in a submodule's folder, and the files that differ from it; "" and all
    entries if that is no repository."""
    own = Path(folder, ".git")
    try:
        if os.path.lexists(own):
            # By name: git would find the repository around a folder that is none.
            head, _, files = status(folder, f"--git-dir={own}", f"--work-tree={folder}")
            return head or "no commit", files
    except GitError as error:
        if not is_outside(error):
            raise
    return "", tuple(sorted(each.name for each in Path(folder).glob("*")))
