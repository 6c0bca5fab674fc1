"""What the proof of a chaos takes for the sound end of an issue, and what not."""

from __future__ import annotations

from collections import Counter

from beads_workers.chaos.account import ChaosAccount
from beads_workers.chaos.proof import unsound
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry

NOBODY = Counter[str]()


def account(outcome: str, verdict: str, charged: int = 0) -> ChaosAccount:
    """Of one run in which i-1 ended so."""
    told = ChaosAccount()
    records = (
        rec.Started("i-1", "W1", 1, "request"),
        rec.Finished("i-1", "W1", 1, "request", outcome, verdict, charged=charged),
    )
    told.read("run-0", [Entry(record, 0.0, 0.0) for record in records])
    return told


def test_closed_after_a_success_and_quarantined_at_the_cap_are_sound() -> None:
    done, quarantined = account("success", "finish"), account("error", "quarantined", 3)
    assert list(unsound(done, {"i-1": "closed"}, 1, NOBODY)) == []
    assert list(unsound(quarantined, {"i-1": "blocked"}, 1, NOBODY)) == []


def test_closed_without_a_success_in_any_journal_is_not_unless_its_worker_closes_by_itself() -> (
    None
):
    told = account("cancelled", "requeue")
    assert list(unsound(told, {"i-1": "closed"}, 1, NOBODY))
    assert list(unsound(told, {"i-1": "closed"}, 1, Counter({"i-1": 1}))) == []


def test_what_is_open_or_in_progress_or_missing_is_not_sound() -> None:
    done = account("success", "finish")
    for status in ("open", "in_progress", "blocked"):
        assert list(unsound(done, {"i-1": status}, 1, Counter({"i-1": 1})))
    assert list(unsound(done, {}, 1, NOBODY))
    early = account("error", "quarantined", 2)
    assert list(unsound(early, {"i-1": "blocked"}, 1, NOBODY))
