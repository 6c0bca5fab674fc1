"""The real claude and codex behind a pull request of a real Gitea: a red check, a remark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integrations.forge.conftest import with_agents
from tests.integrations.forge.pull_projects import APPROVED, CHANGES, GiteaPullProject
from tests.support.fleet import Fleet, until
from tests.support.real_agents import AgentHome
from tests.support.repository import git

pytestmark = [pytest.mark.peers, pytest.mark.daily(2)]

WORK = (
    '[[stub: write done.py "one"; commit]]'
    ' [[stub when "it is failure": write done.py "two"; commit]]'
    ' [[stub when "say it in German": write done.py "drei"; commit]]'
)


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_an_agent_mends_what_ci_and_people_find(
    tmp_path: Path, home: AgentHome, agent: str
) -> None:
    project = with_agents(GiteaPullProject(tmp_path), home)
    project.settings(merge="checks")
    project.create_many([{"title": "say one", "description": WORK}])
    fleet = Fleet(
        project, "--agent", agent, "-n", "1", "--verify", "true", "--until-empty", "--trust"
    )
    first = project.only()
    project.check(first, green=False)
    second = project.pushed_after(first)
    project.review(second, CHANGES, "say it in German")
    third = project.pushed_after(second)
    answers = f"{third.commit[:12]} answers this"
    until(lambda: any(each.startswith(answers) for each in project.comments(third)))
    project.review(third, APPROVED, "")
    project.check(third, green=True)
    assert fleet.process.wait(120) == 0, fleet.said()
    assert project.is_closed("bw-1") and project.only().state == "merged"
    git(project.folder, "fetch", "-q", project.url, "main")
    assert git(project.folder, "show", "FETCH_HEAD:done.py") == "drei"
    ended = fleet.journal("finished")
    assert len({row["receipt"]["session"] for row in ended}) == 1, "the same session went on"
    assert {row["attempt"] for row in ended} == {1} and len(ended) == 3
    fleet.end()
