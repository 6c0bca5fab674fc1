"""Every executor of a folder has a state directory of its own, and a free one is used again."""

from __future__ import annotations

import os
from pathlib import Path

from beads_workers.integrations.rrq.commands import take_slot
from beads_workers.runtime.locks import try_lock
from tests.support.mistakes import Mistake


def test_each_takes_the_first_that_is_free(tmp_path: Path) -> None:
    first, fd = take_slot(tmp_path / "rrq")
    second, _ = take_slot(tmp_path / "rrq")
    assert [first.name, second.name] == ["1", "2"]
    os.close(fd)
    again, _ = take_slot(tmp_path / "rrq")
    assert again == first


def test_one_whose_orchestrator_is_still_ending_is_not_free(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    assert try_lock(tmp_path / "1" / "lock") is not None
    slot, _ = take_slot(tmp_path)
    assert slot.name == "2"


def test_a_mistake_is_one_line_and_a_remedy(mistake: Mistake) -> None:
    mistake(
        "rrq-executor",
        "no address: neither RRQ_EXECUTOR_SOCKET nor RRQ_EXECUTOR_TCP_SOCKET",
        "an RRQ orchestrator gives one: RRQ_EXECUTOR_SOCKET=PATH or",
        2,
    )
    hint = "'beads-workers rrq-executor --help'"
    mistake("rrq-executor --listen", "No such option: --listen", hint, 2)
