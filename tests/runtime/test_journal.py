"""The journal's file: whole lines, before anything else, and what a crash leaves of them."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry, encode
from beads_workers.runtime.journal import Journal
from beads_workers.runtime.journal_file import read_journal


def test_nothing_is_in_the_file_before_the_flush_and_all_of_it_afterwards(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    for issue_id in "abc":
        journal.append(rec.Claimed(issue_id))
    assert journal.path.read_bytes() == b""
    written = journal.flush()
    assert journal.path.read_bytes() == written and written.count(b"\n") == 3
    assert journal.flush() == b""
    journal.close()


def test_what_is_read_back_is_what_was_written_with_its_times(tmp_path: Path) -> None:
    ticks = iter([10.0, 10.5, 12.0])
    journal = Journal(tmp_path / "journal.jsonl", lambda: next(ticks))
    entries = [journal.append(rec.Claimed("a")), journal.append(rec.Claimed("b"))]
    journal.flush()
    assert [e.elapsed for e in entries] == [0.5, 2.0]
    assert [(e.record, e.elapsed) for e in read_journal(journal.path)] == [
        (e.record, e.elapsed) for e in entries
    ]
    journal.close()


def test_a_record_that_is_written_now_goes_before_those_that_only_gathered(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append(rec.Claimed("later"))
    journal.write_now(rec.CallStarted(7, 8))
    journal.flush()
    kinds = [type(e.record) for e in read_journal(journal.path)]
    assert kinds == [rec.CallStarted, rec.Claimed]
    journal.close()


def test_a_torn_last_line_is_passed_over(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append(rec.Claimed("a"))
    journal.append(rec.Claimed("b"))
    journal.flush()
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole[:-1])
    assert [e.record for e in read_journal(journal.path)] == [rec.Claimed("a")]
    journal.close()


def test_a_journal_that_is_missing_has_no_entries(tmp_path: Path) -> None:
    assert list(read_journal(tmp_path / "none")) == []


def test_it_is_gone_when_it_was_deleted_or_replaced(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    assert not journal.is_gone()
    journal.path.unlink()
    assert journal.is_gone()
    journal.path.write_bytes(b"")
    assert journal.is_gone(), "a new file in its place is not ours"
    journal.close()


def test_it_is_ours_alone_to_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    assert journal.path.stat().st_mode & 0o777 == 0o600
    journal.close()


def test_a_full_disk_loses_no_record_and_writes_none_twice(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    journal.append(rec.Claimed("a"))
    kept = os.dup(journal._fd)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, journal._fd)
    with pytest.raises(OSError, match="No space left"):
        journal.flush()
    journal.append(rec.Claimed("b"))
    os.dup2(kept, journal._fd)
    written = journal.flush()
    ids = [
        e.record.issue_id for e in read_journal(journal.path) if isinstance(e.record, rec.Claimed)
    ]
    assert ids == ["a", "b"] and journal.path.read_bytes() == written
    os.close(kept)
    os.close(full)
    journal.close()


def test_a_line_that_a_full_disk_cut_short_swallows_no_other(tmp_path: Path) -> None:
    room = [10, 0, 0]

    def write(fd: int, data: bytes | memoryview) -> int:
        if not room:
            return os.write(fd, data)
        if not (left := room.pop(0)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.write(fd, data[:left])

    journal = Journal(tmp_path / "journal.jsonl", write=write)
    for _ in range(2):
        with pytest.raises(OSError):
            journal._write(encode(Entry(rec.CallStarted(7, 8), 0.0, 0.0)))
    journal.append(rec.Claimed("a"))
    with pytest.raises(OSError, match="No space left"):
        journal.flush()
    journal.flush()
    journal.write_now(rec.CallStarted(7, 8))
    records = [e.record for e in read_journal(journal.path)]
    assert records == [rec.Claimed("a"), rec.CallStarted(7, 8)]
    journal.close()


def test_lines_of_two_threads_stay_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")

    def write_calls() -> None:
        for number in range(500):
            journal.write_now(rec.CallStarted(number, 1))

    other = threading.Thread(target=write_calls)
    other.start()
    for number in range(500):
        journal.append(rec.Claimed(str(number)))
        journal.flush()
    other.join()
    assert len(list(read_journal(journal.path))) == 1000
    journal.close()


@pytest.mark.parametrize(
    "damage",
    [
        b"\0" * 4096,
        b'{"v":1,"e":"finished","t":17',
        b'{"v":1,"e":"claimed"}',
        b"\xff\xfe{",
        b"[" * 9999,
    ],
)
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_damage_in_the_middle_costs_no_line_but_its_own(
    tmp_path: Path, damage: bytes, end: bytes
) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    for issue_id in ("a", 'b {"v":1'):
        journal.append(rec.Claimed(issue_id))
    first, second = journal.flush().splitlines(keepends=True)
    journal.path.write_bytes(first + damage + end + second + damage)
    found = [e.record for e in read_journal(journal.path)]
    assert found == [rec.Claimed("a"), rec.Claimed('b {"v":1')]
    journal.close()


def test_a_newer_version_s_lines_are_read_as_far_as_we_know_them(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(
        b'{"v":2,"e":"from_the_future","t":1,"m":1}\n'
        b'{"v":2,"e":"claimed","t":1,"m":1,"issue_id":"a","mood":"fine"}\n'
    )
    assert [e.record for e in read_journal(path)] == [rec.Claimed("a")]
