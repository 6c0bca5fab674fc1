"""Receipts of an issue: found in the newest run that has any."""

from __future__ import annotations

from pathlib import Path

from beads_workers.cli.receipts import as_json, find_receipts, shown
from tests.support.journals import agents_night, night


def test_the_receipts_of_an_issue_are_found_behind_newer_runs_without_any(tmp_path: Path) -> None:
    agents_night().write(tmp_path, "20261120-000000.000-000001")
    night(20, 2).write(tmp_path, "20261121-000000.000-000002")
    found = find_receipts(tmp_path, "a")
    assert [(each.attempt, each.outcome) for each in found] == [(1, "error"), (2, "success")]
    assert find_receipts(tmp_path, "proj-0001") == []
    assert find_receipts(tmp_path / "nowhere", "a") == []


def test_the_last_one_is_shown_in_full(tmp_path: Path) -> None:
    agents_night().write(tmp_path)
    found = find_receipts(tmp_path, "a")
    lines = list(shown(found))
    assert lines[0] == "attempt 1: unfinished, 1.2k tok $0.50"
    assert lines[1] == "attempt 2: success"
    assert "  verify    passed: make test" in lines
    assert list(shown([])) == []
    assert as_json(found[0])["receipt"]["session"] == "s-1"
