"""Attempts, landing, undo and clean under git configurations that are legal and awkward."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.fleet import Fleet, call
from tests.support.hostile_git import PATIENCE, ROWS, RUN, HostileProject, Row, cases

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


@pytest.mark.parametrize("where", ["variables", "parameters", "user"])
def test_a_hardened_shell_keeps_no_command_from_looking(where: str, tmp_path: Path) -> None:
    """``safe.bareRepository=explicit``: we call git in common directories."""
    made = HostileProject(tmp_path, Row(where, ("safe.bareRepository=explicit",)))
    asked = ("-n", "1", "--limit", "1", "--worktree", "--no-land")
    fleet = Fleet(made.project, *asked, "--", "sh", "-c", f"{RUN}; git add .; git commit -qm x")
    try:
        assert fleet.wait(PATIENCE) == 0, fleet.said()
    finally:
        fleet.end()
    (branch,) = json.loads(made.call("branches", "--json").stdout)["branches"]
    assert branch["issue_id"] == "bw-1" and branch["merges"]
    doctor = call(made.project, "doctor", "--worktree")
    assert "1 branch bw/*" in doctor.stdout + doctor.stderr
    assert "1 commit on no other branch" in made.call("clean").stdout
    made.call("land", "--verify", "test -e base.txt")
    assert "taken back: bw-1" in made.call("undo", "bw-1").stdout
