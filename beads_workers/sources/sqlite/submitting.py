"""Jobs handed in to the embedded tracker: all of a submission, or nothing of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from beads_workers.protocols.submission import PROBLEMS_MAX, Submitted
from beads_workers.sources.envelopes import to_issue
from beads_workers.sources.issue import BadIssue, Issue
from beads_workers.sources.sqlite.exchange import write_issues
from beads_workers.sources.sqlite.schema import transaction
from beads_workers.sources.sqlite.store import Store

IN_TRACKER = "is in the tracker already"


class Refused(Exception):
    """Nothing was taken. ``problems``: one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


def submit(connection: sqlite3.Connection, jobs: Sequence[Submitted]) -> list[str]:
    """Make an issue of each job; returns what in them was no use. Raises ``Refused``."""
    issues: list[Issue] = []
    problems: list[str] = []
    warnings: list[str] = []
    first: dict[str, str] = {}
    for position, job in enumerate(jobs):
        job_id = job.envelope.job_id
        try:
            issue, useless = to_issue(job.envelope, position)
        except BadIssue as error:
            problems.append(f"{job.where}: {error}")
            continue
        if (before := first.setdefault(job_id, job.where)) != job.where:
            problems.append(f"{job.where}: job_id: {job_id!r} was on {before} already")
        issues.append(issue)
        warnings += [f"{job.where}: {text}" for text in useless]
    with transaction(connection):
        store = Store(connection)
        known = store.known(first)
        for job in jobs:
            if job.envelope.job_id in known:
                job_id = job.envelope.job_id
                problems.append(f"{job.where}: job_id: {job_id!r} {IN_TRACKER}")
        if problems:
            raise Refused(problems[:PROBLEMS_MAX])
        write_issues(store, issues)
    return warnings
