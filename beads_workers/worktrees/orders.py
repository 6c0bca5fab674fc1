"""Orders of a worker to the PREPARE, DELIVER and REPORT steps, each of which is a process."""

from __future__ import annotations

import json

from beads_workers.core.base.model import value
from beads_workers.core.base.plain import from_plain
from beads_workers.core.base.settings import Worktrees


@value
class Preparation:
    """Order of a worker for a worktree; the worker reads the answer from ``place_file``."""

    worktrees: Worktrees
    issue_id: str
    attempt: int
    worker_id: str
    run_id: str
    place_file: str
    # The attempt goes on with the work of the one before, in the same worktree, if that is still
    # there.
    continues: bool = False
    # A further attempt may do the same with the work of this one.
    may_continue: bool = False
    # The branch of the attempt is to land.
    lands: bool = False
    # The commit with which the work goes on that another machine has begun, and the one with which
    # it began there.
    head: str = ""
    base: str = ""
    # Folders that the issue needs beside those of a sparse checkout, as seen from its top.
    paths: tuple[str, ...] = ()


def read_preparation(text: str) -> Preparation:
    """Read the text that ``executors.command.preparation`` wrote."""
    return from_plain(Preparation, json.loads(text))
