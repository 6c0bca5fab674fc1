"""Attempts, landing, undo and clean under git configurations that are legal and awkward."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hostile_git import ROWS, HostileProject, cases

KEYS_LEAST = 60


@pytest.mark.parametrize("name", ROWS)
def test_all_lands_and_nothing_of_the_users_moves_under(name: str, tmp_path: Path) -> None:
    HostileProject(tmp_path, ROWS[name]).live()


def test_the_table_is_wide_and_no_row_sets_a_key_twice() -> None:
    keys = {key for row in ROWS.values() for key, _ in row.pairs}
    assert len(keys) >= KEYS_LEAST
    for name, row in ROWS.items():
        assert len({key for key, _ in row.pairs}) == len(row.settings), name
    assert len({row.where for row in ROWS.values()}) == 4
    assert len(dict(cases())) == len(cases())
