"""What must hold before a fleet starts with ``--worktree``, or with several agents."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beads_workers.agents.presets import PLAIN_PROMPT
from beads_workers.checks import worktrees
from beads_workers.checks.fleet import in_worktrees
from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.rules import Check
from beads_workers.cli.config import resolve
from beads_workers.core.base.settings import Agent, Work, Worktrees
from beads_workers.options import AgentTable, Options
from tests.support.killed_git import kill_git
from tests.support.repository import commit, git, make_repository
from tests.support.trust import TRUSTED

AGENT = Agent("a", ("agent",), "Do {id}")
STRANGER = 12_345
PLAIN = replace(AGENT, prompt=PLAIN_PROMPT)


def options(tmp_path: Path, **typed: Any) -> Options:
    return resolve(typed, tmp_path, TRUSTED).options


def made(found_options: Options, project: Path, state: str) -> Worktrees:
    found = worktrees.find_worktrees(found_options, project, state)
    assert isinstance(found, Worktrees), found
    return found


def refusal(project: Path, **typed: Any) -> Check:
    found = worktrees.find_worktrees(
        options(project, worktree=True, **typed), project, str(project / "state")
    )
    assert isinstance(found, Check) and found.exit_code == 2
    return found


def test_a_killed_git_lets_nobody_work_in_the_users_own_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_repository(tmp_path / "r")
    kill_git(monkeypatch, tmp_path, "rev-parse")
    assert worktrees.is_repository(project)
    assert "was ended by signal 9" in refusal(project).text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("lies", ["at it", "above it", "as a link", "behind a link", "for gates"])
def test_a_folder_for_worktrees_that_another_user_could_replace_is_refused(
    lies: str, tmp_path: Path
) -> None:
    project, theirs = make_repository(tmp_path / "r"), tmp_path / "theirs"
    (theirs / "own").mkdir(parents=True)
    os.chown(theirs, STRANGER, STRANGER)
    ours = tmp_path / "ours"
    ours.symlink_to(theirs / "own")
    gates = tmp_path / "w.landing"
    gates.symlink_to(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for each in (gates, link):
        os.chown(each, STRANGER, STRANGER, follow_symlinks=False)
    named = {"at it": theirs, "above it": theirs / "own" / "w", "as a link": link / "w"}
    named |= {"behind a link": ours, "for gates": tmp_path / "w"}
    found = refusal(project, worktree_folder=str(named[lies]))
    assert f"belongs to another user (uid {STRANGER})" in found.text
    assert "[worktree] folder" in found.hint


# --- several agents in one checkout -----------------------------------------------------------


def test_several_agents_in_one_checkout_are_refused_with_the_two_ways_out(tmp_path: Path) -> None:
    found = worktrees.crowd(Work(agents=(AGENT,)), options(tmp_path, workers=2))
    assert found is not None and found.exit_code == 2
    assert "--worktree" in found.hint and "--shared-checkout" in found.hint


def test_so_are_as_many_as_the_default(tmp_path: Path) -> None:
    found = worktrees.crowd(Work(agents=(AGENT,)), options(tmp_path))
    assert found is not None and "4 agents in one checkout" in found.text


@pytest.mark.parametrize("workers", [0, 1])
def test_one_agent_is_fine_and_is_not_to_become_more(tmp_path: Path, workers: int) -> None:
    work, said = Work(agents=(AGENT,)), options(tmp_path, workers=workers)
    assert worktrees.crowd(work, said) is None and worktrees.shares_checkout(work, said)


def test_commands_and_a_person_who_says_so_are_not_restricted(tmp_path: Path) -> None:
    eight = options(tmp_path, workers=8)
    alone = replace(eight, shared_checkout=True)
    for work, said in ((Work(command=("make",)), eight), (Work(agents=(AGENT,)), alone)):
        assert worktrees.crowd(work, said) is None and not worktrees.shares_checkout(work, said)


# --- where worktrees can be made --------------------------------------------------------------


def test_the_base_is_the_commit_that_is_checked_out_now_unless_one_is_named(tmp_path: Path) -> None:
    top = make_repository(tmp_path)
    head = git(top, "rev-parse", "HEAD")
    found = made(options(top), top, str(top / "state"))
    assert (found.base, found.base_name, found.prefix) == (head, "HEAD", "")
    assert found.common == str(top / ".git")
    named = made(options(top, worktree_base="main"), top, str(top / "state"))
    assert named.base == "main"


def test_a_project_below_the_top_knows_its_place(tmp_path: Path) -> None:
    top = make_repository(tmp_path)
    commit(top, "services/api/file")
    project = top / "services" / "api"
    assert made(options(project), project, "s").prefix == "services/api/"


def test_a_checkout_that_is_a_worktree_itself_will_do(tmp_path: Path) -> None:
    top = make_repository(tmp_path / "r")
    git(top, "worktree", "add", "--quiet", "../linked")
    found = made(options(top), tmp_path / "linked", "s")
    assert found.common == str(top / ".git")


def test_without_a_repository_it_is_refused(tmp_path: Path) -> None:
    error = refusal(tmp_path)
    assert "needs a git repository" in error.text and "git init" in error.hint


def test_without_a_commit_it_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    error = refusal(tmp_path)
    assert "has none" in error.text and "commit" in error.hint


def test_in_a_bare_repository_it_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--bare")
    assert "bare repository" in refusal(tmp_path).text


def test_a_base_that_is_none_is_refused(tmp_path: Path) -> None:
    top = make_repository(tmp_path)
    assert "no such base for worktrees: nope" in refusal(top, worktree_base="nope").text


def test_a_branch_that_is_in_the_way_of_ours_is_refused(tmp_path: Path) -> None:
    top = make_repository(tmp_path)
    git(top, "branch", "bw")
    assert "git branch -m bw" in refusal(top).hint


def test_a_folder_that_git_status_would_show_is_refused(tmp_path: Path) -> None:
    top = make_repository(tmp_path / "r")
    assert "git status" in refusal(top, worktree_folder=str(top / "trees")).text
    for fine in (top / "x.local", tmp_path / "trees", top / ".beads-workers" / "w"):
        said = options(top, worktree_folder=str(fine))
        assert made(said, top, "s").folder == str(fine)


# --- what an agent is told --------------------------------------------------------------------


def test_an_agent_with_our_prompt_is_told_to_commit_and_any_other_prompt_is_left_alone(
    tmp_path: Path,
) -> None:
    top = make_repository(tmp_path)
    found = made(options(top, worktree=True, worktree_copy=("nothing",)), top, "s")
    work = in_worktrees(Work(agents=(PLAIN,)), found, None)
    assert work.agent is not None and "Commit your" in work.agent.prompt
    (warning,) = worktrees.patterns_without_files(found)
    assert "nothing that git ignores matches nothing" in warning.text
    own = in_worktrees(Work(agents=(AGENT,)), found, "/b/.beads")
    assert own.agent == AGENT and own.worktrees is not None and own.worktrees.beads == "/b/.beads"


def plan(folder: Path, monkeypatch: pytest.MonkeyPatch, agent: str, **typed: Any) -> FleetPlan:
    """In a project with a tracker that is not looked into."""
    (folder / ".beads-workers").mkdir(exist_ok=True)
    (folder / ".beads-workers" / "tracker.db").touch()
    monkeypatch.chdir(folder)
    resolved = resolve({"agent": agent, **typed}, folder, TRUSTED)
    mine = AgentTable(("true",))
    return FleetPlan(replace(resolved, agents={"mine": mine}))


def test_without_the_option_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert plan(make_repository(tmp_path), monkeypatch, "mine").worktrees is None


def test_an_agent_that_is_understood_gets_worktrees_where_git_can_make_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = make_repository(tmp_path / "r")
    assert isinstance(plan(top, monkeypatch, "claude").worktrees, Worktrees)
    assert plan(top, monkeypatch, "claude", shared_checkout=True).worktrees is None
    assert plan(top, monkeypatch, "claude", worktree=False).worktrees is None
    (tmp_path / "plain").mkdir()
    assert plan(tmp_path / "plain", monkeypatch, "claude").worktrees is None
