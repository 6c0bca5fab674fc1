"""``land``, ``branches`` and ``undo`` after real runs; what they tell a tracker, on each kind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from beads_workers.runtime.project import STATE_FOLDER, TRACKER_FILE
from tests.end_to_end import test_landing
from tests.end_to_end.conftest import StartFleet
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Called, Fleet, call, until
from tests.support.repository import git

pytestmark = pytest.mark.daily(3)


def told(project: Any, *arguments: str) -> str:
    """What a command says that must succeed."""
    done: Called = call(project, *arguments)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


def statuses(project: Any) -> dict[str, str]:
    """Of every issue."""
    return {str(key): status for key, (status, _) in project.read_all().items()}


def carried(top: Path) -> list[str]:
    """The issues that the branch's commits name, the newest first."""
    return git(
        top, "log", "--format=%(trailers:key=Issue,valueonly,separator=)", test_landing.TIP
    ).split()


def stopped_before_landing(start: StartFleet, project: Any, folder: Path, many: int) -> Fleet:
    """A run that was stopped when its work was done, and its gates had not passed."""
    fleet = test_landing.fleet_of(
        start, project, "--verify", f"while ! test -e {folder}/open; do sleep 0.1; done"
    )
    until(lambda: len([r for r in fleet.journal("finished") if r["verdict"] == "land"]) == many)
    assert fleet.call("stop").returncode == 0
    assert fleet.wait() == 7, fleet.said()
    (folder / "open").touch()
    return fleet


def started(fleet: Fleet) -> list[str]:
    """The issues of which it began attempts."""
    return sorted(row["issue_id"] for row in fleet.journal("started"))


@pytest.mark.timeout(300)
def test_land_closes_what_a_stopped_run_left_and_no_start_does_it_again(
    any_project: Any, start: StartFleet, tmp_path: Path
) -> None:
    top = test_landing.repository(any_project)
    ids = any_project.create_many([{}, {}])
    stopped_before_landing(start, any_project, tmp_path, len(ids))
    assert statuses(any_project) == dict.fromkeys(ids, "blocked")
    waits = told(any_project, "why", ids[0])
    assert "land" in waits and "beads-workers land" in any_project.notes(ids[0])
    told(any_project, "land", "--verify", "ls")
    assert statuses(any_project) == dict.fromkeys(ids, "closed")
    assert sorted(carried(top)) == sorted(ids)
    rows = json.loads(told(any_project, "branches", "--json"))["branches"]
    assert all(row["landed"] for row in rows)
    assert "closed" in told(any_project, "why", ids[0])
    tip = git(top, "rev-parse", test_landing.TIP)
    again = test_landing.fleet_of(start, any_project, "--verify", "ls")
    assert again.wait(test_landing.PATIENCE) == 0, again.said()
    assert started(again) == [] and git(top, "rev-parse", test_landing.TIP) == tip
    assert statuses(any_project) == dict.fromkeys(ids, "closed")
    again.leaves_nothing()


@pytest.mark.timeout(300)
def test_what_was_landed_and_taken_back_is_done_again_and_not_landed_as_it_was(
    either_project: Any, start: StartFleet, tmp_path: Path
) -> None:
    """The stopped run's journal says that its branch waits to land, and a person said otherwise."""
    top = test_landing.repository(either_project)
    first, second = either_project.create_many([{}, {}])
    stopped_before_landing(start, either_project, tmp_path, 2)
    told(either_project, "land", "--verify", "ls")
    told(either_project, "undo", first, "--verify", "ls")
    assert statuses(either_project) == {first: "open", second: "closed"}
    assert test_landing.files(top) == {f"{second}.txt"}
    assert "nothing to land" in told(either_project, "land", "--verify", "ls")
    again = test_landing.fleet_of(start, either_project, "--verify", "ls")
    assert again.wait(test_landing.PATIENCE) == 0, again.said()
    assert started(again) == [first]
    assert statuses(either_project) == {first: "closed", second: "closed"}
    assert test_landing.files(top) == {f"{first}.txt", f"{second}.txt"}


