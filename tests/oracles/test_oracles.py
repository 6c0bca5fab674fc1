"""What must not change while the code is moved: see the package."""

from __future__ import annotations

import sys

import pytest

from tests.oracles.__main__ import GOLDEN, ORACLES, compared

HISTORIES = "history_"
"""They have a file of their own, which another process may run."""
TRACES = "traces_"
PEERS = {"doctor_bd": [pytest.mark.peers]}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=PEERS.get(name, ()))
        for name in ORACLES
        if not name.startswith((HISTORIES, TRACES))
    ],
)
def test_nothing_has_changed_for_whoever_looks_from_outside(name: str) -> None:
    if name == "worker_imports" and sys.version_info[:2] != (3, 11):
        pytest.skip("a younger Python loads other modules of its own")
    assert compared(name) == ""


@pytest.mark.share(5)
@pytest.mark.parametrize("name", [name for name in ORACLES if name.startswith(TRACES)])
def test_the_core_says_the_same_in_the_same_world(name: str) -> None:
    assert compared(name) == ""


def test_every_golden_text_has_its_oracle() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(ORACLES)
