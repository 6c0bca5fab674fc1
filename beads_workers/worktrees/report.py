"""The REPORT step: one line on what a successful task left in its worktree.

``python -m`` with the preparation on stdin, as for the PREPARE step.
"""

from __future__ import annotations

import sys
from pathlib import Path

from beads_workers.core.base.text import counted
from beads_workers.worktrees.git import GitError, git
from beads_workers.worktrees.orders import Preparation, read_preparation
from beads_workers.worktrees.records import Records, named_in
from beads_workers.worktrees.removal import status, what_came_of_it


def report(asked: Preparation) -> str:
    """Return the line; raise ``GitError``, also if the worktree is gone."""
    name = named_in(Path(asked.place_file))
    record = name and Records(Path(asked.worktrees.state_directory)).find(name)
    if not record:
        raise GitError("this task has no worktree")
    _, at, changes = status(record.path)
    ref = f"refs/heads/{record.branch}"
    if not git(record.path, "for-each-ref", "--format=%(refname)", ref):
        return f"its branch {record.branch} is gone"
    commits = int(git(record.path, "rev-list", "--count", f"{record.base}..{ref}"))
    text = what_came_of_it(record.branch, commits, len(changes))
    return text if at == record.branch else f"{text}; {_elsewhere(record.path, at)}"


def _elsewhere(folder: str, at: str | None) -> str:
    """Return where HEAD is, and the number of commits that only HEAD keeps."""
    if at is not None:
        return f"HEAD is on {at}"
    known = ("--branches", "--tags", "--remotes")
    lost = int(git(folder, "rev-list", "--count", "HEAD", "--not", *known))
    return f"HEAD is on no branch, with {counted(lost, 'commit')} of its own"


def main() -> int:
    """Run the step: see the module text. Return 0, or 1 after printing why."""
    try:
        text, code = report(read_preparation(sys.stdin.read())), 0
    except GitError as error:
        text, code = str(error), 1
    sys.stdout.write(f"{text}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
