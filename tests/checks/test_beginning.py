"""Where attempts begin: what has landed, and what the user has committed since."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.checks.beginning import Beginning, find_beginning, unmerged
from beads_workers.checks.rules import Grade
from beads_workers.core.base.settings import Landing, Worktrees
from tests.support.repository import commit, git, make_repository

BRANCH = "bw-landing/main"


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Last night's work is on the landing branch, and ``main`` has not moved."""
    top = make_repository(tmp_path / "r")
    git(top, "checkout", "--quiet", "-b", BRANCH)
    commit(top, "landed", "night\n")
    git(top, "checkout", "--quiet", "main")
    return top


def look(top: Path) -> tuple[Landing, Worktrees]:
    start = git(top, "rev-parse", "main")
    where = Worktrees(
        checkout=str(top), prefix="", common=str(top / ".git"), folder=str(top.parent / "w"),
        state_directory="s", base=f"refs/heads/{BRANCH}", base_name=BRANCH, base_else=start,
    )  # fmt: skip
    return Landing(BRANCH, start, "main"), where


def beginning(top: Path) -> Beginning:
    found = find_beginning(*look(top))
    assert isinstance(found, Beginning)
    return found


def test_it_is_what_has_landed_or_what_was_committed_on_top_of_that(top: Path) -> None:
    assert beginning(top) == Beginning(git(top, "rev-parse", BRANCH), BRANCH)
    git(top, "merge", "--quiet", "--ff-only", BRANCH)
    mine = commit(top, "morning")
    assert beginning(top) == Beginning(mine, "main")


def test_if_both_have_moved_it_is_the_merge_of_both_and_no_ref_moves(top: Path) -> None:
    commit(top, "morning")
    refs, head = git(top, "for-each-ref"), (top / ".git" / "HEAD").read_text()
    found = beginning(top)
    assert found.name == f"main merged with {BRANCH}"
    names = git(top, "ls-tree", "--name-only", found.commit).split()
    assert names == [".gitignore", "landed", "morning"]
    assert unmerged(*look(top)) is None
    assert (git(top, "for-each-ref"), (top / ".git" / "HEAD").read_text()) == (refs, head)
    assert git(top, "status", "--porcelain") == ""


def test_what_does_not_merge_is_refused_with_the_files_and_the_command(top: Path) -> None:
    mine = commit(top, "landed", "morning\n")
    found = unmerged(*look(top))
    assert found is not None and found.status is Grade.FAIL
    assert f"main at {mine[:12]} does not merge with {BRANCH}" in found.text
    assert found.text.endswith(": landed") and found.remedy == f"git merge {BRANCH}"


def test_without_a_branch_of_the_users_there_is_nothing_to_merge(top: Path) -> None:
    commit(top, "landed", "morning\n")
    landing, where = look(top)
    assert unmerged(Landing(BRANCH, landing.start), where) is None
