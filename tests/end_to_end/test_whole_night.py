"""A night of several starts is told, and paid for, as one: real claude on the stub, and kills."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from beads_workers.runtime.usage_file import read_usage
from tests.agents_api import ModelApi
from tests.end_to_end.conftest import StartFleet
from tests.end_to_end.test_agent_fleets import AgentProject
from tests.support.fleet import Fleet, call, until
from tests.support.real_agents import AgentHome, git
from tests.support.worktrees import in_worktrees

PRICES = '[agents.claude]\nprices = { "claude-*" = [2.0, 10.0, 0.1] }\n'
"""As the stub counts."""
CALL = (5000 * 2 + 500 * 10) / 1e6
"""Dollars of an answer; a killed agent lacks at most the one that it was waiting for."""
WHOLE = 10_000
"""Tokens of input of the two answers before the one that stalls."""
QUICK = 'tokens 5000 500; write f{n}.py "{n}"'
LONG = 'tokens 5000 500; write {n}.py "a"; run "touch {n}"; stall 20s; write {n}2.py "b"'
OPTIONS = ("-n", "1", "--agent", "claude")


@pytest.fixture
def project(tmp_path: Path, home: AgentHome) -> AgentProject:
    made = AgentProject(tmp_path, home)
    (made.folder / "beads-workers.toml").write_text(PRICES)
    return made


def told(project: Any, *words: str) -> dict[str, Any]:
    """A command with ``--json``."""
    done = call(project, *words, "--json")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def heard(fleet: Fleet) -> int:
    """Tokens of input of which the run's agents have written by now."""
    kept = [read_usage(file) for file in (fleet.run_folder / "usage").glob("*.jsonl")]
    return sum(receipt.tokens.input for receipt in kept if receipt is not None)


def kill(fleet: Fleet) -> None:
    """Kill everything of a fleet at once, as a machine does that loses its power."""
    for pid in {fleet.pid, *fleet.token_holders()}:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    fleet.process.wait()


def test_three_starts_one_killed_and_one_interrupted_are_one_night_to_the_cent(
    start: StartFleet, project: AgentProject, api: ModelApi, home: AgentHome
) -> None:
    project.issues(QUICK.replace("{n}", "1"), *(LONG.replace("{n}", n) for n in ("one", "two")))
    first = start(project, *OPTIONS, "--budget", "9")
    until(lambda: in_worktrees(project, "one") and heard(first) == 2 * WHOLE, 100)
    kill(first)
    second = start(project, *OPTIONS, "--budget", "9")
    second.started()
    assert "goes on: 1 run since" in second.errors and "of $9 spent before" in second.errors
    until(lambda: in_worktrees(project, "two") and heard(second) >= WHOLE, 100)
    second.process.send_signal(signal.SIGINT)
    assert second.wait() == 130
    assert "is left for the night): beads-workers start -n 1" in second.output
    third = start(project, *OPTIONS, "--budget", "9", "--until-empty")
    assert third.wait(180) == 0, third.said()
    assert project.statuses() == ["closed"] * 3

    report, runs = told(project, "report"), told(project, "runs")["runs"]
    last = told(project, "status")["last_run"]
    missing = api.accounts.total(account=home.key).dollars - report["money"]["spent_usd"]
    assert report["money"]["cut_attempts"] == 2, "one was killed, and one interrupted"
    assert -1e-6 < missing < 2 * CALL + 1e-6, "each lacks the answer that it was waiting for"
    assert report["night"] == first.run_id
    assert [run["run_id"] for run in report["runs"]] == [each["run_id"] for each in reversed(runs)]
    assert [run["state"] for run in report["runs"]] == ["killed", "ended", "ended"]
    for mine, other in zip(report["runs"], reversed(runs), strict=True):
        same = ("closed", "failed", "quarantined")
        assert [mine[key] for key in same] == [other[key] for key in same]
        assert mine["spent_usd"] == pytest.approx(other["spent_usd"], abs=1e-5)
    assert report["issues_by_fate"]["closed"] == last["night"]["closed"] == 3
    assert sum(run["closed"] for run in report["runs"]) == 3
    assert last["night"]["spent_usd"] == pytest.approx(report["money"]["spent_usd"], abs=1e-5)
    assert report["landing"]["landed"] == 3
    # One run alone has what was found of its killed agent later.
    alone = told(project, "report", first.run_id)
    assert alone["money"]["cut_attempts"] == 1
    assert alone["money"]["spent_usd"] == pytest.approx(report["runs"][0]["spent_usd"])
    assert "at least $" in call(project, "report").stdout


def test_a_budget_that_the_night_has_spent_is_refused_with_what_helps(
    start: StartFleet, project: AgentProject
) -> None:
    project.issues(*(QUICK.replace("{n}", str(n)) for n in range(4)))
    first = start(project, *OPTIONS, "--budget", "0.001", "--until-empty")
    assert first.wait(120) == 7, first.said()
    again = call(project, "start", *OPTIONS, "--budget", "0.001", "--until-empty")
    assert again.returncode == 7 and " of $0.001 is spent, by 1 run of the night" in again.stderr
    assert "'beads-workers start --budget 0.002 -n 1 --agent claude --until-empty'" in again.stderr
    assert "--new-night" in again.stderr
    for more in (("--new-night",), ("--budget", "0.001/run")):
        words = [*OPTIONS, "--budget", "0.001", *more, "--until-empty"]
        assert start(project, *words).wait(120) == 7
    assert len(told(project, "report")["runs"]) == 2, "the second of them goes on with the first"


def test_the_night_ends_with_a_merge_with_done_and_with_a_gap(
    start: StartFleet, project: AgentProject
) -> None:
    def runs_of_night() -> int:
        project.issues(QUICK.replace("{n}", os.urandom(3).hex()))
        fleet = start(project, *OPTIONS, "--until-empty")
        assert fleet.wait(120) == 0, fleet.said()
        return len(told(project, "report")["runs"])

    assert [runs_of_night(), runs_of_night()] == [1, 2]
    git(project.folder, "merge", "-q", "--ff-only", "bw-landing/main")
    assert [runs_of_night(), runs_of_night()] == [1, 2]
    done = call(project, "report", "--done")
    assert done.returncode == 0 and "another" in done.stderr
    assert len(told(project, "report")["runs"]) == 2, "nothing has run since"
    assert runs_of_night() == 1
    (project.folder / "beads-workers.toml").write_text(f'{PRICES}[night]\ngap = "1s"\n')
    ended = told(project, "report")["ended_at"]
    until(lambda: time.time() > ended + 1.0)
    assert runs_of_night() == 1
