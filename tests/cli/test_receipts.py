"""Receipts of an issue: found in the newest run that has any."""

from __future__ import annotations

from pathlib import Path

from beads_workers.cli.receipts import as_json, find_receipts, shown
from beads_workers.core.records.journal import Entry, Finished, RunStarted, encode
from beads_workers.core.records.receipts import Receipt
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


def test_of_a_command_it_is_what_a_person_should_look_at(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "20261120-000000.000-000001"
    run.mkdir(parents=True)
    began = RunStarted(run.name, 1, "actor", "sqlite", "/project", lands=True)
    ends = [
        Finished(name, "W1", 1, "r.1", "success", "land", receipt=Receipt(flags=flags))
        for name, flags in (("a", ("v1 was made",)), ("b", ()))
    ]
    lines_of = b"".join(encode(Entry(each, 1.0, 1.0)) for each in (began, *ends))
    (run / "journal.jsonl").write_bytes(lines_of)
    lines = list(shown(find_receipts(tmp_path, "a")))
    assert lines[0] == "attempt 1: success" and any("v1 was made" in line for line in lines)
    assert find_receipts(tmp_path, "b") == []
