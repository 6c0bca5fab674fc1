"""What must hold before a fleet starts with ``--worktree``, or with several agents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beads_workers.agents.presets import PLAIN_PROMPT
from beads_workers.cli.config import resolve
from beads_workers.cli.errors import CommandError
from beads_workers.cli.options import Options
from beads_workers.cli.preparation import check_crowd, find_worktrees, in_worktrees
from beads_workers.core.settings import Agent, Work
from tests.support.repository import commit, git, make_repository

AGENT = Agent("a", ("agent",), "Do {id}")
PLAIN = replace(AGENT, prompt=PLAIN_PROMPT)


def options(tmp_path: Path, **said: Any) -> Options:
    return resolve(Options(**said), tmp_path, {}).options


def refusal(project: Path, **said: Any) -> CommandError:
    with pytest.raises(CommandError) as caught:
        find_worktrees(options(project, worktree=True, **said), project, str(project / "state"))
    assert caught.value.exit_code == 2
    return caught.value


# --- several agents in one checkout -----------------------------------------------------------


def test_several_agents_in_one_checkout_are_refused_with_the_two_ways_out(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        check_crowd(Work(agents=(AGENT,)), options(tmp_path, workers=2))
    assert caught.value.exit_code == 2
    assert "--worktree" in caught.value.hint and "--shared-checkout" in caught.value.hint


def test_so_are_as_many_as_the_default(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="4 agents in one checkout"):
        check_crowd(Work(agents=(AGENT,)), options(tmp_path))


@pytest.mark.parametrize("workers", [0, 1])
def test_one_agent_is_fine_and_is_not_to_become_more(tmp_path: Path, workers: int) -> None:
    assert check_crowd(Work(agents=(AGENT,)), options(tmp_path, workers=workers)) == 1


def test_commands_and_a_person_who_says_so_are_not_restricted(tmp_path: Path) -> None:
    eight = options(tmp_path, workers=8)
    assert check_crowd(Work(command=("make",)), eight) is None
    assert check_crowd(Work(agents=(AGENT,)), replace(eight, shared_checkout=True)) is None


# --- where worktrees can be made --------------------------------------------------------------


def test_the_base_is_the_commit_that_is_checked_out_now_unless_one_is_named(tmp_path: Path) -> None:
    top = make_repository(tmp_path)
    head = git(top, "rev-parse", "HEAD")
    found = find_worktrees(options(top), top, str(top / "state"))
    assert (found.base, found.base_name, found.prefix) == (head, "HEAD", "")
    assert found.common == str(top / ".git")
    named = find_worktrees(options(top, worktree_base="main"), top, str(top / "state"))
    assert named.base == "main"


def test_a_project_below_the_top_knows_its_place(tmp_path: Path) -> None:
    top = make_repository(tmp_path)
    commit(top, "services/api/file")
    project = top / "services" / "api"
    assert find_worktrees(options(project), project, "s").prefix == "services/api/"


def test_a_checkout_that_is_a_worktree_itself_will_do(tmp_path: Path) -> None:
    top = make_repository(tmp_path / "r")
    git(top, "worktree", "add", "--quiet", "../linked")
    found = find_worktrees(options(top), tmp_path / "linked", "s")
    assert found.common == str(top / ".git")


def test_without_a_repository_it_is_refused(tmp_path: Path) -> None:
    error = refusal(tmp_path)
    assert "needs a git repository" in error.message and "git init" in error.hint


def test_without_a_commit_it_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    error = refusal(tmp_path)
    assert "has none" in error.message and "commit" in error.hint


def test_in_a_bare_repository_it_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--bare")
    assert "bare repository" in refusal(tmp_path).message


def test_a_base_that_is_none_is_refused(tmp_path: Path) -> None:
    top = make_repository(tmp_path)
    assert "no such base for worktrees: nope" in refusal(top, worktree_base="nope").message


def test_a_branch_that_is_in_the_way_of_ours_is_refused(tmp_path: Path) -> None:
    top = make_repository(tmp_path)
    git(top, "branch", "bw")
    assert "git branch -m bw" in refusal(top).hint


def test_a_folder_that_git_status_would_show_is_refused(tmp_path: Path) -> None:
    top = make_repository(tmp_path / "r")
    assert "git status" in refusal(top, worktree_folder=str(top / "trees")).message
    for fine in (top / "x.local", tmp_path / "trees", top / ".beads-workers" / "w"):
        said = options(top, worktree_folder=str(fine))
        assert find_worktrees(said, top, "s").folder == str(fine)


# --- what an agent is told --------------------------------------------------------------------


def test_an_agent_with_our_prompt_is_told_to_commit_and_any_other_prompt_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    top = make_repository(tmp_path)
    said = options(top, worktree=True, worktree_copy=("nothing",))
    work = in_worktrees(Work(agents=(PLAIN,)), said, top, "s", None)
    assert work.agent is not None and "Commit your" in work.agent.prompt
    assert "nothing that git ignores matches nothing" in capsys.readouterr().err
    own = in_worktrees(Work(agents=(AGENT,)), said, top, "s", "/b/.beads")
    assert own.agent == AGENT and own.worktrees is not None and own.worktrees.beads == "/b/.beads"


def test_without_the_option_nothing_changes(tmp_path: Path) -> None:
    work = Work(agents=(PLAIN,))
    assert in_worktrees(work, options(tmp_path), tmp_path, "s", None) is work


def test_an_agent_that_is_understood_gets_worktrees_where_git_can_make_them(tmp_path: Path) -> None:
    known = Work(agents=(replace(AGENT, adapter="claude"),))
    top = make_repository(tmp_path / "r")
    assert in_worktrees(known, options(top), top, "s", None).worktrees is not None
    for said in (options(top, shared_checkout=True), options(top, worktree=False)):
        assert in_worktrees(known, said, top, "s", None).worktrees is None
    assert in_worktrees(known, options(tmp_path), tmp_path, "s", None).worktrees is None
