"""Attempts, landing, undo and clean under git configurations that are legal and awkward."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import hostile_git
from tests.support.fleet import Fleet, call
from tests.support.hostile_kinds import KINDS

pytestmark = pytest.mark.daily(3)

KEYS_LEAST = 60


@pytest.mark.parametrize("run", hostile_git.RUNS, ids=lambda run: run.name)
def test_all_lands_and_nothing_of_the_users_moves_under(
    run: hostile_git.Run, tmp_path: Path
) -> None:
    if why := run.why_not():
        pytest.skip(why)
    hostile_git.HostileProject(tmp_path, run).live()


def test_the_table_is_wide_and_each_row_of_it_is_tried() -> None:
    keys = {key for row in hostile_git.ROWS.values() for key, _ in row.pairs}
    assert len(keys) >= KEYS_LEAST
    for run in hostile_git.RUNS:
        together = [key for row in run.rows for key, _ in row.pairs]
        assert len({*together}) == len(together), f"a key is set twice: {run.name}"
        assert len({row.where for row in run.rows}) == len(run.rows), run.name
    assert {row for run in hostile_git.RUNS for row in run.rows} == {*hostile_git.ROWS.values()}
    assert {kind for run in hostile_git.RUNS for kind in run.kinds} == {*KINDS}
    assert len({row.where for row in hostile_git.ROWS.values()}) == 4
    assert len(dict(hostile_git.cases())) == len(hostile_git.cases())


def test_a_hardened_shell_keeps_no_command_from_looking(tmp_path: Path) -> None:
    """``safe.bareRepository=explicit``: we call git in common directories."""
    explicit = ("safe.bareRepository=explicit",)
    made = hostile_git.HostileProject(
        tmp_path, hostile_git.Run((hostile_git.Row("variables", explicit),))
    )
    asked = ("-n", "1", "--limit", "1", "--worktree", "--no-land")
    fleet = Fleet(
        made.project, *asked, "--", "sh", "-c", f"{hostile_git.RUN}; git add .; git commit -qm x"
    )
    try:
        assert fleet.wait(hostile_git.PATIENCE) == 0, fleet.said()
    finally:
        fleet.end()
    for where in ("variables", "parameters", "user"):
        made.set_only(hostile_git.Row(where, explicit))
        (branch,) = json.loads(made.call("branches", "--json").stdout)["branches"]
        assert branch["issue_id"] == "bw-1" and branch["merges"], where
        doctor = call(made.project, "doctor", "--worktree")
        assert "1 branch bw/*" in doctor.stdout + doctor.stderr, where
        assert "1 commit on no other branch" in made.call("clean").stdout, where
    made.call("land", "--verify", "test -e base.txt")
    assert "taken back: bw-1" in made.call("undo", "bw-1").stdout
