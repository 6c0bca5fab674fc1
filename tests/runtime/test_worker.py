"""The worker process against a real socket, with real programs."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beads_workers.agents.presets import PLAIN_PROMPT
from beads_workers.core.base.settings import Agent, Work, WorkerSettings
from beads_workers.runtime.worker import run_worker
from beads_workers.worktrees.slots import VARIABLE
from tests.support.peer import Peer, fork_worker, gone, wait_for


class Bench:
    """One worker process in ``folder`` and the peer that it talks to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.peer = Peer(folder / "s")
        self.run = folder / "run"
        self.pid = 0
        self.settings = WorkerSettings(
            worker_id="W1",
            socket_path=str(folder / "s"),
            orchestrator_pid=os.getpid(),
            project=str(folder),
            run_id=f"run-{folder.name}-{os.getpid()}",
            run_directory=str(self.run),
            actor="beads-workers/host/run",
            work=Work(),
        )

    def start(self, *command: str, **work: Any) -> None:
        """Start a worker for this command and see it READY."""
        settings = replace(
            self.settings,
            work=Work(**{"command": command or None, "term_grace_seconds": 0.3, **work}),
        )
        self.pid = fork_worker(lambda: run_worker(settings, (0.05, 0.05, 0.05)))
        self.peer.accept()
        self.peer.expect("READY")

    def sh(self, script: str, *arguments: str, **work: Any) -> None:
        self.start("sh", "-c", script, "sh", *arguments, **work)

    def result(self, kind: str, **task: Any) -> dict[str, Any]:
        """Give one task; its DONE or FAILED, and the READY behind it."""
        self.peer.task(**task)
        message = self.peer.expect(kind)
        self.peer.expect("READY")
        return message

    def log(self, name: str = "t-1.1.log") -> str:
        return (self.run / "logs" / name).read_text()

    def file(self, name: str) -> Path:
        return self.folder / name

    def stub(self, name: str, script: str) -> None:
        path = self.folder / "stubs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(script)
        path.chmod(0o755)

    def exit_status(self) -> int:
        pid, self.pid = self.pid, 0
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def close(self) -> None:
        self.peer.close()
        if self.pid:
            self.exit_status()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("PATH", f"{tmp_path}/stubs:{os.environ['PATH']}")
    bench = Bench(tmp_path)
    yield bench
    bench.close()


# --- what a command gets ------------------------------------------------------------------------


def test_a_command_that_succeeds_is_done_and_its_output_is_in_the_attempts_log(
    bench: Bench,
) -> None:
    bench.sh("echo out; echo err >&2")
    done = bench.result("DONE")
    assert done["issue_id"] == "t-1"
    assert bench.log() == "out\nerr\n"
    assert (bench.run / "logs" / "t-1.1.log").stat().st_mode & 0o777 == 0o600


HORRORS = [
    "--help",
    "$(touch x)",
    "`touch x`; touch x",
    "two\nlines\tand 'quotes' \"double\"",
    "{id} {title}",
    "\x1b[31mred\x1b]0;title\x07",
    "é€\U0001f600",
    "x" * 10_000,
]


@pytest.mark.parametrize("title", HORRORS, ids=range(len(HORRORS)))
def test_any_title_is_exactly_one_argument_and_one_variable(bench: Bench, title: str) -> None:
    script = "import json,os,sys; json.dump([sys.argv[1:], os.environ['BW_ISSUE_TITLE'],"
    script += " json.load(open(os.environ['BW_ISSUE_FILE']))['title']], open('seen','w'))"
    bench.file("record.py").write_text(script)
    bench.start(sys.executable, "record.py", "{title}", "{id}:{attempt}", "{unknown}")
    bench.result("DONE", title=title, attempt=2)
    seen = json.loads(bench.file("seen").read_text())
    assert seen == [[title, "t-1:2", "{unknown}"], title, title]
    assert not bench.file("x").exists()


def test_nul_bytes_in_a_title_crash_nothing(bench: Bench) -> None:
    bench.start("printf", "%s", "{title}")
    bench.result("DONE", title="a\0b")
    assert bench.log() == "a�b"


