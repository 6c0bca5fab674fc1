"""One ready set: the built-in tracker hands out what the real ``bd`` calls ready."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from beads_workers.core.base.model import Filters
from beads_workers.trackers.sqlite.exchange import import_lines
from beads_workers.trackers.sqlite.source import SqliteSource
from beads_workers.trackers.sqlite.store import connect, create
from tests.contracts.ready_rows import CUSTOM, ONLY_NEW, named, rows, table
from tests.support.bd import OLD, PREFIX, BdProject

READY = Path(__file__).parents[2] / "docs" / "READY.md"


def handed_out(database: Path, issues: Iterable[Mapping[str, Any]]) -> set[str]:
    """What the built-in tracker would give a fleet of these."""
    create(database, PREFIX)
    connection = connect(database)
    lines = [json.dumps(issue).encode() for issue in issues]
    import_lines(connection, lines, now="2026-01-02T03:04:05Z", allow_commands=False)
    connection.close()
    source = SqliteSource(database, actor="a", filters=Filters(), listed_max=len(lines))
    listed = {each.issue_id for each in source.take(0, ()).listed}
    source.close()
    return set(listed)


def test_what_the_real_bd_calls_ready_is_handed_out_but_for_what_is_named(
    project: BdProject, tmp_path: Path
) -> None:
    issues = rows()
    assert len(issues) > 300
    ours = handed_out(tmp_path / "tracker.db", issues.values())
    if project.version == OLD:
        issues = {k: v for k, v in issues.items() if v["issue_type"] not in ONLY_NEW}
    else:
        project.allow_types(*CUSTOM)
    project.create_many(list(issues.values()))
    # Not by ``ready`` of a source: it only reads, and what is due comes back by a write of bd.
    shown = json.loads(project.bd("ready", "--json", "--limit=0"))
    theirs = {each["id"] for each in shown if each["status"] == "open"}
    assert (ours & issues.keys()) ^ theirs == named(project.version, issues)


def test_every_difference_stands_in_the_document() -> None:
    assert table() in READY.read_text()
