"""The attempt's branch is read from its file, and git is asked whenever that does not tell."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from beads_workers.attempts.git_calls import Git
from beads_workers.attempts.own_branch import BranchNow, OwnBranch
from beads_workers.worktrees import ref_files
from beads_workers.worktrees.git import answers, questions
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


# --- names that are free, reflogs, places ---------------------------------------------------------


def test_a_name_is_free_only_if_git_knows_no_ref_there_or_below(own: OwnBranch) -> None:
    common = own.common
    git(worktree(own), "branch", "bw/loose/1")
    for number in (1, 2):
        git(worktree(own), "branch", f"bw/packed/{number}/x")
    git(worktree(own), "pack-refs", "--all")
    git(worktree(own), "branch", "bw/late/1")
    names = ("loose/1", "loose", "packed/1", "packed/1/x", "late/1", "late", "packed", "lo", "x/1")
    for name in names:
        ref = f"refs/heads/bw/{name}"
        known = git(worktree(own), "for-each-ref", ref) != ""
        assert not (ref_files.is_free(common, ref) and known), name
        assert ref_files.is_free(common, ref) or known or (common / ref).exists(), name
    (common / "reftable").mkdir()
    assert not ref_files.is_free(common, "refs/heads/bw/x/1")


def test_a_reflog_is_what_git_says_of_it(own: OwnBranch) -> None:
    for number in range(3):
        commit(worktree(own), "cart.py", f"total = {number + 1}\n")
    ref = f"refs/heads/{BRANCH}"
    git(worktree(own), "update-ref", "-m", "landing: é\tof two", ref, "HEAD~1")
    said = git(worktree(own), "log", "-g", "--format=%H %gs", ref).splitlines()
    read = ref_files.reflog(own.common, ref)
    assert read is not None
    assert [f"{move.commit} {move.why}" for move in read] == said
    assert ref_files.reflog(own.common, "refs/heads/none") is None
    (own.common / "logs" / ref).write_text("no reflog\n")
    assert ref_files.reflog(own.common, ref) is None


def test_the_places_of_a_linked_worktree_are_what_git_says(own: OwnBranch, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(worktree(own))
    asked = questions("--absolute-git-dir", "--git-common-dir", "--show-toplevel")
    for folder in (worktree(own), tmp_path / "link"):
        assert ref_files.places(folder) == tuple(answers(git(folder, *asked), 3))


def test_a_branch_is_nowhere_checked_out_only_if_no_head_names_it(own: OwnBranch) -> None:
    main, mine = git(own.common.parent, "symbolic-ref", "HEAD"), f"refs/heads/{BRANCH}"
    git(worktree(own), "branch", "free")
    for ref, held in ((main, True), (mine, True), ("refs/heads/free", False)):
        assert ref_files.is_nowhere_checked_out(own.common, ref) is not held, ref
    git(worktree(own), "switch", "-q", "--detach")
    assert ref_files.is_nowhere_checked_out(own.common, mine)
    head = own.directory / "HEAD"
    head.unlink()
    head.symlink_to(own.common / mine)
    assert not ref_files.is_nowhere_checked_out(own.common, mine), "only git can tell"
    assert not ref_files.is_nowhere_checked_out(own.common, "refs/heads/free")


@pytest.mark.parametrize(
    "change",
    [
        lambda own: (own.directory / "config.worktree").touch(),
        lambda own: (own.directory / "gitdir").write_text("/elsewhere/.git\n"),
        lambda own: (worktree(own) / ".git").write_text(f"gitdir: {own.common}\n"),
        lambda own: (worktree(own) / ".git").unlink(),
        lambda own: (own.directory / "commondir").write_text(".\n"),
    ],
)
def test_git_is_asked_for_places_that_are_not_as_it_made_them(
    own: OwnBranch, change: Callable[[OwnBranch], object]
) -> None:
    assert ref_files.places(worktree(own)) is not None
    change(own)
    assert ref_files.places(worktree(own)) is None
    assert ref_files.places(own.common.parent) is None


def test_all_refs_are_those_that_git_lists(own: OwnBranch, tmp_path: Path) -> None:
    checkout, worktree, directory = tmp_path / "checkout", tmp_path / "worktree", own.directory

    def listed() -> dict[str, str]:
        rows = git(worktree, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return dict(row.split(" ") for row in rows)

    head = git(checkout, "rev-parse", "HEAD")
    git(checkout, "tag", "-a", "-m", "one", "v1")
    git(checkout, "update-ref", "refs/remotes/origin/main", head)
    git(checkout, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    git(checkout, "symbolic-ref", "refs/remotes/origin/gone", "refs/remotes/origin/nothing")
    git(checkout, "update-ref", "refs/bisect/of-the-checkout", head)
    git(worktree, "update-ref", "refs/worktree/own", head)
    git(worktree, "update-ref", "refs/stash", head)
    assert ref_files.all_refs(directory) == listed()
    git(checkout, "pack-refs", "--all")
    git(checkout, "branch", "later")
    commit(checkout, "cart.py", "total = 1\n")
    git(checkout, "update-ref", "-d", "refs/remotes/origin/main")
    (checkout / ".git/refs/heads/x.lock").write_text("half")
    assert ref_files.all_refs(directory) == listed()
    assert "refs/heads/x.lock" not in listed()
    broken = checkout / ".git/refs/heads/broken"
    broken.write_text("half")
    assert ref_files.all_refs(directory) is None, "git is asked"
    broken.unlink()
    assert ref_files.all_refs(tmp_path) is None, "no worktree"
