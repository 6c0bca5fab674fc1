"""A project that was renamed, moved or copied, and its worktrees."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from beads_workers.checks.worktrees import of_another_place
from beads_workers.core.base.settings import Worktrees
from beads_workers.worktrees.records import Records
from beads_workers.worktrees.relocation import lead_back, moved
from beads_workers.worktrees.removal import clean
from tests.support.repository import git
from tests.support.worktrees import World


def moved_settings(settings: Worktrees, top: Path) -> Worktrees:
    """The same where the project is now."""
    state, common = str(top / ".beads-workers"), str(top / ".git")
    return replace(settings, checkout=str(top), common=common, state_directory=state)


def cleaned(settings: Worktrees, *, dry_run: bool) -> dict[str, tuple[str, ...]]:
    records = Records(Path(settings.state_directory))
    lead_back(records, Path(settings.checkout), settings.common)
    found = clean(records.state_directory, dry_run=dry_run)
    return {looked.record.name: looked.kept_because for looked in found}


@pytest.mark.parametrize("inside", [True, False])
def test_worktrees_of_a_project_that_was_moved_are_known_again(
    inside: bool, tmp_path: Path
) -> None:
    world = World(tmp_path)
    if not inside:
        world.settings = replace(world.settings, folder=str(tmp_path / "elsewhere"))
    world.make("empty", worker="W2")
    (world.make("a").folder / "work").write_text("x\n")
    world.end_run()
    settings = moved_settings(world.settings, world.top.rename(tmp_path / "renamed"))
    records = Records(Path(settings.state_directory))
    written = records.written_at(records.all()[0])
    warning = of_another_place(settings)
    assert warning is not None and "2 attempts lead to where the project was" in warning.text
    kept = ("1 change not committed: work",)
    assert cleaned(settings, dry_run=True) == {"a.1": kept, "empty.1": ()}
    assert cleaned(settings, dry_run=False) == {"a.1": kept, "empty.1": ()}
    (record,) = records.all()
    assert (record.name, records.written_at(record)) == ("a.1", written)
    assert git(Path(record.path), "status", "--porcelain") == "?? work"
    assert git(Path(record.path), "rev-parse", "--show-toplevel") == record.path
    assert record.path in git(Path(settings.checkout), "worktree", "list", "--porcelain")
    assert of_another_place(settings) is None


def test_a_copy_leaves_the_worktrees_to_the_project_that_it_was_copied_from(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.settings = replace(world.settings, folder=str(tmp_path / "elsewhere"))
    folder = world.make("a").folder
    (folder / "work").write_text("x\n")
    world.end_run()
    copied = moved_settings(world.settings, shutil.copytree(world.top, tmp_path / "copy"))
    assert moved(Records(Path(copied.state_directory)), copied.common) == []
    cleaned(copied, dry_run=False)
    assert git(folder, "rev-parse", "--path-format=absolute", "--git-common-dir") == str(
        world.top / ".git"
    )
