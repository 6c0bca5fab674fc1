"""Every way of ending a fleet leaves nothing behind."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from beads_workers.runtime import sessions
from tests.end_to_end.conftest import Ran, StartFleet
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import PROGRAM, Fleet, call, until
from tests.support.peer import descriptors

LONG = "sleep 600 & wait"
"""A task that only a signal to its whole group ends."""


def busy_fleet(start: StartFleet, project: Any, ran: Ran, *more: str, **options: Any) -> Fleet:
    """A fleet of three, every worker of which is in the middle of a long task."""
    project.create_many([{} for _ in range(6)])
    command = ran.command(LONG)
    fleet: Fleet = start(
        project, "-n", "3", *more, "--", *command, environment=ran.environment, **options
    )
    until(lambda: len(ran.begun()) == 3, what=fleet.said())
    return fleet


def all_open(project: Any) -> bool:
    return set(project.read_all().values()) == {("open", "")}


def test_stop_from_a_subfolder_leaves_nothing_and_says_what_went_back(
    any_project: Any, start: StartFleet, ran: Ran
) -> None:
    fleet = busy_fleet(start, any_project, ran)
    folder = any_project.folder / "deep" / "er"
    folder.mkdir(parents=True)
    done = fleet.call("stop", folder=folder)
    assert done.returncode == 0, done.stderr
    fleet.leaves_nothing()
    assert "everyone has left, 3 issues requeued" in done.stdout
    for issue_id in set(ran.begun()):
        assert issue_id in done.stdout
    assert all_open(any_project)
    assert fleet.wait() == 0, fleet.said()
    assert ran.ended() == []
    assert {r["status"] for r in fleet.journal("worker_exited")} == {0}
    assert fleet.journal("run_changed")[-3]["reason"] == "user_requested"


def test_the_line_that_goes_on_after_a_run_by_options_can_be_pasted(
    embedded: EmbeddedProject, start: StartFleet
) -> None:
    embedded.create_many([{} for _ in range(4)])
    work = ("-n", "2", "--limit", "2", "--", "sh", "-c", 'test "it\'s $BW_ISSUE_ID"')
    fleet = start(embedded, *work)
    assert fleet.wait() == 0, fleet.said()
    _, said, command = fleet.output.rpartition("next: to go on with what is ready: ")
    assert said, fleet.output
    program = f'beads-workers() {{ {shlex.join(PROGRAM)} "$@"; }}'
    pasted = ["bash", "-c", f"{program}; {command}"]
    subprocess.run(pasted, cwd=embedded.folder, env=embedded.environment, timeout=60, check=True)
    assert {status for status, _ in embedded.read_all().values()} == {"closed"}


def test_ctrl_c_is_a_stop_and_exits_130(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    fleet = busy_fleet(start, embedded, ran)
    fleet.process.send_signal(signal.SIGINT)
    assert fleet.wait() == 130, fleet.said()
    fleet.leaves_nothing()
    assert all_open(embedded)
    assert "requeued 3" in fleet.output
    assert {r["status"] for r in fleet.journal("worker_exited")} == {0}


def test_a_second_ctrl_c_means_now(embedded: EmbeddedProject, start: StartFleet, ran: Ran) -> None:
    embedded.create_many([{}])
    fleet = start(
        embedded,
        *("-n", "1", "--term-grace", "60s", "--stop-timeout", "90s", "--"),
        *ran.command("trap '' TERM; while :; do sleep 0.2; done"),
        environment=ran.environment,
    )
    until(ran.begun)
    fleet.process.send_signal(signal.SIGINT)
    until(lambda: "again to stop now" in fleet.errors)
    fleet.process.send_signal(signal.SIGINT)
    assert fleet.wait(20) == 130, fleet.said()
    fleet.leaves_nothing()
    assert all_open(embedded)


def test_kill_9_of_the_client_is_a_stop(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    fleet = busy_fleet(start, embedded, ran)
    pid = fleet.pid
    fleet.process.kill()
    until(lambda: sessions.start_time(pid) is None, 15)
    fleet.leaves_nothing()
    assert all_open(embedded)


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_client_is_a_stop(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran, sign: signal.Signals
) -> None:
    fleet = busy_fleet(start, embedded, ran)
    fleet.process.send_signal(sign)
    assert fleet.wait() == 128 + sign, fleet.said()
    fleet.leaves_nothing()


def test_sigterm_to_the_orchestrator_is_a_stop(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    fleet = busy_fleet(start, embedded, ran)
    os.kill(fleet.pid, signal.SIGTERM)
    assert fleet.wait() == 143, fleet.said()
    fleet.leaves_nothing()


def test_closing_the_terminal_is_a_stop(
    embedded: EmbeddedProject, ran: Ran, tmp_path: Path
) -> None:
    embedded.create_many([{} for _ in range(3)])
    child, master = pty.fork()
    if child == 0:
        os.chdir(embedded.folder)
        arguments = ["start", "-n", "3", "--no-dashboard", "--", *ran.command(LONG)]
        os.execve(
            PROGRAM[0],
            [*PROGRAM, *arguments],
            {**embedded.environment, **ran.environment, "TERM": "xterm"},
        )
    try:
        until(lambda: len(ran.begun()) == 3)
        info = json.loads((embedded.folder / ".beads-workers" / "run.json").read_text())
        os.close(master)
        os.waitpid(child, 0)
        until(lambda: sessions.start_time(info["pid"]) is None, 20)
    finally:
        sessions.kill_sessions({child}, "", ())
    assert not Path(info["socket"]).exists()
    assert all_open(embedded)
    assert call(embedded, "status").returncode == 3


def test_stop_drain_lets_what_runs_finish(
    either_project: Any, start: StartFleet, ran: Ran, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    ids = either_project.create_many([{} for _ in range(8)])
    fleet = start(
        either_project,
        *("-n", "2", "--"),
        *ran.command(f"while ! [ -e {gate} ]; do sleep 0.2; done"),
        environment=ran.environment,
    )
    until(lambda: len(ran.begun()) == 2)
    with subprocess.Popen(
        [*PROGRAM, "stop", "--drain"], cwd=either_project.folder, env=either_project.environment
    ) as stopping:
        fleet.wait_for("run_changed", state="draining")
        gate.touch()
        assert stopping.wait(60) == 0
    assert fleet.wait() == 0, fleet.said()
    fleet.leaves_nothing()
    assert sorted(ran.begun()) == sorted(ran.ended())
    assert len(ran.ended()) == 2
    left = [i for i in ids if either_project.read_all()[i] == ("open", "")]
    assert len(left) == 6


def test_stop_now_kills_what_will_not_go(either_project: Any, start: StartFleet, ran: Ran) -> None:
    either_project.create_many([{}])
    fleet = start(
        either_project,
        *("-n", "2", "--term-grace", "60s", "--"),
        *ran.command("trap '' TERM; while :; do sleep 0.2; done"),
        environment=ran.environment,
    )
    until(ran.begun)
    assert fleet.call("stop", "--now").returncode == 0
    fleet.wait()
    fleet.leaves_nothing()
    assert all_open(either_project)


def test_a_detached_fleet_lives_on_and_wait_has_its_exit_code(
    either_project: Any, start: StartFleet, ran: Ran
) -> None:
    either_project.create_many([{} for _ in range(2)])
    fleet = start(
        either_project,
        *("-n", "2", "-d", "--until-empty", "--max-attempts", "1", "--"),
        *ran.command('while ! [ -e "$RAN.gate" ]; do sleep 0.2; done; [ "$BW_ISSUE_ID" = bw-1 ]'),
        environment=ran.environment,
    )
    assert fleet.wait() == 0, fleet.said()
    until(lambda: len(ran.begun()) == 2)
    assert fleet.status()["queue"]["running"] == 2
    assert fleet.call("wait", "--timeout", "0.1").returncode == 124
    with subprocess.Popen(
        [*PROGRAM, "wait"], cwd=either_project.folder, env=either_project.environment
    ) as waiting:
        until(lambda: _has_socket(waiting.pid))
        Path(f"{ran.file}.gate").touch()
        assert waiting.wait(60) == 7
    until(lambda: sessions.start_time(fleet.pid) is None)
    fleet.leaves_nothing()
    assert {i: s for i, (s, _) in either_project.read_all().items()} == {
        "bw-1": "closed",
        "bw-2": "blocked",
    }


def _has_socket(pid: int) -> bool:
    return any(name.startswith("socket:") for name in descriptors(pid).values())


def test_the_end_by_idleness_and_by_runtime(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    embedded.create_many([{}])
    fleet = start(embedded, "-n", "2", "--idle-timeout", "0.3s", "--", *ran.command(), **_with(ran))
    assert fleet.wait(20) == 0, fleet.said()
    stopping = fleet.wait_for("run_changed", state="stopping")
    assert stopping["reason"] == "idle_timeout"
    assert {r["status"] for r in fleet.journal("worker_exited")} == {0}
    fleet.leaves_nothing()
    embedded.create_many([{"id": "bw-late"}])
    fleet = start(
        embedded, "-n", "2", "--max-runtime", "0.5s", "--", *ran.command(LONG), **_with(ran)
    )
    assert fleet.wait(20) == 124, fleet.said()
    fleet.leaves_nothing()
    assert embedded.read_all()["bw-late"] == ("open", "")  # type: ignore[index]


def test_a_year_is_longer_than_any_selector_waits_and_is_waited_for_all_the_same(
    embedded: Any, start: StartFleet
) -> None:
    embedded.create_many([{}])
    year = ("--max-runtime", "366d", "--timeout", "366d", "--poll", "366d")
    fleet = start(embedded, "-n", "1", *year, "--", "sleep", "0.2")
    assert fleet.wait_for("finished")["outcome"] == "success"
    assert fleet.journal("worker_exited") == []
    assert fleet.call("stop", "--timeout", "0.5").returncode == 0
    fleet.leaves_nothing()


def _with(ran: Ran) -> dict[str, Any]:
    return {"environment": ran.environment}


def test_a_state_directory_that_is_deleted_ends_the_fleet_with_an_error(
    project_old: Any, start: StartFleet, ran: Ran, tmp_path: Path
) -> None:
    # Of bd: the built-in tracker itself would be gone with it.
    project_old.create_many([{} for _ in range(40)])
    state = tmp_path / "state"
    fleet = start(
        project_old,
        *("-n", "2", "--state-dir", str(state), "--"),
        *ran.command("sleep 0.1"),
        **_with(ran),
    )
    fleet.bash_worker("true")
    until(ran.ended)
    pid, path = fleet.pid, fleet.socket
    state.rename(tmp_path / "gone")
    assert fleet.wait() == 1, fleet.said()
    assert "deleted" in fleet.output
    assert "next: " in fleet.output
    assert "stopping (error)" in fleet.output
    assert fleet.bash_workers_left() == [0]
    until(lambda: sessions.start_time(pid) is None)
    assert not path.exists()
    assert not [i for i, s in project_old.read_all().items() if s[0] == "in_progress"]
