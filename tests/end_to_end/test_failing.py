"""What becomes of an issue whose command fails: tried again, quarantined, requeued, counted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from beads_workers.core.base.model import IssueId
from tests.end_to_end.conftest import Ran, StartFleet
from tests.support.bd import BdProject
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, call, until

QUICK = ("--retry-delay", "0.05s", "--poll", "0.2s")


def fleet_of(start: StartFleet, project: Any, ran: Ran, script: str, *options: str) -> Fleet:
    """Runs the script as the command, until the tracker is empty."""
    command = ("sh", "-c", f'echo "begin $BW_ISSUE_ID" >>"$RAN"; {script}')
    fleet: Fleet = start(
        project,
        *("-n", "2", "--until-empty"),
        *options,
        "--",
        *command,
        environment=ran.environment,
    )
    return fleet


def test_two_failures_and_then_a_success_are_a_success(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    ids = embedded.create_many([{} for _ in range(2)])
    fleet = fleet_of(start, embedded, ran, '[ "$BW_ATTEMPT" = 3 ]', *QUICK)
    assert fleet.wait() == 0, fleet.said()
    assert Counter(ran.begun()) == Counter([*ids] * 3)
    assert {s for s, _ in embedded.read_all().values()} == {"closed"}
    assert "closed 2, failed attempts 4" in fleet.output
    fleet.leaves_nothing()


def test_three_failures_quarantine_an_issue_and_retry_gives_it_new_attempts(
    any_project: Any, start: StartFleet, ran: Ran
) -> None:
    ids = any_project.create_many([{}, {}])
    script = (
        f'[ "$BW_ISSUE_ID" = {ids[1]} ] || [ -e "$RAN.gate" ] || {{ echo the reason; exit 3; }}'
    )
    fleet = fleet_of(start, any_project, ran, script, *QUICK)
    assert fleet.wait() == 7, fleet.said()
    assert Counter(ran.begun()) == Counter([ids[0]] * 3 + [ids[1]])
    assert any_project.read_all()[ids[0]][0] == "blocked"
    assert "the reason" in any_project.notes(ids[0])
    assert f"{ids[0]} (number 1) after 3 attempts: the reason" in fleet.output
    last = json.loads(call(any_project, "status", "--json").stdout)["last_run"]
    assert [(row["issue_id"], row["error"]) for row in last["quarantined"]] == [
        (ids[0], "the reason")
    ]
    fleet.leaves_nothing()
    again = fleet_of(start, any_project, ran, script, *QUICK)
    assert again.wait() == 0, again.said()
    assert len(ran.begun()) == 4, "quarantined is quarantined"
    done = call(any_project, "retry", ids[0])
    assert done.returncode == 0, done.stderr
    Path(f"{ran.file}.gate").touch()
    third = fleet_of(start, any_project, ran, script, *QUICK)
    assert third.wait() == 0, third.said()
    assert any_project.read_all()[ids[0]][0] == "closed"


def test_quarantined_is_seen_while_the_fleet_runs_and_retry_brings_it_back(
    project_old: BdProject, start: StartFleet, ran: Ran
) -> None:
    ids = project_old.create_many([{}])
    fleet: Fleet = start(
        project_old,
        *("-n", "1", "--max-attempts", "1", *QUICK, "--"),
        *("sh", "-c", '[ -e "$RAN.gate" ] || { echo no gate; exit 1; }'),
        environment=ran.environment,
    )
    fleet.wait_for("settled", issue_id=ids[0], action="quarantined")
    shown = fleet.status()
    assert shown["quarantined"] == [
        {"issue_id": ids[0], "title": "number 1", "attempts": 1, "error": "no gate"}
    ]
    assert shown["queue"]["quarantined"] == shown["totals"]["quarantined"] == 1
    Path(f"{ran.file}.gate").touch()
    assert fleet.call("retry", ids[0]).returncode == 0
    fleet.wait_for("settled", issue_id=ids[0], action="close")
    assert fleet.call("stop").returncode == 0
    fleet.leaves_nothing()
    assert project_old.read_all()[ids[0]][0] == "closed"


def test_attempts_are_counted_across_restarts(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    (issue_id,) = embedded.create_many([{}])
    fleet = fleet_of(start, embedded, ran, "exit 1", "--retry-delay", "1h")
    fleet.wait_for("finished")
    assert fleet.status()["queue"]["retrying"] == 1
    assert fleet.call("stop").returncode == 0
    assert fleet.wait() == 7, fleet.said()
    # An hour is not over, so nothing is run; it is not forgotten either.
    fleet = fleet_of(start, embedded, ran, "exit 1", "--retry-delay", "1h").started()
    until(lambda: fleet.status()["queue"]["retrying"] == 1)
    assert fleet.call("stop").returncode == 0
    assert len(ran.begun()) == 1
    # The second attempt in all is the last of two.
    fleet = fleet_of(start, embedded, ran, "exit 1", "--max-attempts", "2").started()
    assert fleet.call("retry", "bw-77").returncode == 4
    checkpointed = fleet.journal("checkpointed")
    assert [(r["issue_id"], r["charged"]) for r in checkpointed] == [(issue_id, 1)]
    assert fleet.call("stop").returncode == 0


def test_attempts_before_a_stop_bring_the_last_one_nearer(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    (issue_id,) = embedded.create_many([{}])
    fleet = fleet_of(start, embedded, ran, "exit 1", "--retry-delay", "5s")
    fleet.wait_for("finished")
    assert fleet.call("stop").returncode == 0
    fleet = fleet_of(start, embedded, ran, "exit 1", "--max-attempts", "2", *QUICK)
    assert fleet.wait() == 7, fleet.said()
    assert len(ran.begun()) == 2
    assert embedded.read_all()[issue_id][0] == "blocked"
    fleet.leaves_nothing()


def test_exit_75_requeues_and_charges_nothing(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    embedded.create_many([{}])
    script = 'n=$(grep -c begin "$RAN"); [ "$n" -ge 4 ] || exit 75'
    fleet = fleet_of(start, embedded, ran, script, *QUICK)
    assert fleet.wait() == 0, fleet.said()
    assert len(ran.begun()) == 4
    assert {r.get("attempt") for r in fleet.journal("started")} == {1}
    assert "failed attempts 0" in fleet.output
    fleet.leaves_nothing()


def test_a_task_that_outlives_its_timeout_is_ended_with_everything_it_started(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    embedded.create_many([{}])
    script = "trap '' TERM; (trap '' TERM; sleep 600) & setsid sleep 600 & wait"
    fleet = fleet_of(
        *(start, embedded, ran, script),
        *("--timeout", "0.3s", "--term-grace", "0.3s", "--max-attempts", "1", *QUICK),
    )
    assert fleet.wait() == 7, fleet.said()
    assert {r["outcome"] for r in fleet.journal("finished")} == {"timeout"}
    assert embedded.read(IssueId("bw-1"))[0] == "blocked"
    fleet.leaves_nothing()


def test_verify_must_pass_too(embedded: EmbeddedProject, start: StartFleet, ran: Ran) -> None:
    ids = embedded.create_many([{}, {}])
    fleet = fleet_of(
        *(start, embedded, ran, 'echo made >"$RAN.$BW_ISSUE_ID"'),
        *("--verify", f'test "$BW_ISSUE_ID" = {ids[0]} && cat "$RAN.$BW_ISSUE_ID"'),
        *("--max-attempts", "1", *QUICK),
    )
    assert fleet.wait() == 7, fleet.said()
    statuses = {i: s for i, (s, _) in embedded.read_all().items()}
    assert statuses == {ids[0]: "closed", ids[1]: "blocked"}
    fleet.leaves_nothing()


def test_an_agent_that_closes_its_own_issue_counts_as_done(
    bd_project: Any, start: StartFleet, ran: Ran
) -> None:
    ids = bd_project.create_many([{}, {}])
    # The second one fails after it has closed: the tracker's word counts.
    script = (
        f'bd close "$BW_ISSUE_ID" --force || bd close "$BW_ISSUE_ID"; [ "$BW_ISSUE_ID" = {ids[0]} ]'
    )
    fleet = fleet_of(start, bd_project, ran, script, *QUICK)
    code = fleet.wait()
    assert Counter(ran.begun()) == Counter(ids), fleet.said()
    assert {s for s, _ in bd_project.read_all().values()} == {"closed"}
    assert "closed 2" in fleet.output
    assert code == 0, fleet.said()
    fleet.leaves_nothing()


def test_an_agent_that_says_done_although_it_reopened_its_issue_gets_it_closed(
    bd_project: Any, start: StartFleet, ran: Ran
) -> None:
    ids = bd_project.create_many([{}])
    fleet = fleet_of(start, bd_project, ran, 'bd update "$BW_ISSUE_ID" --priority 0', *QUICK)
    assert fleet.wait() == 0, fleet.said()
    assert bd_project.read_all()[ids[0]][0] == "closed"


def test_a_command_that_cannot_be_executed_any_more_ends_the_fleet_and_charges_nobody(
    either_project: Any, start: StartFleet, ran: Ran, tmp_path: Path
) -> None:
    ids = either_project.create_many([{} for _ in range(6)])
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho "begin $BW_ISSUE_ID" >>"$RAN"\nrm "$0"\nsleep 0.2\n')
    program.chmod(0o755)
    fleet: Fleet = start(either_project, "-n", "1", "--", str(program), environment=ran.environment)
    fleet.started()
    fleet.bash_worker("sleep", "600")
    assert fleet.wait() == 1, fleet.said()
    assert "cannot be run" in fleet.output
    assert "stopping (error)" in fleet.output
    assert fleet.bash_workers_left() == [0]
    statuses = {i: s for i, (s, _) in either_project.read_all().items()}
    assert statuses.pop(ran.begun()[0]) == "closed"
    assert set(statuses.values()) == {"open"}
    assert len(statuses) == len(ids) - 1
    assert fleet.journal("finished")[-1].get("charged", 0) == 0
    fleet.leaves_nothing()
