"""A real worker with slots, whose functions share a process where they are declared for it."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.settings import Work, WorkerSettings
from beads_workers.executors.files import log_file
from beads_workers.runtime import sessions
from beads_workers.runtime.concurrent_functions import run_concurrent
from beads_workers.runtime.concurrent_host import OUT_OF_THE_WAY
from tests.support.peer import fork_worker, gone

TASKS = """
import asyncio, os, signal, sys, time
from beads_workers import Retry, concurrent, variables

inside = 0

@concurrent
async def meet(many):
    global inside
    inside += 1
    while inside < many:
        await asyncio.sleep(0.01)
    return os.getpid()

@concurrent
async def where(seconds=0.0):
    await asyncio.sleep(seconds)
    return os.getpid()

@concurrent
def at_once(): return os.getpid()

def alone(seconds=0.0):
    time.sleep(seconds)
    return os.getpid()

@concurrent
async def leave(status):
    await asyncio.sleep(0.2)
    os._exit(status)

@concurrent
async def block(): time.sleep(1000)

@concurrent
async def block_signals():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(1000)

@concurrent
async def stubborn():
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass

@concurrent
async def forever(marker=None):
    try:
        await asyncio.sleep(1000)
    finally:
        if marker: open(marker, "w").close()

@concurrent
async def told(text):
    print(text, end="")
    await asyncio.sleep(0.1)
    print(" and", text)
    return [variables()["BW_ISSUE_ID"], os.environ.get("BW_ISSUE_ID")]

@concurrent
async def long(characters): return "x" * characters

async def _raised(kind):
    raise kind("why")

@concurrent
async def child(kind):
    try:
        await asyncio.create_task(_raised(getattr(__import__("builtins"), kind)))
    except BaseException as error:
        return type(error).__name__

@concurrent
async def meddle(descriptor):
    os.write(descriptor, b"no answer\\n")
    await asyncio.sleep(1000)

class Shop:
    @staticmethod
    async def closed(): raise Retry("closed", after_seconds=3)
    closed.concurrent = True
"""

ENDS = """
import asyncio, sys
from beads_workers import Retry
class Odd(BaseException): pass
async def _fail(error):
    await asyncio.sleep(0)
    raise error
async def nothing(): pass
def plain(): return {"a": [1, None]}
async def text(): return "\\u2028 \\ud800"
async def error(): await _fail(ValueError("boom"))
async def retry(): await _fail(Retry("later", after_seconds=3))
async def late(): await _fail(TimeoutError("took too long"))
async def exits(): sys.exit(3)
async def interrupts(): await _fail(KeyboardInterrupt())
async def odd(): await _fail(Odd("odd"))
async def cancels(): await _fail(asyncio.CancelledError("by itself"))
async def unwritable(): return object()
async def not_a_number(): return float("nan")
async def huge(): return "x" * (17 << 20)
async def arguments(a, *, b): return [a, b]
def wrong(a): pass
"""
PATIENCE_SECONDS = 30.0
SLOTS = 8


class Connection:
    """A slot's connection, from the orchestrator's side."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE_SECONDS)
        self._socket, self._lines = connection, connection.makefile("rb")

    def receive(self) -> dict[str, Any]:
        """The next message, {} at the end."""
        line = self._lines.readline()
        message: dict[str, Any] = json.loads(line) if line else {}
        return message

    def send(self, kind: str, **fields: Any) -> None:
        message = {"type": kind, "worker_id": "W1", "timestamp": time.time(), "version": "1.1"}
        self._socket.sendall(json.dumps(message | fields).encode() + b"\n")

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


