"""A project with the built-in tracker, in the shape of ``tests.support.bd.BdProject``.

It is filled and read by what ``beads-workers import`` and ``list`` call, without a process for
each: tests/cli/test_tracker.py holds those commands themselves.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from beads_workers.core.base.model import IssueId
from beads_workers.runtime.project import STATE_FOLDER, TRACKER_FILE
from beads_workers.trackers.issue import time_text
from beads_workers.trackers.sqlite.exchange import import_lines
from beads_workers.trackers.sqlite.store import SqliteStore, connect
from tests.support import warm

NAME = "project"
"""Of the folder, whose name begins the ids of issues that are added."""
DATE = "2026-01-02T03:04:05Z"
FOREIGN = ("BEADS_", "BD_", "BW_", "ORCHESTRATOR_")
"""Variables of whoever runs the suite that a test must not inherit."""


class EmbeddedProject:
    """Fresh, in ``folder/project``: a copy of what ``beads-workers init`` makes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / NAME
        shutil.copytree(_template(), self.folder)
        # Worktrees of attempts lie there.
        self.environment = _environment() | {"XDG_CACHE_HOME": str(folder / "cache")}

    def create_many(self, issues: Sequence[Mapping[str, Any]]) -> list[IssueId]:
        """Import issues in the shape of ``issues.jsonl``, commands too; ``id`` is given here."""
        rows = []
        for number, issue in enumerate(issues, 1):
            row: dict[str, Any] = {"id": f"bw-{number}", "title": f"number {number}"}
            row |= {"priority": 2, "status": "open", "issue_type": "task"}
            row |= {"created_at": DATE, "updated_at": DATE}
            rows.append(row | dict(issue))
        lines = [json.dumps(row).encode() for row in rows]
        with self._opened() as connection:
            import_lines(connection, lines, now=time_text(time.time()), allow_commands=True)
        return [IssueId(row["id"]) for row in rows]

    def read_all(self) -> dict[IssueId, tuple[str, str]]:
        """Status and assignee of every issue, closed ones too."""
        with self._opened() as connection:
            store = SqliteStore(connection)
            issues = list(store.in_batches(store.ids(finished=True)))
        return {IssueId(issue.id): (issue.status, issue.assignee) for issue in issues}

    def read(self, issue_id: IssueId) -> tuple[str, str]:
        """Status and assignee of one issue."""
        return self.read_all()[issue_id]

    def notes(self, issue_id: IssueId) -> str:
        """What a person reads about it."""
        return _run(self.folder, "show", issue_id)

    def _opened(self) -> contextlib.closing[sqlite3.Connection]:
        return contextlib.closing(connect(self.folder / STATE_FOLDER / TRACKER_FILE))


def _environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(FOREIGN)}
    return kept | {"NO_COLOR": "1"}


@functools.cache
def _template() -> Path:
    """Made once a session: copying is faster than making."""
    scratch = Path(tempfile.mkdtemp(prefix="beads-workers-tests-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    folder = scratch / NAME
    folder.mkdir()
    _run(folder, "init")
    return folder


def _run(folder: Path, *arguments: str) -> str:
    done = warm.run(arguments, folder, _environment(), timeout=30)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout
