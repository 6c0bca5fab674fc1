"""Questions of the real claude and codex on the stub, and what a person does about them."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from beads_workers.cli.answer import give
from beads_workers.cli.client import connect
from beads_workers.cli.waiting import Waiting
from tests.agents_api import ModelApi
from tests.support.agent_projects import AgentBdProject, AgentProject
from tests.support.bd import NEW, OLD
from tests.support.fleet import Fleet, until
from tests.support.real_agents import AgentHome, git

pytestmark = pytest.mark.daily(3)

ASKS = (
    '[[stub: say "Outcome: question: FOO or BAR?"]]'
    ' [[stub when "call it FOO": write a.py "FOO"]]'
    ' [[stub when "Nobody answered": write a.py "none"]]'
)
OPTIONS = ("-n", "1", "--retry-delay", "0", "--poll", "0.3s")


@pytest.fixture
def project(tmp_path: Path, home: AgentHome) -> AgentProject:
    found = AgentProject(tmp_path, home)
    found.create_many([{"description": ASKS}])
    return found


def asked(fleet: Fleet) -> dict[str, Any]:
    """The one open question, once there is one."""

    def question() -> Any:
        told = fleet.call("answer", "--json")
        assert told.returncode == 0, told
        rows = json.loads(told.stdout)["questions"]
        return rows[0] if rows else None

    found: dict[str, Any] = until(question)
    return found


def ends(fleet: Fleet) -> list[tuple[str, int]]:
    """Outcome and charge of each attempt."""
    return [(row["outcome"], row.get("charged", 0)) for row in fleet.journal("finished")]


def its_second_is_over(fleet: Fleet) -> None:
    """What was written within the second of the question is the agent's own."""
    asked_at = fleet.journal("finished")[-1]["t"]
    until(lambda: time.time() >= math.floor(asked_at) + 1)


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_question_waits_uncharged_and_its_session_goes_on_with_the_answer(
    start: Any, project: AgentProject, agent: str
) -> None:
    fleet: Fleet = start(project, *OPTIONS, "--agent", agent)
    row = asked(fleet)
    assert (row["question"], row["agent"]) == ("FOO or BAR?", agent)
    (issue,) = json.loads(fleet.call("list", "--all", "--json").stdout)
    assert (issue["status"], issue["labels"]) == ("blocked", ["needs-answer"])
    assert "FOO or BAR?" in issue["notes"]
    assert "asks a person" in fleet.call("why", row["issue_id"]).stdout

    said = fleet.call("answer", row["issue_id"], "call it FOO")
    assert said.returncode == 0, said.stderr
    until(lambda: project.statuses() == ["closed"])
    assert git(project.folder, "show", "bw-landing/main:a.py").strip() == "FOO"
    first, second = fleet.journal("finished")
    assert ends(fleet) == [("question", 0), ("success", 0)]
    assert first["receipt"]["session"] == second["receipt"]["session"]
    assert fleet.call("answer").stdout.strip() == "no question is open"
    (issue,) = json.loads(fleet.call("list", "--all", "--json").stdout)
    assert not issue.get("labels")


def test_an_answer_without_a_fleet_is_read_by_the_next_one(
    start: Any, project: AgentProject
) -> None:
    fleet: Fleet = start(project, *OPTIONS, "--agent", "claude", "--until-empty")
    assert fleet.wait(90) == 7, fleet.said()
    row = asked(fleet)
    assert "waits for an answer" in fleet.output
    said = fleet.call("answer", row["issue_id"], "call it FOO")
    assert said.returncode == 0 and "the next start goes on" in said.stdout, said
    later: Fleet = start(project, *OPTIONS, "--agent", "claude", "--until-empty")
    assert later.wait(90) == 0, later.said()
    assert git(project.folder, "show", "bw-landing/main:a.py").strip() == "FOO"


@pytest.mark.parametrize("knew", [True, False])
def test_an_answer_that_the_fleet_has_already_read_was_given(
    start: Any, project: AgentProject, monkeypatch: pytest.MonkeyPatch, knew: bool
) -> None:
    """The fleet listens by itself, or starts, while the person's command writes the comment."""
    fleet: Fleet = start(project, *OPTIONS, "--agent", "claude")
    row = asked(fleet)
    assert fleet.call("answer", row["issue_id"], "call it FOO").returncode == 0
    until(lambda: fleet.journal("answered"))
    monkeypatch.chdir(project.folder)
    directory = project.folder / ".beads-workers"
    found = Waiting(connect(directory) if knew else None, [row], [], [])
    said = give(found, directory, [row], "call it FOO")
    what = "the fleet has read it" if knew else "the fleet that just started goes on with it"
    assert said == {"text": f"answered: {row['issue_id']}; {what}"}


