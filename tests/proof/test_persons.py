"""A share of the proof of persons and attempts that move the landing branch, in every run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.persons import cases, run

SHARE = 16


@pytest.mark.parametrize("case", cases()[:SHARE], ids=lambda case: case.name)
def test_a_persons_move_stays_and_an_attempts_is_found_out(case: object, tmp_path: Path) -> None:
    assert run(case, tmp_path) == []  # type: ignore[arg-type]
