"""The hand of the demo kills the worker that it means, and nothing that is not its fleet's."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from beads_workers.demo.account import AT_WORK_SECONDS, Hand, Killed
from beads_workers.demo.backlog import ItemFate, of_fate
from beads_workers.runtime.run_directory import RunDirectory, RunInfo

VICTIM = of_fate(ItemFate.KILLED)[0]


@pytest.fixture
def state(tmp_path: Path) -> Iterator[RunDirectory]:
    """A run directory of a run that lives, as far as its files can tell."""
    state = RunDirectory(tmp_path / "state")
    state.create()
    run_id, alive = state.create_run()
    control = str(tmp_path / "control.sock")
    state.write_info(RunInfo(os.getpid(), 0, run_id, "", control, "", "sqlite"))
    yield state
    os.close(alive)


@pytest.fixture
def sleeper() -> Iterator[Callable[[Path | None], subprocess.Popen[bytes]]]:
    """Starts processes that hold a file open, or none."""
    children: list[subprocess.Popen[bytes]] = []

    def begin(held: Path | None) -> subprocess.Popen[bytes]:
        fd = os.open(held or os.devnull, os.O_RDONLY)
        children.append(subprocess.Popen(["sleep", "60"], pass_fds=(fd,)))
        os.close(fd)
        return children[-1]

    yield begin
    for child in children:
        child.kill()
        child.wait()


def snapshot(pid: int, issue_id: str = VICTIM.issue_id, after: float = AT_WORK_SECONDS) -> Any:
    """One worker at work."""
    row = {"worker_id": "W3", "pid": pid, "issue_id": issue_id, "elapsed_seconds": after}
    return {"snapshot": {"workers": [row]}}


def shown(state: RunDirectory, *messages: Any) -> Killed | None:
    """Whom the hand has killed when it has been shown these."""
    info = state.read_info()
    assert info is not None
    hand = Hand(state, VICTIM)
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as listener:
        listener.bind(info.control_socket)
        listener.listen()
        hand.start()
        fleet, _ = listener.accept()
        with closing(fleet):
            assert b"bw.watch" in fleet.recv(1 << 16)
            fleet.sendall(b"".join(json.dumps(m).encode() + b"\n" for m in messages))
    hand.join(10)
    return hand.killed


def held_by(state: RunDirectory) -> Path:
    """The lock of its run."""
    return state.run(state.run_ids()[-1]) / "alive"


def test_it_kills_the_worker_of_the_victim_once(state: RunDirectory, sleeper: Any) -> None:
    worker, other = sleeper(held_by(state)), sleeper(held_by(state))
    killed = shown(state, snapshot(worker.pid), snapshot(other.pid))
    assert killed == Killed("W3", worker.pid, VICTIM.issue_id)
    assert worker.wait(10) == -signal.SIGKILL
    assert other.poll() is None


def test_it_kills_no_process_that_is_not_of_the_run(state: RunDirectory, sleeper: Any) -> None:
    stranger = sleeper(None)
    assert shown(state, snapshot(stranger.pid)) is None
    assert stranger.poll() is None


def test_it_waits_until_the_victim_is_at_work(state: RunDirectory, sleeper: Any) -> None:
    worker = sleeper(held_by(state))
    early = snapshot(worker.pid, after=AT_WORK_SECONDS - 0.1)
    assert shown(state, early, snapshot(worker.pid, "shop-1"), {"ended": {}}) is None
    assert worker.poll() is None


def test_where_no_fleet_is_it_does_nothing(tmp_path: Path) -> None:
    hand = Hand(RunDirectory(tmp_path), VICTIM)
    hand.run()
    assert hand.killed is None
