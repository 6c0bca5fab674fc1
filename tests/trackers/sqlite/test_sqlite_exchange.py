"""JSON Lines in and out: what ``bd`` exported, what is refused, what an import leaves alone."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beads_workers.trackers.issue import (
    BadIssue,
    Dependency,
    TrackerIssue,
    from_object,
    time_text,
    to_object,
)
from beads_workers.trackers.sqlite import exchange
from beads_workers.trackers.sqlite.store import connect, create
from tests.support.shares import examples

NOW = "2026-01-02T03:04:05.000000Z"
OLD = "2025-01-01T00:00:00Z"
NEW = "2027-01-01T00:00:00Z"

BD_0_44 = r"""
{"id":"x-2dr","title":"First \"q\" é","description":"desc\ntwo","status":"open","priority":0,"issue_type":"bug","created_at":"2026-11-21T04:03:38.403338301Z","created_by":"unknown","updated_at":"2026-11-21T04:03:38.403338301Z","labels":["a","b"],"dependencies":[{"issue_id":"x-2dr","depends_on_id":"x-o95","type":"blocks","created_at":"2026-11-21T04:03:38.743228819Z","created_by":"unknown"}]}
{"id":"x-2dr.1","title":"Child","design":"des","acceptance_criteria":"acc","status":"open","priority":2,"issue_type":"task","created_at":"2026-11-21T04:03:38.80155312Z","created_by":"unknown","updated_at":"2026-11-21T04:03:38.80155312Z","dependencies":[{"issue_id":"x-2dr.1","depends_on_id":"x-2dr","type":"parent-child","created_at":"2026-11-21T04:03:38.802683967Z","created_by":"unknown"}]}
{"id":"x-knu","title":"Third","status":"open","priority":2,"issue_type":"task","estimated_minutes":30,"created_at":"2026-11-21T04:03:39.125336941Z","created_by":"unknown","updated_at":"2026-11-21T04:03:39.125336941Z","external_ref":"gh-9"}
{"id":"x-o95","title":"Epic","notes":"note it","status":"closed","priority":2,"issue_type":"epic","assignee":"me","created_at":"2026-11-21T04:03:38.470331852Z","created_by":"unknown","updated_at":"2026-11-21T04:03:39.055667083Z","closed_at":"2026-11-21T04:03:39.055667083Z","close_reason":"ok done"}
"""  # noqa: E501 - as bd 0.44.0 wrote it

BD_1_3 = r"""
{"_type":"issue","id":"x-5gd","title":"First \"q\" é","description":"desc\ntwo","notes":"note it","status":"in_progress","priority":0,"issue_type":"bug","assignee":"unknown","created_at":"2026-11-21T04:03:42Z","created_by":"unknown","updated_at":"2026-11-21T04:03:44Z","started_at":"2026-11-21T04:03:44Z","lease_expires_at":"2026-11-21T04:08:44Z","heartbeat_at":"2026-11-21T04:03:44Z","labels":["a","b"],"dependencies":[{"issue_id":"x-5gd","depends_on_id":"x-bix","type":"blocks","created_at":"2026-11-21T04:03:43Z","created_by":"unknown","metadata":"{}"}],"comments":[{"id":"711b8918-f2a6-5465-a227-08960645ddeb","issue_id":"x-5gd","author":"unknown","text":"hello2","created_at":"2026-11-21T04:03:43Z"}],"dependency_count":1,"dependent_count":0,"comment_count":1}
{"_type":"issue","id":"x-6pw","title":"Third","status":"open","priority":2,"issue_type":"task","estimated_minutes":30,"created_at":"2026-11-21T04:03:44Z","created_by":"unknown","updated_at":"2026-11-21T04:03:44Z","external_ref":"gh-9","metadata":{"a":1},"dependency_count":0,"dependent_count":0,"comment_count":0}
{"_type":"issue","id":"x-bix","title":"Epic","status":"open","priority":2,"issue_type":"epic","created_at":"2026-11-21T04:03:43Z","created_by":"unknown","updated_at":"2026-11-21T04:03:43Z","dependency_count":0,"dependent_count":1,"comment_count":0}
"""  # noqa: E501 - as bd 1.3.0 wrote it


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    create(tmp_path / "tracker.db", "t")
    connection = connect(tmp_path / "tracker.db")
    yield connection
    connection.close()


def load(
    connection: sqlite3.Connection, *objects: dict[str, Any], keep: bool = False
) -> exchange.Imported:
    lines = [json.dumps(each).encode() for each in objects]
    return exchange.import_lines(connection, lines, now=NOW, allow_commands=keep)


def exported(connection: sqlite3.Connection) -> dict[str, dict[str, Any]]:
    objects = [json.loads(line) for line in exchange.export_lines(connection)]
    return {each["id"]: each for each in objects}


def issue(key: str = "x-1", **others: Any) -> dict[str, Any]:
    return {"id": key, "title": "a title", "status": "open", **others}


@pytest.mark.parametrize("written", [BD_0_44, BD_1_3], ids=["0.44.0", "1.3.0"])
def test_what_bd_exported_comes_out_as_it_went_in(
    connection: sqlite3.Connection, written: str
) -> None:
    lines = written.strip().encode().splitlines()
    found = exchange.import_lines(connection, lines, now=NOW, allow_commands=False)
    assert found == exchange.Imported(created=len(lines))
    assert list(exported(connection).values()) == [json.loads(line) for line in lines]
    again = exchange.import_lines(connection, lines, now=NOW, allow_commands=False)
    assert again == exchange.Imported(unchanged=len(lines))


def test_a_short_line_takes_defaults(connection: sqlite3.Connection) -> None:
    load(connection, {"id": "x-1", "title": "only a title"})
    assert exported(connection)["x-1"] == {
        "id": "x-1",
        "title": "only a title",
        "status": "open",
        "priority": 2,
        "issue_type": "task",
        "created_at": NOW,
        "updated_at": NOW,
    }


def test_commands_are_dropped_unless_they_are_allowed(connection: sqlite3.Connection) -> None:
    line = issue(command=["rm", "-rf", "/"])
    assert load(connection, line).commands_dropped == 1
    assert "command" not in exported(connection)["x-1"]
    assert load(connection, line, keep=True).commands_dropped == 0
    assert exported(connection)["x-1"]["command"] == ["rm", "-rf", "/"]


def test_a_dropped_command_takes_none_away_that_a_person_typed(
    connection: sqlite3.Connection,
) -> None:
    load(connection, issue(command=["typed"]), keep=True)
    load(connection, issue(command=["from a file"], title="new"))
    assert exported(connection)["x-1"]["command"] == ["typed"]
    assert exported(connection)["x-1"]["title"] == "new"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"not json", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"id": "x-1", "title": "t", "n": NaN}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"title": "t"}', "no id"),
        (b'{"id": "../x", "title": "t"}', "begins with '.'"),
        (b'{"id": "--help", "title": "t"}', "begins with '-'"),
        (b'{"id": "x-1"}', "no title"),
        (b'{"id": "x-1", "title": 3}', "title"),
        (b'{"id": "x-1", "title": "t", "priority": 5}', "priority"),
        (b'{"id": "x-1", "title": "t", "priority": true}', "priority"),
        (b'{"id": "x-1", "title": "t", "command": [1]}', "command"),
        (b'{"id": "x-1", "title": "t", "created_at": "yesterday"}', "created_at"),
        (b'{"id": "x-1", "title": "t", "timeout_seconds": 1%s}' % (b"0" * 400), "timeout"),
        (b'{"id": "good", "title": "t"}', "line 1 already"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_imported(
    connection: sqlite3.Connection, line: bytes, problem: str
) -> None:
    lines = [b'{"id": "good", "title": "t"}', b"", line]
    with pytest.raises(exchange.ImportRefused) as caught:
        exchange.import_lines(connection, lines, now=NOW, allow_commands=True)
    (found,) = caught.value.problems
    assert found.startswith("line 3: ") and problem in found
    assert exported(connection) == {}


@pytest.mark.parametrize(
    ("name", "bad", "good", "problem"),
    [
        ("dependencies", {"depends_on_id": ""}, {"depends_on_id": "good"}, "no depends_on_id"),
        ("dependencies", {"depends_on_id": "a\n  INFO b"}, {"depends_on_id": "good"}, "holds more"),
        ("dependencies", {"depends_on_id": "x-1"}, {"depends_on_id": "good"}, "itself"),
        ("dependencies", {"depends_on_id": "good", "type": 3}, {"depends_on_id": "good"}, "type"),
        ("dependencies", "good", {"depends_on_id": "good"}, "not of type dict"),
        ("labels", 3, "red", "not of type str"),
        ("comments", "text", {"text": "t"}, "not of type dict"),
    ],
)
def test_a_part_that_cannot_be_read_costs_that_part_alone(
    connection: sqlite3.Connection, name: str, bad: object, good: object, problem: str
) -> None:
    both: dict[str, Any] = {name: [bad, good]}
    found = load(connection, issue("good"), issue(**both))
    (said,) = found.left_out
    assert said.startswith(f"line 2, x-1: {name}, number 1: ") and problem in said
    assert found.created == 2 and len(exported(connection)["x-1"][name]) == 1
    with pytest.raises(BadIssue, match=name):
        from_object(issue(**both))


def test_a_cycle_imports_nothing(connection: sqlite3.Connection) -> None:
    load(connection, issue("x-0"))
    first = issue("x-1", dependencies=[{"depends_on_id": "x-2"}])
    second = issue("x-2", dependencies=[{"depends_on_id": "x-1"}])
    with pytest.raises(exchange.DependencyCycle):
        load(connection, first, second)
    assert list(exported(connection)) == ["x-0"]


def test_records_of_another_kind_and_dangling_dependencies_are_counted(
    connection: sqlite3.Connection,
) -> None:
    header = {"_schema": "beads-jsonl/1", "_sort": "stable-v1"}
    memory = {"_type": "memory", "key": "k", "value": "v"}
    found = load(connection, header, memory, issue(dependencies=[{"depends_on_id": "x-gone"}]))
    assert found == exchange.Imported(created=1, skipped=2, dangling=1)


def test_an_older_export_undoes_nothing(connection: sqlite3.Connection) -> None:
    load(connection, issue(status="closed", updated_at=NEW))
    assert load(connection, issue(updated_at=OLD)) == exchange.Imported(older=1)
    assert exported(connection)["x-1"]["status"] == "closed"
    assert load(connection, issue(updated_at=NEW, title="newer")) == exchange.Imported(updated=1)


def test_an_import_never_frees_what_somebody_works_on(connection: sqlite3.Connection) -> None:
    load(connection, issue(status="in_progress", assignee="run-1", updated_at=OLD))
    found = load(connection, issue(title="better", updated_at=NEW))
    assert found == exchange.Imported(held=1)
    after = exported(connection)["x-1"]
    assert (after["status"], after["assignee"], after["title"]) == (
        "in_progress",
        "run-1",
        "better",
    )


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
ID = st.from_regex(r"[a-z][a-z0-9._-]{0,6}", fullmatch=True)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OTHERS = st.dictionaries(TEXT.map(lambda name: f"x_{name}"), JSON, max_size=3)
TIMES = st.floats(0, 4e9).map(time_text)
ISSUES = st.builds(
    TrackerIssue,
    id=ID,
    title=TEXT.filter(str.strip),
    description=TEXT,
    status=st.sampled_from(["open", "in_progress", "blocked", "closed", "deferred"]),
    priority=st.integers(0, 4),
    issue_type=TEXT.filter(bool),
    assignee=TEXT,
    labels=st.lists(TEXT, max_size=3, unique=True).map(tuple),
    created_at=TIMES,
    updated_at=TIMES,
    closed_at=st.just("") | TIMES,
    close_reason=TEXT,
    notes=TEXT,
    comments=st.lists(OTHERS, max_size=2).map(tuple),
    dependencies=st.lists(
        st.builds(Dependency, ID.map(lambda key: f"z{key}"), st.just("related"), TEXT, OTHERS),
        max_size=3,
        unique_by=lambda each: each.depends_on_id,
    ).map(tuple),
    timeout_seconds=st.none() | st.floats(0.1, 1e6),
    command=st.none() | st.lists(TEXT, min_size=1, max_size=3).map(tuple),
    extra=OTHERS,
)


@given(issue=ISSUES)
def test_an_issue_survives_its_json_object(issue: TrackerIssue) -> None:
    assert from_object(json.loads(json.dumps(to_object(issue)))) == issue


@settings(max_examples=examples(25), deadline=None)
@given(issues=st.lists(ISSUES, max_size=4, unique_by=lambda each: each.id))
def test_any_issues_survive_the_tracker(
    tmp_path_factory: pytest.TempPathFactory, issues: list[TrackerIssue]
) -> None:
    database = tmp_path_factory.mktemp("any") / "tracker.db"
    create(database, "t")
    connection = connect(database)
    objects = [to_object(each) for each in issues]
    assert load(connection, *objects, keep=True).created == len(issues)
    assert exported(connection) == {each["id"]: each for each in objects}
    connection.close()
