"""Submodules: a share of the cases of ``scripts/prove submodules``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.submodules import CASES, tried


@pytest.mark.share(18)
@pytest.mark.parametrize("case", CASES)
def test_what_is_closed_has_the_submodules_that_its_check_saw(case: str, tmp_path: Path) -> None:
    assert tried(case, tmp_path) == []