class Crowd:
    """A worker with ``SLOTS`` slots, whose orchestrator is the test."""

    def __init__(self, folder: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / "s"))
        self._listener.listen(SLOTS)
        self._listener.settimeout(PATIENCE_SECONDS)
        self.folder, self.slots, self.asked = folder, list[Connection](), 0
        self.settings = WorkerSettings(
            worker_id="W1",
            socket_path=str(folder / "s"),
            orchestrator_pid=os.getpid(),
            project=str(folder),
            run_id=f"run-{folder.name}-{os.getpid()}",
            run_directory=str(folder / "run"),
            actor="actor",
            work=Work(
                allow_modules=("tasks", "ends", "ends_declared"),
                in_flight=SLOTS,
                term_grace_seconds=0.5,
            ),
        )
        self.pid = fork_worker(lambda: run_concurrent(self.settings, (0.05, 0.05)))
        for _ in range(SLOTS):
            self.slots.append(Connection(self._listener.accept()[0]))
        for slot in self.slots:
            assert slot.receive()["type"] == "READY"

    def ask(self, slot: int, path: str, *args: Any, limit: float | None = None, **kw: Any) -> str:
        """Send a task; its issue's id."""
        self.asked += 1
        issue_id = f"t-{self.asked}"
        fields = {"issue_id": issue_id, "priority": 2, "title": "", "attempt": 1}
        payload = {"callable": path, "args": list(args), "kwargs": kw}
        timeout = {"timeout_seconds": limit} if limit else {}
        request = {"request_id": f"r-{self.asked}", "payload": payload}
        self.slots[slot].send("TASK", **fields, **request, **timeout)
        return issue_id

    def ended(self, slot: int) -> dict[str, Any]:
        """DONE or FAILED, and the READY behind it."""
        message = self.slots[slot].receive()
        assert message.get("type") in ("DONE", "FAILED"), message
        assert self.slots[slot].receive().get("type") == "READY"
        return message

    def call(self, path: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """One call, alone."""
        self.ask(0, path, *args, **kwargs)
        return self.ended(0)

    def log(self, issue_id: str) -> str:
        """What an attempt has printed."""
        return Path(log_file(str(self.folder / "run"), issue_id, 1)).read_text()

    def close(self) -> None:
        for slot in self.slots:
            slot.close()
        self._listener.close()
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        sessions.sweep(self.settings.run_id, None)


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Crowd]:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "ends.py").write_text(ENDS)
    declared = (
        "\nfor each in list(vars().values()):\n    if callable(each): each.concurrent = True\n"
    )
    (tmp_path / "ends_declared.py").write_text(ENDS + declared)
    made = Crowd(tmp_path)
    yield made
    made.close()


def pids(crowd: Crowd, slots: Iterator[int] | range) -> set[int]:
    """Who called what these slots have: all of it succeeded."""
    ended = [crowd.ended(slot) for slot in slots]
    assert {each["type"] for each in ended} == {"DONE"}, ended
    return {each["result"] for each in ended}


def test_as_many_as_there_are_slots_wait_in_one_process(crowd: Crowd) -> None:
    for slot in range(SLOTS):
        crowd.ask(slot, "tasks.meet", SLOTS)
    (shared,) = pids(crowd, range(SLOTS))
    assert crowd.call("tasks.at_once")["result"] == shared
    assert shared != crowd.pid


def test_what_is_not_declared_has_a_process_to_itself(crowd: Crowd) -> None:
    crowd.ask(0, "tasks.where", 0.5)
    for slot in range(1, 4):
        crowd.ask(slot, "tasks.alone", 0.3)
    apart = pids(crowd, range(1, 4))
    (shared,) = pids(crowd, range(1))
    assert len(apart) == 3 and shared not in apart
    assert crowd.call("tasks.alone")["result"] not in {shared, *apart}
    again = crowd.call("tasks.alone")["result"]
    assert crowd.call("tasks.alone")["result"] == again, "and keeps it"


NAMES = [
    *("nothing", "plain", "text", "error", "retry", "late", "exits", "interrupts", "odd"),
    *("cancels", "unwritable", "not_a_number", "huge", "wrong", "missing"),
]


def test_each_end_of_a_function_is_the_same_in_company(crowd: Crowd) -> None:
    crowd.ask(1, "tasks.where", 0.5)
    for name in NAMES:
        apart, together = crowd.call(f"ends.{name}"), crowd.call(f"ends_declared.{name}")
        for each in (apart, together):
            del each["timestamp"], each["duration_ms"], each["issue_id"]
        text = json.dumps(together).replace("ends_declared", "ends")
        assert json.loads(text) == apart, name
    assert crowd.call("ends_declared.arguments", 1, b=2)["result"] == [1, 2]
    (shared,) = pids(crowd, range(1, 2))
    assert crowd.call("tasks.at_once")["result"] == shared, "and harms nobody"


