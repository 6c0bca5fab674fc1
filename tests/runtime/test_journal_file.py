"""A journal that is read as it grows: everything once, whatever the pieces and the segments."""

from __future__ import annotations

from pathlib import Path

from beads_workers.core.records import journal as rec
from beads_workers.core.views.snapshot import Board
from beads_workers.runtime.journal import Journal, Size
from beads_workers.runtime.journal_file import JournalTail, read_journal, segments


def claimed(tail: JournalTail) -> list[str]:
    return [e.record.issue_id for e in tail.read() if isinstance(e.record, rec.Claimed)]


def test_each_look_gives_what_was_added_since_and_no_half_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    tail = JournalTail(path)
    assert claimed(tail) == []
    journal = Journal(path)
    journal.append(rec.Claimed("a"))
    line = journal.flush()
    assert claimed(tail) == ["a"]
    assert claimed(tail) == []
    with path.open("ab") as file:
        file.write(line[:20])
        file.flush()
        assert claimed(tail) == []
        file.write(line[20:])
        file.flush()
        assert claimed(tail) == ["a"]
    journal.close()
    tail.close()


def test_segments_are_followed_and_what_they_repeat_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, size=Size(8 * 600))
    board = Board()
    tail = JournalTail(path)
    issue_ids: list[str] = []
    ids = [f"issue-{n}" for n in range(60)]
    for n, issue_id in enumerate(ids):
        journal.append(rec.Claimed(issue_id, "a title"))
        for entry, _ in journal.fold():
            board.apply(entry)
        journal.flush()
        if journal.is_long():
            journal.begin_segment(board)
        if n % 7 == 0:
            issue_ids += claimed(tail)
    journal.flush()
    issue_ids += claimed(tail)
    assert len(segments(path)) > 2 and issue_ids == ids
    late = JournalTail(path)
    assert list(late.read()) == list(read_journal(path))
    for each in (tail, late):
        each.close()
    journal.close()
