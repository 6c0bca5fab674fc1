"""What workers say last, where only a file can still be told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId, OutcomeKind
from beads_workers.core.base.wire import RETURNED_UNSTARTED, Done, Failed
from beads_workers.runtime.result_spool import FILE, spool_result, words_of

A, B = IssueId("a"), IssueId("b")
DONE = Done(A, "W1", 12, {"sum": 3}, request_id="run.1")
UNSTARTED = Failed(
    B, "W1", "why", 0, OutcomeKind.CANCELLED, error_detail=RETURNED_UNSTARTED, request_id="run.2"
)
BOTH = ("run.1", "run.2")


def test_what_is_left_is_found_as_it_was_said_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    assert words_of(tmp_path, BOTH) == {}
    for message in (DONE, UNSTARTED, DONE):
        spool_result(str(tmp_path), message)
    assert words_of(tmp_path, BOTH) == {"run.1": DONE, "run.2": UNSTARTED}
    assert words_of(tmp_path, ("run.2",)) == {"run.2": UNSTARTED}, "and no more than is asked for"
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_a_folder_that_is_gone_and_nonsense_harm_nobody(tmp_path: Path) -> None:
    spool_result(str(tmp_path / "gone"), DONE)
    assert not (tmp_path / "gone").exists()
    (tmp_path / FILE).write_bytes(b'\xff\x00 run.1\n\n[{}]\n{"type": "DO')
    spool_result(str(tmp_path), DONE)
    assert words_of(tmp_path, BOTH) == {"run.1": DONE}, "a torn line swallowed the next"


def test_what_is_too_long_for_a_line_is_left_out_and_not_the_word(tmp_path: Path) -> None:
    long = Done(A, "W1", 1, "x" * limits.WORD_BYTES_MAX, request_id="run.1")
    spool_result(str(tmp_path), long)
    assert words_of(tmp_path, BOTH) == {"run.1": Done(A, "W1", 1, request_id="run.1")}


def test_of_a_huge_file_the_beginning_is_read(tmp_path: Path) -> None:
    spool_result(str(tmp_path), DONE)
    with (tmp_path / FILE).open("ab") as file:
        file.truncate(limits.WORDS_BYTES_MAX)
    spool_result(str(tmp_path), UNSTARTED)
    assert words_of(tmp_path, BOTH) == {"run.1": DONE}


@pytest.mark.timeout(20)
def test_nobody_waits_for_what_was_put_in_its_place_or_follows_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)
    spool_result(str(tmp_path), DONE)
    assert words_of(tmp_path, BOTH) == {}
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).symlink_to(tmp_path / "elsewhere")
    spool_result(str(tmp_path), DONE)
    assert not (tmp_path / "elsewhere").exists() and words_of(tmp_path, BOTH) == {}
