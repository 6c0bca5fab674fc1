"""The DELIVER step: what a command left in its worktree becomes a branch that can land.

``python -m`` with the preparation on stdin, in the worktree. What is not committed is committed;
the answer is that of an attempt (``attempts.assignment``), with the branch in its receipt.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

from beads_workers.attempts.git_calls import GitNoAnswer
from beads_workers.attempts.work import CannotCommit, Workplace
from beads_workers.core.model import OutcomeKind
from beads_workers.core.receipts import Receipt, to_json
from beads_workers.worktrees.git import GitError
from beads_workers.worktrees.preparation import Preparation, read_preparation


def deliver(asked: Preparation, title: str) -> Receipt:
    """Commit, keep, and name the branch; raises ``CannotCommit`` and ``GitError``."""
    place = Workplace.enter(str(Path.cwd()), asked.issue_id, asked.attempt, asked.run_id)
    if place.base is None or not place.own:
        raise GitError("this task has no worktree")
    place.commit(title)
    place.keep()
    return place.receipt(Receipt(verdict="done"))


def main() -> int:
    """See the module text; 0 in any case, because the answer says more."""
    asked = read_preparation(sys.stdin.read())
    outcome, error, receipt = OutcomeKind.SUCCESS, "", Receipt()
    try:
        receipt = deliver(asked, os.environ.get("BW_ISSUE_TITLE", ""))
    except GitNoAnswer as trouble:
        outcome, error = OutcomeKind.RETRY, f"git does not say what was done: {trouble}"
    except (CannotCommit, GitError) as trouble:
        outcome, error = OutcomeKind.ERROR, f"its work cannot be committed: {trouble}"
    except FileNotFoundError:
        outcome, error = OutcomeKind.ERROR, "its work cannot be committed: its worktree is gone"
    fields = {"outcome": outcome.value, "error": error, "receipt": to_json(receipt)}
    os.write(1, json.dumps({"answer": fields}).encode() + b"\n")
    return 0


if __name__ == "__main__":
    gc.freeze()  # Nothing of what is loaded is garbage; Python would look for some at the end, too.
    sys.exit(main())