def test_the_environment_says_everything_about_the_attempt(bench: Bench) -> None:
    bench.sh('env | grep -E "^(BW_|BEADS_ACTOR|BD_ACTOR|ORCHESTRATOR_PID)" | sort')
    bench.result("DONE", attempt=3)
    seen = dict(line.split("=", 1) for line in bench.log("t-1.3.log").splitlines())
    del seen[VARIABLE]  # That of the tests.
    issue_file = Path(seen.pop("BW_ISSUE_FILE"))
    assert Path(seen.pop("BW_PROGRESS")).parent == issue_file.parent
    assert issue_file.stat().st_mode & 0o777 == 0o600
    assert seen == {
        "BD_ACTOR": "beads-workers/host/run",
        "BEADS_ACTOR": "beads-workers/host/run",
        "BW_ATTEMPT": "3",
        "BW_ISSUE_ID": "t-1",
        "BW_ISSUE_PRIORITY": "2",
        "BW_ISSUE_TITLE": "A title",
        "BW_RUN_ID": bench.settings.run_id,
        "BW_SOCKET": bench.settings.socket_path,
        "BW_WORKER_ID": "W1",
        "ORCHESTRATOR_PID": str(os.getpid()),
    }


def test_stdin_is_empty_and_no_other_descriptor_reaches_a_task(bench: Bench) -> None:
    lock = os.open(bench.folder, os.O_RDONLY)
    os.set_inheritable(lock, True)
    others = [f"/proc/self/fd/{number}" for number in range(3, 64)]
    bench.sh('cat; exec readlink "$@"', "/proc/self/fd/0", *others)
    bench.result("FAILED")  # that is how readlink says that some do not exist
    os.close(lock)
    assert bench.log() == "/dev/null\n"


def test_a_task_starts_with_no_signal_ignored_or_blocked(bench: Bench) -> None:
    bench.sh("exec grep -E 'Sig(Blk|Ign)' /proc/self/status")
    bench.result("DONE")
    # Bits 31 and 32 are signals that the C library keeps to itself.
    seen = [int(line.split()[1], 16) & 0x7FFFFFFF for line in bench.log().splitlines()]
    assert seen == [0, 0]


def test_a_large_payload_comes_from_its_file(bench: Bench) -> None:
    payload = bench.file("payload.json")
    payload.write_text(json.dumps({"command": ["echo", "own {id}"], "issue": {"id": "t-1"}}))
    bench.start("false")
    bench.result("DONE", payload_file=str(payload))
    assert bench.log() == "own t-1\n"
    assert not payload.exists(), "it may have held secrets"
    missing = bench.result("FAILED", payload_file=str(bench.file("none")))
    assert "cannot read" in missing["error"]


def test_a_script_without_an_interpreter_line_runs_as_a_shell_would_run_it(bench: Bench) -> None:
    bench.stub("plain-script", 'echo "got $1"\n')
    bench.start("plain-script", "{id}")
    bench.result("DONE")
    assert bench.log() == "got t-1\n"


# --- how it ends --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "outcome", "error"),
    [
        ("echo one; echo '  two  '; echo; exit 3", "error", "two"),
        ("exit 3", "error", "exit status 3"),
        ("echo later; exit 75", "retry", "later"),
        ("kill -SEGV $$", "error", "killed by signal SEGV"),
        ("no-such-program-xyz", "error", "Task execution failed: command not found: "),
        ("printf 'a\\rb\\033[31mc'; exit 1", "error", "bc"),
    ],
)
def test_a_failure_says_how_and_why(bench: Bench, script: str, outcome: str, error: str) -> None:
    bench.sh(script)
    failed = bench.result("FAILED")
    assert failed["outcome"] == outcome
    assert failed["error"].startswith(error)


def test_a_missing_program_is_named(bench: Bench) -> None:
    bench.start("no-such-program-xyz", "{id}")
    failed = bench.result("FAILED")
    assert failed["error"] == "Task execution failed: command not found: no-such-program-xyz"
    assert failed["outcome"] == "error"


