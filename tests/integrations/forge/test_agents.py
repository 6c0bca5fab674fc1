"""The real claude on issues of a real Gitea: a question in the thread, its answer, the receipt."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integrations.forge.conftest import with_agents
from tests.integrations.forge.test_fleet import GiteaProject
from tests.integrations.forge.tracker import LOGIN
from tests.support.fleet import Fleet, until
from tests.support.real_agents import AgentHome
from tests.support.repository import git

pytestmark = [pytest.mark.peers, pytest.mark.daily(3)]

LEAKS = """\
env >environment.txt
cat /proc/$PPID/environ >>environment.txt
printf 'protocol=http\\nhost=%s\\n\\n' "$1" | git credential fill >login.txt 2>&1
"""
"""What an agent can find out by simple means about the token, in two files."""
FOUND = ("environment", "login")
ASKS = '[[stub: question "Which?" FOO BAR]] [[stub when "FOO": write answer.py "FOO"]]'
DOES = '[[stub: write done.py "done, fixes #2 for @zoe"]]'


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_no_agent_finds_the_token(tmp_path: Path, home: AgentHome, agent: str) -> None:
    project = with_agents(GiteaProject(tmp_path), home)
    token, host = project.environment["GITEA_TOKEN"], f"127.0.0.1:{project.at.server.port}"
    (project.folder / "leaks.sh").write_text(LEAKS)
    git(project.folder, "add", ".")
    git(project.folder, "commit", "-qm", "a way to leak")
    git(project.folder, "config", "credential.helper", f"!echo username=x; echo password={token} #")
    number = project.at.issue("leaks", f'[[stub: run "sh leaks.sh {host}"; commit]]', "ready")
    fleet = Fleet(project, "--agent", agent, "-n", "1", "--verify", "true", "--until-empty")
    assert fleet.process.wait(120) == 0
    fleet.end()
    shown = [git(project.folder, "show", f"bw-landing/main:{each}.txt") for each in FOUND]
    assert "BW_ISSUE_ID" in shown[0] and project.at.read(number)["state"] == "closed"
    logs = (project.folder / ".beads-workers").rglob("*")
    texts = [each.read_bytes() for each in logs if each.is_file()]
    said = [*texts, *(text.encode() for text in shown), str(project.at.comments(number)).encode()]
    assert not any(token.encode() in text for text in said)


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_an_agent_asks_in_the_thread_and_goes_on_with_the_answer(
    tmp_path: Path, home: AgentHome, agent: str
) -> None:
    project = with_agents(GiteaProject(tmp_path), home)
    at = project.at
    asks = at.issue("asks", ASKS, "ready", by="alice")
    does = at.issue("does", DOES, "ready")
    fleet = Fleet(project, "--agent", agent, "-n", "2", "--verify", "true", "--poll", "1s")
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
        assert agent in receipt and at.comments(number)[-1]["user"]["login"] == LOGIN
        assert {e["name"] for e in at.read(number)["labels"]} == {"ready"}
    fleet.end()
