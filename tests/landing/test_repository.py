"""The integration branch and how it moves, on real repositories."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from beads_workers.core.records.landing import Into
from beads_workers.landing.repository import (
    PINS,
    CannotLand,
    Held,
    LandingRepository,
    Moved,
    landing_folder,
)
from beads_workers.landing.scratch_merges import Coupled, Passenger
from beads_workers.worktrees.git import GitError
from tests.landing.world import BRANCH, LandingWorld
from tests.support.repository import git


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LandingWorld:
    return LandingWorld(tmp_path, monkeypatch)


def land(repository: LandingRepository, passenger: Passenger, on: str = "") -> str:
    """It lands alone."""
    tip = on or repository.tip()
    found = repository.builder.couple(tip, passenger)
    assert isinstance(found, Coupled)
    return repository.land(tip, [found.changes])[0]


# --- the branch -----------------------------------------------------------------------------------


def test_the_branch_is_made_once_and_the_runs_beginning_is_kept(world: LandingWorld) -> None:
    repository = world.repository()
    assert world.tip() == world.start
    land(repository, world.work("a", {"a": "1"}))
    tip = world.tip()
    assert world.repository().tip() == tip
    assert git(world.top, "rev-parse", "refs/bw/runs/run-1") == world.start
    again = LandingRepository(replace(world.settings(), run_id="run:2"))
    again.open()
    assert git(world.top, "rev-parse", "refs/bw/runs/run%3A2") == tip


def test_a_branch_in_the_way_and_a_start_that_is_gone_are_said(world: LandingWorld) -> None:
    git(world.top, "branch", "bw-landing")
    with pytest.raises(CannotLand, match=r"bw-landing/main cannot be made: .*bw-landing"):
        world.repository()
    with pytest.raises(CannotLand, match="no such commit: nothing"):
        world.repository(branch="other", start="nothing")


def test_an_integration_branch_in_the_way_goes_once_a_branch_of_the_user_has_all_of_it(
    world: LandingWorld,
) -> None:
    git(world.top, "branch", "foo")
    foo = world.repository(branch="bw-landing/foo", follows="foo")
    land(foo, world.work("a", {"a": "1"}))
    for command in (("branch", "-D", "foo"), ("merge", "-q", "bw-landing/foo")):
        with pytest.raises(CannotLand, match="a branch bw-landing/foo is in its way"):
            world.repository(branch="bw-landing/foo/bar")
        git(world.top, *command)
    world.repository(branch="bw-landing/foo/bar")
    assert not git(world.top, "branch", "--list", "bw-landing/foo")


def test_issues_called_like_branches_or_unlike_any_have_theirs(world: LandingWorld) -> None:
    """Trap 6: our branch is not below ``bw/``."""
    repository = world.repository()
    for issue_id in ("main", "a..b", "x.lock", "ä/b c"):
        land(repository, world.work(issue_id, {"file": issue_id}, world.tip()))
        (found, *_) = repository.landed(world.start, world.tip())
        assert found.issue_id == issue_id


def test_the_users_checkout_does_not_notice(world: LandingWorld) -> None:
    (world.top / "untracked").write_text("mine")
    (world.top / ".gitignore").write_text("changed")
    before, seen = world.checkout_digest(), git(world.top, "status", "--porcelain")
    repository = world.repository()
    land(repository, world.work("a", {"a": "1", ".gitignore": "new"}))
    assert world.checkout_digest() == before
    assert git(world.top, "status", "--porcelain") == seen


def test_gates_work_outside_of_the_checkout(world: LandingWorld) -> None:
    worktrees = world.settings().worktrees
    assert landing_folder(worktrees) == world.folder / "worktrees.landing"
    inside = replace(worktrees, folder=f"{world.top}/.beads-workers/worktrees")
    assert not landing_folder(inside).is_relative_to(world.top)


# --- what has landed ------------------------------------------------------------------------------


def test_what_has_landed_is_found_again(world: LandingWorld) -> None:
    repository = world.repository()
    add = world.work("a", {"a": "1"})
    assert repository.landed_as(add, repository.tip()) is None
    sha = land(repository, add)
    land(repository, world.work("b", {"b": "1"}))
    found = repository.landed_as(add, repository.tip())
    assert found is not None and found.commit == sha
    assert [each.issue_id for each in repository.landed(world.start, sha, ["a"])] == ["a"]
    assert list(repository.landed(world.start, sha, ["b"])) == []
    assert repository.landed_as(replace(add, attempt=2), repository.tip()) is None
    later = replace(add, base=repository.tip())
    assert repository.landed_as(later, repository.tip()) is None


def test_what_was_undone_may_land_again(world: LandingWorld) -> None:
    repository = world.repository()
    add = world.work("a", {"a": "1"})
    sha = land(repository, add)
    git(world.desk, "checkout", "-q", "--detach", sha)
    git(world.desk, "revert", "--no-edit", sha)
    message = f"Undo\n\nIssue: a\nUndoes: {sha}\nVerified: none"
    git(world.desk, "commit", "-q", "--amend", "-m", message)
    git(world.top, "update-ref", f"refs/heads/{BRANCH}", git(world.desk, "rev-parse", "HEAD"))
    assert repository.landed_as(add, repository.tip()) is None


def test_a_commit_that_is_not_there_or_has_no_full_name_is_no_branch(world: LandingWorld) -> None:
    repository = world.repository()
    add = world.work("a", {"a": "1"})
    assert not repository.contains(add, repository.tip())
    tree = git(world.top, "rev-parse", "HEAD^{tree}")
    for name in ("0" * 40, "main", "--help", tree):
        for one in (replace(add, commit=name), replace(add, base=name)):
            with pytest.raises(GitError, match=f"no commit {name}"):
                repository.contains(one, repository.tip())


def test_a_branch_that_somebody_has_brought_in_since_is_contained(world: LandingWorld) -> None:
    repository = world.repository()
    add = world.work("a", {"a": "1"})
    assert not repository.contains(add, repository.tip())
    git(world.top, "update-ref", f"refs/heads/{BRANCH}", add.commit)
    assert repository.objects.contains(repository.tip(), add.base), "and that is known now"
    assert repository.contains(add, repository.tip())


def test_a_shallow_clone_lands_what_began_in_it_and_says_what_it_cannot(
    world: LandingWorld,
) -> None:
    """Trap 12."""
    for number in range(3):
        world.main({"n": str(number)})
    origin = f"file://{world.top}"
    git(world.folder, "clone", "-q", "--depth", "1", origin, str(world.folder / "shallow"))
    shallow = LandingWorld(world.folder / "of-shallow")
    shallow.top, shallow.start = world.folder / "shallow", world.start
    git(shallow.top, "worktree", "add", "-q", "--detach", str(world.folder / "desk2"))
    shallow.desk = world.folder / "desk2"
    repository = shallow.repository()
    land(repository, shallow.work("a", {"a": "1"}))
    git(shallow.desk, "checkout", "-q", "--orphan", "other")
    stranger = shallow.commit(shallow.desk, {"x": "1"})
    add = replace(shallow.work("b", {"b": "1"}), commit=stranger)
    with pytest.raises(GitError, match="fetch --unshallow"):
        repository.contains(add, repository.tip())


# --- moving ---------------------------------------------------------------------------------------


def test_a_branch_that_has_moved_meanwhile_is_not_moved_over(world: LandingWorld) -> None:
    repository = world.repository()
    old = repository.tip()
    land(repository, world.work("a", {"a": "1"}))
    tip = repository.tip()
    with pytest.raises(Moved):
        land(repository, world.work("b", {"b": "1"}), on=old)
    assert world.tip() == tip


def test_a_branch_that_a_worktree_has_checked_out_is_held(world: LandingWorld) -> None:
    """Trap 5."""
    repository = world.repository()
    place = world.folder / "other"
    git(world.top, "worktree", "add", "-q", str(place), BRANCH)
    with pytest.raises(Held, match=str(place)):
        land(repository, world.work("a", {"a": "1"}))
    assert git(place, "status", "--porcelain") == ""
    git(place, "checkout", "-q", "--detach")
    land(repository, world.work("a", {"a": "1"}))


def test_a_train_survives_the_garbage_collection(world: LandingWorld) -> None:
    """Trap 13."""
    repository = world.repository()
    found = repository.builder.couple(repository.tip(), world.work("a", {"a": "1"}))
    assert isinstance(found, Coupled)
    repository.pin(found.commit)
    git(world.top, "gc", "--quiet", "--prune=now")
    assert git(world.top, "cat-file", "-t", found.commit) == "commit"
    repository.unpin()
    git(world.top, "gc", "--quiet", "--prune=now")
    assert git(world.top, "cat-file", "-t", found.commit, check=False) == ""


def test_a_train_that_is_the_only_one_takes_the_place_of_the_others(world: LandingWorld) -> None:
    repository = world.repository()
    trains = []
    for name in "abc":
        found = repository.builder.couple(repository.tip(), world.work(name, {name: "1"}))
        assert isinstance(found, Coupled)
        trains.append(found.commit)

    def pinned() -> set[str]:
        return set(git(world.top, "for-each-ref", "--format=%(objectname)", PINS).split())

    for train in trains[:2]:
        repository.pin(train)
    assert pinned() == {*trains[:2]}
    for train in (trains[1], trains[2], trains[2]):
        repository.pin(train, only=True)
        assert pinned() == {train}
    repository.unpin()
    assert pinned() == set()


def test_a_signing_program_that_fails_lands_nothing(world: LandingWorld) -> None:
    repository = world.repository()
    add = world.work("a", {"a": "1"})
    git(world.top, "config", "commit.gpgSign", "true")
    git(world.top, "config", "gpg.program", "/bin/false")
    with pytest.raises(GitError, match="sign"):
        land(repository, add)
    assert world.tip() == world.start


# --- into the user's branch -----------------------------------------------------------------------


def test_the_users_branch_moves_forward_where_nobody_has_it(world: LandingWorld) -> None:
    git(world.top, "checkout", "-q", "-b", "elsewhere")
    repository = world.repository(into="main")
    land(repository, world.work("a", {"a": "1"}))
    assert repository.move_into(world.tip()) == Into("main", world.tip())
    assert git(world.top, "rev-parse", "main") == world.tip()
    assert repository.move_into(world.tip()) is None


def test_a_clean_checkout_of_it_moves_along_and_a_changed_one_does_not(world: LandingWorld) -> None:
    world.main({".beads/issues.jsonl": "1\n"})
    repository = world.repository(into="main")
    land(repository, world.work("a", {"a": "1"}))
    (world.top / ".beads/issues.jsonl").write_text("the tracker's\n")
    assert repository.move_into(world.tip()) == Into("main", world.tip())
    assert (world.top / "a").read_text() == "1"
    assert (world.top / ".beads/issues.jsonl").read_text() == "the tracker's\n"
    tip = world.tip()
    land(repository, world.work("b", {"b": "1"}))
    (world.top / "a").write_text("mine")
    moved = repository.move_into(world.tip())
    assert moved is not None and moved.commit == tip
    assert moved.why == f"it is checked out in {world.top}, with changes: a"
    assert moved.command == f"git -C {world.top} merge --ff-only {BRANCH}"
    assert (world.top / "a").read_text() == "mine" and not (world.top / "b").exists()


def test_a_branch_with_commits_of_its_own_is_not_moved(world: LandingWorld) -> None:
    repository = world.repository(into="main")
    land(repository, world.work("a", {"a": "1"}))
    mine = world.main({"mine": "1"})
    moved = repository.move_into(world.tip())
    assert moved is not None and "not on bw-landing/main" in moved.why and moved.commit == mine
    assert git(world.top, "rev-parse", "main") == mine
