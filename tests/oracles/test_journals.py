"""Kept journals: what is said of them stays as it is, and the recorder still makes such ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from beads_workers.core.records.journal import Finished
from beads_workers.runtime.journal_file import read_journal
from tests.oracles.__main__ import compared
from tests.oracles.journals import BYTES_MAX, KEPT, names
from tests.oracles.journals.record import record
from tests.oracles.journals.scenarios import SCENARIOS

Ends = Counter[tuple[str, int, str, str]]


@pytest.mark.share(4)
@pytest.mark.parametrize("name", names())
def test_the_same_is_said_of_a_history(name: str) -> None:
    assert compared(f"history_{name}") == ""


def test_each_scenario_is_kept_and_none_is_large() -> None:
    assert names() == sorted(SCENARIOS)
    sizes = {
        name: sum(file.stat().st_size for file in (KEPT / name).rglob("*") if file.is_file())
        for name in names()
    }
    assert {name: size for name, size in sizes.items() if size > BYTES_MAX} == {}


def test_a_history_that_is_recorded_anew_ends_like_the_kept_one(tmp_path: Path) -> None:
    record("retried", tmp_path)
    assert ends(tmp_path / "retried") == ends(KEPT / "retried") != Counter()


def ends(history: Path) -> Ends:
    """Return how its attempts ended."""
    found: Ends = Counter()
    for run in (history / "runs").iterdir():
        for entry in read_journal(run / "journal.jsonl"):
            if isinstance(end := entry.record, Finished):
                found[end.issue_id, end.attempt, end.outcome, end.verdict] += 1
    return found
