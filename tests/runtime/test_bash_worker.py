"""bin/bw-worker.sh against a real socket: any language can be a worker."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.peer import Peer, gone, wait_for

SCRIPT = Path(__file__).parents[2] / "bin" / "bw-worker.sh"

pytestmark = pytest.mark.skipif(
    shutil.which("socat") is None or shutil.which("jq") is None, reason="needs socat and jq"
)


class Bash:
    """Starts the script in ``folder``, with a stub ``bd`` first on PATH; ends it at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.peer = Peer(folder / "s")
        self.process: subprocess.Popen[str] | None = None
        stubs = folder / "stubs"
        stubs.mkdir()
        (stubs / "bd").write_text(f'#!/bin/sh\necho "$BEADS_ACTOR: $*" >> {folder}/bd-calls\n')
        (stubs / "bd").chmod(0o755)

    def start(self, *command: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [str(SCRIPT), *command],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PATH": f"{self.folder}/stubs:{os.environ['PATH']}",
                "TMPDIR": str(self.folder),
                "BW_SOCKET": str(self.folder / "s"),
                "BEADS_ACTOR": "run/W1",
                **environment,
            },
        )

    def exit_status(self) -> int:
        assert self.process is not None
        return self.process.wait(15)

    def bd_calls(self) -> list[str]:
        calls = self.folder / "bd-calls"
        return calls.read_text().splitlines() if calls.exists() else []

    def close(self) -> None:
        self.peer.close()
        if self.process is not None:
            # With its peer gone it leaves by itself; this is for a script that is broken.
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@pytest.fixture
def bash(tmp_path: Path) -> Iterator[Bash]:
    worker = Bash(tmp_path)
    yield worker
    worker.close()


def test_it_works_through_tasks_in_exactly_version_1(bash: Bash) -> None:
    print_it = 'echo "$BW_ISSUE_ID $BW_ISSUE_PRIORITY $BW_WORKER_ID"; test {id} = t-1'
    bash.start("sh", "-c", print_it, BW_CLAIMS="orchestrator")
    bash.peer.accept()
    ready = bash.peer.expect("READY")
    assert list(ready) == ["type", "worker_id", "timestamp"]
    bash.peer.task("t-1")
    done = bash.peer.expect("DONE")
    assert list(done) == ["type", "worker_id", "timestamp", "issue_id", "duration_ms"]
    assert (done["issue_id"], done["worker_id"]) == ("t-1", "W1")
    assert isinstance(done["duration_ms"], int)
    bash.peer.expect("READY")
    bash.peer.task("t-2")
    failed = bash.peer.expect("FAILED")
    assert list(failed)[3:] == ["issue_id", "error", "duration_ms"]
    assert failed["error"] == "t-2 2 W1"
    bash.peer.expect("READY")
    bash.peer.send("SHUTDOWN", reason="user_requested")
    assert bash.exit_status() == 0
    assert bash.bd_calls() == []


def test_in_a_bd_project_it_claims_and_closes_by_itself(bash: Bash) -> None:
    (bash.folder / ".beads").mkdir()
    bash.start("true")
    bash.peer.accept()
    bash.peer.expect("READY")
    bash.peer.task("t-1", version=None)
    bash.peer.expect("DONE")
    assert bash.bd_calls() == ["run/W1: update t-1 --status=in_progress", "run/W1: close t-1"]


@pytest.mark.parametrize("switch", ["worker", "orchestrator", None])
@pytest.mark.parametrize("told", ["worker", "orchestrator"])
@pytest.mark.parametrize("is_bd_project", [True, False])
def test_the_switch_and_then_the_task_say_who_claims(
    bash: Bash, switch: str | None, told: str, is_bd_project: bool
) -> None:
    if is_bd_project:
        (bash.folder / ".beads").mkdir()
    bash.start("true", **({} if switch is None else {"BW_CLAIMS": switch}))
    bash.peer.accept()
    assert bash.peer.expect("READY").get("version") == ("1.1" if switch is None else None)
    bash.peer.task("t-1", claims=told)
    bash.peer.expect("DONE")
    assert len(bash.bd_calls()) == (2 if (switch or told) == "worker" else 0)


def test_another_word_for_who_claims_is_refused(bash: Bash) -> None:
    bash.start("true", BW_CLAIMS="me")
    assert bash.exit_status() == 2
    assert bash.peer.nobody_came()


def test_shutdown_in_the_middle_ends_the_whole_group_and_requeues(bash: Bash) -> None:
    (bash.folder / ".beads").mkdir()
    bash.start("sh", "-c", "sleep 1000 & echo $! $$ > pids; wait")
    bash.peer.accept()
    bash.peer.expect("READY")
    bash.peer.task("t-1")
    pids = [int(pid) for pid in wait_for(bash.folder / "pids").split()]
    bash.peer.send("SHUTDOWN", reason="user_requested")
    assert bash.exit_status() == 0
    assert all(gone(pid) for pid in pids)
    assert bash.bd_calls()[1:] == ["run/W1: update t-1 --status=open --assignee="]


