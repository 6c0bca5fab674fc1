"""The real claude on issues of a real Gitea: a question in the thread, its answer, the receipt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents_api.server import ModelApi
from tests.integrations.forge.test_fleet import GiteaProject
from tests.integrations.forge.tracker import LOGIN
from tests.support import agent_projects
from tests.support.fleet import Fleet, until
from tests.support.real_agents import AgentHome
from tests.support.repository import git

pytestmark = [pytest.mark.peers, pytest.mark.daily(2)]

ASKS = '[[stub: question "Which?" FOO BAR]] [[stub when "FOO": write answer.py "FOO"]]'
DOES = '[[stub: write done.py "done, fixes #2 for @zoe"]]'


@pytest.fixture
def home() -> Iterator[AgentHome]:
    with ModelApi() as api:
        made = AgentHome(api)
        yield made
        made.close()


def test_an_agent_asks_in_the_thread_and_goes_on_with_the_answer(
    tmp_path: Path, home: AgentHome
) -> None:
    project = GiteaProject(tmp_path)
    found = agent_projects._environment(tmp_path, home, project.environment)
    token = project.environment["GITEA_TOKEN"]
    project.environment |= found | {"GITEA_TOKEN": token, "HOME": found["HOME"]}
    at = project.at
    asks = at.issue("asks", ASKS, "ready", by="alice")
    does = at.issue("does", DOES, "ready")
    fleet = Fleet(project, "--agent", "claude", "-n", "2", "--verify", "true", "--poll", "1s")
    until(lambda: at.read(does)["state"] == "closed", 120.0)

    def question() -> str:
        texts = [each["body"] for each in at.comments(asks)]
        return next((text for text in texts if "beads-workers question" in text), "")

    asked = until(question, 60.0)
    assert "Which?" in asked and asked.startswith("@alice")
    waiting = {"ready", "bw:blocked", "bw:needs-answer"}
    until(lambda: {e["name"] for e in at.read(asks)["labels"]} == waiting, 20.0)
    at.comment(asks, "BAR", by="eve")
    at.comment(asks, "FOO, please", by="alice")
    until(lambda: at.read(asks)["state"] == "closed", 120.0)
    fleet.call("stop")
    fleet.process.wait(60)
    assert git(project.folder, "show", "bw-landing/main:answer.py") == "FOO"
    sessions = {
        row["receipt"]["session"]
        for row in fleet.journal("finished")
        if row["issue_id"] == str(asks)
    }
    assert len(sessions) == 1, "the same session went on"
    for number in (asks, does):
        (receipt,) = (e["body"] for e in at.comments(number) if "beads-workers done" in e["body"])
        assert "claude" in receipt and at.comments(number)[-1]["user"]["login"] == LOGIN
        assert {e["name"] for e in at.read(number)["labels"]} == {"ready"}
    fleet.end()
