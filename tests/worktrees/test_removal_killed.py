"""A removal that is killed at any step leaves nothing that the next one does not remove."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from itertools import count
from pathlib import Path

import pytest

from beads_workers.worktrees.removal import clean
from beads_workers.worktrees.sweep import REMOVED
from tests.support.repository import commit, git
from tests.support.worktrees import Place, World

pytestmark = pytest.mark.daily(2)

STEPS = ("os.", "shutil.", "subprocess.Popen", "open")


def removed(folder: Path) -> tuple[World, Place]:
    """A world with a merged attempt, which a removal takes; files of all kinds are in it."""
    world = World(folder)
    place = world.make("a")
    commit(place.folder, "work")
    git(world.top, "merge", "--quiet", "bw/a/1")
    (place.folder / "x.local").write_text("made by a build")
    (place.folder / "made.local").mkdir()
    world.end_run()
    return world, place


def dies_at(world: World, step: int) -> bool:
    """Have ``clean`` killed before its so-manieth step; return False if it has no more."""
    child = os.fork()
    if child == 0:
        left = count(step, -1)

        def audit(event: str, _: object) -> None:
            if event.startswith(STEPS) and next(left) == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(audit)
        list(clean(world.state, dry_run=False))
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


def assert_gone(world: World, place: Place) -> None:
    assert world.kept() == {}
    assert not place.folder.exists() and not (place.folder.parent / REMOVED).exists()
    assert world.branches() == [] and world.records.all() == []
    assert git(world.top, "worktree", "list").count("\n") == 0


@pytest.mark.parametrize("part", range(4))
def test_killed_before_any_of_its_steps_it_is_finished_by_the_next(
    tmp_path: Path, part: int
) -> None:
    for step in count(part, 4):
        world, place = removed(tmp_path / str(step))
        died = dies_at(world, step)
        assert_gone(world, place)
        if not died:
            break
    assert step > 20, "it has that many steps"


def test_killed_while_git_removes_its_part_it_is_finished_by_the_next(tmp_path: Path) -> None:
    """git deletes its directory of a worktree in any order."""
    world, place = removed(tmp_path / "0")
    directory = Path(git(place.folder, "rev-parse", "--absolute-git-dir"))
    for number, name in enumerate(sorted(each.name for each in directory.iterdir()), 1):
        (place.folder.parent / REMOVED).mkdir()
        place.folder.rename(place.folder.parent / REMOVED / place.record.token)
        gone = directory / name
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
        assert_gone(world, place)
        world, place = removed(tmp_path / str(number))
        directory = Path(git(place.folder, "rev-parse", "--absolute-git-dir"))


def test_what_git_refuses_is_put_back_where_it_was(tmp_path: Path) -> None:
    world, place = removed(tmp_path)
    wrapper = tmp_path / "bin" / "git"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in *"worktree remove"*) echo no >&2; exit 128;; esac\n'
        f'exec {shutil.which("git")} "$@"\n'
    )
    wrapper.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
        (looked,) = world.clean()
    assert looked.kept_because == ("git says: no",)
    assert (place.folder / "x.local").exists() and git(place.folder, "status", "--short") == ""
    assert world.records.all() == [place.record]
    assert_gone(world, place)


def test_a_folder_that_cannot_be_moved_is_removed_where_it_is(tmp_path: Path) -> None:
    world, place = removed(tmp_path)
    (place.folder.parent / REMOVED).write_text("a file in the way")
    assert world.kept() == {} and not place.folder.exists()
    assert world.records.all() == []
