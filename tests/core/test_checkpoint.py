"""The checkpoint of a further segment says all that a recovery needs: docs/OPERATIONS.md, "The
journal".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant

from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry, Resumed, decode, encode_repeated, is_repeated
from beads_workers.core.records.money import Spend
from beads_workers.core.views.history import Fate, fold
from beads_workers.core.views.recovery import Checkpoint, RecoveryState, recovery_state, resumed
from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import status
from tests.core.test_stateful import World
from tests.support.journals import BEGAN_AT, night, of
from tests.support.shares import examples


def after(entries: Iterable[Entry], call: Entry | None = None) -> list[Entry]:
    """The checkpoint behind these entries, as it is read back."""
    checkpoint, board, last = Checkpoint(), Board(), Entry(rec.CheckpointEnded(), 0.0, 0.0)
    for last in entries:
        checkpoint.apply(last)
        board.apply(last)
    lines = checkpoint.entries(board.issues, resumed(board, 2), call, last.at, last.elapsed)
    read = [decode(encode_repeated(entry)) for entry in lines]
    assert None not in read
    return [entry for entry in read if entry is not None]


def pending(left: RecoveryState) -> tuple[Any, ...]:
    """All that the next start goes by."""
    retry_entries = sorted(left.checkpoint(), key=lambda retry_entry: retry_entry.issue_id)
    unsettled_runs = [
        (d.actor, sorted(d.unclosed), d.handed_over, sorted(d.quarantined), d.reopened)
        for d in left.unsettled_runs()
    ]
    return (
        retry_entries,
        unsettled_runs,
        left.replayed,
        left.owners,
        left.last_call,
        left.run_id,
        left.actor,
        left.socket,
    )


class CheckpointedWorld(World):
    """The world of ``test_stateful``, with a look at what a new segment would say at each step."""

    @invariant()
    def a_new_segment_alone_tells_what_all_of_the_journal_tells(self) -> None:
        left = recovery_state(self.play.entries)
        again = recovery_state(after(self.play.entries))
        assert pending(again) == pending(left)
        assert again.has_checkpoint


TestCheckpointed = CheckpointedWorld.TestCase
TestCheckpointed.settings = settings(World.TestCase.settings, max_examples=examples(15))


@pytest.mark.parametrize("cut", range(0, 160, 9))
def test_whoever_reads_from_a_new_segment_on_sees_what_others_see(cut: int) -> None:
    entries = night(30, 4).entries
    entries.sort(key=lambda entry: entry.elapsed)
    whole, part = Board(), Board()
    for entry in entries[:cut]:
        whole.apply(entry)
    for entry in after(entries[:cut]):
        part.apply(entry)
    for entry in entries[cut:]:
        whole.apply(entry)
        part.apply(entry)
    seen, again = (status(board, 9999.0) for board in (whole, part))
    for kept in ("totals", "needs", "state", "uptime_seconds", "run_id", "source_state"):
        assert again[kept] == seen[kept]


def test_a_call_that_runs_is_waited_for_by_a_recovery_that_reads_the_last_segment() -> None:
    call = Entry(rec.CallStarted(7, 8, ("bd",)), 1.0, 1.0)
    assert recovery_state(after(of([]), call)).last_call == (7, 8)


def test_a_repeated_line_is_told_from_any_other_and_read_like_it() -> None:
    entry = Entry(rec.Claimed("a", '{"v":1,"c":1,', 2), 1.0, 2.0)
    line = encode_repeated(entry)
    assert is_repeated(line) and decode(line) == entry


def test_a_report_counts_what_it_can_no_longer_tell_and_keeps_what_still_ran() -> None:
    entries = of(
        [
            (0.0, rec.Checkpointed("b", charged=1)),
            (0.0, rec.Checkpointed("c", charged=1, not_before=BEGAN_AT + 60.0, delay_seconds=60.0)),
            (1.0, rec.WorkerStarted("W1", 7)),
            (2.0, rec.Claimed("a", "first")),
            (2.0, rec.Started("a", "W1", 1, "r1", "first")),
            (5.0, rec.Finished("a", "W1", 1, "r1", "success", "finish")),
            (6.0, rec.SettledRecord("a", "close", "applied")),
            (7.0, rec.Claimed("b", "second")),
            (7.0, rec.Started("b", "W1", 1, "r2", "second")),
        ]
    )
    end = Entry(rec.Finished("b", "W1", 1, "r2", "success", "finish"), BEGAN_AT + 17.0, 17.0)
    history = fold([*after(entries), end], settled=False)
    assert history is not None
    counts = Resumed(2, claims=2, done=1, closed=1, spent=Spend(), found=Spend())
    assert history.dropped == counts and history.dropped_seconds == 7.0
    assert [(a.issue_id, a.began, a.ended) for a in history.attempts] == [("b", 7.0, 17.0)]
    assert [i.issue_id for i in history.with_fate(Fate.UNCLOSED)] == ["b"]
    assert history.began_at == BEGAN_AT
