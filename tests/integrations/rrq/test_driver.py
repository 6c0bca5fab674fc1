"""The driver in a process of its own, against executors that do everything wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.settings import Executor, Work, WorkerSettings
from beads_workers.core.base.wire import Done
from beads_workers.integrations.rrq.driver import run_driver
from beads_workers.runtime import sessions
from beads_workers.runtime.result_spool import words_of
from tests.support.peer import Peer, fork_worker, gone
from tests.support.peers import HANDLERS_FOLDER

BAD = Executor("bad", (sys.executable, str(HANDLERS_FOLDER / "bad_executor.py")))
BYTES_MAX = 150 << 20
"""That the driver grows by: a frame and what was made of it, and then some."""


class Bench:
    """A driver with one slot, whose orchestrator is the test."""

    def __init__(self, folder: Path) -> None:
        self.peer = Peer(folder / "s")
        self.run = folder / "run"
        self.pid = self._before = 0
        self.settings = WorkerSettings(
            worker_id="W1",
            socket_path=str(folder / "s"),
            orchestrator_pid=os.getpid(),
            project=str(folder),
            run_id=f"run-{folder.name}-{os.getpid()}",
            run_directory=str(self.run),
            actor="actor",
            work=Work(executors=(BAD,), term_grace_seconds=0.3),
        )

    def start(self, **changed: Any) -> None:
        settings = replace(self.settings, work=replace(self.settings.work, **changed))
        self.pid = fork_worker(lambda: run_driver(settings, (0.05, 0.05)))
        self.peer.accept()
        self.peer.expect("READY")
        self._before = self._memory()

    def ask(self, function: str, **fields: Any) -> None:
        self.peer.task(payload={"callable": function, "args": [], "kwargs": {}}, **fields)

    def result(self, kind: str, function: str, **fields: Any) -> dict[str, Any]:
        """Have it called; its DONE or FAILED, and the READY behind it."""
        self.ask(function, **fields)
        message = self.peer.expect(kind)
        self.peer.expect("READY")
        return message

    def executors(self) -> list[int]:
        """The processes that were started for it."""
        mark = f"BW_EXECUTOR={self.settings.run_id}/W1/bad"
        return [process.pid for process in sessions.with_variable(mark)]

    def grown(self) -> int:
        """How much more memory it has had than at first, in bytes; it began as a copy of us."""
        return self._memory() - self._before

    def _memory(self) -> int:
        (line,) = (
            line
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines()
            if line.startswith("VmHWM")
        )
        return int(line.split()[1]) << 10


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    if made.pid:
        os.kill(made.pid, signal.SIGKILL)
        os.waitpid(made.pid, 0)
    sessions.sweep(made.settings.run_id, None)
    made.peer.close()


WRONG = [
    "empty_frame", "oversized_frame", "no_json", "no_utf8", "deep", "array", "unknown_type",
    "no_payload", "a_request", "a_cancel", "unknown_status", "negative_delay", "endless_delay",
    "error_without_message", "another_request", "torn", "hang_up", "flood",
]  # fmt: skip


def test_whatever_it_answers_wrong_costs_that_request_and_the_next_one_is_served(
    bench: Bench,
) -> None:
    bench.start()
    for name in WRONG:
        failed = bench.result("FAILED", name)
        assert failed["outcome"] == "error", name
        assert "the executor ended" in failed["error"], name
        assert bench.result("DONE", "fine")["result"] == "fine", name
    assert bench.grown() < BYTES_MAX


def test_an_answer_may_come_in_pieces_and_a_second_one_is_not_heard(bench: Bench) -> None:
    bench.start()
    assert bench.result("DONE", "byte_by_byte")["result"] == "fine"
    for _ in range(3):
        assert bench.result("DONE", "twice")["result"] == "fine"
    assert len(bench.executors()) == 1, "and costs nobody anything"


def test_one_that_never_answers_is_killed_after_the_timeout_and_the_grace(bench: Bench) -> None:
    bench.start()
    assert bench.result("DONE", "fine")["result"] == "fine"
    failed = bench.result("FAILED", "never", timeout_seconds=0.3)
    assert failed["outcome"] == "timeout"
    assert bench.result("DONE", "fine")["result"] == "fine"


def test_time_that_an_executor_takes_to_start_is_charged_to_nobody(bench: Bench) -> None:
    slow = ("sh", "-c", 'sleep 2; exec "$@"', "sh", *BAD.argv)
    bench.start(executors=(Executor("bad", slow),))
    failed = bench.result("FAILED", "fine", timeout_seconds=0.2)
    assert failed["outcome"] == "retry" and "not started" in failed["error"]
    assert bench.result("DONE", "fine")["result"] == "fine"


def test_arguments_that_no_frame_holds_fail_that_task_alone(bench: Bench) -> None:
    bench.start()
    large = bench.run / "large.json"
    text = '{"callable": "fine", "args": ["%s"], "kwargs": {}}' % ("x" * (17 << 20))
    large.write_text(text)
    bench.peer.task(payload_file=str(large))
    assert "the arguments cannot be sent" in bench.peer.expect("FAILED")["error"]
    bench.peer.expect("READY")
    assert bench.result("DONE", "fine")["result"] == "fine"


def test_a_result_that_no_message_holds_lies_in_a_file(bench: Bench) -> None:
    bench.start()
    path = Path(bench.result("DONE", "large")["result_file"])
    assert json.loads(path.read_text()) == "x" * 3_000_000
    assert path.stat().st_mode & 0o777 == 0o600
    shutil.rmtree(path.parent)
    path.parent.write_text("no folder")
    cut = bench.result("DONE", "large")["result"]
    assert cut["cut"] is True and cut["characters"] == 3_000_002


def test_executors_leave_with_their_driver(bench: Bench) -> None:
    bench.start()
    bench.result("DONE", "fine")
    (executor,) = bench.executors()
    bench.peer.send("SHUTDOWN", reason="stop")
    assert os.waitstatus_to_exitcode(os.waitpid(bench.pid, 0)[1]) == 0
    bench.pid = 0
    assert gone(executor)


def test_a_driver_that_loses_the_orchestrator_ends_with_its_executors(bench: Bench) -> None:
    bench.start()
    bench.ask("never")
    while not bench.executors():
        assert bench.peer.hears_nothing(0.02)
    (executor,) = bench.executors()
    bench.peer.hang_up()
    assert os.waitstatus_to_exitcode(os.waitpid(bench.pid, 0)[1]) == 1
    bench.pid = 0
    assert gone(executor)


def test_each_task_that_a_slot_keeps_for_later_is_sent_as_itself(bench: Bench) -> None:
    bench.start()
    ids = ["t-1", "t-2", "t-3"]
    for issue_id in ids:
        bench.ask("mirror", issue_id=issue_id, request_id=f"r.{issue_id}")
    done = [bench.peer.expect("DONE") for _ in ids]
    assert [(each["issue_id"], each["result"]) for each in done] == [(i, i) for i in ids]
    bench.peer.expect("READY")


def test_a_slot_that_loses_the_orchestrator_leaves_word_of_what_it_had_not_begun(
    bench: Bench,
) -> None:
    bench.start()
    for number, function in enumerate(("never", "mirror", "mirror")):
        bench.ask(function, issue_id=f"t-{number}", request_id=f"r.{number}")
    while not bench.executors():
        assert bench.peer.hears_nothing(0.02)
    bench.peer.hang_up()
    assert os.waitstatus_to_exitcode(os.waitpid(bench.pid, 0)[1]) == 1
    bench.pid = 0
    assert words_of(bench.run, ("r.0", "r.1", "r.2")).keys() == {"r.1", "r.2"}


def test_a_slot_leaves_word_of_what_it_had_done_too(bench: Bench) -> None:
    bench.start()
    bench.ask("mirror", issue_id="t-1", request_id="r.1")
    done = bench.peer.expect("DONE")
    bench.peer.hang_up()
    assert os.waitstatus_to_exitcode(os.waitpid(bench.pid, 0)[1]) == 1
    bench.pid = 0
    (word,) = words_of(bench.run, ("r.1",)).values()
    assert isinstance(word, Done) and word.result == done["result"]


def test_a_program_that_is_missing_makes_the_fleet_unusable(bench: Bench) -> None:
    bench.start(executors=(Executor("bad", ("/nowhere/at/all",)),))
    failed = bench.result("FAILED", "fine")
    assert failed["error_detail"] == "cannot_start"
    assert "command not found" in failed["error"]


@pytest.mark.parametrize("argv", [("/nowhere/at/all",), ("false",)])
def test_a_program_that_has_been_up_in_this_run_is_waited_for(
    bench: Bench, argv: tuple[str, ...]
) -> None:
    bench.start()
    bench.result("DONE", "fine")
    bench.peer.send("SHUTDOWN", reason="stop")
    os.waitpid(bench.pid, 0)
    bench.settings = replace(bench.settings, worker_id="W2")
    bench.start(executors=(Executor("bad", argv),))
    failed = bench.result("FAILED", "fine")
    assert failed["outcome"] == "retry", failed
    assert "error_detail" not in failed


def test_its_output_is_kept_and_stays_short(bench: Bench) -> None:
    script = 'head -c 1000000 /dev/zero | tr "\\0" x; exec "$@"'
    argv = ("sh", "-c", script, "sh", *BAD.argv)
    bench.start(executors=(Executor("bad", argv),), log_bytes_max=300_000)
    bench.result("DONE", "fine")
    bench.peer.send("SHUTDOWN", reason="stop")
    os.waitpid(bench.pid, 0)
    bench.pid = 0
    log = bench.run / "executors" / "bad.W1.log"
    assert 100_000 < log.stat().st_size < 310_000
