"""What ``clean`` keeps and what it removes, with real git: nobody's work is ever lost."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from beads_workers.worktrees.removal import LeftWork, Survey, left_work, remove, tidy_run
from tests.support.repository import FORMATS, commit, git, make_repository, needs_git
from tests.support.worktrees import Place, World, person


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def place(world: World) -> Place:
    """An attempt that is over; nothing was done in it."""
    place = world.make("a")
    world.end_run()
    return place


def test_one_without_work_goes_with_its_branch_and_the_record_of_it(
    world: World, place: Place
) -> None:
    assert world.kept() == {}
    assert not place.folder.exists()
    assert world.branches() == [] and world.records.all() == []
    assert git(world.top, "worktree", "list").count("\n") == 0


def test_the_dry_run_changes_nothing(world: World, place: Place) -> None:
    (looked,) = world.clean(dry_run=True)
    assert (looked.path, looked.branch, looked.kept_because) == (place.folder, "bw/a/1", ())
    assert place.folder.exists() and world.branches() == ["bw/a/1"]


def test_one_of_a_living_run_is_in_use(world: World) -> None:
    world.make("a")
    assert world.kept() == {"bw/a/1": "in use by a running fleet"}
    world.end_run()
    assert world.kept() == {}


def test_one_whose_worker_has_moved_on_is_not(world: World) -> None:
    first = world.make("a", worker="W1")
    commit(first.folder, "work")
    world.make("b", worker="W1")
    git(world.top, "merge", "--quiet", "bw/a/1")
    assert world.kept() == {"bw/b/1": "in use by a running fleet"}
    assert not first.folder.exists()


# --- what is not committed --------------------------------------------------------------------


def modify(folder: Path) -> None:
    (folder / ".gitignore").write_text("changed\n")


def stage(folder: Path) -> None:
    (folder / "staged").write_text("x")
    git(folder, "add", "staged")


def add_untracked(folder: Path) -> None:
    (folder / "with a space").write_text("x")


def delete(folder: Path) -> None:
    (folder / ".gitignore").unlink()


def rename(folder: Path) -> None:
    git(folder, "mv", ".gitignore", "renamed")


def stash(folder: Path) -> None:
    modify(folder)
    git(folder, "stash", "push", "--quiet")


def bisect(folder: Path) -> None:
    git(folder, "bisect", "start")


def break_off_a_rebase(folder: Path) -> None:
    commit(folder, "one")
    stop = "git commit --quiet --amend -m anew; false"
    git(folder, "rebase", "--quiet", "--force-rebase", "--exec", stop, "HEAD~1", check=False)


def break_off_a_merge(folder: Path) -> None:
    commit(folder, "both", "mine")
    git(folder, "checkout", "--quiet", "-b", "theirs", "HEAD~1")
    commit(folder, "both", "theirs")
    git(folder, "merge", "--quiet", "--strategy=ours", "--no-commit", "bw/a/1")


def lock(folder: Path) -> None:
    git(folder, "worktree", "lock", "--reason", "I look at it", str(folder))


def make_folder_a_repository(folder: Path) -> None:
    git(folder, "init", "--quiet", "inner")
    commit(folder / "inner", "work")


@pytest.mark.parametrize(
    ("do", "reason"),
    [
        (modify, "1 change not committed: .gitignore"),
        (stage, "1 change not committed: staged"),
        (add_untracked, "1 change not committed: with a space"),
        (delete, "1 change not committed: .gitignore"),
        (rename, "1 change not committed: renamed"),
        (stash, "1 stash"),
        (lock, "locked by 'git worktree lock' (I look at it)"),
        (make_folder_a_repository, "1 change not committed: inner/"),
        (bisect, "a bisection is under way"),
        (break_off_a_rebase, "2 commits on no other branch; a rebase is under way"),
        (break_off_a_merge, "1 commit on no other branch; a merge is under way"),
    ],
)
def test_what_is_not_committed_keeps_it(
    world: World, place: Place, do: object, reason: str
) -> None:
    assert callable(do)
    do(place.folder)
    assert world.kept() == {"bw/a/1": reason}
    assert place.folder.exists()


def test_what_is_on_no_branch_is_counted_apart(world: World, place: Place) -> None:
    commit(place.folder, "one")
    assert not left_work(world.state).worktrees
    (place.folder / "two").write_text("x")
    (branch,), (folder,) = (left := left_work(world.state)).branches, left.worktrees
    assert branch == folder and folder.path == str(place.folder)
    git(place.folder, "stash", "--include-untracked", "--quiet")
    git(place.folder, "reset", "--hard", "--quiet", "HEAD~1")
    assert left_work(world.state) == LeftWork(worktrees=(folder,))
    git(place.folder, "stash", "drop", "--quiet")
    assert left_work(world.state) == LeftWork()
    git(place.folder, "checkout", "--detach", "--quiet")
    commit(place.folder, "three")
    assert left_work(world.state) == LeftWork(worktrees=(folder,))


def test_ignored_files_are_no_work(world: World, place: Place) -> None:
    (place.folder / "x.local").write_text("made by a build")
    assert world.kept() == {}


def test_a_worktree_without_its_git_file_is_not_taken_for_the_checkout_around_it(
    world: World, place: Place
) -> None:
    (place.folder / "work").write_text("x")
    (place.folder / ".git").unlink()
    assert world.kept()["bw/a/1"].endswith("1 change not committed: work")


def test_a_worktree_whose_git_file_is_gone_or_leads_elsewhere_stays(
    world: World, place: Place
) -> None:
    (place.folder / ".git").unlink()
    assert world.kept() == {"bw/a/1": "its .git file is gone, or leads elsewhere"}
    git(place.folder, "init", "--quiet")
    commit(place.folder, ".gitignore", ".env\n*.local\n.beads-workers/\n")
    assert "leads elsewhere" in world.kept()["bw/a/1"]


# --- what is not merged -----------------------------------------------------------------------


def test_commits_keep_it_until_another_branch_has_them(world: World, place: Place) -> None:
    commit(place.folder, "one")
    commit(place.folder, "two")
    assert world.kept() == {"bw/a/1": "2 commits on no other branch"}
    assert len(left_work(world.state).branches) == 1
    git(world.top, "merge", "--quiet", "bw/a/1")
    assert len(left_work(world.state).branches) == 0
    assert world.kept() == {}
    assert (world.top / "two").exists()


@pytest.mark.parametrize("ref", ["refs/remotes/origin/bw/a/1", "refs/tags/v1", "refs/heads/topic"])
def test_a_remote_branch_a_tag_or_any_branch_of_a_person_has_them(
    world: World, place: Place, ref: str
) -> None:
    commit(place.folder, "one")
    git(world.top, "update-ref", ref, "bw/a/1")
    assert world.kept() == {}


def test_another_branch_of_ours_does_not_count_and_both_stay(world: World) -> None:
    first = world.make("a", worker="W1")
    commit(first.folder, "one")
    second = world.make("b", worker="W2", base="bw/a/1")
    commit(second.folder, "two")
    world.end_run()
    assert set(world.kept()) == {"bw/a/1", "bw/b/1"}


def test_a_detached_head_with_commits_keeps_it(world: World, place: Place) -> None:
    git(place.folder, "checkout", "--quiet", "--detach")
    commit(place.folder, "one")
    assert world.kept() == {"bw/a/1": "1 commit on no other branch"}


def test_a_branch_that_the_agent_made_stays_when_its_worktree_goes(
    world: World, place: Place
) -> None:
    git(place.folder, "checkout", "--quiet", "-b", "topic")
    made = commit(place.folder, "one")
    assert world.kept() == {}
    assert git(world.top, "rev-parse", "topic") == made


def test_a_base_that_was_rewritten_since_is_nobodys_work(world: World, place: Place) -> None:
    git(world.top, "commit", "--quiet", "--amend", "-m", "anew")
    assert world.kept() == {}


def test_a_branch_that_a_person_looks_at_elsewhere_stays(world: World, place: Place) -> None:
    git(place.folder, "checkout", "--quiet", "--detach")
    git(world.top, "checkout", "--quiet", "bw/a/1")
    assert world.kept() == {"bw/a/1": f"its branch is checked out at {world.top}"}


# --- what is not ours, or not there any more --------------------------------------------------


def test_a_worktree_that_a_person_made_is_not_even_looked_at(world: World) -> None:
    world.end_run()
    git(world.top, "worktree", "add", "-q", "-b", "bw/mine/1", f"{world.settings.folder}/mine.1")
    assert world.clean() == []
    assert world.branches() == ["bw/mine/1"]


def test_a_persons_worktree_in_the_place_of_ours_is_left_alone(world: World, place: Place) -> None:
    git(world.top, "worktree", "remove", str(place.folder))
    git(world.top, "worktree", "add", "--quiet", str(place.folder), "bw/a/1")
    assert "git does not know this folder as ours" in world.kept()["bw/a/1"]
    assert place.folder.exists()


def test_one_that_a_person_removed_is_forgotten_and_its_branch_goes_once_merged(
    world: World, place: Place
) -> None:
    commit(place.folder, "one")
    git(world.top, "worktree", "remove", str(place.folder))
    (looked,) = world.clean()
    assert looked.path is None and looked.kept_because == ("1 commit on no other branch",)
    git(world.top, "merge", "--quiet", "bw/a/1")
    assert world.kept() == {} and world.branches() == [] and world.records.all() == []


def test_one_whose_folder_was_deleted_goes_unless_the_disk_is_only_away(
    world: World, place: Place
) -> None:
    shutil.move(world.settings.folder, f"{world.settings.folder}.away")
    assert "worktrees is not there" in world.kept()["bw/a/1"]
    shutil.move(f"{world.settings.folder}.away", world.settings.folder)
    shutil.rmtree(place.folder)
    assert world.kept() == {} and world.branches() == []


@pytest.mark.parametrize("format", FORMATS)
def test_a_commit_that_only_the_head_of_a_deleted_folder_keeps_is_kept(
    tmp_path: Path, format: str
) -> None:
    world = World(tmp_path, "", format)
    place = world.make("a")
    world.end_run()
    git(place.folder, "checkout", "--quiet", "--detach")
    commit(place.folder, "work")
    shutil.rmtree(place.folder)
    assert world.kept() == {"bw/a/1": "1 commit on no other branch"}


@needs_git(2, 48)
def test_one_that_is_linked_by_relative_paths_is_found(world: World) -> None:
    one, other = world.make("a", worker="W1"), world.make("b", worker="W2")
    git(world.top, "worktree", "repair", "--relative-paths")
    world.end_run()
    assert (one.folder / ".git").read_text().startswith("gitdir: ../")
    (other.folder / "half").write_text("done")
    assert world.kept() == {"bw/b/1": "1 change not committed: half"}
    assert not one.folder.exists()


def test_one_that_a_person_moved_is_found(world: World, place: Place) -> None:
    new = world.top.parent / "moved"
    git(world.top, "worktree", "move", str(place.folder), str(new))
    (looked,) = world.clean()
    assert looked.path == new and not new.exists()


def test_submodules_keep_it_once_they_are_filled(world: World, tmp_path: Path) -> None:
    library = tmp_path / "library"
    git(tmp_path, "init", "--quiet", str(library))
    commit(library, "code")
    allow = ("-c", "protocol.file.allow=always")
    git(world.top, *allow, "submodule", "--quiet", "add", str(library), "lib")
    git(world.top, "commit", "--quiet", "-m", "library")
    filled = world.make("a", worker="W1")
    git(filled.folder, *allow, "submodule", "--quiet", "update", "--init")
    world.make("b", worker="W2")
    world.end_run()
    assert list(world.kept()) == ["bw/a/1"]


# --- races ------------------------------------------------------------------------------------


def test_a_file_that_appears_after_the_look_is_gits_to_refuse(world: World, place: Place) -> None:
    worktree = Survey(world.records).look(place.record)
    (place.folder / "late").write_text("x")
    (why,) = remove(world.records, worktree)
    assert "git says" in why and (place.folder / "late").exists()
    assert world.records.all() == [place.record]


def test_a_commit_that_appears_after_the_look_keeps_its_branch(world: World, place: Place) -> None:
    worktree = Survey(world.records).look(place.record)
    late = commit(place.folder, "late")
    (why,) = remove(world.records, worktree)
    assert "git says" in why
    assert git(world.top, "rev-parse", "bw/a/1") == late


def test_one_that_is_being_made_is_in_use(world: World, place: Place) -> None:
    lock = os.open(world.records.folder / f"{place.record.name}.json", os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    assert world.kept() == {"bw/a/1": "in use by a running fleet"}
    os.close(lock)
    assert world.kept() == {}


def test_what_a_killed_maker_left_goes(world: World, place: Place) -> None:
    # It was killed before a task could run: half a checkout, git's own lock still in place.
    (world.records.folder / f"{place.record.name}.ready").unlink()
    (place.folder / ".gitignore").unlink()
    directory = Path(git(place.folder, "rev-parse", "--absolute-git-dir"))
    (directory / "locked").write_text("initializing")
    (directory / "beads-workers.json").unlink()
    assert world.kept() == {}
    assert not place.folder.exists() and world.branches() == []


def test_the_dry_run_says_what_is_done(world: World, tmp_path: Path) -> None:
    """One of each kind: what holds nothing, what git would refuse, and what waits for another."""
    world.make("nothing")
    (world.make("work", worker="W2").folder / "new").write_text("x\n")
    held = world.make("held", worker="W3")
    other = world.make("other", worker="W4").folder
    git(held.folder, "checkout", "--quiet", "--detach")
    git(other, "checkout", "--quiet", held.record.branch)
    module = world.make("module", worker="W5").folder
    # Filled by hand: nothing of it lies below the git directory.
    make_repository(module / "sub")
    (module / ".gitmodules").write_text('[submodule "sub"]\n\tpath = sub\n\turl = ../sub\n')
    git(module, "add", ".")
    git(module, "commit", "--quiet", "-m", "a submodule")
    git(world.top, "merge", "--quiet", "--ff-only", "bw/module/1")
    world.end_run()
    planned = world.clean(dry_run=True)
    assert planned == world.clean()
    why = {looked.record.issue_id: looked.kept_because for looked in planned}
    assert why["work"] == ("1 change not committed: new",)
    assert why["module"] == ("it holds submodules, whose commits git does not look at",)
    assert [name for name, reasons in why.items() if not reasons] == ["nothing", "other", "held"]


# --- people -----------------------------------------------------------------------------------


def test_a_person_who_stands_there_keeps_it_until_they_leave(world: World, place: Place) -> None:
    (place.folder / "below.local").mkdir()
    with person(place.folder / "below.local") as who:
        why = f"you stand in it ({who})"
        assert world.kept() == {"bw/a/1": why}
        assert tidy_run(world.state, world.run_id) == {place.record: (why,)}
        assert place.folder.exists()
    assert tidy_run(world.state, world.run_id) == {}
    assert not place.folder.exists()
