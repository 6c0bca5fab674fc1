"""What ``clean`` says about worktrees."""

from __future__ import annotations

from beads_workers.core.text import printable
from beads_workers.edge.worktrees.removing import Looked


def removed_text(looked: Looked) -> str:
    """The worktree and the branch that go."""
    path = [] if looked.path is None else [f"worktree {looked.path}"]
    branch = [] if looked.branch is None else [f"branch {looked.branch}"]
    return printable(" and ".join([*path, *branch]))


def kept_text(looked: Looked) -> str:
    """The worktree that stays, and why."""
    branch = f" ({looked.branch})" if looked.branch and looked.path else ""
    what = f"worktree {looked.path}" if looked.path else f"branch {looked.branch}"
    return printable(f"{what}{branch}: {'; '.join(looked.kept_because)}")


def worktree_json(looked: Looked) -> dict[str, object]:
    """The same for programs; without reasons it goes."""
    return {
        "issue_id": looked.record.issue_id,
        "attempt": looked.record.attempt,
        "path": None if looked.path is None else str(looked.path),
        "branch": looked.branch,
        "reasons": list(looked.kept_because),
    }
