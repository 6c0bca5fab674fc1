"""What people ask of a running fleet, and what they see of one that is over."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from beads_workers.runtime import sessions
from tests.end_to_end.conftest import Ran, StartFleet
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import PROGRAM, Fleet, call, until

GATED = 'while ! [ -e "$RAN.$BW_ISSUE_ID" ] && ! [ -e "$RAN.gate" ]; do sleep 0.2; done'


def gated(start: StartFleet, project: Any, ran: Ran, *options: str) -> Fleet:
    """A fleet whose tasks wait until they are let go."""
    fleet: Fleet = start(project, *options, "--", *ran.command(GATED), environment=ran.environment)
    return fleet.started()


def let_go(ran: Ran, which: str = "gate") -> None:
    Path(f"{ran.file}.{which}").touch()


def tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file with its inode and size."""
    files = [p for p in folder.rglob("*") if p.is_file()]
    return {str(p): (p.stat().st_ino, p.stat().st_size) for p in files}


def test_a_second_start_exits_5_and_changes_nothing(
    either_project: Any, start: StartFleet, ran: Ran, tmp_path: Path
) -> None:
    either_project.create_many([{} for _ in range(2)])
    fleet = gated(start, either_project, ran, "-n", "2", "--until-empty")
    until(lambda: len(ran.begun()) == 2)
    before = either_project.read_all()
    files = tree(either_project.folder / ".beads-workers")
    for options in ((), ("--state-dir", str(tmp_path / "elsewhere"))):
        second = fleet.call("start", "-n", "1", *options, "--", "touch", str(tmp_path / "wrong"))
        assert second.returncode == 5, second.stderr
        assert second.stderr.startswith("error: ")
        assert "hint: " in second.stderr
        assert second.stdout == ""
    assert str(fleet.pid) in fleet.call("start", "--", "true").stderr
    assert either_project.read_all() == before
    assert tree(either_project.folder / ".beads-workers") == files
    let_go(ran)
    assert fleet.wait() == 0, fleet.said()
    assert not (tmp_path / "wrong").exists()
    fleet.leaves_nothing()