@pytest.mark.timeout(300)
def test_branches_of_a_run_that_did_not_land_are_landed_later(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    top = test_landing.repository(embedded)
    ids = embedded.create_many([{}, {}])
    fleet = test_landing.fleet_of(
        start, embedded, "--no-land", run=f"{test_landing.WRITE}; git add .; git commit -qm x"
    )
    assert fleet.wait(test_landing.PATIENCE) == 0, fleet.said()
    assert statuses(embedded) == dict.fromkeys(ids, "closed")
    dry = told(embedded, "land", "--dry-run")
    assert all(issue_id in dry for issue_id in ids) and not git(
        top, "branch", "--list", test_landing.TIP
    )
    told(embedded, "land", "--verify", "ls")
    assert test_landing.files(top) == {f"{issue_id}.txt" for issue_id in ids}
    assert "nothing to land" in told(embedded, "land", "--verify", "ls")


@pytest.mark.timeout(300)
def test_what_a_person_closed_meanwhile_lands_only_when_that_is_asked_for(
    embedded: EmbeddedProject, start: StartFleet, tmp_path: Path
) -> None:
    top = test_landing.repository(embedded)
    (issue,) = embedded.create_many([{}])
    tracker = embedded.folder / STATE_FOLDER / TRACKER_FILE
    person = tmp_path / "person"
    sql = "UPDATE issues SET status = 'closed', close_reason = 'wontfix'"
    person.write_text(f"import sqlite3\nwith sqlite3.connect({str(tracker)!r}) as it:\n")
    with person.open("a") as file:
        file.write(f"    it.execute({sql!r})\n")
    run = f"{test_landing.WRITE}; {shlex.quote(sys.executable)} {shlex.quote(str(person))}"
    fleet = test_landing.fleet_of(start, embedded, "--verify", "ls", run=run)
    fleet.wait(test_landing.PATIENCE)
    branch = f"bw/{issue}/1"
    kept = f"closed by somebody else; its branch stays: {branch}"
    assert kept in fleet.said()
    assert test_landing.landed(fleet) == [] and statuses(embedded) == {issue: "closed"}
    (row,) = json.loads(told(embedded, "report", "--json"))["issues"]
    assert row["fate"] == "not_ours" and row["error"].startswith(kept)
    assert "nothing to land" in told(embedded, "land", "--verify", "ls")
    assert "left alone" in told(embedded, "branches")
    refused = call(embedded, "land", issue, "--verify", "ls")
    assert refused.returncode == 1 and f"{issue} does not land: {kept}" in refused.stderr
    assert f"reopen {issue}" in refused.stderr and test_landing.files(top) == set()
    told(embedded, "reopen", issue)
    told(embedded, "land", issue, "--verify", "ls")
    assert test_landing.files(top) == {f"{issue}.txt"} and statuses(embedded) == {issue: "closed"}


@pytest.mark.timeout(300)
def test_what_did_not_pass_the_gate_waits_for_nothing_and_says_why(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    top = test_landing.repository(embedded)
    (key,) = embedded.create_many([{}])
    fleet = test_landing.fleet_of(start, embedded, "--verify", f"! test -e {key}.txt")
    assert fleet.wait(test_landing.PATIENCE) == 7, fleet.said()
    why = json.loads(call(embedded, "why", str(key), "--json").stdout)
    assert [each["cause"] for each in why["reasons"]] == ["quarantined", "no_fleet"]
    assert "verify fails on its branch" in why["headline"]
    assert f"{key}" in told(embedded, "branches")
    assert "did not land: verify fails on its branch" in told(embedded, "branches")
    (row,) = json.loads(told(embedded, "branches", "--json"))["branches"]
    assert row["refused"].startswith("verify fails") and row["merges"] and not row["landed"]
    again = call(embedded, "land")
    assert again.returncode == 0 and "nothing to land" in again.stdout
    assert f"left out: {key}: verify fails on its branch" in again.stderr
    assert call(embedded, "land", str(key)).returncode == 7, "by the gate of the last start"
    assert carried(top) == []


@pytest.mark.timeout(300)
def test_a_run_is_taken_back_whole_and_nothing_of_other_runs(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    top = test_landing.repository(embedded)
    one, two = embedded.create_many([{}, {}])
    first = test_landing.fleet_of(start, embedded, "--verify", "ls")
    assert first.wait(test_landing.PATIENCE) == 0, first.said()
    (three,) = embedded.create_many([{"id": "bw-later"}])
    second = test_landing.fleet_of(start, embedded, "--verify", "ls")
    assert second.wait(test_landing.PATIENCE) == 0, second.said()
    told(embedded, "undo", first.run_id, "--verify", "ls")
    assert test_landing.files(top) == {f"{three}.txt"}
    assert statuses(embedded) == {one: "open", two: "open", three: "closed"}
    report = json.loads(told(embedded, "report", "--json"))
    assert {row["issue_id"]: row["fate"] for row in report["issues"]} == {
        one: "requeued",
        two: "requeued",
        three: "closed",
    }
    assert report["landing"]["landed"] == 1
    told(embedded, "undo", second.run_id, "--verify", "ls")
    assert test_landing.files(top) == set()
    again = test_landing.fleet_of(start, embedded, "--verify", "ls")
    assert again.wait(test_landing.PATIENCE) == 0, again.said()
    assert started(again) == sorted((one, two, three)) and len(test_landing.landed(again)) == 3
    assert set(statuses(embedded).values()) == {"closed"}


@pytest.mark.timeout(300)
def test_who_stands_on_it_is_named_and_goes_along_when_that_is_asked_for(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    top = test_landing.repository(embedded)
    one, two = embedded.create_many([{}, test_landing.after(2, 1)])
    add = 'echo "$BW_ISSUE_ID" >>bw-shared'
    fleet = start(
        *(embedded, "-n", "1", "--until-empty", "--worktree", "--verify", "ls"),
        *("--", "sh", "-c", add),
    )
    assert fleet.wait(test_landing.PATIENCE) == 0, fleet.said()
    assert test_landing.landed(fleet) == [one, two]
    refused = call(embedded, "undo", one)
    assert refused.returncode != 0
    assert f"{two} landed on top of {one}: bw-shared" in refused.stderr
    assert statuses(embedded) == {one: "closed", two: "closed"}
    told(embedded, "undo", one, "--with-dependents", "--verify", "ls")
    assert test_landing.files(top) == set()
    assert statuses(embedded) == {one: "open", two: "open"}


def test_land_after_a_kill_leaves_the_tracker_to_the_next_start(
    embedded: EmbeddedProject, start: StartFleet, tmp_path: Path
) -> None:
    """Nobody has settled the dead run: the issue is in progress in its name."""
    top = test_landing.repository(embedded)
    (only,) = embedded.create_many([{}])
    fleet = test_landing.fleet_of(
        start, embedded, "--verify", f"until test -e {tmp_path}/open; do sleep 0.1; done"
    )
    until(lambda: [r for r in fleet.journal("finished") if r["verdict"] == "land"])
    os.kill(fleet.pid, signal.SIGKILL)
    fleet.wait()
    told(embedded, "land", "--verify", "ls")
    assert carried(top) == [only]
    tip = git(top, "rev-parse", test_landing.TIP)
    again = test_landing.fleet_of(start, embedded, "--verify", "ls")
    assert again.wait(test_landing.PATIENCE) == 0, again.said()
    assert started(again) == [] and git(top, "rev-parse", test_landing.TIP) == tip
    assert statuses(embedded) == {only: "closed"}
