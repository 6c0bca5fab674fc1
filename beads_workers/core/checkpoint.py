"""What a further segment of a journal begins with, so that older ones can be thrown away.

Of issues it is the dump of ``core.issues``: their pages, and the records that still hold. Of
workers, the tracker and the run it repeats the last record of each kind, kept while the run goes
on. Whoever folds the segment alone knows what all of them tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter

from beads_workers.core import records as rec
from beads_workers.core.board import Board
from beads_workers.core.checkpoint_records import Owing, Resumed
from beads_workers.core.issues import Issue, Issues
from beads_workers.core.journal_lines import Entry

Key = tuple[str, str]
"""What a record tells, and of whom: a later one with the same key makes it void."""

_OF_WORKER = ("worker_started", "worker_joined")


class Checkpoint:
    """``apply`` every entry but those of calls; ``entries`` is then the checkpoint."""

    def __init__(self) -> None:
        self._holding: dict[Key, Entry] = {}

    def apply(self, entry: Entry) -> None:
        """Take in the next entry; what it says of issues is for ``Issues``."""
        if type(entry.record) in _KEPT:
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
        self, issues: Issues, resumed: Resumed, call: Entry | None, at: float, elapsed: float
    ) -> Iterator[Entry]:
        """The checkpoint. ``issues``: of all that was applied here. ``call``: the tracker's process
        that runs just now; the times are now."""
        holding = dict(self._holding)
        known = issues.known.values()
        run = holding.pop((rec.RunStarted.__name__, ""), None)
        if run is not None:
            yield run
            # What they are busy with now comes after what was known of them before.
            yield from _pages((i for i in known if i.told), run.at, run.elapsed)
        told = [entry for issue in known for entry in issue.told]
        yield from sorted([*holding.values(), *told], key=attrgetter("elapsed"))
        yield from _pages((i for i in known if not i.told), at, elapsed)
        for issue in known:
            if issue.handed_over and not _tells(issue, rec.HandingOver):
                yield Entry(rec.HandingOver(issue.issue_id, ""), at, elapsed)
        for owing in _owing(issues):
            yield Entry(owing, at, elapsed)
        if call is not None:
            yield call
        yield Entry(resumed, at, elapsed)
        yield Entry(rec.CheckpointEnded(), at, elapsed)


_KEPT = frozenset(
    {
        rec.WorkerStarted,
        rec.WorkerJoined,
        rec.WorkerLeft,
        rec.WorkerExited,
        rec.WorkerGone,
        rec.RunStarted,
        rec.RunChanged,
        rec.Listed,
        rec.Spent,
        rec.SourceTrouble,
        rec.SourceRecovered,
        rec.Hindrance,
        rec.HindranceOver,
    }
)


def _pages(issues: Iterable[Issue], at: float, elapsed: float) -> Iterator[Entry]:
    return (Entry(issue.page, at, elapsed) for issue in issues if issue.page)


def _tells(issue: Issue, kind: type[rec.Record]) -> bool:
    return any(isinstance(entry.record, kind) for entry in issue.told)


def _owing(issues: Issues) -> Iterator[Owing]:
    """What no other record tells."""
    for issue in issues.known.values():
        pid, start_time = issue.holder or (0, 0)
        reopened, heard = issue.is_reopened and not issue.told, issue.issue_id in issues.heard
        if pid or reopened or heard:
            yield Owing(issue.issue_id, "", pid, start_time, reopened, heard)
    for issue_id in sorted(issues.heard - issues.known.keys()):
        yield Owing(issue_id, heard=True)


def resumed(board: Board, segment: int) -> Resumed:
    """The counts of a run so far."""
    return Resumed(segment, board.claims, **board.totals)
