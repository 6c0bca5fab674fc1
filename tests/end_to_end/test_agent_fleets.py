"""Fleets of the real claude and codex on the stub: done means done, limits cost nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.agents_api import ModelApi
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, until
from tests.support.real_agents import CLAUDE, CODEX, AgentHome, git, program

AGENTS = {"claude": CLAUDE, "codex": CODEX}


class AgentProject(EmbeddedProject):
    """An embedded tracker in a git repository, and agents that ask the stub."""

    def __init__(self, folder: Path, home: AgentHome) -> None:
        super().__init__(folder)
        git(self.folder, "init", "-q", "-b", "main")
        (self.folder / "README").write_text("a shop\n")
        git(self.folder, "add", "README")
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
        git(self.folder, *identity, "commit", "-q", "-m", "begin")
        path = ":".join(str(program(name, version).parent) for name, version in AGENTS.items())
        self.environment |= {
            **home.environment,
            "PATH": f"{path}:{self.environment['PATH']}",
            "XDG_STATE_HOME": str(folder / "state"),
            "STUB_KEY": "chatgpt-test",
        }

    def issues(self, *scripts: str) -> None:
        """One issue for each script of the stub."""
        self.create_many([{"description": f"[[stub: {script}]]"} for script in scripts])

    def statuses(self) -> list[str]:
        """Of all issues, by their ids."""
        found = self.read_all()
        return [found[issue_id][0] for issue_id in sorted(found)]


@pytest.fixture
def project(tmp_path: Path, home: AgentHome) -> AgentProject:
    return AgentProject(tmp_path, home)


def test_one_line_and_the_backlog_is_done_each_in_a_worktree(
    start: Any, project: AgentProject, api: ModelApi
) -> None:
    project.issues(*[f'write file{n}.py "{n}"' for n in range(4)])
    fleet: Fleet = start(project, "-n", "2", "--agent", "claude", "--until-empty")
    assert fleet.wait() == 0, fleet.said()
    assert project.statuses() == ["closed"] * 4
    branches = git(project.folder, "for-each-ref", "--format=%(refname)", "refs/heads/bw")
    assert len(branches.splitlines()) == 4
    assert git(project.folder, "status", "--porcelain", "--untracked-files=no") == ""


def test_a_limit_costs_nothing_and_the_fleet_goes_on_after_its_reset(
    start: Any, project: AgentProject, api: ModelApi
) -> None:
    project.issues('limit five_hour 12s; write a.py "a"', *[f'write f{n}.py "f"' for n in range(4)])
    options = ("-n", "2", "--agent", "claude", "--until-empty", "--reset-grace", "1s")
    fleet: Fleet = start(project, *options)
    fleet.wait_for("account_closed")
    found = json.loads(fleet.call("status", "--json").stdout)
    (account,) = found["accounts"]
    assert (account["agent"], account["state"]) == ("claude", "limited")
    assert fleet.wait(120) == 0, fleet.said()
    assert project.statuses() == ["closed"] * 5
    assert sum(end.get("charged", 0) for end in fleet.journal("finished")) == 0
    closed = fleet.journal("account_closed")
    assert len(closed) == 1, closed
    assert len(fleet.journal("account_opened")) == 1
    began = [row["t"] for row in fleet.journal("started") if row["t"] > closed[0]["t"] + 1]
    assert min(began) >= closed[0]["until"]


def test_the_next_agent_takes_over_at_a_limit(
    start: Any, project: AgentProject, api: ModelApi
) -> None:
    api.account(project.environment["CLAUDE_CODE_OAUTH_TOKEN"]).close("five_hour", 3600)
    project.issues('write a.py "a"', 'write b.py "b"')
    fleet: Fleet = start(project, "-n", "2", "--agent", "claude,codex", "--until-empty")
    assert fleet.wait(90) == 0, fleet.said()
    assert project.statuses() == ["closed"] * 2
    agents = [row["agent"] for row in fleet.journal("started")]
    assert set(agents) == {"claude", "codex"}


def test_work_that_fails_its_check_is_not_closed_and_the_next_attempt_learns(
    start: Any, project: AgentProject, api: ModelApi
) -> None:
    project.create_many(
        [
            {
                "description": '[[stub: write a.py "1"]]'
                ' [[stub when "broken wheel": write wheel.py "2"]]'
            }
        ]
    )
    verify = "test -e wheel.py || { echo broken whee''l; false; }"
    options = ("-n", "1", "--agent", "claude", "--until-empty", "--fix-rounds", "0")
    fleet: Fleet = start(project, *options, "--verify", verify, "--retry-delay", "0")
    assert fleet.wait(90) == 0, fleet.said()
    ends = fleet.journal("finished")
    assert [end["outcome"] for end in ends] == ["error", "success"]
    receipts = [json.loads(end["receipt"]) for end in ends]
    assert receipts[0]["session"] == receipts[1]["session"]
    assert receipts[1]["verified"] is True


def test_while_it_works_people_see_what_it_does_and_what_it_costs(
    start: Any, project: AgentProject
) -> None:
    project.issues('tokens 5000 500; write a.py "a"; run "touch began"; stall 30s; write b.py "b"')
    fleet: Fleet = start(project, "-n", "1", "--agent", "claude", "--limit", "1")
    until(lambda: list(project.folder.glob(".beads-workers/worktrees/*/began")))

    def working() -> Any:
        (worker,) = json.loads(fleet.call("status", "--json").stdout)["workers"]
        return worker if worker["tokens"] else None

    worker = until(working)
    assert (worker["agent"], worker["activity"]) == ("claude", "running touch began")
