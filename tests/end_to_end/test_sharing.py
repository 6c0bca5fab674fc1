"""``start --shared``: docs/SEMANTICS.md, "Sharing a tracker"; RELIABILITY.md, the limit."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.limits import POLL_SECONDS
from tests.end_to_end.conftest import Ran, StartFleet
from tests.support.bd import NEW, OLD, BdProject, bd_program
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, call, until

pytestmark = pytest.mark.daily(3)

LEASE_SECONDS = 15.0
BOTH_ARE_THERE = (
    'touch "$RAN.run.$BW_RUN_ID";'
    ' until [ "$(ls -d "$RAN".run.* | wc -l)" -ge 2 ]; do sleep 0.2; done'
)
"""A task that only ends once each of two fleets has one."""


def shared(start: StartFleet, project: Any, folder: Path, *arguments: str, **options: Any) -> Fleet:
    """A fleet with a state directory of its own."""
    return start(project, "--shared", "--state-dir", str(folder), *arguments, **options)


def closes(fleet: Fleet) -> list[str]:
    """What the tracker says that this fleet has closed."""
    settled = fleet.journal("settled")
    return [r["issue_id"] for r in settled if (r["action"], r["result"]) == ("close", "applied")]


@pytest.mark.timeout(240)
def test_two_orchestrators_drain_one_tracker_together_and_run_each_issue_once(
    project_new: BdProject, start: StartFleet, ran: Ran, tmp_path: Path
) -> None:
    ids = project_new.create_many([{} for _ in range(6)])
    fleets = [
        shared(
            start,
            project_new,
            tmp_path / name,
            *("-n", "2", "--until-empty", "--"),
            *ran.command(BOTH_ARE_THERE),
            environment=ran.environment,
        )
        for name in ("one", "two")
    ]
    assert [fleet.wait(200) for fleet in fleets] == [0, 0], [fleet.said() for fleet in fleets]
    assert Counter(ran.begun()) == Counter(ran.ended()) == Counter(ids)
    assert {status for status, _ in project_new.read_all().values()} == {"closed"}
    by = [closes(fleet) for fleet in fleets]
    assert sorted(by[0] + by[1]) == sorted(ids) and by[0] and by[1]
    for fleet in fleets:
        assert all(r["outcome"] == "success" for r in fleet.journal("finished"))
        fleet.leaves_nothing()


@pytest.mark.timeout(240)
def test_one_that_was_frozen_past_its_leases_ends_what_another_has_taken_over(
    project_new: BdProject, start: StartFleet, ran: Ran, tmp_path: Path
) -> None:
    hangs, ends_meanwhile = project_new.create_many([{}, {}])
    late, go = Path(f"{ran.file}.late"), Path(f"{ran.file}.go")
    first_time = f'case $BW_ISSUE_ID in {hangs}) exec sleep 600;; esac; until [ -e "{late}" ]'
    command = (
        f'if mkdir "$RAN.$BW_ISSUE_ID" 2>/dev/null; then {first_time}; do sleep 0.1; done;'
        f' else until [ -e "{go}" ]; do sleep 0.1; done; fi'
    )
    options = ("-n", "2", "--until-empty", "--", *ran.command(command))
    brief = {**ran.environment, "PATH": f"{brief_leases(tmp_path)}:{os.environ['PATH']}"}
    first = shared(start, project_new, tmp_path / "one", *options, environment=brief)
    until(lambda: len(ran.begun()) == 2)
    refused_while_it_runs(project_new, tmp_path / "one")

    os.kill(first.pid, signal.SIGSTOP)
    frozen_at = time.monotonic()
    project_new.let_lapse(hangs, ends_meanwhile)
    second = shared(start, project_new, tmp_path / "two", *options, environment=ran.environment)
    until(lambda: len(ran.begun()) == 4)
    assert owners(project_new) == {second.run_id}
    late.touch()
    until(lambda: ran.ended() == [ends_meanwhile])
    until(lambda: time.monotonic() - frozen_at > LEASE_SECONDS)
    os.kill(first.pid, signal.SIGCONT)

    alone = f"{ends_meanwhile} is not ours any more and was left alone: "
    until(lambda: any(r["text"].startswith(alone) for r in first.journal("noted")))
    until(lambda: first.token_holders() == [])
    assert owners(project_new) == {second.run_id}, "its late close changed something"
    said = [r["text"] for r in first.journal("noted")]
    taken = f"it is in_progress, assigned to beads-workers/{os.uname().nodename}/{second.run_id}"
    assert f"{hangs}: the claim was lost: {taken}; its attempt is ended" in said
    assert f"{alone}{taken}" in said
    (ended,) = [r for r in first.journal("finished") if r["issue_id"] == hangs]
    assert (ended["outcome"], ended.get("charged", 0)) == ("cancelled", 0)

    # It waits for what the other one has: that may come back.
    assert first.process.poll() is None
    go.touch()
    assert second.wait(100) == 0, second.said()
    assert first.wait(100) == 0, first.said()
    assert (closes(first), sorted(closes(second))) == ([], sorted([hangs, ends_meanwhile]))
    assert {status for status, _ in project_new.read_all().values()} == {"closed"}
    for fleet in (first, second):
        fleet.leaves_nothing()


@pytest.mark.timeout(240)
def test_what_a_killed_one_held_is_done_by_the_other_which_waits_for_that(
    project_new: BdProject, start: StartFleet, ran: Ran, tmp_path: Path
) -> None:
    (issue,) = project_new.create_many([{}])
    hangs = shared(
        *(start, project_new, tmp_path / "one", "-n", "1", "--", "sh", "-c", "sleep 600")
    )
    hangs.wait_for("started", issue_id=issue)
    other = shared(
        *(start, project_new, tmp_path / "two", "-n", "1", "--until-empty", "--", *ran.command()),
        environment=ran.environment,
    )
    other.wait_for("listed", held=[issue])
    os.kill(hangs.pid, signal.SIGKILL)
    time.sleep(2 * POLL_SECONDS)
    assert other.process.poll() is None, "its lease goes on: nobody knows that it was killed"
    os.kill(other.pid, signal.SIGSTOP)
    project_new.let_lapse(issue)
    os.kill(other.pid, signal.SIGCONT)
    assert other.wait(100) == 0, other.said()
    ran.each_once([issue])
    assert project_new.read(issue)[0] == "closed"


def refused_while_it_runs(project: BdProject, state_directory: Path) -> None:
    """Neither a second one in the same place starts, nor one that does not share."""
    place = ("--state-dir", str(state_directory))
    again = call(project, "start", "--shared", *place, "--", "true")
    assert (again.returncode, "already running here" in again.stderr) == (5, True)
    alone = call(project, "start", "--", "true")
    assert (alone.returncode, "another orchestrator" in alone.stderr) == (5, True)


def owners(project: BdProject) -> set[str]:
    """The runs that hold what is in progress."""
    issues = project.read_all().values()
    return {by.rpartition("/")[2] for status, by in issues if status == "in_progress"}


def brief_leases(folder: Path) -> Path:
    """A ``bd`` that says of every lease that it lasts for some seconds only.

    It is the real one, whose leases last five minutes whatever one asks for; so the orchestrator
    that uses it renews them, and finds them over, that much sooner.
    """
    place = folder / "brief"
    place.mkdir()
    program = place / "bd"
    program.write_text(
        f"#!{sys.executable} -S\n"
        "import datetime, re, subprocess, sys\n"
        f"argv = [{str(bd_program(NEW))!r}, *sys.argv[1:]]\n"
        "done = subprocess.run(argv, stdout=subprocess.PIPE)\n"
        "def brief(match):\n"
        "    began = datetime.datetime.fromisoformat(match[3])\n"
        f"    ends = began + datetime.timedelta(seconds={LEASE_SECONDS})\n"
        "    return match[0].replace(match[1], ends.isoformat())\n"
        'pattern = r\'"lease_expires_at": "([^"]*)",(\\s*)"heartbeat_at": "([^"]*)"\'\n'
        "sys.stdout.write(re.sub(pattern, brief, done.stdout.decode()))\n"
        "sys.exit(done.returncode)\n"
    )
    program.chmod(0o755)
    return place


def test_a_bd_without_leases_is_not_shared(project_old: BdProject, tmp_path: Path) -> None:
    refused = call(project_old, "start", "--shared", "--", "true")
    assert refused.returncode == 6
    assert f"--shared needs bd 1.2 or later, with leases; this is bd {OLD}" in refused.stderr
    assert "hint: install a later beads, or leave --shared out" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--source", "sqlite"), "the built-in tracker has no leases"),
        (("--bd-calls", "worker"), "does not go with --bd-calls worker"),
        (("--term-grace", "61s"), "--term-grace is at most 60s"),
    ],
)
def test_what_cannot_be_shared_is_a_usage_error(
    embedded: EmbeddedProject, arguments: tuple[str, ...], why: str
) -> None:
    (embedded.folder / ".beads").mkdir()
    refused = call(embedded, "start", "--shared", *arguments, "--", "true")
    assert (refused.returncode, why in refused.stderr) == (2, True), refused.stderr
