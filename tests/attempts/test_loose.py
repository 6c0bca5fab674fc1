"""The attempt's branch is read from its file, and git is asked whenever that does not tell."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from beads_workers.attempts.git_calls import Git
from beads_workers.attempts.own_branch import BranchNow, OwnBranch
from tests.support.repository import commit, git, make_repository

BRANCH = "bw/i-1/1"


class Asked(Git):
    """git that counts its calls."""

    calls: list[str] = []  # noqa: RUF012 - one test at a time

    def once(self, *arguments: str, **others: object) -> object:  # type: ignore[override]
        self.calls.append(arguments[0])
        return super().once(*arguments, **others)  # type: ignore[arg-type]


@pytest.fixture
def own(tmp_path: Path) -> OwnBranch:
    Asked.calls.clear()
    checkout = make_repository(tmp_path / "checkout")
    commit(checkout, "cart.py", "total = 0\n")
    folder = tmp_path / "worktree"
    git(checkout, "worktree", "add", "-q", "-b", BRANCH, str(folder))
    directory = Path(git(folder, "rev-parse", "--absolute-git-dir"))
    base = git(folder, "rev-parse", "HEAD")
    return OwnBranch(Asked(str(folder)), BRANCH, {}, base, directory, checkout / ".git")


def worktree(own: OwnBranch) -> Path:
    return Path(own.git.folder)


def test_a_branch_in_a_file_of_its_own_is_read_without_git(own: OwnBranch) -> None:
    made = commit(worktree(own), "cart.py", "total = 1\n")
    assert own.look() == BranchNow(made, checked_out=True)
    assert own.tip == made
    assert Asked.calls == []


def test_packed_refs_are_read_by_git(own: OwnBranch) -> None:
    git(worktree(own), "pack-refs", "--all")
    assert own.look() == BranchNow(own.tip, checked_out=True)
    assert Asked.calls == ["for-each-ref"]


def test_a_head_elsewhere_is_read_by_git(own: OwnBranch) -> None:
    git(worktree(own), "checkout", "-q", "--detach")
    assert own.look() == BranchNow(own.tip)
    git(worktree(own), "checkout", "-q", "-b", "other")
    assert own.look() == BranchNow(own.tip)


def test_a_branch_that_is_gone_keeps_its_last_known_commit(own: OwnBranch) -> None:
    made = commit(worktree(own), "cart.py", "total = 1\n")
    own.look()
    git(worktree(own), "update-ref", "-d", own.ref)
    assert own.look() == BranchNow()
    assert own.tip == made


def test_a_symbolic_branch_is_read_by_git(own: OwnBranch) -> None:
    made = commit(worktree(own), "cart.py", "total = 1\n")
    git(worktree(own), "branch", "real", made)
    git(worktree(own), "symbolic-ref", own.ref, "refs/heads/real")
    assert own.look().commit == made
    assert Asked.calls == ["for-each-ref"]


@pytest.mark.parametrize("of", ["the branch", "HEAD"])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(own: OwnBranch, of: str) -> None:
    """Only git's own time limit counts there."""
    place = own.common / own.ref if of == "the branch" else own.directory / "HEAD"
    place.unlink()
    os.mkfifo(place)
    stalled = OwnBranch(
        Asked(str(worktree(own)), 0.5), BRANCH, {}, own.tip, own.directory, own.common
    )
    with pytest.raises(Exception, match=r"took longer|not a git repository"):
        stalled.look()


def test_a_link_in_the_place_of_a_branch_is_read_by_git(own: OwnBranch) -> None:
    place = own.common / own.ref
    elsewhere = worktree(own) / "commit"
    place.rename(elsewhere)
    place.symlink_to(elsewhere)
    own.look()
    assert Asked.calls == ["for-each-ref"]
