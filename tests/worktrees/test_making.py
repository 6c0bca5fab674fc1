"""Where an attempt begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.core.base.settings import Worktrees
from beads_workers.worktrees.git import GitError
from beads_workers.worktrees.making import base_of, find_base
from tests.support.killed_git import kill_git
from tests.support.repository import commit, git, make_repository


@pytest.mark.parametrize("word", ["show-ref", "rev-parse"])
def test_a_killed_git_has_no_attempt_begin_where_nothing_has_landed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    """Nor has it take a tag for the branch of its name."""
    top = make_repository(tmp_path / "r")
    start = git(top, "rev-parse", "HEAD")
    git(top, "tag", "landed")
    git(top, "switch", "-q", "-c", "landed")
    tip = commit(top, "a")
    folder = str(top)
    settings = Worktrees(folder, "", f"{folder}/.git", "", "", "landed", "landed", base_else=start)
    assert base_of(settings) == find_base(folder, "landed") == tip
    kill_git(monkeypatch, tmp_path, word)
    with pytest.raises(GitError):
        base_of(settings)


def test_head_is_what_is_checked_out_and_no_branch_that_is_called_so(tmp_path: Path) -> None:
    top = make_repository(tmp_path / "r")
    git(top, "update-ref", "refs/heads/HEAD", "HEAD")
    tip = commit(top, "a")
    for base in ("HEAD", "main", "refs/heads/main", tip):
        assert find_base(str(top), base) == tip
    assert find_base(str(top), "nope") is find_base(str(top), "HEAD^{tree}") is None