@pytest.mark.peers
@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_comment_by_bd_answers_as_well(
    start: Any, tmp_path: Path, home: AgentHome, version: str
) -> None:
    project = AgentBdProject(tmp_path, home, version)
    (issue_id,) = project.create_many([{"description": ASKS}])
    fleet: Fleet = start(project, *OPTIONS, "--agent", "claude")
    asked(fleet)
    until(lambda: project.read_all()[issue_id][0] == "blocked")
    its_second_is_over(fleet)
    project.bd("comments", "add", issue_id, "call it FOO")
    until(lambda: project.read_all()[issue_id][0] == "closed", 90)
    assert [outcome for outcome, _ in ends(fleet)] == ["question", "success"]


@pytest.mark.parametrize("at", ["asked", "answered"])
def test_a_killed_fleet_loses_neither_question_nor_answer(
    start: Any, project: AgentProject, at: str
) -> None:
    fleet: Fleet = start(project, *OPTIONS, "--agent", "claude")
    row = asked(fleet)
    if at == "answered":
        its_second_is_over(fleet)
        assert fleet.call("comment", row["issue_id"], "call it FOO").returncode == 0
    os.kill(fleet.pid, signal.SIGKILL)
    later: Fleet = start(project, *OPTIONS, "--agent", "claude")
    if at == "asked":
        assert asked(later)["question"] == "FOO or BAR?"
        assert later.call("answer", row["issue_id"], "call it FOO").returncode == 0
    until(lambda: project.statuses() == ["closed"], 90)
    assert git(project.folder, "show", "bw-landing/main:a.py").strip() == "FOO"


def test_an_issue_opened_by_hand_is_told_that_nobody_answered(
    start: Any, project: AgentProject
) -> None:
    fleet: Fleet = start(project, *OPTIONS, "--agent", "claude")
    row = asked(fleet)
    assert fleet.call("edit", row["issue_id"], "--status", "open").returncode == 0
    until(lambda: project.statuses() == ["closed"], 90)
    assert git(project.folder, "show", "bw-landing/main:a.py").strip() == "none"


def test_a_retry_right_after_an_answer_by_a_close_opens_the_issue(
    start: Any, project: AgentProject
) -> None:
    fleet: Fleet = start(project, *OPTIONS, "--agent", "claude")
    issue_id = asked(fleet)["issue_id"]
    its_second_is_over(fleet)
    assert fleet.call("comment", issue_id, "call it FOO").returncode == 0
    assert fleet.call("close", issue_id).returncode == 0
    assert fleet.call("retry", issue_id).returncode == 0
    until(lambda: len(fleet.journal("finished")) == 2, 90)
    until(lambda: project.statuses() == ["closed"], 90)


def test_where_nobody_answers_the_agent_is_told_so(
    start: Any, project: AgentProject, api: ModelApi
) -> None:
    options = (*OPTIONS, "--agent", "claude", "--questions", "0", "--until-empty")
    fleet: Fleet = start(project, *options)
    assert fleet.wait(120) == 7, fleet.said()
    assert [outcome for outcome, _ in ends(fleet)] == ["error"] * 3


def test_the_notification_has_the_whole_question_and_what_answers_it(
    start: Any, project: AgentProject, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    notify = f'[ "$BW_EVENT" != question ] || echo "$BW_TEXT" >> {told}'
    fleet: Fleet = start(project, *OPTIONS, "--agent", "claude", "--notify", notify)
    row = asked(fleet)
    until(told.exists)
    text = until(lambda: told.read_text())
    assert f"{row['issue_id']} ({row['title']}) asks: FOO or BAR?" in text
    command = text.partition(" -- ")[2].split()
    assert command[:2] == ["beads-workers", "answer"]
    done = fleet.call(*command[1:], "call it FOO")
    assert done.returncode == 0, done
    until(lambda: project.statuses() == ["closed"], 90)