def test_pause_holds_back_what_is_new_and_resume_goes_on(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    ids = embedded.create_many([{} for _ in range(3)])
    fleet = gated(start, embedded, ran, "-n", "1", "--until-empty")
    until(ran.begun)
    assert fleet.call("pause").returncode == 0
    assert fleet.status()["state"] == "paused"
    let_go(ran, ids[0])
    until(lambda: fleet.status()["totals"]["done"] == 1)
    assert len(ran.begun()) == 1
    let_go(ran)
    assert fleet.call("resume").returncode == 0
    assert fleet.wait() == 0, fleet.said()
    ran.each_once(list(ids))


def test_scale_up_gives_more_at_once_and_scale_down_lets_the_busy_finish(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    ids = embedded.create_many([{} for _ in range(8)])
    fleet = gated(start, embedded, ran, "-n", "1", "--until-empty")
    until(ran.begun)
    assert fleet.call("scale", "4").stdout == "workers: 1 -> 4\n"
    until(lambda: len(ran.begun()) == 4)
    assert fleet.call("scale", "2").returncode == 0
    assert len([w for w in fleet.status()["workers"] if w["state"] == "busy"]) == 4
    for issue_id in ran.begun():
        let_go(ran, issue_id)
    until(lambda: len(ran.begun()) == 6)
    until(lambda: len(fleet.status()["workers"]) == 2)
    let_go(ran)
    assert fleet.wait() == 0, fleet.said()
    ran.each_once(list(ids))
    assert {r["status"] for r in fleet.journal("worker_exited")} == {0}
    fleet.leaves_nothing()


def test_release_takes_a_task_away_until_retry(
    any_project: Any, start: StartFleet, ran: Ran
) -> None:
    ids = any_project.create_many([{} for _ in range(2)])
    fleet = gated(start, any_project, ran, "-n", "2")
    until(lambda: len(ran.begun()) == 2)
    assert fleet.call("release", ids[0]).returncode == 0
    fleet.wait_for("settled", issue_id=ids[0], action="release")
    assert any_project.read_all()[ids[0]] == ("open", "")
    assert fleet.call("release", "bw-77").returncode == 4
    assert fleet.call("retry", "bw-77").returncode == 4
    let_go(ran)
    fleet.wait_for("settled", issue_id=ids[1], action="close")
    assert any_project.read_all()[ids[0]] == ("open", "")
    assert fleet.call("retry", ids[0]).returncode == 0
    fleet.wait_for("settled", issue_id=ids[0], action="close")
    assert {s for s, _ in any_project.read_all().values()} == {"closed"}
    assert sorted(ran.ended()) == sorted(ids)
    assert fleet.call("stop").returncode == 0
    fleet.leaves_nothing()


def test_restart_goes_on_with_the_same_command_in_a_new_run(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    ids = embedded.create_many([{} for _ in range(2)])
    fleet = gated(start, embedded, ran, "-n", "2", "-d", "--until-empty")
    until(lambda: len(ran.begun()) == 2)
    folder = embedded.folder / "below"
    folder.mkdir()
    again: Fleet = start(
        embedded, verb="restart", folder=folder, environment=ran.environment
    ).started()
    assert again.run_id != fleet.run_id
    until(lambda: len(ran.begun()) == 4)
    assert sessions.start_time(fleet.pid) is None
    let_go(ran)
    until(lambda: sessions.start_time(again.pid) is None)
    assert sorted(ran.ended()) == sorted(ids)
    again.leaves_nothing()


def test_a_fleet_that_waits_for_its_time_keeps_its_hours_and_begins_when_a_person_says_so(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    embedded.create_many([{}])
    hours = ("--start-at", "20h", "--until", "8h")
    fleet = gated(start, embedded, ran, "-n", "1", "-d", *hours)
    until(lambda: fleet.status()["state"] == "waiting")
    shown = fleet.status()["hours"]
    assert 27.9 * 3600 < shown["ends_in_seconds"] <= 28 * 3600, "it counts from the beginning"
    assert re.match(
        r"fleet waiting until (\d{4}-\d\d-\d\d )?\d\d:\d\d", fleet.call("status").stdout
    )
    assert "--start-at" in fleet.call("why", "--all").stdout + fleet.call("why").stdout
    again: Fleet = start(embedded, verb="restart", environment=ran.environment).started()
    until(lambda: again.status()["state"] == "waiting")
    kept = again.status()["hours"]
    assert (kept["begins_at"], kept["ends_at"]) == (shown["begins_at"], shown["ends_at"])
    assert again.call("resume").stdout == "running\n"
    until(ran.begun)
    third: Fleet = start(embedded, verb="restart", environment=ran.environment).started()
    until(lambda: len(ran.begun()) == 2)
    kept = third.status()["hours"]
    assert (kept["begins_at"], kept["ends_at"]) == (None, shown["ends_at"])
    let_go(ran)
    assert third.call("stop").returncode == 0
    third.leaves_nothing()


def test_from_its_end_on_a_fleet_begins_nothing_and_finishes_what_runs(
    either_project: Any, start: StartFleet, ran: Ran
) -> None:
    either_project.create_many([{} for _ in range(3)])
    fleet = gated(start, either_project, ran, "-n", "1", "--until", "3s")
    until(lambda: fleet.status()["state"] == "draining")
    assert fleet.call("restart").returncode == 2, "its end is over: no start could begin anything"
    let_go(ran)
    assert fleet.wait() == 0, fleet.said()
    assert len(ran.ended()) == 1
    assert "the time of --until has come" in fleet.said()
    fleet.leaves_nothing()


def test_status_before_during_and_after(either_project: Any, start: StartFleet, ran: Ran) -> None:
    nothing = call(either_project, "status", "--json")
    assert nothing.returncode == 3
    assert json.loads(nothing.stdout) == {"running": False, "last_run": None}
    either_project.create_many([{"title": "the title"}])
    fleet = gated(start, either_project, ran, "-n", "1", "--until-empty")
    until(ran.begun)
    shown = fleet.status()
    assert shown["running"] is True
    assert shown["pid"] == fleet.pid
    assert shown["socket"] == str(fleet.socket)
    assert shown["source"] == ("bd" if hasattr(either_project, "bd") else "sqlite")
    (worker,) = shown["workers"]
    assert (worker["state"], worker["issue_id"], worker["title"], worker["attempt"]) == (
        *("busy", "bw-1", "the title", 1),
    )
    assert shown["queue"]["running"] == 1
    assert "bw-1" in fleet.call("status").stdout
    let_go(ran)
    assert fleet.wait() == 0, fleet.said()
    after = call(either_project, "status", "--json")
    assert after.returncode == 3
    last = json.loads(after.stdout)["last_run"]
    assert (last["run_id"], last["closed"], last["failed"], last["settled"]) == (
        *(fleet.run_id, 1, 0, True),
    )
    assert "closed 1" in call(either_project, "status").stdout


def test_logs_of_the_fleet_of_a_worker_and_of_an_issue(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    embedded.create_many([{}])
    fleet: Fleet = start(
        embedded,
        *("-n", "1", "--until-empty", "--"),
        *ran.command(f"echo one; echo two >&2; {GATED}; echo three"),
        environment=ran.environment,
    )
    until(ran.begun)
    with subprocess.Popen(
        [*PROGRAM, "logs", "W1", "-f"],
        cwd=embedded.folder,
        env=embedded.environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "one\n"
        let_go(ran)
        assert fleet.wait() == 0
        assert following.stdout.read() == "two\nthree\n"
        assert following.wait(20) == 0
    assert "done     bw-1" in fleet.call("logs").stdout
    assert fleet.call("logs", "bw-1").stdout == "one\ntwo\nthree\n"
    assert fleet.call("logs", "bw-1", "-n", "1").stdout == "three\n"
    assert fleet.call("logs", "bw-9").returncode == 4


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_clean_says_first_and_keeps_what_is_remembered(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    for _ in range(3):
        fleet: Fleet = start(embedded, "-n", "1", "--until-empty", "--", "true")
        assert fleet.wait() == 0, fleet.said()
    runs = embedded.folder / ".beads-workers" / "runs"
    before = names(runs)
    would = fleet.call("clean", "--dry-run", "--keep", "1").stdout
    assert names(runs) == before
    assert before[0] in would and before[1] in would and before[2] not in would
    assert fleet.call("clean", "--keep", "1").returncode == 0
    assert names(runs) == before[-1:]
    assert json.loads(fleet.call("status", "--json").stdout)["last_run"]["run_id"] == before[-1]


def test_events_as_json_lines_end_with_the_end(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    embedded.create_many([{}])
    fleet: Fleet = start(embedded, "-n", "1", "--until-empty", "--json", "--", "true")
    assert fleet.wait() == 0
    events = [json.loads(text) for text in fleet.output.splitlines()]
    assert [e["issue_id"] for e in events if e.get("e") == "finished"] == ["bw-1"]
    assert events[-1]["ended"]["exit_code"] == 0
    assert events[-1]["ended"]["totals"]["done"] == 1


@pytest.mark.parametrize(
    "arguments",
    [("stop",), ("wait",), ("pause",), ("resume",), ("scale", "3"), ("release", "x"), ("restart",)],
    ids=lambda arguments: arguments[0],
)
def test_without_a_fleet_every_request_exits_3(
    embedded: EmbeddedProject, arguments: tuple[str, ...]
) -> None:
    done = call(embedded, *arguments)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error: no fleet is running here\nhint: ")
