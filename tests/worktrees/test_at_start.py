"""Worktrees made while a start runs the base check: as fresh ones, and no more than are needed."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from beads_workers.worktrees.making import CannotPrepare
from beads_workers.worktrees.pool import MadeMeanwhile, make_free
from tests.support.repository import commit, git
from tests.support.worktrees import World, ruled
from tests.worktrees.test_reuse import assert_as_fresh, ended, reusing, setups


@pytest.fixture
def world(tmp_path: Path) -> World:
    return reusing(World(tmp_path / "one"))


def free(world: World) -> list[str]:
    return world.records.over()


def until(count: int, world: World) -> None:
    deadline = time.monotonic() + 60
    while len(free(world)) < count:
        assert time.monotonic() < deadline, free(world)
        time.sleep(0.05)


def test_the_first_attempt_takes_it_as_a_fresh_one_and_set_up_ran_once(world: World) -> None:
    made = make_free(world.settings, world.records)
    assert git(world.top, "branch", "--list", "bw/*") == "", "it is on no branch"
    taken = world.make("one")
    assert taken.record.path == made.path and not free(world)
    assert_as_fresh(world, taken)
    assert len(setups(taken)) == 1


def test_a_commit_that_came_meanwhile_is_in_it(world: World) -> None:
    made = make_free(world.settings, world.records)
    commit(world.top, "later.py", "later\n")
    taken = world.make("one")
    assert taken.record.path == made.path
    assert_as_fresh(world, taken)


def test_as_many_are_made_as_are_free_then_and_none_after_the_check(world: World) -> None:
    make_free(world.settings, world.records)
    with MadeMeanwhile(replace(world.settings, reuse=3)):
        until(3, world)
    with MadeMeanwhile(replace(world.settings, reuse=40)):
        until(5, world)
    time.sleep(2.0)  # The two that were being made are finished.
    assert len(free(world)) < 40
    folders = git(world.top, "worktree", "list", "--porcelain").count("worktree ")
    assert folders == 1 + len(free(world))


def test_where_worktrees_are_not_used_again_none_is_made(world: World) -> None:
    with MadeMeanwhile(replace(world.settings, reuse=0)):
        time.sleep(0.5)
    assert free(world) == []


def test_one_whose_set_up_fails_is_removed(world: World) -> None:
    world.settings = ruled(world.settings, setup="exit 3")
    with pytest.raises(CannotPrepare, match="exit status 3"):
        make_free(world.settings, world.records)
    assert not world.records.all()
    assert subprocess.check_output(["git", "worktree", "list"], cwd=world.top).count(b"\n") == 1


def test_at_the_end_of_the_run_no_more_stay_than_workers(world: World) -> None:
    for _ in range(4):
        make_free(world.settings, world.records)
    ended(world)
    assert len(free(world)) == world.settings.reuse
