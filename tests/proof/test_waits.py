"""What waits for a person ends with its issue: a share of ``tests.proof.waits`` on each tracker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.waits import CASES, Case, run

BUILT_IN = [each for each in CASES if each.tracker == "sqlite"]
ON_BD = [each for each in CASES if each.tracker != "sqlite"]


def name_of(case: Case) -> str:
    return case.name


@pytest.mark.share(3)
@pytest.mark.parametrize("case", BUILT_IN, ids=name_of)
def test_what_a_person_ends_waits_no_longer(case: Case, tmp_path: Path) -> None:
    assert run(case, tmp_path) == []


@pytest.mark.share(70)
@pytest.mark.parametrize("case", ON_BD, ids=name_of)
def test_nor_does_it_in_bd(case: Case, tmp_path: Path) -> None:
    assert run(case, tmp_path) == []
