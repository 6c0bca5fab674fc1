"""What a further segment of a journal begins with, so that older ones can be thrown away.

A fold over the run's own records, kept while it goes on. What a dead run owes is repeated exactly:
``remains`` of a segment alone is that of all segments. What only people look at is repeated record
by record, as far as it still holds.
"""

from __future__ import annotations

from collections.abc import Iterator

from beads_workers.core import records as rec
from beads_workers.core.board import Board
from beads_workers.core.checkpoint_records import Owing, Resumed
from beads_workers.core.journal_lines import Entry
from beads_workers.core.recovery import Remains

Key = tuple[str, str]
"""What a record tells, and of whom: a later one with the same key makes it void."""

_OF_ISSUE = ("claimed", "started", "holder_lost", "requeued", "finished")
_OF_WORKER = ("worker_started", "worker_joined")


class Checkpoint:
    """``apply`` every entry but those of calls; ``entries`` is then the checkpoint."""

    def __init__(self) -> None:
        self._left = Remains()
        self._holding: dict[Key, Entry] = {}

    def apply(self, entry: Entry) -> None:
        """Take in the next entry."""
        self._left.apply(entry)
        match entry.record:
            case rec.Claimed(issue_id):
                self._drop(issue_id, *_OF_ISSUE, "withheld")
                self._hold("claimed", issue_id, entry)
            case rec.Started(issue_id):
                self._hold("started", issue_id, entry)
            case rec.HolderLost(issue_id):
                self._hold("holder_lost", issue_id, entry)
            case rec.Requeued(issue_id):
                self._hold("requeued", issue_id, entry)
            case rec.Finished(issue_id):
                self._drop(issue_id, *_OF_ISSUE)
                self._hold("finished", issue_id, entry)
            case rec.SettledRecord(issue_id, action, result):
                if result != "failed" and action != "hand_over":
                    self._drop(issue_id, *_OF_ISSUE)
            case rec.Forgiven(issue_id) | rec.RetryAsked(issue_id):
                self._drop(issue_id, "finished", "withheld")
            case rec.Withheld(issue_id):
                self._hold("withheld", issue_id, entry)
            case _:
                self._about_workers(entry)

    def _about_workers(self, entry: Entry) -> None:
        match entry.record:
            case rec.WorkerStarted(worker_id):
                self._drop(worker_id, *_OF_WORKER, "worker_gone")
                self._hold("worker_started", worker_id, entry)
            case rec.WorkerJoined(worker_id):
                self._hold("worker_joined", worker_id, entry)
            case rec.WorkerLeft(worker_id):
                self._drop(worker_id, "worker_joined")
            case rec.WorkerExited(worker_id):
                self._drop(worker_id, *_OF_WORKER)
            case rec.WorkerGone(worker_id, reason):
                self._drop(worker_id, *_OF_WORKER)
                if reason:
                    self._hold("worker_gone", worker_id, entry)
            case _:
                self._about_run(entry)

    def _about_run(self, entry: Entry) -> None:
        match entry.record:
            case rec.RunStarted() | rec.RunChanged() | rec.Listed() | rec.Spent():
                self._hold(type(entry.record).__name__, "", entry)
            case rec.SourceTrouble():
                self._hold("trouble", "", entry)
            case rec.SourceRecovered():
                self._drop("", "trouble")
            case rec.Hindrance(what):
                self._hold("hindrance", what, entry)
            case rec.HindranceOver(what):
                self._drop(what, "hindrance")
            case _:
                pass

    def _hold(self, what: str, whose: str, entry: Entry) -> None:
        # To the end: entries are repeated in the order of their times.
        self._holding.pop((what, whose), None)
        self._holding[what, whose] = entry

    def _drop(self, whose: str, *whats: str) -> None:
        for what in whats:
            self._holding.pop((what, whose), None)

    def entries(
        self, resumed: Resumed, call: Entry | None, at: float, elapsed: float
    ) -> Iterator[Entry]:
        """The checkpoint. ``call``: the tracker's process that runs just now; the times are now."""
        holding = dict(self._holding)
        run = holding.pop((rec.RunStarted.__name__, ""), None)
        in_hand = {issue_id for what, issue_id in holding if what in _OF_ISSUE}
        if run is not None:
            yield run
            # What they are busy with now comes after what was known of them before.
            pages = (page for page in self._pages() if page.issue_id in in_hand)
            yield from (Entry(page, run.at, run.elapsed) for page in pages)
        yield from holding.values()
        pages = (page for page in self._pages() if page.issue_id not in in_hand)
        yield from (Entry(page, at, elapsed) for page in pages)
        for issue_id in sorted(self._left.handed_over):
            yield Entry(rec.HandingOver(issue_id, ""), at, elapsed)
        for owing in self._owing():
            yield Entry(owing, at, elapsed)
        if call is not None:
            yield call
        yield Entry(resumed, at, elapsed)
        yield Entry(rec.CheckpointEnded(), at, elapsed)

    def _owing(self) -> Iterator[Owing]:
        left = self._left
        told = (*left.set_aside, *left.holders, *sorted(left.reopened), *sorted(left.heard))
        for issue_id in dict.fromkeys(told):
            pid, start_time = left.holders.get(issue_id, (0, 0))
            note = left.set_aside.get(issue_id, "")
            reopened, heard = issue_id in left.reopened, issue_id in left.heard
            yield Owing(issue_id, note, pid, start_time, reopened, heard)

    def _pages(self) -> Iterator[rec.Carried]:
        for page in self._left.checkpoint():
            # What this run has done itself is told by its own record, and shown as that.
            told = ("finished", page.issue_id) in self._holding
            if not (told and page.held_by == self._left.actor):
                yield page


def resumed(board: Board, segment: int) -> Resumed:
    """The counts of a run so far."""
    return Resumed(segment, board.claims, **board.totals)
