"""A proof of ``scripts/night`` with a few issues, on the real claude and codex."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.night import compressed
from tests.night.figures import Row, Rows, as_object, table

pytestmark = pytest.mark.daily(3)

FEW = 4
"""``.ci/run`` has all proofs with 8, ``scripts/night`` with 40."""


@pytest.mark.timeout(900)
def test_a_small_night_holds(tmp_path: Path) -> None:
    # A proof breaks off by itself where nothing happens any more: it may take long, on a machine
    # that is busy.
    rows = compressed.prove(FEW, tmp_path)
    assert rows
    assert [row for row in rows if row.broken] == [], table(rows)


def test_a_row_that_does_not_hold_is_a_violation() -> None:
    rows = Rows("p")
    rows.none("fine", [])
    rows.none("lost", ["a", "b"], 9)
    rows.at_most("late", 2.5, 2, " s")
    rows.equal("exit status", 3, 0)
    found = as_object(rows.rows, 40, 1.0)
    assert found["violations"] == [
        "p: lost: a; b",
        "p: late: 2.5 s is more than 2 s",
        "p: exit status: 3 instead of 0",
    ]
    assert json.loads(json.dumps(found))["issues"] == 40
    assert "| p | late | 2.5 s **broken: 2.5 s is more than 2 s** | at most 2 s |" in table(
        rows.rows
    )
    assert Row("p", "fine", "0", "0") in rows.rows
