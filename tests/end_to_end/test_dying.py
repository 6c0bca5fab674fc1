"""Whatever is killed, nothing is lost and nothing that succeeded is run again."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from beads_workers.runtime import sessions
from tests.end_to_end.conftest import Ran, StartFleet
from tests.support.bd import BdProject
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import Fleet, call, until

pytestmark = pytest.mark.daily(2)

ONCE_LONG = 'if mkdir "$RAN.$BW_ISSUE_ID" 2>/dev/null; then sleep 600 & wait; fi'
"""Never ends the first time, and is quick from then on: from when its folder is there."""


def stays(ran: Ran, issue_id: str) -> bool:
    """Whether its ``ONCE_LONG`` has come to the part that never ends."""
    return Path(f"{ran.file}.{issue_id}").exists()


def all_closed(project: Any) -> bool:
    return {status for status, _ in project.read_all().values()} == {"closed"}


def successes(fleet: Fleet) -> list[str]:
    """Issues of which the fleet knows that their command succeeded."""
    return [r["issue_id"] for r in fleet.journal("finished") if r["verdict"] == "finish"]


def test_a_worker_killed_in_its_task_is_replaced_and_its_issue_is_done(
    any_project: Any, start: StartFleet, ran: Ran
) -> None:
    ids = any_project.create_many([{} for _ in range(4)])
    long = f"case $BW_ISSUE_ID in {ids[0]}) {ONCE_LONG};; esac"
    fleet = start(
        any_project,
        *("-n", "2", "--until-empty", "--retry-delay", "0.1s", "--"),
        *ran.command(long),
        environment=ran.environment,
    )
    began = fleet.wait_for("started", issue_id=ids[0])
    until(lambda: stays(ran, ids[0]))
    os.kill(fleet.worker_pid(began["worker_id"]), signal.SIGKILL)
    assert fleet.wait() in (0, 7), fleet.said()
    assert all_closed(any_project)
    assert Counter(ran.begun()) == Counter([*ids, ids[0]])
    assert sorted(ran.ended()) == sorted(ids)
    (lost,) = [r for r in fleet.journal("finished") if r["outcome"] == "lost"]
    assert lost["charged"] == 1
    assert fleet.wait() == 0
    fleet.leaves_nothing()


def test_a_bash_worker_killed_in_its_task_is_made_good(
    any_project: Any, start: StartFleet, ran: Ran
) -> None:
    ids = any_project.create_many([{}])
    fleet = start(any_project, *("-n", "0", "--until-empty", "--retry-delay", "0.1s", "--", "true"))
    any_project.environment = {**any_project.environment, **ran.environment}
    worker = fleet.bash_worker(*ran.command(ONCE_LONG))
    until(lambda: stays(ran, ids[0]))
    sessions.kill_sessions({worker.pid}, "", ())
    worker.wait()
    # Its task leads a process group, and a session, of its own: it is nobody's now.
    fleet.bash_worker(*ran.command(ONCE_LONG))
    assert fleet.wait() == 0, fleet.said()
    assert ran.ended() == list(ids)
    assert all_closed(any_project)
    assert fleet.bash_workers_left()[1] == 0
    fleet.leaves_nothing()


def test_what_a_bash_worker_had_closed_when_it_was_killed_is_done_and_nothing_else(
    bd_project: BdProject, start: StartFleet, tmp_path: Path
) -> None:
    bd_project.create_many([{}])
    fleet = start(bd_project, "-n", "0", "--until-empty", "--", "true")
    closed = tmp_path / "closed-by-it"
    worker = fleet.bash_worker("sh", "-c", f"bd close {{id}} && touch {closed} && sleep 600")
    until(closed.exists)
    sessions.kill_sessions({worker.pid}, "", ())
    worker.wait()
    assert fleet.wait() == 0, fleet.said()
    assert [r["outcome"] for r in fleet.journal("finished")] == ["lost"]
    assert [r["result"] for r in fleet.journal("settled")][-1] == "found_closed"
    assert "closed 1, failed attempts 0, quarantined 0" in fleet.output
    fleet.leaves_nothing()


@pytest.mark.timeout(180)
def test_an_orchestrator_killed_in_the_middle_is_made_good_by_the_next(
    any_project: Any, start: StartFleet, ran: Ran
) -> None:
    count = 8 if hasattr(any_project, "bd") else 40
    ids = any_project.create_many([{} for _ in range(count)])
    long = f"case $BW_ISSUE_ID in {ids[0]}|{ids[3]}) {ONCE_LONG};; esac"
    arguments = ("-n", "4", "--until-empty", "--", *ran.command(long))
    first: Fleet = start(any_project, *arguments, environment=ran.environment)
    until(lambda: stays(ran, ids[0]) and stays(ran, ids[3]) and len(successes(first)) >= 3)
    first.bash_worker("sleep", "30")
    first.wait_for("worker_joined", own=False)
    os.kill(first.pid, signal.SIGKILL)
    # At once, while the old workers are still ending their tasks.
    second: Fleet = start(any_project, *arguments, environment=ran.environment)
    assert first.wait() == 1, first.said()
    assert "the next start settles what it left" in first.errors
    assert second.wait(120) == 0, second.said()
    assert all_closed(any_project)
    assert set(ran.ended()) == set(ids)
    again = {i for i, times in Counter(ran.ended()).items() if times > 1}
    # What ended in the very moment of the kill, and was reported to nobody, may run again.
    assert not again & set(successes(first)), "a success was run again"
    assert first.bash_workers_left()[0] != 0
    assert first.token_holders() == []
    assert not first.socket.exists()
    second.leaves_nothing()
    actor = first.journal("run_started")[0]["actor"]
    held = [i for i, (s, a) in any_project.read_all().items() if a == actor and s != "closed"]
    assert held == []


def test_an_orchestrator_killed_with_everything_idle_leaves_no_worker(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    fleet: Fleet = start(embedded, "-n", "5", "--", "true")
    fleet.wait_for("worker_joined")
    until(lambda: len(fleet.journal("worker_joined")) == 5)
    pids = [r["pid"] for r in fleet.journal("worker_started")]
    os.kill(fleet.pid, signal.SIGKILL)
    until(lambda: not any(sessions.start_time(pid) for pid in pids), 15)
    assert call(embedded, "status").returncode == 3
    shown = json.loads(call(embedded, "status", "--json").stdout)
    assert shown["running"] is False
    assert shown["last_run"]["run_id"] == fleet.run_id


def test_the_zygote_killed_under_a_fleet_is_replaced(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    ids = embedded.create_many([{} for _ in range(30)])
    fleet: Fleet = start(
        embedded,
        *("-n", "3", "--until-empty", "--retry-delay", "0.1s", "--"),
        *ran.command("sleep 0.1"),
        environment=ran.environment,
    )
    until(ran.ended)
    zygote = _parent(fleet.worker_pid("W1"))
    assert zygote != fleet.pid
    os.kill(zygote, signal.SIGKILL)
    until(lambda: len(ran.ended()) >= 10)
    os.kill(fleet.worker_pid("W2"), signal.SIGKILL)
    assert fleet.wait() == 0, fleet.said()
    assert all_closed(embedded)
    assert sorted(successes(fleet)) == sorted(ids)
    lost = {r["issue_id"] for r in fleet.journal("finished") if r["outcome"] == "lost"}
    assert {i for i, times in Counter(ran.ended()).items() if times > 1} <= lost
    fleet.leaves_nothing()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_command_that_leaves_children_behind_leaves_none_after_the_fleet(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    embedded.create_many([{} for _ in range(3)])
    fleet: Fleet = start(
        embedded,
        *("-n", "2", "--until-empty", "--"),
        *ran.command("setsid sleep 600 >/dev/null 2>&1 & nohup sleep 600 >/dev/null 2>&1 & :"),
        environment=ran.environment,
    )
    assert fleet.wait() == 0, fleet.said()
    fleet.leaves_nothing()


def test_a_bd_killed_with_its_orchestrator_is_waited_for(
    project_new: BdProject, start: StartFleet, ran: Ran
) -> None:
    ids = project_new.create_many([{} for _ in range(4)])
    arguments = ("-n", "2", "--until-empty", "--", *ran.command())
    first: Fleet = start(project_new, *arguments, environment=ran.environment)
    first.wait_for("claimed")
    first.wait_for("finished")
    until(lambda: _in_a_call(first))
    os.kill(first.pid, signal.SIGKILL)
    second: Fleet = start(project_new, *arguments, environment=ran.environment)
    assert second.wait(90) == 0, second.said()
    assert all_closed(project_new)
    assert set(ran.ended()) == set(ids)
    again = {i for i, times in Counter(ran.ended()).items() if times > 1}
    assert not again & set(successes(first))
    second.leaves_nothing()


def _in_a_call(fleet: Fleet) -> bool:
    kinds = [r["e"] for r in fleet.journal() if r["e"] in ("call_started", "call_ended")]
    return bool(kinds) and kinds[-1] == "call_started"
