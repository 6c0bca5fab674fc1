"""``retry`` without a fleet: what earlier runs remember of an issue is told to their journals."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from beads_workers.core.jobs import IssueId
from beads_workers.core.journal_lines import Entry, encode
from beads_workers.core.records import RetryAsked
from beads_workers.edge.journal_files import read_end, segments
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
            _append(directory, run_id, asked)
    finally:
        os.close(lock)


def _append(directory: RunDirectory, run_id: str, issue_ids: list[IssueId]) -> None:
    path = directory.run(run_id) / "journal.jsonl"
    last = None
    for last in read_end(path):  # noqa: B007 - the last one is wanted
        pass
    if last is None:
        return
    # At the run's last moment: a person's wish long after it does not make the run longer.
    lines = [encode(Entry(RetryAsked(each), time.time(), last.elapsed)) for each in issue_ids]
    # The last one is read by whoever recovers.
    with segments(path)[-1].open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        if file.read() != b"\n":
            file.write(b"\n")  # A torn last line must not swallow the first of these.
        file.write(b"".join(lines))
        file.flush()
        os.fsync(file.fileno())
