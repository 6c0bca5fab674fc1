"""Issues move from the real ``bd`` into the built-in tracker and back without a loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from beads_workers.trackers.sqlite.exchange import Imported, export_lines, import_lines
from beads_workers.trackers.sqlite.store import connect, create
from tests.support.bd import OLD, BdProject


def by_id(lines: str) -> dict[str, dict[str, Any]]:
    return {each["id"]: each for each in map(json.loads, lines.splitlines())}


def test_what_the_real_bd_exports_survives_the_round_trip(
    project: BdProject, tmp_path: Path
) -> None:
    first = project.create(
        'a "quoted" é 漢 $(touch x)', labels=["a", "b"], priority=0, description="two\nlines"
    )
    project.create("second", blocked_by=[first], issue_type="bug")
    project.bd("comments", "add", first, "a comment")
    project.bd("close", first, "--reason", "is done")
    written = project.bd("export")

    create(tmp_path / "tracker.db", "t")
    connection = connect(tmp_path / "tracker.db")
    found = import_lines(
        connection,
        [line.encode() for line in written.splitlines()],
        now="2026-01-02T03:04:05Z",
        allow_commands=False,
    )
    exported = "\n".join(export_lines(connection))
    connection.close()
    assert found == Imported(created=2)
    assert by_id(exported) == by_id(written)

    file = tmp_path / "back.jsonl"
    file.write_text(exported + "\n")
    project.bd("import", *(["-i"] if project.version == OLD else []), str(file))
    assert by_id(project.bd("export")).keys() == by_id(written).keys()
