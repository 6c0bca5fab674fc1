"""The DELIVER step: turns what a command left in its worktree into a branch that can land.

Run by ``python -m`` in the worktree, with the preparation on stdin. Uncommitted changes are
committed. The answer is that of an attempt (``core.records.assignment``), with the branch in its
receipt.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

from beads_workers.attempts.git_calls import Misplaced
from beads_workers.attempts.work import CannotCommit, Workplace
from beads_workers.core.base.model import OutcomeKind
from beads_workers.core.records.assignment import AttemptAnswer, not_kept, to_fields
from beads_workers.core.records.receipts import Receipt
from beads_workers.worktrees.git import GitError, GitNoAnswer
from beads_workers.worktrees.orders import Preparation, read_preparation


def deliver(asked: Preparation, title: str) -> AttemptAnswer:
    """Commit, keep the tree, and answer with a receipt that names the branch; raises
    ``CannotCommit``, ``GitError``, ``OSError``."""
    place = Workplace.ended(str(Path.cwd()), asked.issue_id, asked.attempt, asked.run_id)
    place.trailers = asked.worktrees.trailers
    place.pushes = asked.worktrees.rules.pushes_submodules
    place.commit(title)
    flags = place.keep_all(place.hidden())
    wrong = place.trespass(Path(asked.place_file).stat().st_mtime)
    receipt = place.receipt(Receipt(verdict="done", flags=tuple(flags)))
    return AttemptAnswer(OutcomeKind.ERROR if wrong else OutcomeKind.SUCCESS, wrong, receipt)


def main() -> int:
    """Run the step, see the module text; return 0 in any case, because the answer says more."""
    asked = read_preparation(sys.stdin.read())
    answer = answered(asked, os.environ.get("BW_ISSUE_TITLE", ""))
    os.write(1, json.dumps({"answer": to_fields(answer)}).encode() + b"\n")
    return 0


def answered(asked: Preparation, title: str) -> AttemptAnswer:
    """Deliver, and return the answer; a failure of git or the machine is not blamed on the work."""
    try:
        return deliver(asked, title)
    except GitNoAnswer as trouble:
        return not_kept(f"git does not say what was done: {trouble}", Receipt())
    except FileNotFoundError:
        error = "its work cannot be committed: its worktree is gone"
    except (CannotCommit, Misplaced) as trouble:
        error = f"its work cannot be committed: {trouble}"
    except (GitError, OSError) as trouble:
        return not_kept(f"its work cannot be committed: {trouble}", Receipt())
    return AttemptAnswer(OutcomeKind.ERROR, error, Receipt())


if __name__ == "__main__":
    gc.freeze()  # Loaded modules are no garbage; Python would look for some at its end, too.
    sys.exit(main())
