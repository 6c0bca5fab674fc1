"""A worker that calls functions, between other programs and through every accident."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.settings import Ahead, Work
from beads_workers.runtime.worker import run_worker
from tests.runtime.test_worker import Bench, bench
from tests.support.peer import fork_worker, gone, wait_for

__all__ = ["bench"]

SHOP = """
import asyncio, os, time
from beads_workers.executors.retry import Retry

def pid(): return os.getpid()
def say(text): print(text)
def again():
    print("again")
    raise Retry("later", after_seconds=7)

def sleeps():
    try:
        with open("begun", "w") as file: print(os.getpid(), file=file)
        [time.sleep(0.05) for _ in range(20_000)]
    finally:
        open("cleaned", "w").close()

async def sleeps_softly():
    try:
        with open("begun", "w") as file: print(os.getpid(), file=file)
        await asyncio.sleep(1000)
    finally:
        open("cleaned", "w").close()

def long(): return "x" * 100_000
"""


@pytest.fixture
def shop(bench: Bench) -> Bench:
    (bench.folder / "shop.py").write_text(SHOP)
    return bench


def called(name: str, *args: Any) -> dict[str, Any]:
    """The payload of a TASK."""
    return {"callable": f"shop.{name}", "args": list(args), "kwargs": {}}


def pid_of(shop: Bench) -> int:
    """The process that calls functions."""
    return int(shop.result("DONE", payload=called("pid"))["result"])


def test_calls_share_a_process_and_other_programs_run_between_them(shop: Bench) -> None:
    shop.start("sh", "-c", "echo from a command", allow_modules=("shop",))
    first = pid_of(shop)
    shop.result("DONE", issue_id="t-1", payload=called("say", "one"))
    shop.result("DONE", issue_id="t-2")
    shop.result("DONE", issue_id="t-3", payload=called("say", "three"))
    assert [shop.log(f"t-{n}.1.log") for n in (1, 2, 3)] == ["one\n", "from a command\n", "three\n"]
    assert pid_of(shop) == first


SLOW = """
import os, time
while not os.path.exists("go"): time.sleep(0.01)
def pid(): return os.getpid()
def dies(): os.unlink("go"); os._exit(3)
"""


@pytest.fixture
def slow(bench: Bench) -> Bench:
    """A worker whose process for functions is ready once the file ``go`` is there."""
    (bench.folder / "slow.py").write_text(SLOW)
    settings = replace(
        bench.settings, work=Work(allow_modules=("slow",), functions_ahead=Ahead.MODULES)
    )
    bench.pid = fork_worker(lambda: run_worker(settings, (0.05,)))
    bench.peer.accept()
    return bench


def test_ready_is_said_when_the_next_call_can_be_made_at_once(slow: Bench) -> None:
    for call, end in (("slow.dies", "FAILED"), ("slow.pid", "DONE")):
        assert slow.peer.hears_nothing(), "its process is still importing"
        slow.file("go").touch()
        slow.peer.expect("READY")
        slow.peer.task(payload={"callable": call, "args": [], "kwargs": {}})
        slow.peer.expect(end)


def test_an_attempt_that_asks_for_another_adds_to_its_log(shop: Bench) -> None:
    shop.start(allow_modules=("shop",))
    for _ in range(2):
        failed = shop.result("FAILED", payload=called("again"))
        assert (failed["outcome"], failed["error"]) == ("retry", "later")
        assert failed["retry_after_seconds"] == 7
    assert shop.log() == "again\nagain\n"


def test_verify_must_pass_too_and_sees_the_issue(shop: Bench) -> None:
    verify = 'grep -q t-1 "$BW_ISSUE_FILE" && echo verified'
    shop.start(allow_modules=("shop",), verify=verify)
    done = shop.result("DONE", payload=called("say", "called"))
    assert "result" not in done
    assert shop.log() == "called\nverified\n"
    assert shop.result("FAILED", issue_id="t-2", payload=called("pid"))["outcome"] == "error"


@pytest.mark.parametrize("name", ["sleeps", "sleeps_softly"])
def test_a_timeout_lets_a_function_clean_up_and_the_next_call_has_a_new_process(
    shop: Bench, name: str
) -> None:
    shop.start(allow_modules=("shop",), term_grace_seconds=30.0)
    first = pid_of(shop)
    failed = shop.result("FAILED", payload=called(name), timeout_seconds=0.3)
    assert (failed["outcome"], failed["error"]) == ("timeout", "timed out after 0.3 s")
    assert shop.file("cleaned").exists() and gone(first)
    assert pid_of(shop) != first


def test_cancel_ends_a_call(shop: Bench) -> None:
    shop.start(allow_modules=("shop",))
    shop.peer.task("t-1", payload=called("sleeps"))
    pid = int(wait_for(shop.file("begun")))
    shop.peer.send("CANCEL", issue_id="t-1", reason="released")
    assert shop.peer.expect("FAILED")["outcome"] == "cancelled"
    shop.peer.expect("READY")
    assert gone(pid)


def test_a_process_that_is_killed_between_calls_is_no_fault_of_the_next(shop: Bench) -> None:
    shop.start(allow_modules=("shop",))
    for number in (signal.SIGKILL, signal.SIGTERM):
        pid = pid_of(shop)
        os.kill(pid, number)
        assert gone(pid)
        assert pid_of(shop) != pid


def test_a_worker_does_not_spin_beside_a_dead_process_for_functions(shop: Bench) -> None:
    shop.start("sleep", "0.5", allow_modules=("shop",))
    pid = pid_of(shop)
    shop.peer.task("t-2")
    os.kill(pid, signal.SIGKILL)
    shop.peer.expect("DONE")
    ticks = Path(f"/proc/{shop.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    assert sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK") < 0.4


def test_a_lost_orchestrator_ends_call_and_process(shop: Bench) -> None:
    shop.start(allow_modules=("shop",))
    shop.peer.task(payload=called("sleeps"))
    pid = int(wait_for(shop.file("begun")))
    shop.peer.hang_up()
    assert shop.exit_status() == 1
    assert gone(pid)


def test_a_worker_that_is_killed_ends_an_idle_process_with_it(shop: Bench) -> None:
    shop.start(allow_modules=("shop",))
    pid = pid_of(shop)
    os.kill(shop.pid, signal.SIGKILL)
    assert shop.exit_status() == -signal.SIGKILL
    assert gone(pid)


def test_a_long_result_is_named_and_not_sent(shop: Bench) -> None:
    shop.start(allow_modules=("shop",))
    done = shop.result("DONE", payload=called("long"))
    assert "result" not in done
    assert Path(done["result_file"]).stat().st_size == 100_002 > limits.RESULT_CHARS_MAX


def test_what_is_not_there_is_not_found(shop: Bench) -> None:
    shop.start(allow_modules=("shop",))
    failed = shop.result("FAILED", payload=called("nothing"))
    assert (failed["outcome"], failed["error"]) == ("not_found", "there is no 'nothing' in shop")


def test_a_self_claiming_worker_claims_and_closes_around_a_call(shop: Bench) -> None:
    shop.stub("bd", f'#!/bin/sh\necho "$*" >> {shop.folder}/calls\n')
    shop.start(bd_argv=("bd",), allow_modules=("shop",))
    shop.result("DONE", payload=called("say", "called"))
    assert shop.log() == "called\n"
    assert shop.file("calls").read_text().splitlines() == [
        "update t-1 --status=in_progress",
        "close t-1",
    ]
