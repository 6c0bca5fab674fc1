"""Landed commits: which commits of an integration branch the lander wrote, and for which issues.

The branch itself is read, with the ledger's entries for its commits, or else their trailers. After
a crash, or in another clone, they say the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from beads_workers.core.records.receipts import INDEPENDENT
from beads_workers.worktrees import ledger
from beads_workers.worktrees.git import (
    BRANCHES,
    git,
    git_or_none,
    is_ancestor,
    lines,
    log_format,
    row_format,
    rows,
)
from beads_workers.worktrees.ledger import LandedCommit

PREFIX = "bw-landing"
"""Prefix of integration branches, ``bw-landing/<the user's branch>``. A name below ``bw/`` would
conflict with the attempts of an issue with the same name."""

LANDING = f"refs/heads/{PREFIX}"

GIT_NEEDED = (2, 38)
"""Oldest version with ``git merge-tree --write-tree``."""

PULLS = "refs/bw/pulls"
"""``refs/bw/pulls/<issue>/<commit of its branch>``: the commit that is pushed for it."""

ATTEMPTS = "refs/bw/attempts"
"""``refs/bw/attempts/<issue>/<n>``: the tree of each ended attempt, committed or not."""

TRAILERS = ("Issue", "Attempt", "Run", "Verified", "Verified-in", "Undoes")
"""Keys of the lines in the last paragraph of our commits."""


WHY = "landing: "
"""Prefix of the reasons in the reflog of the integration branch, for every move by the lander."""


def git_too_old() -> str:
    """Return why nothing can land with this git; "" if it can. Raises ``GitError``."""
    output = git("/", "version")
    found = re.match(r"git version ((\d+)\.(\d+)\S*)", output)
    if found is None:
        return "git does not say its version"
    needed = ".".join(map(str, GIT_NEEDED))
    old = (int(found[2]), int(found[3])) < GIT_NEEDED
    return f"landing needs git {needed} or newer, and this is {found[1]}" if old else ""


def landed_commits(
    folder: str,
    since: str,
    tips: Sequence[str],
    *,
    files: Sequence[str] = (),
    branch: str = "",
) -> list[LandedCommit]:
    """Return what the lander wrote between ``since`` ("": the beginning) and ``tips``, the newest
    first. ``files``: pathspecs; if given, only commits that changed one of them. ``branch``: the
    integration branch in question; its commits that a person has rewritten are found again. Raises
    ``GitError``."""
    known = ledger.entries(folder, branch)
    output = git(
        folder,
        # Commits merged into it by others may carry copied trailers.
        *("log", "--first-parent", "--topo-order"),
        *([] if known else ["--fixed-strings", "--grep=Verified"]),
        *(log_format("%H", "%B"), *tips, *([f"^{since}"] if since else []), "--", *files),
    )
    read = rows(output, 2)
    by_commit = {each.commit: each for each in known if each.commit}
    if branch:
        by_commit |= ledger.moved(folder, known, tips[0], [commit for commit, _ in read])[0]
    found = (by_commit.get(commit) or _read(commit, message) for commit, message in read)
    return [each for each in found if each is not None]


def as_landed(folder: str, commits: Sequence[str]) -> list[LandedCommit]:
    """Return what is known of those of these commits that the lander wrote; raises ``GitError``."""
    if not commits:
        return []
    by_commit = {each.commit: each for each in ledger.entries(folder)}
    output = git(folder, "log", "--no-walk=unsorted", log_format("%H", "%B"), *commits)
    found = (by_commit.get(commit) or _read(commit, message) for commit, message in rows(output, 2))
    return [each for each in found if each is not None]


def trailers(message: str) -> dict[str, str]:
    """Return our trailers in a commit's message: lines of its last paragraph, each only once.

    By our own rule. git's rule depends on everybody's ``trailer.*`` settings, ends at a line of
    scissors, and folds lines.
    """
    *_, last = message.strip().split("\n\n")
    found: dict[str, str] = {}
    for line in last.split("\n"):
        key, colon, text = line.partition(": ")
        if not colon or key not in TRAILERS:
            continue
        if key in found:
            return {}  # The text is of two commits, or was not written by us.
        found[key] = text
    return found


def _read(commit: str, message: str) -> LandedCommit | None:
    values = trailers(message)
    verified, issue_id = (
        values.get("Verified", values.get("Verified-in", "")),
        values.get("Issue", ""),
    )
    attempt, run_id, undoes = (
        values.get("Attempt", ""),
        values.get("Run", ""),
        values.get("Undoes", ""),
    )
    ours = bool(undoes) if "Undoes" in values else bool(issue_id and attempt.isdecimal() and run_id)
    if not verified or not ours:
        return None
    tree = verified.split()[0] if verified != "none" else ""
    if verified.endswith(INDEPENDENT):
        tree += f" {INDEPENDENT}"
    number = int(attempt) if attempt.isdecimal() else 0
    return LandedCommit(commit, issue_id, number, run_id, tree, tuple(undoes.split()))


def branches_with(folder: str, commit: str) -> list[str]:
    """Return the user's own branches that have this commit; none if the commit is gone. Raises
    ``GitError``."""
    if is_ancestor(folder, commit, commit) is None:
        return []
    asked = ("for-each-ref", row_format("%(refname)"), f"--contains={commit}", "refs/heads/")
    ours = (f"{LANDING}/", f"refs/heads/{BRANCHES}/")
    return [name for (name,) in rows(git(folder, *asked), 1) if not name.startswith(ours)]


def still_landed(commits: Sequence[LandedCommit]) -> list[LandedCommit]:
    """Return the commits, the newest first, that no later one takes back."""
    undone: set[str] = set()
    found = []
    for each in commits:
        undone.update(each.undoes)
        if each.issue_id and not each.undoes and each.commit not in undone:
            found.append(each)
    return found


def merge_command(folder: str, branch: str) -> str:
    """Return the command that brings what has landed to the user's branch; "" if it is there.

    ``branch``: the integration branch, ``bw-landing/main``. Raises ``GitError``.
    """
    target = branch.partition("/")[2]
    asked = ("for-each-ref", row_format("%(refname)", "%(objectname)"))
    output = git(folder, *asked, f"refs/heads/{branch}", f"refs/heads/{target}")
    refs = {row[0]: row[1] for row in rows(output, 2)}
    tip, mine = refs.get(f"refs/heads/{branch}"), refs.get(f"refs/heads/{target}")
    if tip is None:
        return ""
    remote, _, own = target.partition("/")
    if mine is None and own and remote in lines(git(folder, "remote")):
        # Pull requests are merged on the remote's branch.
        is_there = is_ancestor(folder, tip, f"refs/heads/{own}")
        return "" if is_there else f"git pull {remote} {own}"
    if mine is None:
        return f"git branch {target} {branch}"
    counted = git(folder, "rev-list", "--count", "--left-right", f"{mine}...{tip}")
    (line,) = lines(counted, 1)
    behind, _, ahead = line.partition("\t")
    if ahead == "0":
        return ""
    head = git_or_none(folder, "symbolic-ref", "--quiet", "HEAD")  # None: it is detached.
    here = head is not None and lines(head) == [f"refs/heads/{target}"]
    merge = f"git merge {branch}" if behind != "0" else f"git merge --ff-only {branch}"
    if here:
        return merge
    return f"git switch {target} && {merge}" if behind != "0" else f"git fetch . {branch}:{target}"
