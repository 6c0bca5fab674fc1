"""``retry`` without a fleet: what earlier runs remember of an issue is told to their journals."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from beads_workers.core.jobs import IssueId
from beads_workers.core.journal_lines import Entry
from beads_workers.core.records import RetryAsked
from beads_workers.edge.journal_files import add_to
from beads_workers.edge.run_directory import AlreadyRunning, RunDirectory


def forget(directory: RunDirectory, issue_ids: Iterable[IssueId]) -> None:
    """Give these a clean history for the next start: no attempts, no cooling down.

    Where a fleet has just been started it does nothing: that has read the journals already.
    """
    try:
        lock = directory.lock() if directory.root.is_dir() else None
    except AlreadyRunning:
        return
    if lock is None:
        return
    try:
        remembered = directory.left_over()[1].pages.keys()
        asked = [issue_id for issue_id in issue_ids if issue_id in remembered]
        # Every run that still tells of it: which one the next start reads depends on what is whole.
        for run_id in directory.run_ids() if asked else ():
            journal = directory.run(run_id) / "journal.jsonl"
            # At the run's last moment: a person's wish long after it does not make it longer.
            add_to(journal, [Entry(RetryAsked(each), time.time(), 0.0) for each in asked])
    finally:
        os.close(lock)
