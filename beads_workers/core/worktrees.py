"""When a worktree may go: only when nothing that anybody did there would be lost with it.

Source: docs/PROTOCOL.md, "Worktrees". Pure: the edge looks, this decides.
"""

from __future__ import annotations

from beads_workers.core.text import counted
from beads_workers.core.values import value

NAMES_SHOWN = 3
"""Files that are named before the rest is only counted."""


@value
class Found:
    """What was seen of one worktree that we made.

    ``changes``: files that are modified, staged or untracked (not ignored). ``commits``: how many
    of its own are on no other branch, remote branch or tag. ``trouble``: why it could not be
    looked at. ``prepared``: whether a task may ever have run in it.
    """

    prepared: bool = True
    in_use: bool = False
    locked: str | None = None
    changes: tuple[str, ...] = ()
    operation: str | None = None
    stashes: int = 0
    commits: int = 0
    branch_used_at: str | None = None
    submodules: bool = False
    trouble: str | None = None


def reasons_to_keep(found: Found) -> tuple[str, ...]:
    """Why it stays, for people; empty: it may be removed, with its branch."""
    if found.in_use:
        return ("in use by a running fleet",)
    reasons = []
    if found.trouble is not None:
        reasons.append(found.trouble)
    if found.locked is not None:
        reasons.append(f"locked by 'git worktree lock'{_because(found.locked)}")
    if found.commits:
        reasons.append(f"{counted(found.commits, 'commit')} on no other branch")
    # Before a task has run there, a change is only what its making had not finished.
    if found.changes and found.prepared:
        reasons.append(f"{counted(len(found.changes), 'change')} not committed: {_names(found)}")
    if found.operation is not None:
        reasons.append(f"{found.operation} is under way")
    if found.stashes:
        reasons.append(counted(found.stashes, "stash", "stashes"))
    if found.branch_used_at is not None:
        reasons.append(f"its branch is checked out at {found.branch_used_at}")
    if found.submodules:
        reasons.append("it holds submodules, whose commits git does not look at")
    return tuple(reasons)


def what_came_of_it(branch: str | None, commits: int, changes: int) -> str:
    """One line on what a task left in its worktree, for the person who will look at it."""
    on = f"on {branch}" if branch else "on no branch"
    left = f"{counted(changes, 'change')} not committed" if changes else ""
    if commits:
        return f"{counted(commits, 'commit')} {on}" + (f", {left}" if left else "")
    return f"{left} {on}" if left else "nothing changed"


def _because(text: str) -> str:
    return f" ({text})" if text else ""


def _names(found: Found) -> str:
    shown = ", ".join(found.changes[:NAMES_SHOWN])
    return f"{shown}, ..." if len(found.changes) > NAMES_SHOWN else shown