@pytest.mark.parametrize(
    "how, set_back", [("lost", "--if-status=in_progress --if-assignee="), ("TERM", "--assignee=")]
)
def test_a_lost_orchestrator_or_a_signal_ends_the_task_too(
    bash: Bash, how: str, set_back: str
) -> None:
    (bash.folder / ".beads").mkdir()
    bash.start("sh", "-c", "echo $$ > pids; exec sleep 1000")
    bash.peer.accept()
    bash.peer.expect("READY")
    bash.peer.task("t-1")
    pid = int(wait_for(bash.folder / "pids"))
    if how == "lost":
        bash.peer.hang_up()
        assert bash.exit_status() == 1
    else:
        assert bash.process is not None
        bash.process.send_signal(signal.SIGTERM)
        assert bash.exit_status() == 0
    assert gone(pid)
    assert bash.bd_calls()[1:] == [f"run/W1: update t-1 --status=open {set_back}"]


def test_its_process_is_not_gone_before_its_task_is(bash: Bash) -> None:
    bash.start("sh", "-c", "trap '' TERM; echo $$ > pids; while :; do sleep 0.1; done")
    helper = bash.peer.accept()
    bash.peer.expect("READY")
    bash.peer.task("t-1")
    task = int(wait_for(bash.folder / "pids"))
    bash.peer.hang_up()
    for _ in range(20):
        assert not gone(helper, 0.1)
    assert bash.exit_status() == 1
    assert gone(task) and gone(helper)


def test_it_waits_reading_and_asks_again(bash: Bash) -> None:
    bash.start("true")
    bash.peer.accept()
    bash.peer.expect("READY")
    bash.peer.send("WAIT", wait_seconds=1)
    bash.peer.expect("READY")
    bash.peer.send("WAIT", wait_seconds=1000)
    bash.peer.send("SHUTDOWN", reason="idle_timeout")
    assert bash.exit_status() == 0


@pytest.mark.parametrize("answer", ["WAIT", "TASK"])
def test_what_answers_ready_counts_also_while_who_said_it_is_still_ending(
    bash: Bash, answer: str
) -> None:
    # On a busy machine the program that wrote READY may end long after the answer has come.
    slow = bash.folder / "stubs" / "jq"
    slow.write_text(
        f'#!/bin/sh\n{shutil.which("jq")} "$@"\ncase "$*" in *READY*) sleep 0.7 ;; esac\n'
    )
    slow.chmod(0o755)
    bash.start("true", BW_CLAIMS="orchestrator")
    bash.peer.accept()
    bash.peer.expect("READY")
    bash.peer.task("t-1")
    bash.peer.expect("DONE")
    bash.peer.expect("READY")
    if answer == "TASK":  # the same issue once more: it was opened again
        bash.peer.task("t-1", request_id="r.2")
        assert bash.peer.expect("DONE")["issue_id"] == "t-1"
    else:
        bash.peer.send("WAIT", wait_seconds=1)
    bash.peer.expect("READY")


def test_titles_are_data_and_bad_lines_are_survived(bash: Bash) -> None:
    title = "--help $(touch x) `touch x` '\"\n;touch x\x1b[31m {id} & é"
    bash.start("sh", "-c", 'printf %s "$BW_ISSUE_TITLE" > title')
    bash.peer.accept()
    bash.peer.expect("READY")
    bash.peer.send_raw(b'\xff\xfe\n{"type": \n[]\n"x"\n\n{"type":"NEWS"}\n')
    bash.peer.task("../../etc/x; touch x", title)
    bash.peer.task("t-1", title)
    bash.peer.expect("DONE")
    assert (bash.folder / "title").read_text() == title
    assert not (bash.folder / "x").exists()


def test_another_task_while_busy_is_refused_and_the_same_one_ignored(bash: Bash) -> None:
    bash.start("sh", "-c", "until test -e go; do sleep 0.2; done")
    bash.peer.accept()
    bash.peer.expect("READY")
    bash.peer.task("t-1")
    bash.peer.task("t-1")
    bash.peer.task("t-2")
    refused = bash.peer.expect("FAILED")
    assert (refused["issue_id"], refused["error"]) == ("t-2", "busy")
    (bash.folder / "go").touch()
    assert bash.peer.expect("DONE")["issue_id"] == "t-1"
    bash.peer.expect("READY")


def test_it_beats_in_time_while_it_works(bash: Bash) -> None:
    bash.start("sh", "-c", "until test -e go; do sleep 0.2; done")
    bash.peer.accept()
    announced = bash.peer.expect("READY")
    assert announced["features"] == ["heartbeat"]
    bash.peer.task("t-1")
    times = [announced["timestamp"]]
    for _ in range(2):
        times.append(bash.peer.expect("HEARTBEAT")["timestamp"])
        assert times[-1] - times[-2] <= announced["heartbeat_seconds"]
    (bash.folder / "go").touch()
    assert bash.peer.expect("DONE")["issue_id"] == "t-1"


def test_it_tries_again_when_nobody_listens_yet(bash: Bash) -> None:
    (bash.folder / "s").rename(bash.folder / "later")
    bash.start("true")
    assert bash.process is not None and bash.process.stderr is not None
    assert "trying again in 1 s" in bash.process.stderr.readline()
    (bash.folder / "later").rename(bash.folder / "s")
    bash.peer.accept()
    bash.peer.expect("READY")
    bash.peer.send("SHUTDOWN", reason="user_requested")
    assert bash.exit_status() == 0


def test_without_a_command_it_says_how_it_is_used(bash: Bash) -> None:
    bash.start()
    assert bash.exit_status() == 2
