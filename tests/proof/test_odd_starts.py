"""Commands in odd places: a few of what ``scripts/faults odd`` tries of every command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.proof.odd_starts import IN_WORKTREES, NO_THREADS, NO_UTF8, Case, Place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder: Path = tmp_path_factory.mktemp("odd")
    yield Place(folder)


@pytest.mark.parametrize(
    "case",
    [
        Case("all closed", "start"),
        Case(NO_THREADS, "start"),
        Case(NO_UTF8, IN_WORKTREES),
        Case("stdout closed", "doctor"),
    ],
    ids=str,
)
def test_a_command_in_an_odd_place_works_or_says_why_not(case: Case, place: Place) -> None:
    assert place.tried(case) == []
