"""Branches of the real claude on the stub that land once a person has looked at them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_projects import AgentProject
from tests.support.fleet import Fleet, until
from tests.support.real_agents import AgentHome, git
from tests.support.worktrees import person

pytestmark = pytest.mark.daily(3)

WORK = '[[stub: write a.py "pounds"]] [[stub when "use euros": write a.py "euros"]]'
OPTIONS = ("-n", "1", "--agent", "claude", "--approve", "--retry-delay", "0", "--poll", "0.3s")


@pytest.fixture
def project(tmp_path: Path, home: AgentHome) -> AgentProject:
    found = AgentProject(tmp_path, home)
    found.create_many([{"description": WORK}])
    return found


def awaiting(fleet: Fleet) -> dict[str, Any]:
    """The one branch that awaits approval, once there is one."""
    fleet.started()

    def row() -> Any:
        rows = fleet.status()["approvals"]
        return rows and rows[0]

    found: dict[str, Any] = until(row)
    return found


def landed(project: AgentProject) -> str:
    return git(project.folder, "show", "bw-landing/main:a.py").strip()


def labels(fleet: Fleet) -> list[str]:
    (issue,) = json.loads(fleet.call("list", "--all", "--json").stdout)
    return list(issue.get("labels", ()))


def test_a_branch_lands_once_it_was_looked_at_and_approved(
    start: Any, project: AgentProject
) -> None:
    fleet: Fleet = start(project, *OPTIONS)
    issue_id = awaiting(fleet)["issue_id"]
    assert labels(fleet) == ["needs-approval"]
    blind = fleet.call("approve", issue_id)
    assert blind.returncode != 0 and "not looked at" in blind.stderr
    assert "a.py" not in git(project.folder, "ls-tree", "--name-only", "bw-landing/main")
    shown = fleet.call("diff", issue_id).stdout
    assert "+pounds" in shown and "a.py | 1 +" in shown
    assert fleet.call("approve", issue_id).returncode == 0
    until(lambda: project.statuses() == ["closed"])
    assert landed(project) == "pounds"
    assert labels(fleet) == []


def test_a_rejected_branch_comes_back_from_the_same_session(
    start: Any, project: AgentProject
) -> None:
    fleet: Fleet = start(project, *OPTIONS)
    first = awaiting(fleet)
    assert fleet.call("diff", first["issue_id"], "--stat").returncode == 0
    assert fleet.call("reject", first["issue_id"], "use euros").returncode == 0
    second = until(lambda: (row := awaiting(fleet))["commit"] != first["commit"] and row)
    stale = fleet.call("approve", first["issue_id"])
    assert stale.returncode != 0, "another commit than the one that was looked at"
    assert "+euros" in fleet.call("diff", second["issue_id"]).stdout
    assert fleet.call("approve", "--all").returncode == 0
    until(lambda: project.statuses() == ["closed"])
    assert landed(project) == "euros"
    sessions = {row["receipt"]["session"] for row in fleet.journal("finished")}
    assert len(sessions) == 1


def test_a_branch_is_gated_while_it_waits_and_lands_at_once(
    start: Any, project: AgentProject
) -> None:
    fleet: Fleet = start(project, *OPTIONS, "--verify", "grep -q . a.py")
    issue_id = awaiting(fleet)["issue_id"]
    gate = until(lambda: awaiting(fleet)["gate"])
    tip = git(project.folder, "rev-parse", "bw-landing/main")
    text = f"verify passes on {tip[:12]}"
    assert gate == {"verdict": "green", "tip": tip, "text": text}
    for command in (("why", issue_id), ("report",), ("status",)):
        assert text in fleet.call(*command).stdout, command
    assert git(project.folder, "rev-parse", "bw-landing/main") == tip, "nobody has approved it"
    fleet.call("diff", issue_id)
    assert fleet.call("approve", issue_id).returncode == 0
    until(lambda: project.statuses() == ["closed"])
    ended = [
        row for row in fleet.journal("gate_ran") if row.get("issues") and row["state"] == "green"
    ]
    assert [row.get("kept", False) for row in ended] == [False, True]


@pytest.mark.parametrize("at", ["awaiting", "approved"])
def test_a_kill_lands_nothing_unapproved_and_loses_no_approval(
    start: Any, project: AgentProject, at: str
) -> None:
    fleet: Fleet = start(project, *OPTIONS)
    issue_id = awaiting(fleet)["issue_id"]
    fleet.call("diff", issue_id)
    if at == "approved":
        assert fleet.call("approve", issue_id).returncode == 0
    os.kill(fleet.pid, signal.SIGKILL)
    later: Fleet = start(project, *OPTIONS)
    if at == "awaiting":
        assert awaiting(later)["issue_id"] == issue_id
        assert later.call("approve", issue_id).returncode == 0
    until(lambda: project.statuses() == ["closed"], 90)
    assert landed(project) == "pounds"


def test_a_run_until_empty_ends_with_7_and_land_lands_what_is_named(
    start: Any, project: AgentProject
) -> None:
    fleet: Fleet = start(project, *OPTIONS, "--until-empty")
    assert fleet.wait(90) == 7, fleet.said()
    without = fleet.call("land")
    assert project.statuses() == ["blocked"], without
    (issue,) = json.loads(fleet.call("list", "--all", "--json").stdout)
    assert "awaits approval" in issue["notes"]
    assert fleet.call("land", issue["id"]).returncode == 0
    assert (project.statuses(), landed(project)) == (["closed"], "pounds")


def test_a_diff_shows_no_control_character_and_runs_no_program_of_the_branch(
    start: Any, project: AgentProject, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    git(project.folder, "config", "diff.evil.command", f"touch {ran}; true")
    git(project.folder, "config", "diff.evil.textconv", f"touch {ran}; cat")
    (project.folder / ".gitattributes").write_text("*.py diff=evil\n")
    git(project.folder, "add", ".gitattributes")
    git(project.folder, "-c", "user.name=t", "-c", "user.email=t@e.invalid", "commit", "-qm", "a")
    fleet: Fleet = start(project, *OPTIONS)
    shown = fleet.call("diff", awaiting(fleet)["issue_id"]).stdout
    assert "+pounds" in shown and not ran.exists()
    assert not any(ord(c) < 32 and c != "\n" for c in shown)


def test_the_command_that_opens_the_session_is_printed(start: Any, project: AgentProject) -> None:
    fleet: Fleet = start(project, *OPTIONS)
    issue_id = awaiting(fleet)["issue_id"]
    printed = fleet.call("session", issue_id).stdout
    (end,) = fleet.journal("finished")
    assert printed.strip().endswith(f"&& claude --resume {end['receipt']['session']}")
    assert Path(printed.split()[1]).is_dir()


def test_a_session_that_runs_is_not_opened_and_one_that_a_person_has_open_is_not_resumed(
    start: Any, project: AgentProject
) -> None:
    fleet: Fleet = start(project, *OPTIONS)
    issue_id = awaiting(fleet)["issue_id"]
    idle = fleet.call("session", issue_id)
    assert not idle.stderr
    worktree = Path(idle.stdout.split()[1])
    with person(worktree) as who:
        assert fleet.call("reject", issue_id, "use euros").returncode == 0
        until(lambda: f"you stand in its worktree ({who})" in fleet.call("why", issue_id).stdout)
        assert len(fleet.journal("finished")) == 2
    until(lambda: any(row["issue_id"] == issue_id for row in fleet.status()["workers"]))
    opened = fleet.call("session", issue_id, "--open")
    assert opened.returncode != 0 and "runs now" in opened.stderr
    printed = fleet.call("session", issue_id)
    assert "note: " in printed.stderr and printed.stdout == idle.stdout
    until(lambda: awaiting(fleet) and fleet.call("diff", issue_id).stdout.count("+euros"))
    first, waited, second = fleet.journal("finished")
    assert (waited["outcome"], waited.get("charged", 0)) == ("cancelled", 0)
    assert first["receipt"]["session"] == second["receipt"]["session"]


def test_what_a_person_closes_awaits_nothing_and_lands_by_no_command(
    start: Any, project: AgentProject
) -> None:
    fleet: Fleet = start(project, *OPTIONS)
    issue_id = awaiting(fleet)["issue_id"]
    fleet.call("diff", issue_id)
    assert fleet.call("close", issue_id, "-r", "wontfix").returncode == 0
    over = f"closed by somebody else; its branch stays: bw/{issue_id}/1"
    approved = fleet.call("approve", issue_id)
    assert approved.returncode == 4 and over in approved.stderr
    fleet.end()
    told = fleet.call("status").stdout
    assert over in told and "awaits approval" not in told
    report = json.loads(fleet.call("report", "--json").stdout)
    assert [(row["fate"], row["error"]) for row in report["issues"]] == [("not_ours", over)]
    assert f"left out: {issue_id}: closed" in fleet.call("land").stderr
    refused = fleet.call("land", issue_id)
    assert refused.returncode == 1 and f"{issue_id} does not land: {over}" in refused.stderr
    later: Fleet = start(project, *OPTIONS, "--until-empty")
    assert later.wait(90) == 0, later.said()
    assert over in later.said() and project.statuses() == ["closed"]
    assert "a.py" not in git(project.folder, "ls-tree", "--name-only", "bw-landing/main")


def test_without_a_fleet_branches_are_rejected_and_approved_for_the_next_start(
    start: Any, project: AgentProject
) -> None:
    fleet: Fleet = start(project, *OPTIONS, "--until-empty")
    assert fleet.wait(90) == 7, fleet.said()
    (row,) = json.loads(fleet.call("status", "--json").stdout)["last_run"]["approvals"]
    issue_id = row["issue_id"]
    refused = fleet.call("reject", "nothing", "no")
    assert refused.returncode == 4 and "land" not in refused.stderr
    fleet.call("diff", issue_id)
    rejected = fleet.call("reject", issue_id, "use euros")
    assert (rejected.returncode, rejected.stdout) == (
        0,
        f"rejected: {issue_id}; the next start sends it back\n",
    )
    assert "awaits approval" not in fleet.call("status").stdout
    assert fleet.call("approve", issue_id).returncode == 4
    second: Fleet = start(project, *OPTIONS, "--until-empty")
    assert second.wait(90) == 7, second.said()
    assert "+euros" in fleet.call("diff", issue_id).stdout
    approved = fleet.call("approve", issue_id)
    assert approved.stdout == f"approved: {issue_id}; the next start lands it\n"
    last: Fleet = start(project, *OPTIONS, "--until-empty")
    assert last.wait(90) == 0, last.said()
    assert (project.statuses(), landed(project)) == (["closed"], "euros")
