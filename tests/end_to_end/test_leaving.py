"""No process outlives a fleet, whatever it does; none that a fleet did not start is touched."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from beads_workers.core.base import limits
from beads_workers.runtime import sessions
from beads_workers.runtime.project import STATE_FOLDER, TRACKER_FILE
from tests.end_to_end.conftest import Ran, StartFleet
from tests.support.embedded import EmbeddedProject
from tests.support.fleet import PROGRAM, Fleet, call, until

STUBBORN = """
trap '' TERM
stay='trap "" TERM; echo $$ >>"$0"; while :; do sleep 600; done'
setsid sh -c "$stay" "$PIDS" &
(setsid sh -c "$stay" "$PIDS" &)
env -i setsid sh -c "$stay" "$PIDS" &
(env -i setsid sh -c "$stay" "$PIDS" &)
while :; do sleep 600; done
"""
"""Ignores TERM, and leaves its session in every way: with and without its environment."""


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like a helper of ``bd``, started by somebody else."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def pids_in(file: Path) -> dict[int, int]:
    """Pid and start time of everything that wrote itself down."""
    pids = [int(word) for word in file.read_text().split()] if file.exists() else []
    return {pid: started for pid in pids if (started := sessions.start_time(pid))}


def living(known: dict[int, int]) -> list[int]:
    return [pid for pid, started in known.items() if sessions.start_time(pid) == started]


def stubborn_fleet(embedded: EmbeddedProject, start: StartFleet, file: Path) -> Fleet:
    embedded.create_many([{} for _ in range(2)])
    fleet: Fleet = start(
        embedded, "-n", "2", "--", "sh", "-c", STUBBORN, environment={"PIDS": str(file)}
    )
    until(lambda: len(pids_in(file)) == 8)
    return fleet


def test_a_fleet_that_only_its_pid_names_is_named_by_a_start_and_ends_on_a_second_term(
    embedded: EmbeddedProject, start: StartFleet, tmp_path: Path
) -> None:
    embedded.create_many([{}])
    away = ("--state-dir", str(tmp_path / "away"))
    fleet = start(embedded, *away, "-n", "1", "--", "sleep", "600")
    fleet.wait_for("started")
    second = call(embedded, "start", "--", "true")
    assert second.returncode == 5
    assert f"(pid {fleet.pid})" in second.stderr and f"'kill {fleet.pid}'" in second.stderr
    tracker = embedded.folder / STATE_FOLDER / TRACKER_FILE
    with closing(sqlite3.connect(tracker, isolation_level=None)) as locked:
        locked.execute("BEGIN EXCLUSIVE")
        os.kill(fleet.pid, signal.SIGTERM)
        settles = fleet.wait_for("run_changed", state="settling")
        os.kill(fleet.pid, signal.SIGTERM)
        assert fleet.wait() == 128 + signal.SIGTERM
    ended = fleet.journal("run_ended")[0]
    assert ended["t"] - settles["t"] < limits.SETTLE_TIMEOUT_SECONDS / 2, fleet.said()


def test_stop_ends_what_left_its_session_and_its_environment_and_no_stranger(
    embedded: EmbeddedProject, start: StartFleet, tmp_path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    fleet = stubborn_fleet(embedded, start, tmp_path / "pids")
    known = pids_in(tmp_path / "pids")
    done = fleet.call("stop", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["left"] == []
    assert living(known) == []
    assert stranger.poll() is None
    fleet.leaves_nothing()


def test_workers_end_everything_within_a_second_of_their_orchestrators_death(
    embedded: EmbeddedProject, start: StartFleet, tmp_path: Path
) -> None:
    fleet = stubborn_fleet(embedded, start, tmp_path / "pids")
    known = pids_in(tmp_path / "pids")
    workers = [fleet.worker_pid("W1"), fleet.worker_pid("W2")]
    known |= {pid: sessions.start_time(pid) or 0 for pid in workers}
    os.kill(fleet.pid, signal.SIGKILL)
    # A second, and what a busy machine adds to it; the grace of 'stop' is longer than this.
    until(lambda: living(known) == [], 4)


def test_a_killed_worker_leaves_nothing_of_a_task_that_hid(
    embedded: EmbeddedProject, start: StartFleet, tmp_path: Path
) -> None:
    fleet = stubborn_fleet(embedded, start, tmp_path / "pids")
    known = pids_in(tmp_path / "pids")
    os.kill(fleet.worker_pid("W1"), signal.SIGKILL)
    os.kill(fleet.worker_pid("W2"), signal.SIGKILL)
    fleet.wait_for("worker_exited", worker_id="W1")
    fleet.wait_for("worker_exited", worker_id="W2")
    assert living(known) == []


def test_stop_names_what_is_left_and_fails(
    embedded: EmbeddedProject, start: StartFleet, ran: Ran
) -> None:
    fleet: Fleet = start(embedded, "-n", "1", "--", "true")
    fleet.wait_for("worker_joined")
    # Nobody below the fleet: found by the token alone, and only when the fleet has gone.
    token = {"BW_RUN_ID": fleet.run_id, "BW_WORKER_ID": "W99"}
    left = subprocess.Popen(["sleep", "600"], env={**os.environ, **token})
    try:
        done = call(embedded, "stop")
        assert done.returncode == 1
        assert f"{left.pid} (sleep 600)" in done.stderr
        assert left.poll() is None
    finally:
        left.kill()
        left.wait()


def test_a_reader_that_has_seen_enough_ends_no_fleet(embedded: EmbeddedProject) -> None:
    ids = embedded.create_many([{} for _ in range(3)])
    argv = [*PROGRAM, "start", "-n", "1", "--until-empty", "--", "true"]
    command = f"{shlex.join(argv)} | head -n 1; exit ${{PIPESTATUS[0]}}"
    ran = subprocess.run(
        ["bash", "-c", command],
        cwd=embedded.folder,
        env=embedded.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    assert ran.stderr.count("nobody reads this output any more; the fleet goes on") == 1
    assert [embedded.read(each)[0] for each in ids] == ["closed"] * 3