def test_with_nothing_to_run_the_task_is_refused(bench: Bench) -> None:
    bench.start()
    assert bench.result("FAILED")["outcome"] == "not_found"


def test_verify_must_pass_too(bench: Bench) -> None:
    bench.sh("echo work", verify="test $BW_ISSUE_ID = t-1 || { echo no good; exit 1; }")
    bench.result("DONE", issue_id="t-1")
    failed = bench.result("FAILED", issue_id="t-2")
    assert failed["error"] == "verify failed: no good"


def test_a_timeout_ends_even_what_ignores_term(bench: Bench) -> None:
    bench.sh("trap '' TERM; echo $$ > pid; sleep 1000 & wait; sleep 1000")
    failed = bench.result("FAILED", timeout_seconds=0.3)
    assert (failed["outcome"], failed["error"]) == ("timeout", "timed out after 0.3 s")
    assert gone(int(wait_for(bench.file("pid"))))


def test_what_a_task_leaves_in_the_background_is_killed_with_it(bench: Bench) -> None:
    bench.sh("sleep 1000 & echo $! > pid")
    bench.result("DONE")
    assert gone(int(wait_for(bench.file("pid"))))


def test_a_timeout_reaches_what_left_the_process_group(bench: Bench) -> None:
    bench.sh("setsid sh -c 'echo $$ > pid; exec sleep 1000' & sleep 1000")
    bench.peer.task(timeout_seconds=0.5)
    pid = int(wait_for(bench.file("pid")))
    bench.peer.expect("FAILED")
    assert gone(pid)


# --- the conversation ---------------------------------------------------------------------------


def test_shutdown_in_the_middle_gives_the_task_back_and_exits_0(bench: Bench) -> None:
    bench.sh("echo $$ > pid; exec sleep 1000")
    bench.peer.task()
    pid = int(wait_for(bench.file("pid")))
    bench.peer.send("SHUTDOWN", reason="user_requested")
    assert bench.peer.expect("FAILED")["outcome"] == "cancelled"
    assert bench.peer.receive() == {}
    assert bench.exit_status() == 0
    assert gone(pid)


def test_shutdown_while_waiting_is_obeyed_at_once(bench: Bench) -> None:
    bench.start("true")
    bench.peer.send("WAIT", wait_seconds=3600)
    bench.peer.send("SHUTDOWN", reason="idle_timeout")
    assert bench.exit_status() == 0


def test_a_lost_orchestrator_ends_the_task_and_exits_1(bench: Bench) -> None:
    bench.sh("echo $$ > pid; exec sleep 1000")
    bench.peer.task()
    pid = int(wait_for(bench.file("pid")))
    bench.peer.hang_up()
    assert bench.exit_status() == 1
    assert gone(pid)


def test_a_signal_to_the_worker_is_a_shutdown(bench: Bench) -> None:
    bench.sh("echo $$ > pid; exec sleep 1000")
    bench.peer.task()
    pid = int(wait_for(bench.file("pid")))
    os.kill(bench.pid, signal.SIGTERM)
    assert bench.peer.expect("FAILED")["outcome"] == "cancelled"
    assert bench.exit_status() == 0
    assert gone(pid)


def test_cancel_ends_one_task_and_the_worker_goes_on(bench: Bench) -> None:
    bench.sh("test $BW_ISSUE_ID != t-1 || exec sleep 1000")
    bench.peer.task("t-1")
    bench.peer.send("CANCEL", issue_id="t-9", reason="none of its business")
    bench.peer.send("CANCEL", issue_id="t-1", reason="released")
    assert bench.peer.expect("FAILED")["outcome"] == "cancelled"
    bench.peer.expect("READY")
    bench.result("DONE", issue_id="t-2")


def test_bad_lines_are_survived(bench: Bench) -> None:
    bench.start("true")
    bench.peer.send_raw(b"\xff\xfe\n[]\n{\n\n" + b"x" * 2_000_000 + b"\n")
    bench.peer.send("NEWS")
    bench.peer.send("READY")
    bench.result("DONE")


