"""The account of a chaos notices every kind of broken promise, and no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from beads_workers.chaos.account import ChaosAccount, TaskLog, read_log, unasked
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry, Record

WORKER = rec.WorkerStarted("W1", 700)


def began(attempt: int = 1) -> rec.Started:
    return rec.Started("i-1", "W1", attempt, "request")


def ended(outcome: str, verdict: str, charged: int = 0, attempt: int = 1) -> rec.Finished:
    return rec.Finished("i-1", "W1", attempt, "request", outcome, verdict, charged=charged)


SUCCESS = ended("success", "finish")


def account(*runs: list[Record], killed: tuple[int, ...] = ()) -> ChaosAccount:
    """Of runs with these records."""
    told = ChaosAccount(killed)
    for number, records in enumerate(runs):
        told.read(f"run-{number}", [Entry(r, 0.0, 0.0) for r in (WORKER, *records)])
    return told


def faults(chaos_account: ChaosAccount) -> list[str]:
    return [*chaos_account.run_again, *chaos_account.at_once, *chaos_account.charges]


def test_an_issue_that_is_tried_again_until_it_succeeds_is_no_fault() -> None:
    told = account(
        [began(), ended("error", "requeue", 1), began(2)],
        [rec.Checkpointed("i-1", charged=1), began(2), ended("lost", "requeue", 2)],
        [began(3), ended("cancelled", "requeue", 2), began(3), SUCCESS],
        killed=(700,),
    )
    assert faults(told) == []
    assert (told.lives["i-1"].done, told.lives["i-1"].charged) == (True, 2)


def test_a_start_after_a_success_is_noticed_in_the_same_run_and_in_a_later_one() -> None:
    assert account([began(), SUCCESS, began()]).run_again
    assert account([began(), SUCCESS], [began()]).run_again


def test_a_second_start_beside_the_first_is_noticed() -> None:
    assert account([began(), began()]).at_once
    assert not account([began()], [began()]).at_once


@pytest.mark.parametrize(
    "records",
    [
        [began(), ended("cancelled", "requeue", 1)],
        [began(), ended("error", "requeue", 2)],
        [rec.Checkpointed("i-1", charged=1)],
        [began(), ended("lost", "requeue", 1)],
    ],
    ids=["cancelled", "two at once", "checkpointed", "lost without a kill"],
)
def test_a_charge_that_nobody_earned_is_noticed(records: list[Record]) -> None:
    assert account(records).charges


def test_a_charge_above_the_cap_is_noticed() -> None:
    records = [r for n in range(1, 5) for r in (began(n), ended("error", "requeue", n))]
    assert account(records[:6]).charges == []
    assert account(records).charges


def line(word: str, run: str = "run-0", attempt: int = 1) -> bytes:
    said = {"word": word, "issue": "i-1", "run": run, "worker": "W1", "attempt": attempt}
    return json.dumps({**said, "pid": 9}).encode()


def log(*lines: bytes) -> TaskLog:
    told = TaskLog()
    for each in lines:
        told.add(each)
    return told


def test_a_command_that_no_journal_names_is_noticed() -> None:
    told = account([began()])
    assert [*unasked(told, log(line("begin"), line("done")))] == []
    assert [*unasked(told, log(line("begin"), line("begin")))]
    assert [*unasked(told, log(line("begin", attempt=2)))]
    assert [*unasked(told, log(line("begin", run="run-1")))]


def test_the_log_tells_what_was_done_and_who_met_another(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    assert read_log(file).attempts == 0
    file.write_bytes(b"\n".join([line("begin"), line("done"), line("overlap"), line("fail")]))
    told = read_log(file)
    assert (told.attempts, told.done["i-1"], told.overlaps) == (1, 1, ["i-1 (pid 9)"])
