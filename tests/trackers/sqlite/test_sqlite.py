"""The SQLite source beyond the contract: the file, its lock, its loss, and kill -9."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from beads_workers.core.base.model import Filters, IssueId
from beads_workers.core.base.ready import PARENT_CHILD
from beads_workers.core.base.source import Action, CrashedRun, Result, Settlement, SourceError
from beads_workers.trackers.issue import Dependency, TrackerIssue
from beads_workers.trackers.sqlite import store
from beads_workers.trackers.sqlite.exchange import DependencyCycle, write_issues
from beads_workers.trackers.sqlite.source import SqliteSource

TIME = "2026-01-02T03:04:05Z"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "tracker.db"
    assert store.create(path, "t")
    return path


@pytest.fixture
def source(database: Path) -> Iterator[SqliteSource]:
    source = SqliteSource(database, actor="run-1", filters=Filters(), listed_max=200)
    yield source
    source.close()


def fill(database: Path, *issues: TrackerIssue) -> None:
    connection = store.connect(database)
    with store.transaction(connection):
        write_issues(store.SqliteStore(connection), issues)
    connection.close()


def issue(
    key: str, *dependencies: Dependency, created_at: str = TIME, status: str = "open"
) -> TrackerIssue:
    return TrackerIssue(
        id=key,
        title=key,
        status=status,
        created_at=created_at,
        updated_at=TIME,
        dependencies=dependencies,
    )


def test_a_missing_file_is_a_clear_error_and_is_not_made(tmp_path: Path) -> None:
    source = SqliteSource(tmp_path / "none.db", actor="a", filters=Filters(), listed_max=1)
    with pytest.raises(SourceError, match=r"none\.db") as caught:
        source.describe()
    assert "init" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_creating_it_again_changes_nothing(database: Path) -> None:
    fill(database, issue("t-1"))
    assert not store.create(database, "other")
    connection = store.connect(database)
    assert store.SqliteStore(connection).known(["t-1"]) == {"t-1"}
    assert store.SqliteStore(connection).new_id().startswith("t-")
    connection.close()


def test_a_newer_schema_is_refused(database: Path, source: SqliteSource) -> None:
    connection = sqlite3.connect(database)
    connection.execute(f"PRAGMA user_version = {store.SCHEMA_VERSION + 1}")
    connection.close()
    with pytest.raises(SourceError, match="newer") as caught:
        source.take(1, ())
    assert "upgrade" in caught.value.hint


@pytest.mark.parametrize("content", [b"", b"this is no database at all, " * 100])
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.db"
    path.write_bytes(content)
    with pytest.raises(SourceError):
        SqliteSource(path, actor="a", filters=Filters(), listed_max=1).describe()
    assert path.read_bytes() == content


def test_a_tracker_deleted_under_us_swallows_no_close(database: Path, source: SqliteSource) -> None:
    fill(database, issue("t-1"))
    assert len(source.take(1, ()).jobs) == 1
    database.unlink()
    with pytest.raises(SourceError):
        source.settle([Settlement(Action.CLOSE, IssueId("t-1"))])


def test_a_tracker_replaced_under_us_is_the_one_that_is_read(
    database: Path, source: SqliteSource, tmp_path: Path
) -> None:
    fill(database, issue("t-1"))
    assert [row.issue_id for row in source.take(0, ()).listed] == ["t-1"]
    other = tmp_path / "other.db"
    store.create(other, "t")
    fill(other, issue("t-2"))
    other.replace(database)
    assert [row.issue_id for row in source.take(0, ()).listed] == ["t-2"]


def test_a_locked_tracker_is_an_error_that_changes_nothing_and_passes(
    database: Path, source: SqliteSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("beads_workers.trackers.sqlite.store.BUSY_SECONDS", 0.05)
    fill(database, issue("t-1"))
    other = store.connect(database)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(SourceError, match="locked"):
        source.take(1, ())
    assert len(source.take(0, ()).listed) == 1, "readers do not wait for writers"
    other.execute("ROLLBACK")
    assert len(source.take(1, ()).jobs) == 1
    other.close()


@pytest.mark.parametrize("comes_next", ["a take", "its end"])
def test_a_claim_that_was_refused_and_stands_all_the_same_is_not_lost(
    comes_next: str, database: Path, source: SqliteSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(database, issue("t-1"), issue("t-2"))

    @contextmanager
    def commits_and_fails(connection: sqlite3.Connection) -> Iterator[None]:
        with store.transaction(connection):
            yield
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patched, pytest.raises(SourceError, match="disk I/O error"):
        patched.setattr("beads_workers.trackers.sqlite.source.transaction", commits_and_fails)
        source.take(1, ())
    seen = source.look([IssueId("t-1")])
    assert seen[IssueId("t-1")].status == "in_progress"
    if comes_next == "a take":
        assert [job.issue_id for job in source.take(5, ()).jobs] == ["t-1", "t-2"]
    else:
        source.close()
        assert source.ready() == {"t-1", "t-2"}


def test_the_oldest_comes_first_among_equals_however_its_time_is_written(
    database: Path, source: SqliteSource
) -> None:
    fill(
        database,
        issue("t-c", created_at="2026-01-02T03:04:05.5Z"),
        issue("t-b", created_at="2026-01-02T03:04:05.123456789Z"),
        issue("t-a", created_at="2026-01-02T03:04:05Z"),
        issue("t-0", created_at="2026-01-02T05:04:04+02:00"),
    )
    assert [job.issue_id for job in source.take(9, ()).jobs] == ["t-0", "t-a", "t-b", "t-c"]


def test_texts_that_are_no_utf8_neither_stop_nor_crash_a_group(
    database: Path, source: SqliteSource
) -> None:
    fill(database, issue("t-1"))
    source.take(1, ["\ud800"])  # type: ignore[list-item]
    answers = source.settle(
        [
            Settlement(Action.QUARANTINE, IssueId("t-1"), "bad \ud83d note \x00"),
            Settlement(Action.CLOSE, IssueId("\udcff")),
        ]
    )
    assert [answer.result for answer in answers] == [Result.APPLIED, Result.NOT_OURS]


def test_a_close_keeps_what_came_of_the_work(database: Path, source: SqliteSource) -> None:
    fill(database, issue("t-1"), issue("t-2"))
    source.take(2, ())
    source.settle(
        [
            Settlement(Action.CLOSE, IssueId("t-1"), result='{"sent":["\\ud83d",1]}'),
            Settlement(Action.CLOSE, IssueId("t-2"), result_file="/runs/1/results/t-2.1.json"),
        ]
    )
    with closing(store.connect(database)) as connection:
        one, two = store.SqliteStore(connection).issues(["t-1", "t-2"])
    assert one.extra == {"result": {"sent": ["\ud83d", 1]}}
    assert two.extra == {"result_file": "/runs/1/results/t-2.1.json"}


def test_what_a_parent_waits_for_holds_its_grandchildren_back(
    database: Path, source: SqliteSource
) -> None:
    fill(
        database,
        issue("t-first"),
        issue("t-parent", Dependency("t-first")),
        issue("t-child", Dependency("t-parent", PARENT_CHILD)),
        issue("t-grandchild", Dependency("t-child", PARENT_CHILD)),
    )
    answer = source.take(9, ())
    assert ([job.issue_id for job in answer.jobs], answer.blocked) == (["t-first"], 3)
    source.settle([Settlement(Action.CLOSE, IssueId("t-first"))])
    answer = source.take(9, ())
    assert {job.issue_id for job in answer.jobs} == {"t-parent", "t-child", "t-grandchild"}
    assert answer.blocked == 0


def test_a_dependency_on_what_comes_later_counts_once_it_is_there(
    database: Path, source: SqliteSource
) -> None:
    fill(database, issue("t-second", Dependency("t-first")))
    assert len(source.take(0, ()).listed) == 1
    fill(database, issue("t-first"))
    assert [row.issue_id for row in source.take(0, ()).listed] == ["t-first"]


def test_a_cycle_is_refused_and_leaves_nothing_behind(database: Path, source: SqliteSource) -> None:
    with pytest.raises(DependencyCycle) as caught:
        fill(database, issue("t-1", Dependency("t-2")), issue("t-2", Dependency("t-1")))
    assert set(caught.value.walk) == {"t-1", "t-2"} and len(caught.value.walk) == 3
    assert source.take(0, ()).listed == ()


def test_a_parent_that_waits_for_its_child_is_a_cycle(database: Path) -> None:
    with pytest.raises(DependencyCycle):
        fill(
            database,
            issue("t-parent", Dependency("t-child")),
            issue("t-child", Dependency("t-parent", PARENT_CHILD)),
        )


def test_a_cycle_of_closed_issues_harms_nobody(database: Path) -> None:
    closed = issue("t-1", Dependency("t-2"), status="closed")
    fill(database, closed, issue("t-2", Dependency("t-1")))


def test_a_long_chain_is_no_cycle_and_no_recursion() -> None:
    chain = {str(number): [str(number + 1)] for number in range(50_000)}
    assert store.find_cycle(chain) == []
    chain["50000"] = ["49999"]
    assert store.find_cycle(chain) == ["49999", "50000", "49999"]


_HOLDER = """
import sys
from pathlib import Path
from beads_workers.core.base.model import Filters
from beads_workers.core.base.source import Action, Settlement
from beads_workers.trackers.sqlite.source import SqliteSource
source = SqliteSource(Path(sys.argv[1]), actor="dead", filters=Filters(), listed_max=9)
jobs = source.take(2, ()).jobs
source.settle([Settlement(Action.CLOSE, jobs[0].issue_id)])
print("settled", flush=True)
sys.stdin.read()
"""


def test_what_was_settled_survives_kill_9_and_the_rest_is_recovered(
    database: Path, source: SqliteSource
) -> None:
    fill(database, issue("t-1"), issue("t-2"))
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"settled\n"
        os.kill(holder.pid, signal.SIGKILL)
    assert source.take(0, ()).listed == ()
    (answer,) = source.recover(CrashedRun("dead"))
    assert (answer.settlement.issue_id, answer.result) == ("t-2", Result.APPLIED)
    assert [job.issue_id for job in source.take(9, ()).jobs] == ["t-2"]


_DRAINER = """
import sys
from pathlib import Path
from beads_workers.core.base.model import Filters
from beads_workers.trackers.sqlite.source import SqliteSource
source = SqliteSource(Path(sys.argv[1]), actor=sys.argv[2], filters=Filters(), listed_max=9)
sys.stdin.readline()
while jobs := source.take(3, ()).jobs:
    for job in jobs:
        print(job.issue_id)
"""


def test_four_processes_never_take_the_same_issue(database: Path) -> None:
    fill(database, *(issue(f"t-{number}") for number in range(120)))
    drainers = [
        subprocess.Popen(
            [sys.executable, "-c", _DRAINER, str(database), f"run-{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(4)
    ]
    for drainer in drainers:
        assert drainer.stdin is not None
        drainer.stdin.write(b"go\n")
        drainer.stdin.flush()
    taken = [line for drainer in drainers for line in drainer.communicate()[0].split()]
    assert all(drainer.returncode == 0 for drainer in drainers)
    assert len(taken) == len(set(taken)) == 120
