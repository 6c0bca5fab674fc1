"""The tracker thread: settle, renew, take; the journal on disk before; errors are no answers."""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId, Job
from beads_workers.core.base.source import (
    Action,
    Calls,
    CrashedRun,
    Lost,
    Renewed,
    Result,
    Settled,
    Settlement,
    SourceError,
    Taken,
)
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import UsageFound
from beads_workers.core.schedule.commands import RoundTrip
from beads_workers.core.schedule.events import Arrived, RecoveryEnded, RoundTripEnded
from beads_workers.runtime.journal import Journal
from beads_workers.runtime.tracker_thread import News, PromptTrackerThread, TrackerThread
from tests.support.fleet import until

A = IssueId("a")
CLOSE = Settlement(Action.CLOSE, A)


class Recorder:
    """A source that writes down what it is asked, and fails where it is told to."""

    name, actor, self_claiming = "recorder", "us", False

    def __init__(self, fails: str = "") -> None:
        self.calls = Calls()
        self.asked: list[str] = []
        self.fails = fails
        self.before: Callable[[], None] = lambda: None

    def _ask(self, what: str) -> None:
        self.before()
        self.asked.append(what)
        self.calls.count += 1
        if what == self.fails:
            raise SourceError(f"{what} failed", "a hint")

    def describe(self) -> str:
        return "recorder"

    def take(self, limit: int, skip: Collection[IssueId]) -> Taken:
        self._ask("take")
        return Taken()

    def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        self._ask("settle")
        return [Settled(s, Result.APPLIED) for s in settlements]

    def renew(self, issue_ids: Sequence[IssueId]) -> Renewed:
        self._ask("renew")
        return Renewed(lost=tuple(Lost(issue_id) for issue_id in issue_ids))

    def recover(self, dead: CrashedRun) -> list[Settled]:
        return []

    def close(self) -> None:
        self.asked.append("close")


class Running:
    """A tracker thread over a recorder; ``round_trip`` waits for the answer."""

    def __init__(self, folder: Path, source: Recorder) -> None:
        self.journal = Journal(folder / "journal.jsonl")
        self.posted: queue.SimpleQueue[News] = queue.SimpleQueue()
        self.thread = TrackerThread(source, self.journal, RecoveryEnded, self.posted.put)
        self.thread.start()
        assert self.posted.get(timeout=10) == RecoveryEnded()

    def round_trip(self, round_trip: RoundTrip) -> RoundTripEnded:
        self.thread.begin(round_trip)
        answer = self.posted.get(timeout=10)
        assert isinstance(answer, RoundTripEnded), answer
        return answer

    def stop(self) -> None:
        self.thread.stop(10)
        self.journal.close()


def ended(folder: Path, source: Recorder, round_trip: RoundTrip) -> RoundTripEnded:
    """One round trip, from start to end."""
    running = Running(folder, source)
    answer = running.round_trip(round_trip)
    running.stop()
    return answer


WHOLE = RoundTrip((CLOSE,), (A,), 3)


def test_a_round_trip_settles_then_renews_then_takes(tmp_path: Path) -> None:
    source = Recorder()
    answer = ended(tmp_path, source, WHOLE)
    assert source.asked == ["settle", "renew", "take", "close"]
    assert answer.settled == (Settled(CLOSE, Result.APPLIED),)
    assert (answer.renewed, answer.taken, answer.calls) == (Renewed(lost=(Lost(A),)), Taken(), 3)


def test_what_was_posted_before_a_round_trip_is_on_disk_when_that_is_concluded(
    tmp_path: Path,
) -> None:
    source, path = Recorder(), tmp_path / "journal.jsonl"
    journal, posted = Journal(path), queue.SimpleQueue[News]()

    def conclude() -> None:
        source.asked.append(f"concluded with {path.read_bytes().count(b'used')}")

    thread = TrackerThread(source, journal, RecoveryEnded, posted.put, conclude=conclude)
    thread.start()
    posted.get(timeout=10)
    journal.append(UsageFound(A, 1, "r.1", "used"))
    journal.flush()
    thread.begin(RoundTrip(take=0))
    posted.get(timeout=10)
    thread.stop(10)
    journal.close()
    assert source.asked == ["concluded with 1", "take", "close"]


def test_what_is_not_asked_for_is_not_asked(tmp_path: Path) -> None:
    source = Recorder()
    answer = ended(tmp_path, source, RoundTrip(take=0))
    assert source.asked == ["take", "close"]
    assert (answer.settled, answer.taken) == ((), Taken())


