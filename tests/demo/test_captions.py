"""The captions of the demo: told once, in order, from the snapshots alone, and long enough."""

from __future__ import annotations

from typing import Any

from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry
from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import status
from beads_workers.demo.backlog import BACKLOG, RELEASE, WORKERS, ItemFate, of_fate
from beads_workers.demo.captions import HOLD_SECONDS_MIN, WIDTH, Narrator, hold_seconds

FLAKY, BUSY, KILLED, STUCK, HOPELESS = (
    of_fate(fate)[0].issue_id
    for fate in (ItemFate.FLAKY, ItemFate.BUSY, ItemFate.KILLED, ItemFate.STUCK, ItemFate.HOPELESS)
)


class Run:
    """A run that is told record by record; ``caption()`` is what stands there then."""

    def __init__(self) -> None:
        self.board = Board()
        self.narrator = Narrator()
        self.now = 0.0
        self.begun = self.caption()

    def add(self, *records: rec.Record) -> Run:
        """They happen now."""
        for record in records:
            self.board.apply(Entry(record, self.now, self.now))
        return self

    def ends(
        self, issue_id: str, outcome: str, verdict: str = "requeue", attempt: int = 1, **more: Any
    ) -> Run:
        """An attempt of W3 begins and ends."""
        finished = rec.Finished(issue_id, "W3", attempt, "r", outcome, verdict, **more)
        return self.add(rec.Started(issue_id, "W3", attempt, "r"), finished)

    def caption(self, after: float = 60.0) -> str:
        """What is shown so many seconds later."""
        self.now += after
        return self.narrator(status(self.board, self.now))


def test_it_begins_at_once_with_what_there_is_to_see() -> None:
    assert Run().begun.startswith(f"{len(BACKLOG)} issues, {WORKERS} workers.")


def test_each_thing_that_goes_wrong_is_told_once_in_the_order_in_which_it_happened() -> None:
    run = Run()
    run.ends(BUSY, "retry")
    run.ends(FLAKY, "error", delay_seconds=2.0)
    run.ends(KILLED, "lost")
    run.ends(STUCK, "timeout", error="timed out")
    run.ends(HOPELESS, "error", "quarantined", charged=3, error="401")
    run.ends(KILLED, "success", "finish", attempt=2)
    # All of it stands in the first snapshot: then the order is that of the script.
    told = [run.caption() for _ in range(8)]
    wanted = [FLAKY, BUSY, KILLED, KILLED, STUCK, HOPELESS]
    assert [caption.split()[0] for caption in told[:3]] == [FLAKY, BUSY, "W3"]
    assert all(issue_id in caption for issue_id, caption in zip(wanted, told, strict=False))
    assert "killed (kill -9)" in told[2] and "has done" in told[3]
    assert len(set(told)) == 6 and told[-1] == told[5], "the last one stays"


def test_a_worker_that_nobody_killed_has_no_successor() -> None:
    run = Run().ends(KILLED, "success", "finish")
    assert run.caption() == run.begun


def test_a_caption_stands_until_it_can_have_been_read() -> None:
    run = Run().ends(FLAKY, "error").ends(BUSY, "retry")
    first = run.caption()
    held = 0.0
    while run.caption(0.25) == first:
        held += 0.25
    assert held >= hold_seconds(first) - 0.25 >= HOLD_SECONDS_MIN


def test_no_caption_is_shorter_on_screen_than_the_least() -> None:
    assert hold_seconds("") == HOLD_SECONDS_MIN
    assert hold_seconds("x" * WIDTH) > HOLD_SECONDS_MIN


def test_the_end_is_told_when_all_have_come_together() -> None:
    gathering = BACKLOG[RELEASE.needs[0] - 1].issue_id
    run = Run().add(rec.Started(gathering, "W1", 1, "r"))
    assert f"{gathering} waited for" in run.caption()
    run.add(rec.Spent(12, 0.4), rec.Started(RELEASE.issue_id, "W2", 1, "r"))
    assert run.caption() == (
        f"The last one is {RELEASE.issue_id}. The tracker was asked 12 times, 0.40 s in all."
    )


def test_blocked_issues_are_counted_and_every_caption_fits_on_a_line() -> None:
    run = Run().add(rec.Listed((1, 2, 3, 4, 5), False, 31))
    caption = run.caption()
    assert caption.startswith("31 issues are blocked")
    assert len(caption) <= WIDTH
