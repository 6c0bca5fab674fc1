"""What must not change while the code is moved: see the package."""

from __future__ import annotations

import sys

import pytest

from tests.oracles.__main__ import GOLDEN, ORACLES, compared

LEFT_OUT = {f"traces_{batch:02}" for batch in range(10) if batch % 3}
"""A change to the core shows itself in any of them; ``python -m tests.oracles`` compares all."""


@pytest.mark.parametrize("name", sorted(ORACLES.keys() - LEFT_OUT))
def test_nothing_has_changed_for_whoever_looks_from_outside(name: str) -> None:
    if name == "worker_imports" and sys.version_info[:2] != (3, 11):
        pytest.skip("a younger Python loads other modules of its own")
    assert compared(name) == ""


def test_every_golden_text_has_its_oracle() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(ORACLES)
