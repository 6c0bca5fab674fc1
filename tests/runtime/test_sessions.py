"""Ending sessions and token carriers, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from beads_workers.runtime import sessions
from tests.support.peer import gone, wait_for

RUN = f"test-{os.getpid()}"


class Family:
    """Processes started for a test, all ended with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, script: str, **environment: str) -> int:
        process = subprocess.Popen(
            ["sh", "-c", script],
            cwd=self.folder,
            start_new_session=True,
            env={**os.environ, **environment},
        )
        self.started.append(process)
        return process.pid

    def pid(self, name: str) -> int:
        return int(wait_for(self.folder / name))

    def close(self) -> None:
        for process in self.started:
            # Not reaped yet, so the group is still this one's.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    family = Family(tmp_path)
    yield family
    family.close()


def test_a_start_time_identifies_a_living_process() -> None:
    assert sessions.start_time(os.getpid()) == sessions.start_time(os.getpid()) is not None
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert sessions.start_time(child) is None, "a zombie runs no more"
    os.waitpid(child, 0)
    assert sessions.start_time(child) is None


def test_a_session_is_killed_whole_even_what_ignores_term(family: Family) -> None:
    leader = family.start("trap '' TERM; sleep 1000 & echo $! > child; wait")
    bystander = family.start("exec sleep 1000")
    child = family.pid("child")
    assert sessions.kill_sessions({leader}, "", ()) == 2
    assert gone(leader) and gone(child)
    assert sessions.start_time(bystander) is not None


def test_a_sweep_finds_what_left_the_session_by_its_token(family: Family) -> None:
    token = {"BW_RUN_ID": RUN, "BW_WORKER_ID": "W1"}
    ours = family.start("exec sleep 1000", **token)
    other_worker = family.start("exec sleep 1000", BW_RUN_ID=RUN, BW_WORKER_ID="W11")
    other_run = family.start("exec sleep 1000", BW_RUN_ID=RUN + "x", BW_WORKER_ID="W1")
    argument = family.start(f"sleep 1000; : BW_RUN_ID={RUN} BW_WORKER_ID=W1")
    assert sessions.sweep(RUN, "W1") == 1
    assert gone(ours)
    for bystander in (other_worker, other_run, argument):
        assert sessions.start_time(bystander) is not None
    assert sessions.sweep(RUN, None) == 1
    assert gone(other_worker)
    assert sessions.sweep(RUN, None) == 0


def test_a_signal_goes_only_to_the_very_process_that_was_meant(family: Family) -> None:
    pid = family.start("exec sleep 1000")
    started = sessions.start_time(pid)
    assert started is not None
    assert not sessions.kill(pid, started + 1, signal.SIGKILL)
    assert sessions.start_time(pid) == started
    assert sessions.kill(pid, started, signal.SIGKILL)
    assert gone(pid)


def test_whoever_holds_a_file_open_is_killed_and_nobody_else(
    family: Family, tmp_path: Path
) -> None:
    held = tmp_path / "alive"
    held.touch()
    owner = family.start(f"exec 9<{held}; echo x > ready; exec sleep 1000")
    other = family.start("echo x > ready2; exec sleep 1000")
    wait_for(tmp_path / "ready")
    wait_for(tmp_path / "ready2")
    with held.open():  # We hold it, too.
        assert sessions.kill_owners(held) == 1
    assert gone(owner) and not gone(other, 0.2)


def test_a_run_lives_in_whoever_holds_its_lock_or_carries_its_token(
    family: Family, tmp_path: Path
) -> None:
    alive = tmp_path / "alive"
    alive.touch()
    owner = family.start(f"exec 9<{alive}; echo x > ready; exec sleep 1000")
    carrier = family.start("exec sleep 1000", BW_RUN_ID=RUN)
    other = family.start("exec sleep 1000", BW_RUN_ID=RUN + "x")
    wait_for(tmp_path / "ready")
    assert set(sessions.living(RUN, alive)) == {owner, carrier}
    assert sessions.holds(owner, alive) and not sessions.holds(other, alive)
    assert not sessions.holds(owner, tmp_path / "no such file")
    for pid in (owner, carrier):
        os.kill(pid, signal.SIGKILL)
        assert gone(pid)
    assert sessions.living(RUN, alive) == []
