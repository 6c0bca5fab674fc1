"""The proof of accounts: one case of four runs here, ``scripts/prove whose`` has all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.whose import CASES, Case, run


@pytest.mark.share(4)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_right_one_is_told_and_charged(case: Case, tmp_path: Path) -> None:
    assert run(case, tmp_path) == []
