"""An agent that closes its own issue, past every guard: that is no word on whether it is done.

It does so by a script of another name, as by an absolute path: no guard on ``PATH`` and no hook
sees it. With real agents on the stub, and every tracker: the guards of both are the same programs,
and only claude has a hook. Codex computes a third as long.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.model import IssueId
from beads_workers.runtime.project import STATE_FOLDER, TRACKER_FILE
from tests.support.agent_projects import AgentBdProject, AgentProject
from tests.support.bd import NEW, OLD
from tests.support.fleet import Fleet, until
from tests.support.real_agents import AgentHome
from tests.support.versions import ANY
from tests.support.worktrees import in_worktrees

pytestmark = pytest.mark.daily(3)

ISSUE = IssueId("bw-1")
OPTIONS = ("-n", "1", "--fix-rounds", "0", "--retry-delay", "0", "--skip-base-check")
CLAUDE, CODEX = ("--agent", "claude", *OPTIONS), ("--agent", "codex", "--no-land", *OPTIONS)

Project = AgentProject | AgentBdProject

BY_BD = "#!/bin/sh\nexec {bd} close {force} --reason 'closed it myself' bw-1\n"
BY_HAND = """#!{python}
import sqlite3
with sqlite3.connect({file!r}) as tracker:
    tracker.execute("UPDATE issues SET status = 'closed', close_reason = 'closed it myself'")
"""


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path, home: AgentHome) -> Project:
    if request.param == "embedded":
        return AgentProject(tmp_path, home)
    return AgentBdProject(tmp_path, home, request.param)


@pytest.fixture
def settle(project: Project, tmp_path: Path) -> Path:
    """A program that closes the issue as whoever calls it."""
    program = tmp_path / "settle"
    if isinstance(project, AgentBdProject):
        force = "--force" if project.version == NEW else ""
        program.write_text(BY_BD.format(bd=project.directory / "bd", force=force))
    else:
        file = str(project.folder / STATE_FOLDER / TRACKER_FILE)
        program.write_text(BY_HAND.format(python=sys.executable, file=file))
    program.chmod(0o755)
    return program


def an_issue(project: Project, script: str) -> None:
    assert project.create_many([{"description": f"[[stub: {script}]]"}]) == [ISSUE]


def status(project: Project) -> str:
    return project.read_all()[ISSUE][0]


def ends(fleet: Fleet) -> list[tuple[str, int]]:
    """Of its attempts: the outcome, and how many are charged by then."""
    return [(row["outcome"], row.get("charged", 0)) for row in fleet.journal("finished")]


@pytest.mark.parametrize("project", ["embedded", OLD], ids=ANY[:2], indirect=True)
def test_it_is_charged_and_open_again_where_its_work_does_not_pass(
    start: Any, project: Project, settle: Path
) -> None:
    an_issue(project, f'write a.py "1"; run "{settle}"; say "Closed."')
    asked = ("--until-empty", "--verify", "false", "--max-attempts", "2", "--retry", "fresh")
    fleet: Fleet = start(project, *CODEX, *asked)
    assert fleet.wait(120) == 7, fleet.said()
    assert ends(fleet) == [("error", 1), ("error", 2)], fleet.said()
    assert status(project) == "blocked"
    settled = [(row["action"], row["result"]) for row in fleet.journal("settled")]
    assert settled == [("release", "applied"), ("quarantined", "applied")]


@pytest.mark.parametrize("project", [NEW], indirect=True)
def test_it_is_closed_with_our_receipt_where_its_work_passes(
    start: Any, project: Project, settle: Path
) -> None:
    an_issue(project, f'write a.py "1"; run "{settle}"; say "Closed."')
    fleet: Fleet = start(project, *CLAUDE, "--until-empty", "--verify", "test -e a.py")
    assert fleet.wait(90) == 0, fleet.said()
    assert status(project) == "closed"
    assert ends(fleet) == [("success", 0)]
    assert len(fleet.journal("settled")) == 1
    notes = project.notes(ISSUE)
    assert "done, by claude; branch bw/bw-1/1" in notes
    assert "closed it myself" not in notes


@pytest.mark.parametrize("project", [OLD, NEW], indirect=True)
def test_after_kill_9_it_is_open_again(start: Any, project: Project, settle: Path) -> None:
    an_issue(project, f'write a.py "1"; run "{settle}"; run "touch settled"; stall 60s')
    first: Fleet = start(project, *CODEX, "--verify", "false")
    until(lambda: in_worktrees(project, "settled"))
    assert status(project) == "closed"
    os.kill(first.pid, signal.SIGKILL)
    first.process.wait()
    second: Fleet = start(project, *CODEX, "-n", "0", "--verify", "false")
    second.wait_for("run_changed", state="running")
    assert project.read_all()[ISSUE] == ("open", ""), second.said()
    (settled,) = second.journal("settled")
    assert (settled["action"], settled["result"]) == ("release", "applied")


@pytest.mark.parametrize("project", [OLD, NEW], indirect=True)
def test_what_a_person_closes_meanwhile_stays_closed(start: Any, project: AgentBdProject) -> None:
    an_issue(project, 'write a.py "1"; run "touch began"; stall 5s; say "It cannot be done."')
    fleet: Fleet = start(project, *CODEX, "--until-empty", "--verify", "false")
    until(lambda: in_worktrees(project, "began"))
    project.close_as(ISSUE, "alice")
    fleet.wait(90)
    assert ends(fleet) == [("error", 1)], fleet.said()
    assert status(project) == "closed"
    assert project.show(ISSUE)["close_reason"] == "all done"
    (settled,) = fleet.journal("settled")
    assert (settled["action"], settled["result"]) == ("release", "found_closed")
