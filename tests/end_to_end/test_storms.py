"""Spawn storms with real processes: a fleet that is not logged in harms no backlog."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import StartFleet
from tests.support.bd import OLD, BdProject
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import call, until
from tests.support.versions import ANY

STUB = ("sh", "-c", "[ -e logged-in ] || { echo Not logged in; exit 1; }")
"""An agent that nobody has logged in yet."""


@pytest.fixture(params=["embedded", OLD], ids=ANY[:2])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> EmbeddedProject | BdProject:
    """The built-in tracker, and a bd."""
    if request.param == "embedded":
        return EmbeddedProject(tmp_path)
    return BdProject(tmp_path, request.param)


def backlog(project: Any) -> int:
    """Enough for a storm: on bd, where each write takes its time, not many more."""
    return 20 if isinstance(project, EmbeddedProject) else 7


def test_a_fleet_that_is_not_logged_in_pauses_and_goes_on_when_told(
    project: Any, start: StartFleet
) -> None:
    ids = project.create_many([{} for _ in range(backlog(project))])
    fleet = start(project, "-n", "8", "--max-attempts", "1", "--", *STUB)
    until(lambda: "fleet is paused" in fleet.output)
    until(lambda: fleet.status()["queue"]["running"] == 0)
    shown = fleet.status()
    assert shown["state"] == "paused" and shown["quarantined"] == []
    assert "Not logged in" in shown["state_reason"] and "resume" in shown["state_reason"]
    assert fleet.output.count("wrong folder") == 1, "one message"
    assert "wrong folder" in call(project, "why").stdout
    assert fleet.call("resume").returncode == 0
    until(lambda: fleet.output.count("fleet is paused") == 2)
    (project.folder / "logged-in").touch()
    assert fleet.call("resume").returncode == 0
    until(lambda: fleet.status()["totals"]["done"] == len(ids))
    assert fleet.call("stop").returncode == 0
    assert fleet.wait() == 0, fleet.said()
    assert {status for status, _ in project.read_all().values()} == {"closed"}
    fleet.leaves_nothing()


def test_until_empty_requeues_everything_uncharged_and_exits_7(
    project: Any, start: StartFleet
) -> None:
    workers = "8" if isinstance(project, EmbeddedProject) else "1"
    project.create_many([{} for _ in range(backlog(project))])
    fleet = start(project, "-n", workers, "--until-empty", "--max-attempts", "1", "--", "false")
    assert fleet.wait() == 7, fleet.said()
    assert set(project.read_all().values()) == {("open", "")}
    assert "next: to go on with what was requeued: beads-workers start -n" in fleet.output
    assert "ended because: not logged in, or the wrong folder? 5 different issues" in fleet.output
    fleet.leaves_nothing()
    (project.folder / "logged-in").touch()
    again = start(project, "-n", "8", "--until-empty", "--max-attempts", "1", "--", *STUB)
    assert again.wait() == 0, again.said()
    assert again.journal("checkpointed") == [], "nothing was charged"
    assert {r["attempt"] for r in again.journal("started")} == {1}


def test_whoever_does_not_look_is_told(
    embedded: EmbeddedProject, start: StartFleet, tmp_path: Path
) -> None:
    embedded.create_many([{} for _ in range(6)])
    told = tmp_path / "told"
    notify = ("--notify", f'printf "%s|%s\\n" "$BW_EVENT" "$BW_TEXT" >>{told}')
    fleet = start(embedded, "-n", "2", "--detach", *notify, "--", *STUB)
    assert fleet.wait() == 0, fleet.said()
    until(told.exists)
    (line,) = until(lambda: told.read_text().splitlines())
    assert line.startswith("paused|") and "not logged in, or the wrong folder" in line
    assert fleet.call("stop").returncode == 0
    last = json.loads(call(embedded, "status", "--json").stdout)["last_run"]
    assert last["exit_code"] == 7 and last["quarantined"] == []


def test_a_command_that_cannot_be_started_ends_the_run_as_ever(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    embedded.create_many([{} for _ in range(8)])
    program = embedded.folder / "agent"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    # It goes away between the check at the start and the first task.
    fleet = start(embedded, "-n", "0", "--until-empty", "--", str(program)).started()
    program.unlink()
    assert fleet.call("scale", "4").returncode == 0
    assert fleet.wait() == 1, fleet.said()
    assert "the command cannot be run" in fleet.output
    assert set(embedded.read_all().values()) == {("open", "")}
