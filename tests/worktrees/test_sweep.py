"""Files of removed worktrees are deleted by somebody whom nobody waits for."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from beads_workers.worktrees.removal import tidy_run
from beads_workers.worktrees.sweep import GONE, REMOVED, delete_all, given_up, sweep
from tests.support import warm
from tests.support.fleet import until
from tests.support.repository import git
from tests.support.worktrees import Place, World


def program(folder: Path, name: str, text: str) -> None:
    """A program that stands in for another one."""
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


@pytest.fixture
def before_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose programs are found before all others."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def place(world: World) -> Place:
    """A worktree without work of a run that is over; set-up left a read-only folder in it."""
    place = world.make("a")
    inner = place.folder / "cache.local"
    inner.mkdir()
    (inner / "file").write_text("made by a build")
    inner.chmod(0o500)
    world.end_run()
    return place


def clean(world: World, *options: str) -> str:
    done = warm.run(("clean", *options), world.project, os.environ, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def set_aside(place: Place) -> Path:
    return place.folder.parent / REMOVED / f"{place.record.token}{GONE}"


def test_the_end_of_a_run_does_not_wait_until_the_files_are_deleted(
    world: World, place: Place, tmp_path: Path, before_others: Path
) -> None:
    let = tmp_path / "let"
    waits = f"until [ -e {let} ]; do sleep 0.01; done"
    program(before_others, "rm", f'{waits}\nexec /bin/rm "$@"')
    assert tidy_run(world.state, world.run_id) == {}
    assert not place.folder.exists() and world.records.all() == [] and world.branches() == []
    assert git(world.top, "worktree", "list").count("\n") == 0
    assert given_up(world.records) == [set_aside(place)]
    assert (set_aside(place) / "cache.local" / "file").exists()
    let.touch()
    world.swept()
    assert given_up(world.records) == []


def test_what_a_killed_sweep_has_left_the_next_one_deletes(
    world: World, place: Place, before_others: Path
) -> None:
    told = before_others / "told"
    # The same as KILL to the sweep: it comes no further.
    program(before_others, "rm", f": >{told}; kill -KILL $PPID")
    tidy_run(world.state, world.run_id)
    until(told.exists)
    assert given_up(world.records) == [set_aside(place)]
    (before_others / "rm").unlink()
    sweep(world.records)
    world.swept()
    assert given_up(world.records) == []


def test_a_removal_that_was_killed_before_its_record_was_forgotten_is_finished_by_the_next(
    world: World, place: Place
) -> None:
    set_aside(place).parent.mkdir()
    place.folder.rename(set_aside(place))
    git(world.top, "worktree", "prune")
    tidy_run(world.state, world.run_id)
    assert world.records.all() == []
    world.swept()


def test_a_note_of_another_folder_is_not_obeyed(world: World, tmp_path: Path) -> None:
    kept = tmp_path / "kept" / "a.gone"
    kept.mkdir(parents=True)
    for name, to in (("a.gone", kept), ("b.gone", tmp_path / REMOVED / "c.gone")):
        to.mkdir(parents=True, exist_ok=True)
        world.records.folder.mkdir(exist_ok=True)
        (world.records.folder / name).write_text(str(to))
    assert given_up(world.records) == [] and delete_all(world.records) == {}
    assert kept.exists()


def test_clean_deletes_it_at_once_and_names_what_it_cannot_delete(
    world: World, place: Place, before_others: Path
) -> None:
    program(before_others, "rm", "exit 1")
    program(before_others, "find", "exit 1")
    told = before_others / "told"
    program(before_others, "rmdir", f": >{told}")  # The last that a sweep does.
    tidy_run(world.state, world.run_id)
    until(told.exists)
    (before_others / "rm").unlink()
    of = set_aside(place)
    assert f"would remove {of}" in clean(world, "--dry-run")
    assert of.exists()
    of.rename(of.with_suffix(".away"))
    of.write_text("no folder, which stands for one that root owns")
    (row,) = json.loads(clean(world, "--json"))["worktrees"]
    assert (row["path"], row["reasons"]) == (str(of), [f"{of}: Not a directory"])
    assert f"kept removed worktree {of}: " in clean(world)
    of.unlink()
    of.with_suffix(".away").rename(of)
    assert f"removed {of}" in clean(world)
    assert not of.parent.exists() and given_up(world.records) == []