def test_connecting_is_tried_again_and_then_given_up(bench: Bench) -> None:
    nobody = replace(bench.settings, socket_path=str(bench.file("none")))
    bench.pid = fork_worker(lambda: run_worker(nobody, (0.0, 0.0, 0.0)))
    assert bench.exit_status() == 1


def test_a_second_try_finds_a_late_orchestrator(bench: Bench) -> None:
    late = replace(
        bench.settings, socket_path=str(bench.file("late")), work=Work(command=("true",))
    )
    bench.pid = fork_worker(lambda: run_worker(late, (0.3, 0.3, 5.0)))
    bench.file("s").rename(bench.file("late"))
    bench.peer.path = bench.file("late")
    bench.peer.accept()
    bench.peer.expect("READY")


# --- agents, and a worker that calls bd itself --------------------------------------------------


def test_a_command_that_nobody_knows_gets_its_prompt_on_stdin_and_exactly_its_arguments(
    bench: Bench,
) -> None:
    bench.stub("mine", '#!/bin/sh\nfor a; do printf "%s\\n" "$a"; done > argv\ncat > stdin\n')
    argv = ("mine", "exec", "--with", "two words", "$(touch x)", "-")
    bench.start(agents=(Agent("mine", argv, PLAIN_PROMPT),))
    description = "Do it.\n$(touch x) {id}\n" + "long text " * 30_000
    bench.result("DONE", description=description)
    assert tuple(bench.file("argv").read_text().splitlines()) == argv[1:]
    prompt = bench.file("stdin").read_text()
    assert "Issue t-1 (priority 2, attempt 1)" in prompt
    assert description in prompt
    assert not bench.file("x").exists()


def self_claiming(bench: Bench, script: str = "true", **stub: str) -> None:
    fails = stub.get("fails", "never")
    bench.stub(
        "bd",
        f'#!/bin/sh\necho "$BEADS_ACTOR: $*" >> {bench.folder}/calls\n'
        f'case "$*" in *{fails}*) echo no luck; exit 1;; esac\n',
    )
    bench.sh(script, bd_argv=("bd", "--no-daemon"))


def test_a_self_claiming_worker_claims_and_closes(bench: Bench) -> None:
    self_claiming(bench)
    bench.result("DONE")
    assert bench.file("calls").read_text().splitlines() == [
        "beads-workers/host/run/W1: --no-daemon update t-1 --status=in_progress",
        "beads-workers/host/run/W1: --no-daemon close t-1",
    ]


def test_a_self_claiming_worker_requeues_on_shutdown(bench: Bench) -> None:
    self_claiming(bench, "echo $$ > pid; exec sleep 1000")
    bench.peer.task()
    wait_for(bench.file("pid"))
    bench.peer.send("SHUTDOWN", reason="user_requested")
    assert bench.peer.expect("FAILED")["outcome"] == "cancelled"
    assert bench.exit_status() == 0
    assert bench.file("calls").read_text().endswith("update t-1 --status=open --assignee=\n")


def test_a_self_claiming_worker_requeues_when_it_is_alone(bench: Bench) -> None:
    self_claiming(bench, "echo $$ > pid; exec sleep 1000")
    bench.peer.task()
    wait_for(bench.file("pid"))
    bench.peer.hang_up()
    assert bench.exit_status() == 1
    assert bench.file("calls").read_text().endswith("update t-1 --status=open --assignee=\n")


def test_a_failed_claim_runs_nothing(bench: Bench) -> None:
    self_claiming(bench, "touch ran", fails="in_progress")
    failed = bench.result("FAILED")
    assert (failed["outcome"], failed["error"]) == ("retry", "claim failed: no luck")
    assert not bench.file("ran").exists()


def test_a_failed_close_is_still_done(bench: Bench) -> None:
    self_claiming(bench, fails="close")
    bench.result("DONE")


def test_a_failed_task_of_a_self_claiming_worker_is_left_for_the_orchestrator_to_requeue(
    bench: Bench,
) -> None:
    self_claiming(bench, "exit 1")
    bench.result("FAILED")
    assert len(bench.file("calls").read_text().splitlines()) == 1
