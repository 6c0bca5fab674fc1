"""What our journals know of the issues that one waited for."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.attempts.delivered import delivered_by_us
from beads_workers.core.records.assignment import AgentSpec, Assignment
from beads_workers.core.records.journal import Entry, Finished, Record, Started, encode
from beads_workers.core.records.receipts import Receipt
from beads_workers.runtime.run_directory import RunDirectory


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    made = RunDirectory(tmp_path / "state")
    made.create()
    return made


def run(directory: RunDirectory, *records: Record) -> Path:
    """One more run, with these in its journal."""
    run_id, _ = directory.create_run()
    journal = directory.run(run_id) / "journal.jsonl"
    journal.write_bytes(b"".join(encode(Entry(r, 5.0, float(n))) for n, r in enumerate(records)))
    return journal


def end(issue_id: str, commit: str, verdict: str = "finish") -> Finished:
    receipt = Receipt("done", commits=(commit,))
    return Finished(issue_id, "W1", 1, f"r.{commit}", "success", verdict, receipt=receipt)


def asked(runs: Path | str, *needed: str) -> Assignment:
    rows = [{"id": each, "status": "closed"} for each in needed]
    ids = {"request_id": "r", "run_id": "run", "worker_id": "W1"}
    files = {"guards": "", "usage_file": "", "runs": str(runs)}
    issue = {"id": "a", "dependencies": rows}
    agent = AgentSpec("claude", "claude")
    return Assignment("a", "t", issue, attempt=1, agent=agent, **ids, **files)


def commits(directory: RunDirectory, *needed: str) -> dict[str, str]:
    found = delivered_by_us(asked(directory.runs, *needed))
    return {issue_id: each.request_id.removeprefix("r.") for issue_id, each in found.items()}


def test_this_run_and_earlier_ones_know_the_newest_first(directory: RunDirectory) -> None:
    run(directory, end("b", "old"), end("c", "older"))
    run(directory, end("b", "new"), end("d", "other"))
    assert commits(directory, "b", "c", "e") == {"b": "new", "c": "older"}


def test_the_last_success_of_a_run_counts_and_no_failure(directory: RunDirectory) -> None:
    run(directory, end("b", "1"), end("b", "2"), end("c", "3"), end("c", "4", "requeue"))
    assert commits(directory, "b", "c") == {"b": "2"}


def test_what_was_done_without_an_agent_has_no_receipt(directory: RunDirectory) -> None:
    plain = Finished("b", "W1", 1, "r.1", "success", "finish")
    run(directory, Started("b", "W1", 1, "r.1"), plain)
    assert commits(directory, "b") == {}


def test_damaged_lines_and_further_segments_are_read(directory: RunDirectory) -> None:
    first = run(directory, end("b", "1"))
    with first.open("ab") as file:
        file.write(b'{"finished" "b"\n\x00\x00"finished" "c"\n')
    second = encode(Entry(end("c", "2"), 5.0, 1.0))
    first.with_name("journal.2.jsonl").write_bytes(second)
    assert commits(directory, "b", "c") == {"b": "1", "c": "2"}


@pytest.mark.parametrize("runs", ["", "/nowhere/runs"])
def test_without_runs_nothing_is_known(runs: str) -> None:
    assert delivered_by_us(asked(runs, "b")) == {}


def test_an_issue_that_waited_for_nothing_reads_nothing(directory: RunDirectory) -> None:
    run(directory, end("b", "1"))
    assert commits(directory) == {}
