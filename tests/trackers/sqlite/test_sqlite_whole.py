"""The whole issue, from the built-in tracker: what beads has and we do not know is kept."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from beads_workers.agents.prompt import of_issue
from beads_workers.core.base.model import Filters, IssueId
from beads_workers.core.base.source import Taken
from beads_workers.trackers.issue import from_object
from beads_workers.trackers.sqlite.exchange import write_issues
from beads_workers.trackers.sqlite.source import SqliteSource
from beads_workers.trackers.sqlite.store import SqliteStore, connect, create, transaction

TIME = "2026-01-02T03:04:05Z"
CART = {
    "created_at": TIME,
    "id": "t-7",
    "title": "A cart",
    "description": "With a total.",
    "acceptance_criteria": "It adds up.",
    "design": "One class.",
    "notes": "Soon.",
    "created_by": "ann",
    "labels": ["timeout:2h"],
    "comments": [{"author": "bob", "text": "In euros."}],
    "dependencies": [
        {"depends_on_id": "t-3", "type": "blocks"},
        {"depends_on_id": "t-1", "type": "parent-child"},
    ],
}
PRICES = {
    "created_at": TIME,
    "id": "t-3",
    "title": "Prices",
    "status": "closed",
    "close_reason": "commit 0123abcd: prices are read",
}
SHOP = {"created_at": TIME, "id": "t-1", "title": "A shop", "issue_type": "epic"}


def database(folder: Path) -> Path:
    path = folder / "tracker.db"
    assert create(path, "t")
    connection = connect(path)
    with transaction(connection):
        write_issues(SqliteStore(connection), map(from_object, (CART, PRICES, SHOP)))
    connection.close()
    return path


def opened(path: Path, *, with_details: bool) -> SqliteSource:
    return SqliteSource(
        path, actor="run-1", filters=Filters(), listed_max=9, with_details=with_details
    )


def test_a_claim_brings_the_whole_issue(tmp_path: Path) -> None:
    source = opened(database(tmp_path), with_details=True)
    (job,) = source.take(5, ()).jobs
    briefing = of_issue(job.original)
    assert (briefing.acceptance, briefing.design) == ("It adds up.", "One class.")
    assert (briefing.notes, briefing.author) == ("Soon.", "ann")
    assert [(c.author, c.text) for c in briefing.comments] == [("bob", "In euros.")]
    assert (briefing.parent, briefing.parent_title) == ("t-1", "A shop")
    (done,) = briefing.delivered
    assert (done.issue_id, done.title, done.commit) == ("t-3", "Prices", "0123abcd")
    assert job.timeout_seconds == 7200.0
    source.close()


def test_an_issue_is_read_and_left_where_it_is(tmp_path: Path) -> None:
    source = opened(database(tmp_path), with_details=False)
    read = source.read([IssueId("t-7"), IssueId("t-8")])
    assert list(read) == ["t-7"]
    assert of_issue(read[IssueId("t-7")].original).delivered
    (job,) = source.take(5, ()).jobs
    assert not of_issue(job.original).delivered
    source.close()


def test_what_an_agent_filed_is_left_to_a_person(tmp_path: Path) -> None:
    path = database(tmp_path)
    filed = {"created_at": TIME, "title": "Filed", "created_by": "beads-workers/host/run/t-7"}
    with closing(connect(path)) as connection, transaction(connection):
        write_issues(SqliteStore(connection), [from_object({**filed, "id": "t-8"})])

    def take(**more: Any) -> Taken:
        filters = Filters(hold_discovered=True, **more)
        source = SqliteSource(path, actor="run-1", filters=filters, listed_max=9)
        with closing(source):
            return source.take(0, ())

    held = take()
    assert [row.issue_id for row in held.listed] == ["t-7"]
    assert held.discovered == ("t-8",)
    assert take(types=("bug",)).discovered == ()
    assert [row.issue_id for row in take(only=("t-8",)).listed] == ["t-8"]
