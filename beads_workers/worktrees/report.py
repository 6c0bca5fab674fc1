"""The REPORT step: one line on what a successful task left in its worktree.

``python -m`` with the preparation on stdin, as for the PREPARE step.
"""

from __future__ import annotations

import sys
from pathlib import Path

from beads_workers.worktrees.git import GitError, git
from beads_workers.worktrees.preparation import Preparation, read_preparation
from beads_workers.worktrees.records import Records, named_in
from beads_workers.worktrees.removal import status, what_came_of_it


def report(asked: Preparation) -> str:
    """The line; raises ``GitError``, also where there is no worktree any more."""
    name = named_in(Path(asked.place_file))
    record = name and Records(Path(asked.worktrees.state_directory)).find(name)
    if not record:
        raise GitError("this task has no worktree")
    _, branch, changes = status(record.path)
    commits = int(git(record.path, "rev-list", "--count", f"{record.base}..HEAD"))
    return what_came_of_it(branch, commits, len(changes))


def main() -> int:
    """See the module text; 0, or 1 after saying why."""
    try:
        text, code = report(read_preparation(sys.stdin.read())), 0
    except GitError as error:
        text, code = str(error), 1
    sys.stdout.write(f"{text}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
