"""The commit where attempts begin once landing has begun.

It has what has landed and what the user has committed since. The lander merges these two first, so
the merged commit must pass, and the two must merge.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from beads_workers.checks.rules import Check, fail
from beads_workers.core.base.model import value
from beads_workers.core.base.settings import Landing, Worktrees
from beads_workers.core.base.text import printable
from beads_workers.core.records.landing import FILES_NAMED
from beads_workers.landing.scratch_merges import Builder, Conflict, Follow, Objects, TrackerFiles
from beads_workers.worktrees.git import git
from beads_workers.worktrees.making import base_of
from beads_workers.worktrees.remote import RemoteTrouble, remote_heads


@value
class Beginning:
    """The commit where attempts begin.

    ``commit``: a scratch commit if two branches are merged in it. ``name``: for people.
    """

    commit: str
    name: str


@value
class Unmerged:
    """Conflict of two commits: of the user's branch and of the landing branch."""

    mine: str
    files: tuple[str, ...]


def find_beginning(landing: Landing, worktrees: Worktrees) -> Beginning | Unmerged:
    """Return the commit that attempts begin with; raise ``GitError``."""
    base = _landed(worktrees)
    if not landing.follows:
        return Beginning(base, worktrees.base_name)
    ref = f"refs/heads/{landing.follows}^{{commit}}"
    mine = git(worktrees.checkout, "rev-parse", "--verify", ref).strip()
    with tempfile.TemporaryDirectory() as place:
        objects = Objects(worktrees.common, Path(place, "attributes"))
        if mine == base or objects.contains(mine, base):
            return Beginning(mine, landing.follows)
        if objects.contains(base, mine):
            return Beginning(base, worktrees.base_name)
        builder = Builder(objects, TrackerFiles(worktrees.prefix))
        merged = builder.couple(base, Follow(landing.follows, mine))
    if isinstance(merged, Conflict):
        return Unmerged(mine, merged.files)
    return Beginning(merged.commit, f"{landing.follows} merged with {worktrees.base_name}")


def _landed(worktrees: Worktrees) -> str:
    if worktrees.remote:
        with suppress(RemoteTrouble):  # Another condition reports this.
            heads = remote_heads(worktrees.checkout, worktrees.remote, (worktrees.base,))
            if worktrees.base in heads:
                return heads[worktrees.base]
    return base_of(replace(worktrees, remote=""))


def unmerged(landing: Landing, worktrees: Worktrees) -> Check | None:
    """Report that the user's commits do not merge with what has landed; raise ``GitError``."""
    found = find_beginning(landing, worktrees)
    if isinstance(found, Beginning):
        return None
    files = ", ".join(found.files[:FILES_NAMED])
    text = (
        f"{landing.follows} at {found.mine[:12]} does not merge with {landing.branch}, so that"
        f" nothing would land: {printable(files, 200)}"
    )
    hint = f"with {landing.follows} checked out: git merge {landing.branch}"
    return fail("landing", text, f"git merge {landing.branch}", hint)
