"""``retry`` while no fleet runs: the next start has forgotten the attempts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from beads_workers.core.base.model import IssueId
from beads_workers.core.records import journal as rec
from beads_workers.runtime.journal import Journal
from beads_workers.runtime.journal_file import read_journal
from beads_workers.runtime.retention import forget
from beads_workers.runtime.run_directory import RunDirectory

FAILURES = [
    rec.Finished(i, "W1", 1, "r", "error", "requeue", "boom", charged=1, delay_seconds=300.0)
    for i in ("a", "b")
]


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    made = RunDirectory(tmp_path / ".beads-workers")
    made.create()
    (made.runs / "1").mkdir()
    journal = Journal(made.run("1") / "journal.jsonl")
    for record in (rec.RunStarted("1", 1, "actor", "memory", "/p"), *FAILURES):
        journal.append(record)
    journal.flush()
    journal.close()
    return made


def test_what_a_person_wants_tried_again_does_not_cool_down(directory: RunDirectory) -> None:
    forget(directory, [IssueId("a"), IssueId("never seen")])
    assert list(directory.left_over()[1].retry_entries) == ["b"]


def test_a_torn_last_line_does_not_swallow_the_wish(directory: RunDirectory) -> None:
    path = directory.run("1") / "journal.jsonl"
    with path.open("ab") as file:
        file.write(b'{"v":1,"e":"fini')
    forget(directory, [IssueId("a")])
    assert list(directory.left_over()[1].retry_entries) == ["b"]


def test_the_run_did_not_take_longer_for_it(directory: RunDirectory) -> None:
    path = directory.run("1") / "journal.jsonl"
    before = list(read_journal(path))[-1].elapsed
    forget(directory, [IssueId("a")])
    assert list(read_journal(path))[-1].elapsed == before


def test_a_fleet_that_was_just_started_is_left_alone(directory: RunDirectory) -> None:
    fd = directory.lock()
    before = (directory.run("1") / "journal.jsonl").read_bytes()
    forget(directory, [IssueId("a")])
    assert (directory.run("1") / "journal.jsonl").read_bytes() == before
    os.close(fd)


def test_where_nothing_ever_ran_there_is_nothing_to_forget(tmp_path: Path) -> None:
    forget(RunDirectory(tmp_path / "none"), [IssueId("a")])
    assert not (tmp_path / "none").exists()