def test_after_a_failed_settlement_nothing_else_is_asked(tmp_path: Path) -> None:
    source = Recorder("settle")
    answer = ended(tmp_path, source, WHOLE)
    assert source.asked == ["settle", "close"]
    assert (answer.settle_error, answer.hint, answer.taken) == ("settle failed", "a hint", None)


def test_a_failed_renewal_or_take_does_not_take_back_what_was_settled(tmp_path: Path) -> None:
    for stage in ("renew", "take"):
        folder = tmp_path / stage
        folder.mkdir()
        answer = ended(folder, Recorder(stage), WHOLE)
        assert answer.settled == (Settled(CLOSE, Result.APPLIED),)
        assert (answer.take_error, answer.taken) == (f"{stage} failed", None)
        assert answer.settle_error == ""


def test_the_journal_is_on_disk_before_the_tracker_is_written_to(tmp_path: Path) -> None:
    source = Recorder()
    running = Running(tmp_path, source)
    synced = []
    source.before = lambda: synced.append(running.journal._synced)
    running.journal.append(rec.Claimed("a"))
    written = len(running.journal.flush())
    running.round_trip(RoundTrip((CLOSE,)))
    running.journal.append(rec.Claimed("b"))
    more = len(running.journal.flush())
    running.round_trip(RoundTrip(take=1))
    running.stop()
    assert synced == [written, written + more]


def test_the_journal_is_brought_to_disk_although_the_tracker_is_asked_nothing(
    tmp_path: Path,
) -> None:
    source = Recorder()
    running = Running(tmp_path, source)
    running.journal.append(rec.Claimed("a"))
    written = len(running.journal.flush())
    running.thread.sync()
    until(lambda: running.journal._synced == written, 10)
    running.stop()
    assert source.asked == ["close"]


def test_a_bug_in_the_thread_is_posted_and_does_not_pass_in_silence(tmp_path: Path) -> None:
    source = Recorder()
    running = Running(tmp_path, source)

    def broken() -> None:
        raise KeyError("a bug")

    source.before = broken
    running.thread.begin(RoundTrip(take=1))
    assert isinstance(running.posted.get(timeout=10), KeyError)
    running.stop()


def test_a_prompt_tracker_thread_answers_where_it_is_asked_and_syncs_soon_after(
    tmp_path: Path,
) -> None:
    source, ended = Recorder(), list[RoundTripEnded]()
    journal = Journal(tmp_path / "journal.jsonl")
    posted: queue.SimpleQueue[News] = queue.SimpleQueue()
    running = PromptTrackerThread(source, journal, RecoveryEnded, posted.put, ended.append)
    running.start()
    assert posted.get(timeout=10) == RecoveryEnded()
    journal.append(rec.Claimed("a"))
    written = len(journal.flush())
    running.begin(WHOLE)
    assert [answer.settled for answer in ended] == [(Settled(CLOSE, Result.APPLIED),)]
    until(lambda: journal._synced == written, 10)
    running.stop(10)
    journal.close()
    assert source.asked == ["settle", "renew", "take", "close"]
    assert posted.empty()


class Watched(Recorder):
    """It has as many jobs as it was made with, and sees as many changes."""

    def __init__(self, jobs: int, changes: int) -> None:
        super().__init__()
        self._jobs = [Job("recorder", IssueId(f"i{n}"), "a title") for n in range(jobs)]
        self._changes = changes
        self.looks = 0

    def take(self, limit: int, skip: Collection[IssueId]) -> Taken:
        self._ask("take")
        return Taken(tuple(self._jobs[:limit]))

    def changed(self) -> bool:
        self.looks += 1
        self._changes -= 1
        return self._changes >= 0


def test_while_more_is_wanted_than_there_is_changes_are_told(tmp_path: Path) -> None:
    source = Watched(jobs=1, changes=2)
    running = Running(tmp_path, source)
    running.round_trip(RoundTrip(take=2))
    assert [running.posted.get(timeout=10) for _ in range(2)] == [Arrived(), Arrived()]
    asked = source.asked[:]
    running.round_trip(RoundTrip(take=1))
    running.stop()
    assert asked == ["take"], "nobody was asked"
    looks = source.looks
    assert looks >= 2 and running.posted.empty()


def test_nobody_looks_for_changes_while_everybody_has_work(tmp_path: Path) -> None:
    source = Watched(jobs=2, changes=1)
    running = Running(tmp_path, source)
    running.round_trip(RoundTrip(take=3))
    assert running.posted.get(timeout=10) == Arrived()
    running.round_trip(RoundTrip(take=2))
    looks = source.looks
    running.round_trip(RoundTrip((CLOSE,)))
    with pytest.raises(queue.Empty):
        running.posted.get(timeout=1.5 * limits.WATCH_SECONDS)
    running.stop()
    assert source.looks == looks
