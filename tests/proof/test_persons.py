"""A share of the proof of persons and attempts that move the landing branch, in every run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.proof.persons import MOVES, Case, Scene, cases

SHARE = 16


@pytest.mark.share(2)
@pytest.mark.parametrize("case", cases()[:SHARE], ids=lambda case: case.name)
def test_a_persons_move_stays_and_an_attempts_is_found_out(case: Case, tmp_path: Path) -> None:
    assert [*case.tried(tmp_path)] == []


def test_a_person_who_moves_it_in_the_second_in_which_an_attempt_ended_is_not_asked(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path)
    time.sleep(1.0 - time.time() % 1.0)
    scene.journal(time.time() - 60.0, time.time())
    MOVES["commits in a worktree that goes"](scene)
    assert scene.ask() is None
