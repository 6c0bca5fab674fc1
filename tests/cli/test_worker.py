"""``beads-workers worker``: one worker by hand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.peer import Peer, gone, wait_for


class ByHand:
    """Runs the command in ``folder``, where a peer listens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.peer = Peer(folder / "beads-workers-4242.sock")
        self.process: subprocess.Popen[str] | None = None

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "beads_workers", "worker", *arguments],
            cwd=self.folder,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(self.folder), **environment},
        )
        return self.process

    def close(self) -> None:
        self.peer.close()
        if self.process is not None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def by_hand(tmp_path: Path) -> Iterator[ByHand]:
    by_hand = ByHand(tmp_path)
    yield by_hand
    by_hand.close()


def test_it_joins_works_and_leaves_with_the_fleet(by_hand: ByHand) -> None:
    by_hand.peer.path.rename(by_hand.folder / "odd-name")
    by_hand.peer.path = by_hand.folder / "odd-name"
    process = by_hand.start(
        *("--socket", "odd-name", "--verify", "test $BW_ISSUE_ID = t-1"),
        *("--", "sh", "-c", 'echo "$BW_ISSUE_TITLE $ORCHESTRATOR_PID"; exit 0'),
        ORCHESTRATOR_PID="77",
    )
    by_hand.peer.accept()
    ready = by_hand.peer.expect("READY")
    assert (ready["worker_id"], ready["version"]) == (f"W{process.pid}", "1.1")
    assert ready["features"] == ["cancel", "grouped", "heartbeat", "pause", "status"]
    by_hand.peer.task("t-1")
    by_hand.peer.expect("DONE")
    by_hand.peer.expect("READY")
    assert process.stderr is not None
    logs = Path(process.stderr.readline().removeprefix("logs of this worker: ").strip())
    assert (logs / "t-1.1.log").read_text() == "A title 77\n"
    by_hand.peer.send("SHUTDOWN", reason="user_requested")
    assert process.wait(10) == 0


def test_under_an_orchestrator_of_version_1_it_claims_and_closes_by_itself(by_hand: ByHand) -> None:
    bd = by_hand.folder / "bd"
    bd.write_text(f'#!/bin/sh\necho "$*" >> {by_hand.folder}/calls\n')
    bd.chmod(0o755)
    by_hand.start(
        *("--socket", str(by_hand.peer.path), "--", "sh", "-c", "test {id} = t-1"),
        PATH=f"{by_hand.folder}:{os.environ['PATH']}",
    )
    by_hand.peer.accept()
    by_hand.peer.expect("READY")
    by_hand.peer.task("t-1", version=None)
    assert list(by_hand.peer.expect("DONE"))[3:] == ["issue_id", "duration_ms"]
    by_hand.peer.expect("READY")
    by_hand.peer.task("t-2", version=None)
    assert list(by_hand.peer.expect("FAILED"))[3:] == ["issue_id", "error", "duration_ms"]
    assert (by_hand.folder / "calls").read_text().splitlines() == [
        "update t-1 --status=in_progress",
        "close t-1",
        "update t-2 --status=in_progress",
    ]


def test_ctrl_c_ends_the_task_with_it(by_hand: ByHand) -> None:
    process = by_hand.start(
        *("--socket", str(by_hand.peer.path), "--bd-calls", "grouped"),
        *("--", "sh", "-c", "echo $$ $ORCHESTRATOR_PID > pid; exec sleep 1000"),
    )
    by_hand.peer.accept()
    by_hand.peer.expect("READY")
    by_hand.peer.task()
    pid, orchestrator = wait_for(by_hand.folder / "pid").split()
    assert orchestrator == "4242"
    process.send_signal(signal.SIGINT)
    assert by_hand.peer.expect("FAILED")["outcome"] == "cancelled"
    assert process.wait(10) == 0
    assert gone(int(pid))


def test_calling_the_tracker_itself_it_does_not_ask_for_grouping(by_hand: ByHand) -> None:
    by_hand.start("--socket", str(by_hand.peer.path), "--bd-calls", "worker", "--", "true")
    by_hand.peer.accept()
    assert by_hand.peer.expect("READY")["features"] == ["cancel", "heartbeat", "pause", "status"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--socket", "s"], "no command"),
        (["--", "true"], "which fleet?"),
        (["--socket", "s", "--", "sh", "-c", "x {title}"], "$BW_ISSUE_TITLE"),
    ],
)
def test_what_is_missing_or_unsafe_is_said_with_exit_2(
    by_hand: ByHand, arguments: list[str], said: str
) -> None:
    process = by_hand.start(*arguments, ORCHESTRATOR_PID="")
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 2
    assert said in errors


STRANGER = """
import json, os, socket, time
os.setgid(65534)
os.setuid(65534)
listener = socket.socket(socket.AF_UNIX)
path = f"/tmp/beads-workers-{os.getpid()}.sock"
listener.bind(path)
os.chmod(path, 0o666)
listener.listen()
print("listens", flush=True)
task = {"type": "TASK", "timestamp": 1.0, "issue_id": "a", "worker_id": "W1", "version": "1.1"}
task["payload"] = {"command": ["touch", "harm"]}
while True:
    connection, _ = listener.accept()
    connection.sendall(json.dumps(task).encode() + b"\\n")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_the_server_of_another_user_is_given_no_work_to_hand_out(by_hand: ByHand) -> None:
    stranger = subprocess.Popen(
        [sys.executable, "-I", "-c", STRANGER], cwd="/", stdout=subprocess.PIPE
    )
    try:
        assert stranger.stdout is not None and stranger.stdout.readline() == b"listens\n"
        process = by_hand.start("--", "echo", ORCHESTRATOR_PID=str(stranger.pid))
        assert process.wait(60) == 1
        assert process.stderr is not None
        said = process.stderr.read()
        assert "its server is another user's (uid 65534)" in said
        assert not (by_hand.folder / "harm").exists()
    finally:
        stranger.kill()
        stranger.wait()
        Path(f"/tmp/beads-workers-{stranger.pid}.sock").unlink(missing_ok=True)
