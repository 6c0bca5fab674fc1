"""The counts of a fleet, in records written by hand: each issue is in one place."""

from __future__ import annotations

import pytest

from beads_workers.core.records import journal as rec
from beads_workers.core.records.receipts import Receipt
from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import status
from tests.support.journals import night
from tests.support.totals import is_steady

RECEIPT = Receipt("question", agent="claude", branch="bw/a", base="b", head="h", commits=("h",))
TAKEN = (rec.Claimed("a", "A"), rec.Started("a", "W1", 1, "r1", "A"))


def told(*records: rec.Record) -> dict[str, int]:
    """The counts that are not 0, ten seconds apart."""
    board = Board()
    for number, record in enumerate(records):
        board.apply(rec.Entry(record, 10.0 * number, 10.0 * number))
    queue = status(board, board.elapsed)["queue"]
    return {name: found for name, found in queue.items() if found and isinstance(found, int)}


def ended(outcome: str, verdict: str, **more: object) -> rec.Finished:
    """How the attempt ended."""
    return rec.Finished("a", "W1", 1, "r1", outcome, verdict, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("records", "place"),
    [
        (TAKEN[:1], "ready"),
        (TAKEN, "running"),
        ((*TAKEN, ended("cancelled", "requeue")), "settling"),
        ((*TAKEN, ended("error", "requeue", delay_seconds=60.0)), "retrying"),
        ((*TAKEN, ended("error", "quarantined", charged=3)), "quarantined"),
        ((*TAKEN, ended("question", "asked", receipt=RECEIPT)), "questions"),
        ((*TAKEN, ended("success", "land", receipt=RECEIPT, awaits=True)), "awaiting_approval"),
        ((*TAKEN, ended("success", "land", receipt=RECEIPT)), "waiting_to_land"),
        ((*TAKEN, ended("success", "finish")), "unclosed"),
        ((*TAKEN, rec.PutOnHold("a")), "running"),
    ],
)
def test_an_issue_is_in_one_place(records: tuple[rec.Record, ...], place: str) -> None:
    assert told(*records) == {place: 1, "total": 1}


def test_an_answered_question_is_counted_until_the_tracker_lists_it() -> None:
    asked = (*TAKEN, ended("question", "asked", receipt=RECEIPT))
    asked = (*asked, rec.SettledRecord("a", "ask", "applied"), rec.Answered("a"))
    assert told(*asked) == {"settling": 1, "total": 1}
    opened = (*asked, rec.SettledRecord("a", "reopen", "applied"))
    assert told(*opened) == {"ready": 1, "total": 1}
    assert told(*opened, rec.RoundTripBegan(take=1), rec.Listed((0, 0, 1, 0, 0))) == {
        "ready": 1,
        "total": 1,
    }


def test_an_issue_that_has_cooled_down_is_listed_and_counted_once() -> None:
    failed = ended("error", "requeue", charged=1, delay_seconds=15.0)
    back = (*TAKEN, failed, rec.SettledRecord("a", "release", "applied"))
    assert told(*back) == {"retrying": 1, "total": 1}
    early = (rec.RoundTripBegan(take=1), rec.Listed((0, 0, 3, 0, 0)))
    listed = (*TAKEN, failed, rec.SettledRecord("a", "release", "applied"), *early)
    assert told(*listed) == {"ready": 3, "total": 3}, "20 s later it is one of them"


def test_a_closing_moves_an_issue_and_a_stranger_takes_one_away() -> None:
    done = (rec.Listed((0, 0, 7, 0, 0)), *TAKEN, ended("success", "finish"))
    closed = (*done, rec.SettledRecord("a", "close", "applied"))
    assert told(*done)["total"] == told(*closed)["total"] == 8
    assert told(*closed)["closed"] == 1
    assert told(*done, rec.SettledRecord("a", "close", "not_ours")) == {"ready": 7, "total": 7}


def test_the_counts_of_a_whole_night_change_only_with_an_answer() -> None:
    entries = sorted(night(300, 100).entries, key=lambda entry: entry.elapsed)
    assert is_steady(entries) > 10
