"""Promises about branches that land, checked in the repository when nothing runs any more.

The branch and its reflog say what has landed and when, the log of the gates which trees passed, the
tracker which issues are closed. None of these sources knows of the others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from beads_workers.chaos.account import ChaosAccount
from beads_workers.cli.throwaway import Promise
from beads_workers.worktrees.git import git, lines, log_format, names, rows
from beads_workers.worktrees.landed import PREFIX

BRANCH = f"{PREFIX}/main"
REF = f"refs/heads/{BRANCH}"


@dataclass(frozen=True, slots=True)
class LandedHistory:
    """What git and the records of gates tell about the branch that work lands on."""

    # Every commit that the branch ever pointed to, with its tree, the oldest first.
    values: tuple[tuple[str, str], ...]
    backwards: tuple[str, ...]
    # By issue, the number of the branch's commits that name it.
    carried: Mapping[str, int]
    # Files of the branch's tip, with content.
    files: Mapping[str, str]
    # Trees that passed a gate.
    green: frozenset[str]
    # Trains that are still kept.
    pinned: tuple[str, ...]
    checkout: tuple[str, ...]


def read_history(project: Path, green: Path) -> LandedHistory:
    """Read the history from the repository and the log of the gates; raise ``GitError``."""
    top = str(project)
    output = git(top, "log", "--walk-reflogs", log_format("%H", "%T"), REF, "--")
    values = tuple((commit, tree) for commit, tree in reversed(rows(output, 2)))
    backwards = tuple(
        later[:12]
        for (earlier, _), (later, _) in pairwise(values)
        if git(top, "rev-list", "--count", f"{later}..{earlier}").strip() != "0"
    )
    format_ = "%(trailers:key=Issue,valueonly,separator=%x20)"
    issues = rows(git(top, "log", log_format(format_), REF, "--"), 1)
    carried = Counter(issue for (named,) in issues for issue in named.split())
    listed = names(git(top, "ls-tree", "-z", "--name-only", REF))
    ours = [name for name in listed if name.startswith(("done-", "broken-"))]
    files = {name: git(top, "show", f"{REF}:{name}") for name in ours}
    trees = [json.loads(line)["tree"] for line in green.read_bytes().splitlines()]
    pinned = lines(git(top, "for-each-ref", "--format=%(refname)", "refs/bw/train"))
    changed = names(git(top, "diff", "--name-only", "-z", "HEAD"))
    head = git(top, "rev-list", "--count", "HEAD").strip()
    checkout = (*changed, *([f"HEAD has {head} commits"] if head != "1" else []))
    return LandedHistory(
        values, backwards, carried, files, frozenset(trees), tuple(pinned), checkout
    )


def promises(
    account: ChaosAccount, statuses: Mapping[str, str], history: LandedHistory
) -> Iterator[Promise]:
    """Yield every promise, kept or broken."""
    yield Promise(
        "what is closed is on the branch, by one commit, and nothing else is",
        tuple(_misplaced(statuses, history)),
    )
    yield Promise(
        "every tree that the branch ever had passed the gate as that very tree",
        tuple(
            f"{commit[:12]} has tree {tree[:12]}"
            for commit, tree in history.values[1:]
            if tree not in history.green
        ),
    )
    yield Promise("the branch only moved forward", history.backwards)
    yield Promise("no half train is left", history.pinned)
    yield Promise("the checkout was not touched", history.checkout)
    yield Promise(
        "only what the gate refuses was refused",
        tuple(
            f"{issue_id}: {life.refused}"
            for issue_id, life in account.lives.items()
            if life.refused and statuses.get(issue_id) == "blocked" and life.refused != "verify"
        ),
    )


def _misplaced(statuses: Mapping[str, str], history: LandedHistory) -> Iterator[str]:
    for issue_id, status in statuses.items():
        count = history.carried.get(issue_id, 0)
        if count != (status == "closed"):
            yield f"{issue_id} is {status}, and {count} commits name it"
        elif status == "closed" and history.files.get(f"done-{issue_id}", "").strip() != issue_id:
            yield f"{issue_id} is closed, and its file is not on the branch"
    yield from (name for name in history.files if name.startswith("broken-"))
