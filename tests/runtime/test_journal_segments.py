"""A journal goes on in further segments and loses its beginning (docs/OPERATIONS.md)."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from beads_workers.core.base.model import IssueId
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Resumed, is_repeated
from beads_workers.core.views.recovery import recovery_state
from beads_workers.core.views.snapshot import Board
from beads_workers.runtime.journal import LOST_SECONDS, Journal, JournalLost, Size
from beads_workers.runtime.journal_file import following, read_end, read_journal, segments
from beads_workers.runtime.retention import forget
from beads_workers.runtime.run_directory import RunDirectory
from tests.core.test_checkpoint import pending
from tests.support.journals import started

NO_ROOM = OSError(errno.ENOSPC, "No space left on device")
BROKEN = OSError(errno.EIO, "Input/output error")


class Run:
    """A journal that is written as the loop writes it. ``written``: what followers got."""

    def __init__(self, path: Path, size: int = 80_000) -> None:
        self.room: int | None = None
        self.sync_error: OSError | None = None
        self.write_error: OSError | None = None
        self.now = 5.0
        self.journal = Journal(
            path, write=self._write, size=Size(size), fdatasync=self._sync, clock=lambda: self.now
        )
        self.board = Board()
        self.written = b""
        self.add(started(), rec.CheckpointEnded())

    def add(self, *records: rec.Record) -> None:
        for record in records:
            self.journal.append(record)
        for entry, _ in self.journal.fold():
            self.board.apply(entry)
        self.written += self.journal.flush()
        if self.journal.is_long():
            self.journal.begin_segment(self.board)

    def attempts(self, count: int, first: int = 0) -> None:
        for number in range(first, first + count):
            issue_id, request = f"i-{number % 10}", f"r-{number}"
            self.add(rec.Claimed(issue_id, "a title"))
            self.add(rec.Started(issue_id, "W1", 1, request, "a title"))
            verdict = "requeue" if number % 3 else "finish"
            self.add(
                rec.Finished(issue_id, "W1", 1, request, "error", verdict, "why", 5, number % 3)
            )
            if number % 7:
                action = "release" if number % 3 else "close"
                self.add(rec.SettledRecord(issue_id, action, "applied"))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def _write(self, fd: int, data: bytes | memoryview) -> int:
        if self.write_error is not None:
            raise self.write_error
        if self.room is None:
            return os.write(fd, data)
        if not self.room:
            raise NO_ROOM
        sent = os.write(fd, data[: self.room])
        self.room -= sent
        return sent

    def _sync(self, fd: int) -> None:
        if self.sync_error is not None:
            raise self.sync_error


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def test_a_long_journal_is_read_as_if_it_were_one_file(path: Path) -> None:
    run = Run(path)
    run.attempts(100)
    assert len(segments(path)) > 2
    lines = [line for each in segments(path) for line in each.read_bytes().splitlines(True)]
    assert b"".join(line for line in lines if not is_repeated(line)) == run.written
    assert len(list(read_journal(path))) == len(run.written.splitlines())
    assert following(path) == segments(path)[1] and following(segments(path)[-1]) is None


def test_the_last_segment_alone_is_enough_for_a_recovery(path: Path) -> None:
    run = Run(path)
    run.attempts(100)
    everything = pending(recovery_state(read_journal(path)))
    for old in segments(path)[:-1]:
        old.unlink()
    assert (
        pending(recovery_state(read_journal(path)))
        == pending(recovery_state(read_end(path)))
        == everything
    )


def test_old_segments_go_once_the_new_one_is_on_disk_and_their_counts_stay(path: Path) -> None:
    run = Run(path, 20_000)
    run.attempts(200)
    before = sum(each.stat().st_size for each in segments(path))
    assert before > 20_000, "without a sync nothing is thrown away"
    run.journal.sync()
    kept = segments(path)
    assert path not in kept and sum(each.stat().st_size for each in kept) <= 20_000
    counts = next(e.record for e in read_journal(path) if isinstance(e.record, Resumed))
    again = Board()
    for entry in read_journal(path):
        again.apply(entry)
    assert 0 < counts.claims < 200 and again.claims == run.board.claims == 200
    assert again.totals == run.board.totals


def test_a_kill_or_a_power_cut_at_any_byte_of_a_new_segment_loses_nothing(path: Path) -> None:
    run = Run(path)
    run.attempts(30)
    run.add(rec.ClaimDelegated("i-x", "W1"))
    first = pending(recovery_state(read_journal(path)))
    run.journal._next_at = 0
    run.add(rec.Noted("info", "the next one"))
    number = len(segments(path))
    content = segments(path)[-1].read_bytes()
    for cut in range(0, len(content), 41):
        shutil.rmtree(path.parent / "copy", ignore_errors=True)
        copy = Path(shutil.copytree(path.parent, path.parent / "copy")) / path.name
        segments(copy)[number - 1].write_bytes(content[:cut])
        assert pending(recovery_state(read_end(copy))) == first
        assert pending(recovery_state(read_journal(copy))) == first


def test_a_disk_that_fills_up_within_the_checkpoint_loses_and_doubles_no_line(path: Path) -> None:
    run = Run(path, 1_000_000)
    run.attempts(20)
    run.journal._next_at = 0
    line = len(run.journal.flush())
    run.room = line + 300
    run.add(rec.Noted("info", "short"))
    assert b"short" in run.written, "what was written is told"
    run.journal.sync()
    assert path.exists(), "a checkpoint that is not whole is no reason to drop anything"
    with pytest.raises(OSError, match="No space left"):
        run.add(rec.Noted("info", "later"))
    run.room = None
    run.add(rec.Noted("info", "last"))
    assert len(segments(path)) == 2
    texts = [e.record.text for e in read_journal(path) if isinstance(e.record, rec.Noted)]
    assert texts == ["short", "later", "last"]
    assert len(list(read_journal(path))) == len(run.written.splitlines())
    assert recovery_state(read_end(path)).has_checkpoint


def test_while_it_cannot_be_opened_everything_goes_on_in_the_old_segment(path: Path) -> None:
    run = Run(path)
    run.journal._next_at = 0
    segment_in_the_way = path.with_name("journal.2.jsonl")
    segment_in_the_way.mkdir()
    run.add(rec.Noted("info", "a"))
    segment_in_the_way.rmdir()
    run.attempts(40)
    assert len(segments(path)) > 1


def wait_until(condition: Callable[[], bool]) -> None:
    pause, deadline = threading.Event(), 1200
    while not condition():
        pause.wait(0.05)
        deadline -= 1
        assert deadline, "it never came"


def test_what_has_no_room_on_disk_is_written_again_as_a_checkpoint_and_waited_for(
    path: Path,
) -> None:
    run = Run(path)
    run.attempts(3)
    run.sync_error = NO_ROOM
    thread = threading.Thread(target=run.journal.sync_patiently)
    thread.start()
    wait_until(lambda: run.journal.unsafe)
    run.sync_error = None
    # The file system would now call it a success; what it lost is lost.
    assert thread.is_alive() and len(segments(path)) == 1
    run.add(rec.Noted("info", "the loop goes on"))
    thread.join(60)
    assert not thread.is_alive() and not run.journal.unsafe
    assert len(segments(path)) == 2 and recovery_state(read_end(path)).has_checkpoint


def test_what_a_broken_disk_lost_is_written_again_where_it_works_once_more(path: Path) -> None:
    run = Run(path)
    run.attempts(3)
    run.sync_error = BROKEN

    def repaired(seconds: float) -> None:
        run.sync_error = None
        run.add(rec.Noted("info", "the loop goes on"))

    run.journal._sleep = repaired
    run.journal.sync_patiently()
    assert len(segments(path)) == 2 and recovery_state(read_end(path)).has_checkpoint


def test_one_failure_to_sync_begins_one_segment(path: Path) -> None:
    run = Run(path)
    run.sync_error = BROKEN
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        for _ in range(5):
            run.add(rec.Noted("info", "the loop goes on"))
        if len(naps) == 3:
            run.sync_error = None

    run.journal._sleep = nap
    run.journal.sync_patiently()
    assert len(segments(path)) == 1 + len(naps)


def test_a_disk_that_stays_broken_ends_the_run_with_a_clear_word(path: Path) -> None:
    run = Run(path)
    run.sync_error = BROKEN
    run.journal._sleep = run.pass_time
    with pytest.raises(
        JournalLost, match=r"the journal cannot be kept \(Input/output error\): the run"
    ):
        run.journal.sync_patiently()
    assert LOST_SECONDS <= run.now - 5.0 < LOST_SECONDS + 1.0


def test_room_is_waited_for_however_long_that_takes(path: Path) -> None:
    run = Run(path)
    run.journal.append(rec.Noted("info", "waits"))
    run.room = 0
    for _ in range(1000):
        with pytest.raises(OSError, match="No space left") as caught:
            run.journal.flush()
        assert not isinstance(caught.value, JournalLost)
        run.pass_time(60.0)
    run.room = None
    assert b"waits" in run.journal.flush()


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ESTALE])
def test_any_other_error_may_pass_for_half_a_minute(path: Path, number: int) -> None:
    run = Run(path)
    run.journal.append(rec.Noted("info", "waits"))
    run.write_error = OSError(number, os.strerror(number))
    for _ in range(3):
        for _ in range(29):
            with pytest.raises(OSError, match=os.strerror(number)) as caught:
                run.journal.flush()
            assert not isinstance(caught.value, JournalLost)
            run.pass_time(1.0)
        # It begins anew once something could be written.
        run.write_error, error = None, run.write_error
        run.journal.append(rec.Noted("info", "more"))
        assert b"more" in run.journal.flush()
        run.write_error = error
        run.journal.append(rec.Noted("info", "waits"))
    for _ in range(30):
        with pytest.raises(OSError):
            run.journal.flush()
        run.pass_time(1.0)
    with pytest.raises(JournalLost):
        run.journal.flush()


def test_a_call_of_the_tracker_is_noted_once_the_disk_works_again(path: Path) -> None:
    run = Run(path)
    run.write_error = BROKEN
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        run.write_error = BROKEN if len(naps) < 3 else None

    run.journal._sleep = nap
    run.journal.write_now(rec.CallStarted(7, 8))
    assert len(naps) == 3
    assert recovery_state(read_end(path)).last_call == (7, 8)
    run.write_error, run.journal._sleep = BROKEN, run.pass_time
    with pytest.raises(JournalLost):
        run.journal.write_now(rec.CallEnded(7))


def test_a_call_of_the_tracker_that_runs_is_named_in_the_new_segment(path: Path) -> None:
    run = Run(path)
    run.journal.write_now(rec.CallStarted(77, 5))
    run.journal._next_at = 0
    run.add(rec.Noted("info", "a"))
    assert recovery_state(read_end(path)).last_call == (77, 5)
    run.journal.write_now(rec.CallEnded(77))
    assert recovery_state(read_end(path)).last_call is None


def test_a_retry_without_a_fleet_is_told_to_the_last_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEADS_WORKERS_HOST", "host")
    directory = RunDirectory(tmp_path / "state")
    directory.create()
    (directory.run("1")).mkdir()
    run = Run(directory.run("1") / "journal.jsonl")
    run.add(rec.Claimed("a"), rec.Finished("a", "W1", 3, "r", "error", "quarantined", "no", 1, 3))
    run.attempts(40, first=1)
    assert len(segments(run.journal.path)) > 1
    assert "a" in directory.left_over()[1].retry_entries
    forget(directory, [IssueId("a")])
    assert "a" not in directory.left_over()[1].retry_entries
