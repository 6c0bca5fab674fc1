"""What is said of the repository that tasks work in."""

from __future__ import annotations

from pathlib import Path

import pytest

from beads_workers.checks import repository
from tests.support.repository import commit, git, make_repository


def test_in_the_middle_of_a_merge_nobody_is_told_to_commit_its_conflicts(tmp_path: Path) -> None:
    top = make_repository(tmp_path / "project")
    git(top, "checkout", "-q", "-b", "other")
    commit(top, "same", "theirs")
    git(top, "checkout", "-q", "main")
    commit(top, "same", "ours")
    with pytest.raises(Exception, match="merge"):
        git(top, "merge", "other")
    (found, *_) = repository.git(top, agent=False)
    assert found.text == "a merge is under way, with 1 changed file"
    assert (found.remedy, found.hint) == (
        "git status",
        "finish it: git merge --continue or --abort",
    )


def test_whose_name_what_lands_will_have_is_said_where_git_knows_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = make_repository(tmp_path / "project")
    for name in (
        "GIT_AUTHOR_NAME",
        "GIT_AUTHOR_EMAIL",
        "GIT_COMMITTER_NAME",
        "GIT_COMMITTER_EMAIL",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    git(top, "config", "user.useConfigOnly", "true")
    assert len(repository.git(top, agent=False)) == 1
    _, found = repository.git(top, agent=False, in_worktrees=True)
    assert "what commands leave is committed, and lands, as beads-workers" in found.text
