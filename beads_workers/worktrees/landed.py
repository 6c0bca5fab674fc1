"""What has landed, as the commits say it that the lander wrote: one for an issue, with trailers.

Whoever asks reads the branch itself, and no record of ours: after a crash, or in another clone, it
says the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from beads_workers.core.model import value
from beads_workers.worktrees.git import GitError, git

PREFIX = "bw-landing"
"""Integration branches are ``bw-landing/<the user's branch>``: a name below ``bw/`` would be in the
way of the attempts of an issue that is called like it."""

LANDING = f"refs/heads/{PREFIX}"

GIT_NEEDED = (2, 38)
"""``git merge-tree --write-tree``."""

ATTEMPTS = "refs/bw/attempts"
"""``refs/bw/attempts/<issue>/<n>``: the tree of each attempt that ended, committed or not."""

TRAILERS = ("Issue", "Attempt", "Run", "Verified", "Undoes")


def git_too_old() -> str:
    """Why nothing can land with this git, "" where it can; raises ``GitError``."""
    said = git("/", "version").split()
    found = re.match(r"(\d+)\.(\d+)", said[2]) if len(said) > 2 else None
    if found is None:
        return "git does not say its version"
    needed = ".".join(map(str, GIT_NEEDED))
    old = (int(found[1]), int(found[2])) < GIT_NEEDED
    return f"landing needs git {needed} or newer, and this is {said[2]}" if old else ""


@value
class LandedCommit:
    """One commit that the lander wrote. ``verified``: the tree that passed with it inside, "" where
    there was no gate. ``undoes``: the commits that it takes back."""

    commit: str
    issue_id: str = ""
    attempt: int = 0
    run_id: str = ""
    verified: str = ""
    undoes: tuple[str, ...] = ()


def landed_commits(
    folder: str, since: str, tips: Sequence[str], *, files: Sequence[str] = ()
) -> list[LandedCommit]:
    """What the lander wrote between ``since`` ("": the beginning) and these, the newest first; only
    what changed one of ``files``, pathspecs, where some are named. Raises ``GitError``."""
    wanted = "%x00".join(f"%(trailers:key={key},valueonly,separator=%x20)" for key in TRAILERS)
    told = git(
        folder,
        *("log", "--topo-order", *(("--first-parent",) if files else ())),
        *(f"--format=%H%x00{wanted}", *tips, *([f"^{since}"] if since else []), "--", *files),
    )
    return [found for row in told.splitlines() if (found := _read(row)) is not None]


def _read(row: str) -> LandedCommit | None:
    commit, issue_id, attempt, run_id, verified, undoes = row.split("\0")
    if not verified or not (issue_id or undoes):
        return None
    number = int(attempt) if attempt.isdecimal() else 0
    tree = verified.split()[0] if verified != "none" else ""
    return LandedCommit(commit, issue_id, number, run_id, tree, tuple(undoes.split()))


def still_landed(commits: Sequence[LandedCommit]) -> list[LandedCommit]:
    """Those of these, the newest first, that no later one takes back."""
    undone: set[str] = set()
    found = []
    for each in commits:
        undone.update(each.undoes)
        if each.issue_id and each.commit not in undone:
            found.append(each)
    return found


def merge_command(folder: str, branch: str) -> str:
    """What a person types to have what has landed on their own branch; "" where it is there.

    ``branch``: the integration branch, ``bw-landing/main``. Raises ``GitError``.
    """
    target = branch.partition("/")[2]
    refs = dict(
        line.split(" ")
        for line in git(
            folder,
            *("for-each-ref", "--format=%(refname) %(objectname)"),
            *(f"refs/heads/{branch}", f"refs/heads/{target}"),
        ).splitlines()
    )
    tip, mine = refs.get(f"refs/heads/{branch}"), refs.get(f"refs/heads/{target}")
    if tip is None:
        return ""
    if mine is None:
        return f"git branch {target} {branch}"
    behind, ahead = git(folder, "rev-list", "--count", "--left-right", f"{mine}...{tip}").split()
    if ahead == "0":
        return ""
    try:
        here = git(folder, "symbolic-ref", "--quiet", "--short", "HEAD").strip() == target
    except GitError:
        here = False  # HEAD is detached.
    merge = f"git merge {branch}" if behind != "0" else f"git merge --ff-only {branch}"
    if here:
        return merge
    return f"git switch {target} && {merge}" if behind != "0" else f"git fetch . {branch}:{target}"