@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt", "ValueError"])
def test_what_a_task_of_a_call_raises_is_the_calls_own(crowd: Crowd, kind: str) -> None:
    crowd.ask(1, "tasks.where", 0.5)
    assert crowd.call("tasks.child", kind)["result"] == kind
    (shared,) = pids(crowd, range(1, 2))
    assert crowd.call("tasks.at_once")["result"] == shared


def test_a_method_may_be_declared_by_its_attribute_alone(crowd: Crowd) -> None:
    failed = crowd.call("tasks.Shop.closed")
    assert (failed["outcome"], failed["retry_after_seconds"]) == ("retry", 3)


def test_whoever_kills_the_process_is_charged_and_its_neighbours_are_called_again(
    crowd: Crowd,
) -> None:
    for slot in range(1, SLOTS):
        crowd.ask(slot, "tasks.where", 0.4)
    guilty = crowd.ask(0, "tasks.leave", 3)
    failed = crowd.ended(0)
    assert (failed["type"], failed["error"]) == ("FAILED", "exit status 3")
    assert len(pids(crowd, range(1, SLOTS))) == SLOTS - 1, "each in a process of its own"
    assert "called again" in crowd.log("t-1")
    shared = crowd.call("tasks.at_once")["result"]
    payload = {"callable": "tasks.leave", "args": [4], "kwargs": {}}
    fields = {"issue_id": guilty, "priority": 2, "title": "", "attempt": 2, "request_id": "again"}
    crowd.ask(1, "tasks.where", 0.4)
    crowd.slots[0].send("TASK", **fields, payload=payload)
    assert crowd.ended(0)["error"] == "exit status 4"
    assert pids(crowd, range(1, 2)) == {shared}, "the second time it harms nobody"


def test_one_that_is_alone_in_the_process_that_it_kills_is_called_once(crowd: Crowd) -> None:
    assert crowd.call("tasks.leave", 3)["error"] == "exit status 3"
    assert crowd.call("tasks.where")["type"] == "DONE"


def test_a_killed_process_costs_none_of_those_that_were_in_it(crowd: Crowd) -> None:
    shared = crowd.call("tasks.at_once")["result"]
    for slot in range(SLOTS):
        crowd.ask(slot, "tasks.where", 0.3)
    time.sleep(0.1)
    os.kill(shared, signal.SIGKILL)
    assert shared not in pids(crowd, range(SLOTS))


def test_one_that_never_returns_ends_at_its_timeout_and_no_other_hears_of_it(
    crowd: Crowd, tmp_path: Path
) -> None:
    shared = crowd.call("tasks.at_once")["result"]
    crowd.ask(1, "tasks.where", 0.6)
    failed = crowd.call("tasks.forever", str(tmp_path / "cleaned"), limit=0.2)
    assert failed["outcome"] == "timeout"
    assert (tmp_path / "cleaned").exists(), "it was cancelled"
    assert pids(crowd, range(1, 2)) == {shared}


def test_one_that_does_not_let_itself_be_cancelled_ends_with_the_process(crowd: Crowd) -> None:
    shared = crowd.call("tasks.at_once")["result"]
    crowd.ask(1, "tasks.where", 1.0)
    assert crowd.call("tasks.stubborn", limit=0.2)["outcome"] == "timeout"
    assert shared not in pids(crowd, range(1, 2))
    assert gone(shared)


def test_what_is_begun_as_the_process_ends_is_in_the_next_one(crowd: Crowd) -> None:
    crowd.call("tasks.at_once")
    crowd.ask(1, "tasks.where", 1.0)
    crowd.ask(0, "tasks.stubborn", limit=0.2)
    crowd.ask(0, "tasks.where", 0.1)
    assert crowd.slots[0].receive()["outcome"] == "timeout"
    pids(crowd, range(2))
    assert crowd.call("tasks.where")["result"] == crowd.call("tasks.at_once")["result"]


