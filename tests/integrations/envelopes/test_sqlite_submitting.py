"""Jobs handed in to the built-in tracker: all of them or none."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.model import Filters
from beads_workers.integrations.envelopes.commands import SubmissionRefused, submit_all
from beads_workers.integrations.envelopes.wire import Submitted, read_submission
from beads_workers.trackers.sqlite.source import SqliteSource
from beads_workers.trackers.sqlite.store import SqliteStore, connect, create
from tests.integrations.envelopes.test_envelope import ENQUEUED


@pytest.fixture
def database(tmp_path: Path) -> Path:
    create(tmp_path / "tracker.db", "t")
    return tmp_path / "tracker.db"


@pytest.fixture
def connection(database: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(database)) as connection:
        yield connection


def jobs(*changes: dict[str, Any]) -> tuple[Submitted, ...]:
    text = "\n".join(json.dumps(ENQUEUED | each) for each in changes)
    found = read_submission(text.encode())
    assert not found.problems
    return found.jobs


def test_they_are_taken_by_priority_then_age_then_as_they_stood(
    database: Path, connection: sqlite3.Connection
) -> None:
    rows = [("z", 1), ("y", 1), ("old", 0), ("x", 1)]
    sent = [{"job_id": name, "ts_enqueued": 1000 + at} for name, at in rows]
    submit_all(connection, jobs(*sent, {"job_id": "urgent", "ts_enqueued": 9999, "priority": 0}))
    source = SqliteSource(database, actor="me", filters=Filters(), listed_max=10)
    taken = source.take(9, ())
    source.close()
    assert [job.issue_id for job in taken.jobs] == ["urgent", "old", "z", "y", "x"]
    assert taken.jobs[1].enqueued_at == pytest.approx(1000, abs=1)


def test_a_repeated_job_id_takes_the_whole_submission_back(connection: sqlite3.Connection) -> None:
    submit_all(connection, jobs({"job_id": "a"}))
    with pytest.raises(SubmissionRefused) as refused:
        submit_all(connection, jobs({"job_id": "b"}, {"job_id": "a"}, {"job_id": "b"}))
    assert refused.value.problems == (
        "line 3: job_id: 'b' was on line 1 already",
        "line 2: job_id: 'a' is in the tracker already",
    )
    assert SqliteStore(connection).ids(finished=True) == ["a"]


def test_what_can_be_no_issue_is_named_with_its_line(connection: sqlite3.Connection) -> None:
    with pytest.raises(SubmissionRefused, match=r"line 2: job_id: .*a b"):
        submit_all(connection, jobs({"job_id": "fine"}, {"job_id": "a b"}))
    assert SqliteStore(connection).ids(finished=True) == []


def test_keys_that_were_no_use_are_told_and_nothing_is_refused(
    connection: sqlite3.Connection,
) -> None:
    (warning,) = submit_all(connection, jobs({"priority": 9}))
    assert warning.startswith("line 1: priority: ")
    assert SqliteStore(connection).ids(finished=True) == ["job-123"]
