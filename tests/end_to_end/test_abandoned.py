"""What a run held of which nobody knows any more: docs/SEMANTICS.md, "Recovery"."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import Ran, StartFleet
from tests.support.bd import NEW, OLD, VERSIONS, BdProject
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import call, until

pytestmark = pytest.mark.daily(2)

TRACKERS = ("embedded", OLD, NEW)
DAMAGES = [("embedded", 0), ("embedded", 1), *((version, 2) for version in VERSIONS)]
DAMAGES += [(TRACKERS[seed % 3], seed) for seed in range(3, int(os.environ.get("BW_DAMAGES", "4")))]
"""Each kind of damage on the next tracker: ``BW_DAMAGES=102`` is a hundred."""


def damaged(state: Path, run_id: str, seed: int) -> str:
    """Whatever a disk, or a person who tidies up, may do to the memory of a run."""
    rng = random.Random(seed)
    run = state / "runs" / run_id
    what = ("state", "runs", "run", "journal", "emptied", "cut", "noise")[seed % 7]
    journal = run / "journal.jsonl"
    match what:
        case "state":
            for each in state.iterdir():
                if not each.name.startswith("tracker.db"):
                    shutil.rmtree(each) if each.is_dir() else each.unlink()
        case "runs":
            shutil.rmtree(state / "runs")
        case "run":
            shutil.rmtree(run)
        case "journal":
            journal.unlink()
        case "emptied":
            os.truncate(journal, 0)
        case "cut":
            os.truncate(journal, rng.randrange(journal.stat().st_size))
        case "noise":
            whole = bytearray(journal.read_bytes())
            for _ in range(20):
                whole[rng.randrange(len(whole))] = rng.randrange(256)
            journal.write_bytes(whole)
    return what


@pytest.mark.share(2)
@pytest.mark.parametrize(("any_project", "seed"), DAMAGES, indirect=["any_project"])
def test_whatever_happens_to_the_memory_of_a_killed_run_its_claims_are_named_and_come_back(
    any_project: Any, start: StartFleet, ran: Ran, seed: int
) -> None:
    ids = any_project.create_many([{} for _ in range(4)])
    fleet = start(any_project, *("-n", "2", "--until-empty", "--", "sh", "-c", "sleep 600"))
    until(lambda: len(fleet.journal("started")) == 2)
    os.kill(fleet.pid, signal.SIGKILL)
    until(fleet.is_gone)
    what = damaged(any_project.folder / ".beads-workers", fleet.run_id, seed)
    held = {i for i, (status, _) in any_project.read_all().items() if status == "in_progress"}
    assert len(held) >= 2
    fleet.forget()
    drains = ("-n", "2", "--until-empty", "--", *ran.command())
    again = start(any_project, *drains, environment=ran.environment)
    code = again.wait()
    left = {i for i, (status, _) in any_project.read_all().items() if status == "in_progress"}
    # Either its journal still told, or whoever looks is told what nobody is at work on.
    assert code == (7 if left else 0), (what, again.said())
    assert sorted(set(ids) - left) == sorted(set(ran.ended()))
    if left:
        said = json.loads(call(any_project, "status", "--json").stdout)["last_run"]
        assert {each["issue_id"] for each in said["held_elsewhere"]} == left, what
        assert all(issue_id in again.said() for issue_id in left)
        why = call(any_project, "why", min(left))
        assert fleet.run_id in why.stdout and "release --abandoned" in why.stdout
        doctor = call(any_project, "doctor", "--", "true").stdout
        assert "held by a run that is over" in doctor and "release --abandoned" in doctor
        freed = json.loads(call(any_project, "release", "--abandoned", "--json").stdout)
        assert {each["issue_id"] for each in freed["released"]} == left
        assert start(any_project, *drains, environment=ran.environment).wait() == 0
    assert {status for status, _ in any_project.read_all().values()} == {"closed"}
    ran.each_once(list(ids))


def test_what_living_runs_hold_is_left_alone(start: StartFleet, ran: Ran, tmp_path: Path) -> None:
    project = EmbeddedProject(tmp_path)
    (issue,) = project.create_many([{}])
    fleet = start(project, "-n", "1", "--", "sh", "-c", "sleep 600")
    fleet.wait_for("started", issue_id=issue)
    told = call(project, "release", "--abandoned")
    assert (told.returncode, "the fleet that runs here" in told.stdout) == (0, True)
    refused = call(project, "release", "--abandoned", issue)
    assert refused.returncode == 1 and "is held by the fleet that runs here" in refused.stderr
    assert call(project, "release", "--abandoned", "nobody").returncode == 4
    os.kill(fleet.pid, signal.SIGKILL)
    until(fleet.is_gone)
    assert "the next start settles" in call(project, "release", "--abandoned").stdout
    assert project.read(issue)[0] == "in_progress"


def test_what_a_run_of_another_machine_holds_comes_back_only_where_it_is_named(
    start: StartFleet, tmp_path: Path
) -> None:
    project = BdProject(tmp_path, OLD)
    one, other = project.create_many([{}, {}])
    for each in (one, other):
        project.put(each, "in_progress", "beads-workers/elsewhere/20260101-000000.000-aaaaaa")
    assert start(project, "-n", "1", "--until-empty", "--", "true").wait() == 7
    told = call(project, "release", "--abandoned")
    assert "a run of another machine" in told.stdout and one in told.stdout
    assert call(project, "release", "--abandoned", one).returncode == 0
    assert [project.read(each)[0] for each in (one, other)] == ["open", "in_progress"]
