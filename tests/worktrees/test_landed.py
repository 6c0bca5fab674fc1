"""What has landed, read from the branch: whose worktrees may go, and what is left to type."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.checks import night
from beads_workers.worktrees.git import GitError, is_ancestor
from beads_workers.worktrees.landed import landed_commits, merge_command, still_landed
from beads_workers.worktrees.removal import left_work, tidy_run
from tests.support.repository import commit, git
from tests.support.worktrees import Place, World

LANDING = "refs/heads/bw-landing/main"
KEPT = {"bw/a/1": "1 commit on no other branch"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    git(world.top, "update-ref", LANDING, "main")
    return world


@pytest.fixture
def place(world: World) -> Place:
    """An attempt that is over, with one commit, which its ref keeps."""
    place = world.make("a")
    commit(place.folder, "work")
    git(world.top, "update-ref", "refs/bw/attempts/a/1", "bw/a/1")
    world.end_run()
    return place


def land(world: World, branch: str = "bw/a/1", **trailers: str) -> str:
    """As the lander squashes it: the same tree, in a commit of its own."""
    values = {"Issue": "a", "Attempt": "1", "Run": world.run_id, "Verified": "none"} | trailers
    message = "work\n\n" + "".join(f"{key}: {value}\n" for key, value in values.items() if value)
    landed = git(
        world.top, "commit-tree", f"{branch}^{{tree}}", "-p", LANDING, "-m", message.rstrip()
    )
    git(world.top, "update-ref", LANDING, landed)
    return landed


def test_the_branch_of_what_has_landed_holds_no_work_and_goes(world: World, place: Place) -> None:
    assert world.kept() == KEPT and len(left_work(world.state).branches) == 1
    land(world)
    assert len(left_work(world.state).branches) == 0
    assert world.kept() == {} and not place.folder.exists()
    assert git(world.top, "show", "refs/bw/attempts/a/1:work") == "x", "its tree is kept"


@pytest.mark.parametrize(
    "trailers",
    [{"Issue": "b"}, {"Run": "another"}, {"Attempt": "2"}, {"Verified": ""}],
    ids=["of another issue", "of another run", "of another attempt", "not the lander's"],
)
def test_the_landing_of_something_else_lets_it_stay(
    world: World, place: Place, trailers: dict[str, str]
) -> None:
    land(world, **trailers)
    assert world.kept() == KEPT and place.folder.exists()


def test_an_attempt_whose_issue_landed_from_a_later_one_goes_and_its_commits_are_kept(
    world: World, place: Place
) -> None:
    """It was killed, and left no ref; what it had not committed keeps it."""
    git(world.top, "update-ref", "-d", "refs/bw/attempts/a/1")
    left = git(world.top, "rev-parse", "bw/a/1")
    git(world.top, "update-ref", "refs/bw/attempts/a/2", "main")
    land(world, Attempt="2", Run="another")
    (place.folder / "loose").write_text("x")
    assert world.kept() == {"bw/a/1": "1 change not committed: loose"}
    (place.folder / "loose").unlink()
    tidy_run(world.state, "another")
    assert world.branches() == [] and not place.folder.exists()
    assert git(world.top, "rev-parse", "refs/bw/attempts/a/1") == left


def test_an_attempt_whose_number_landed_from_another_one_goes_and_its_commits_are_kept(
    world: World, place: Place
) -> None:
    """It was killed and not charged, so the next one had its number, and has the ref now."""
    left = git(world.top, "rev-parse", "bw/a/1")
    other = git(world.top, "commit-tree", "main^{tree}", "-p", "main", "-m", "again")
    git(world.top, "update-ref", "refs/bw/attempts/a/1", other)
    land(world, other, Run="another")
    tidy_run(world.state, "another")
    assert world.branches() == [] and not place.folder.exists()
    assert git(world.top, "rev-parse", f"refs/bw/attempts/a/1.{left[:12]}") == left
    assert git(world.top, "rev-parse", "refs/bw/attempts/a/1") == other


def test_what_was_committed_after_it_landed_is_work(world: World, place: Place) -> None:
    land(world)
    commit(place.folder, "later")
    assert world.kept() == {"bw/a/1": "2 commits on no other branch"}
    assert len(left_work(world.state).branches) == 1


def test_what_is_not_committed_keeps_the_worktree_though_its_branch_has_landed(
    world: World, place: Place
) -> None:
    land(world)
    (place.folder / "loose").write_text("x")
    assert world.kept() == {"bw/a/1": "1 change not committed: loose"}


def test_without_the_ref_of_the_attempt_the_branch_stays(world: World, place: Place) -> None:
    land(world)
    git(world.top, "update-ref", "-d", "refs/bw/attempts/a/1")
    assert world.kept() == KEPT and place.folder.exists()


def test_what_was_taken_back_is_work_again(world: World, place: Place) -> None:
    landed = land(world)
    land(world, "main", Issue="", Attempt="", Undoes=landed)
    (undone, first) = landed_commits(str(world.top), "main", [LANDING])
    assert undone.undoes == (landed,) and first.commit == landed
    assert still_landed([undone, first]) == []
    assert world.kept() == KEPT and place.folder.exists()


def test_a_number_that_is_given_again_after_a_landing_is_another_attempt(
    world: World, place: Place
) -> None:
    landed = land(world)
    again = world.make("a", base=LANDING)
    assert again.record.base == landed and again.record.branch == "bw/a/1"
    commit(again.folder, "more")
    git(world.top, "update-ref", "refs/bw/attempts/a/1", "bw/a/1")
    assert world.kept() == KEPT and again.folder.exists()


def test_a_later_run_tidies_what_it_landed_of_an_earlier_one_and_nothing_else(
    world: World, place: Place
) -> None:
    other = world.make("b", worker="W2")
    commit(other.folder, "other")
    git(world.top, "update-ref", "refs/bw/attempts/b/1", "bw/b/1")
    land(world)
    tidy_run(world.state, "a later run")
    assert world.branches() == ["bw/b/1"] and other.folder.exists()
    assert not place.folder.exists()


# --- what is left to type -------------------------------------------------------------------------


def test_the_command_that_brings_what_landed_to_the_users_branch(
    world: World, place: Place
) -> None:
    def command() -> str:
        return merge_command(str(world.top), "bw-landing/main")

    assert command() == "", "nothing has landed"
    land(world)
    assert command() == "git merge --ff-only bw-landing/main"
    git(world.top, "switch", "--quiet", "-c", "topic")
    assert command() == "git fetch . bw-landing/main:main"
    git(world.top, *command().split()[1:])
    assert command() == "" and git(world.top, "rev-parse", "main") == git(
        world.top, "rev-parse", LANDING
    )


def test_a_branch_that_went_its_own_way_is_merged(world: World, place: Place) -> None:
    land(world)
    commit(world.top, "mine")
    assert merge_command(str(world.top), "bw-landing/main") == "git merge bw-landing/main"
    git(world.top, "checkout", "--quiet", "--detach")
    assert merge_command(str(world.top), "bw-landing/main") == (
        "git switch main && git merge bw-landing/main"
    )


def test_there_may_be_neither_branch(world: World) -> None:
    assert merge_command(str(world.top), "bw-landing/none") == ""
    git(world.top, "branch", "bw-landing/gone", "main")
    assert merge_command(str(world.top), "bw-landing/gone") == "git branch gone bw-landing/gone"


# --- the user's branch is there, or not -----------------------------------------------------------


def test_a_question_about_a_ref_has_three_answers(world: World) -> None:
    one = git(world.top, "rev-parse", "main")
    two = commit(world.top, "two")
    git(world.top, "branch", "foo", two)
    asked = [
        (one, two, True),
        (two, one, False),
        (one, "refs/heads/none", None),
        ("0" * 40, one, None),
    ]
    for first, second, answer in asked:
        assert is_ancestor(str(world.top), first, second) is answer, (first, second)
    with pytest.raises(GitError):
        is_ancestor(str(world.top.parent), one, two)


@pytest.mark.parametrize("then", [("-D", "foo"), ("-m", "foo", "bar")], ids=["deleted", "renamed"])
def test_a_merged_feature_branch_that_is_gone_ends_its_night(
    world: World, then: tuple[str, ...]
) -> None:
    git(world.top, "checkout", "-q", "-b", "foo")
    landed = {"into": None, "branch": "bw-landing/foo", "tip": commit(world.top, "f")}
    git(world.top, "update-ref", "refs/heads/bw-landing/foo", landed["tip"] or "")
    git(world.top, "checkout", "-q", "main")
    git(world.top, "branch", "-m", "foo", "kept")
    git(world.top, "branch", "-D", "kept")
    assert not night._is_merged(str(world.top), landed), "only our own branch has it"
    git(world.top, "branch", "foo", "bw-landing/foo")
    git(world.top, "merge", "-q", "--no-edit", "foo")
    git(world.top, "branch", *then)
    assert night._is_merged(str(world.top), landed)