def test_one_that_blocks_the_loop_fails_for_it_and_its_neighbours_go_on(crowd: Crowd) -> None:
    crowd.ask(1, "tasks.where", 0.5)
    failed = crowd.call("tasks.block")
    assert failed["outcome"] == "error"
    assert "blocked the event loop" in failed["error"]
    (shared,) = pids(crowd, range(1, 2))
    assert crowd.call("tasks.at_once")["result"] == shared


def test_a_loop_that_is_blocked_for_good_ends_at_the_first_timeout(crowd: Crowd) -> None:
    crowd.ask(1, "tasks.where", 0.5)
    time.sleep(0.2)
    assert crowd.call("tasks.block_signals", limit=0.5)["outcome"] == "timeout"
    assert crowd.ended(1)["type"] == "DONE"


def test_a_cancel_ends_one_call(crowd: Crowd, tmp_path: Path) -> None:
    crowd.call("tasks.at_once")
    crowd.ask(1, "tasks.where", 0.5)
    issue_id = crowd.ask(0, "tasks.forever", str(tmp_path / "cleaned"))
    time.sleep(0.2)
    crowd.slots[0].send("CANCEL", issue_id=issue_id, reason="not wanted")
    assert crowd.ended(0)["outcome"] == "cancelled"
    assert (tmp_path / "cleaned").exists()
    assert crowd.ended(1)["type"] == "DONE"


def test_each_call_has_its_own_log_and_its_own_variables(crowd: Crowd) -> None:
    issues = [crowd.ask(slot, "tasks.told", f"no {slot}") for slot in range(3)]
    for slot, issue_id in enumerate(issues):
        assert crowd.ended(slot)["result"] == [issue_id, None]
        assert crowd.log(issue_id) == f"no {slot} and no {slot}\n"
    issue_id = crowd.ask(0, "ends_declared.error")
    crowd.ended(0)
    assert "ValueError: boom" in crowd.log(issue_id), "and its traceback"


def test_a_long_result_lies_in_a_file(crowd: Crowd) -> None:
    path = Path(crowd.call("tasks.long", 3_000_000)["result_file"])
    assert json.loads(path.read_text()) == "x" * 3_000_000
    assert path.stat().st_mode & 0o777 == 0o600


def test_one_that_speaks_in_place_of_its_process_fails_and_nobody_else(crowd: Crowd) -> None:
    shared = crowd.call("tasks.at_once")["result"]
    crowd.ask(1, "tasks.where", 1.0)
    failed = crowd.call("tasks.meddle", OUT_OF_THE_WAY)
    assert (failed["outcome"], "no answer" in failed["error"]) == ("error", True), failed
    assert shared not in pids(crowd, range(1, 2))
    assert gone(shared)


def test_told_to_leave_it_ends_what_runs_and_leaves_nothing(crowd: Crowd) -> None:
    apart, shared = crowd.call("tasks.alone")["result"], crowd.call("tasks.at_once")["result"]
    for slot in range(2, 5):
        crowd.ask(slot, "tasks.forever")
    time.sleep(0.1)
    for slot in crowd.slots:
        slot.send("SHUTDOWN", reason="user_requested")
    failed = [crowd.slots[slot].receive()["outcome"] for slot in range(2, 5)]
    assert failed == ["cancelled"] * 3
    assert os.waitstatus_to_exitcode(os.waitpid(crowd.pid, 0)[1]) == 0
    crowd.pid = 0
    assert gone(shared) and gone(apart)


def test_without_its_orchestrator_it_ends_with_all_that_it_has_started(crowd: Crowd) -> None:
    apart, shared = crowd.call("tasks.alone")["result"], crowd.call("tasks.at_once")["result"]
    crowd.ask(1, "tasks.stubborn")
    time.sleep(0.1)
    for slot in crowd.slots:
        slot.close()
    assert os.waitstatus_to_exitcode(os.waitpid(crowd.pid, 0)[1]) == 1
    crowd.pid = 0
    assert gone(shared) and gone(apart)
