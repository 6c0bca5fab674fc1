"""Whatever a function does to its process: one answer for its worker, and the next call is well."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import Call, Outcome, OutcomeKind
from beads_workers.runtime.functions import CallAnswer, HostExited, HostProcess

TASKS = """
import asyncio, os, signal, subprocess, sys, threading, time
from beads_workers.executors.retry import Retry

def fine(): return "fine"
def pid(): return os.getpid()

def junk(fd):
    os.write(fd, b'{"n":1,"kind":"success"}\\n')

def junk_to_all():
    for name in os.listdir("/proc/self/fd"):
        try:
            os.write(int(name), b"junk\\n")
        except OSError:
            pass

def close_all():
    os.closerange(0, 4096)

def close_outputs():
    for fd in (0, 1, 2):
        os.close(fd)

def raises(name):
    raise {"keyboard": KeyboardInterrupt, "exit": SystemExit, "generator": GeneratorExit,
           "base": BaseException, "cancelled": asyncio.CancelledError}[name]("so there")

async def raises_later(name):
    await asyncio.sleep(0)
    raises(name)

def unspeakable():
    class Odd(Exception):
        def __str__(self): raise ValueError
    raise Odd

def surrogate(): raise ValueError("caf\\udce9")

def leaks():
    os.chdir("/")
    os.environ["LEAK"] = "1"
    os.environ["BW_ISSUE_ID"] = "other"
    del os.environ["HOME"]
    os.umask(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.alarm(1)
    sys.stdout = sys.stderr = None

def found():
    print("printed")
    os.umask(mask := os.umask(0))
    return [os.getcwd(), os.environ.get("LEAK"), os.environ["BW_ISSUE_ID"], "HOME" in os.environ,
            mask, signal.getsignal(signal.SIGTERM) == signal.SIG_IGN, signal.getitimer(0)[0]]

def child():
    return subprocess.Popen(["sleep", "1000"]).pid

def forks():
    if (child := os.fork()) == 0:
        return "the child goes on"
    os.waitpid(child, 0)
    return "the parent"

def forks_and_dies():
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(9)

def threads(count):
    for _ in range(count):
        threading.Thread(target=time.sleep, args=(1000,)).start()

async def leaves_a_task():
    async def later():
        await asyncio.sleep(0.05)
        open("late", "w").close()
    asyncio.get_running_loop().create_task(later())

async def sleeps(): await asyncio.sleep(0.2)

def returns(what):
    return {"nan": float("nan"), "large": "x" * (17 << 20), "some": "x" * (1 << 20),
            "object": object(), "deep": deep()}[what]

def deep():
    value = []
    for _ in range(200): value = [value]
    return value

def begun(): open("begun", "w").close()

def cleans_up(path):
    try:
        begun()
        [time.sleep(0.05) for _ in range(20_000)]
    finally:
        open(path, "w").close()

async def cleans_up_later(path):
    try:
        begun()
        await asyncio.sleep(1000)
    finally:
        open(path, "w").close()

def ignores():
    while True:
        try:
            begun()
            time.sleep(1000)
        except BaseException:
            pass

def after(seconds): raise Retry("later", after_seconds=eval(seconds))
"""
PATIENCE_SECONDS = 60.0


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostProcess]:
    (tmp_path / "tasks.py").write_text(TASKS)
    monkeypatch.chdir(tmp_path)
    made = HostProcess(("tasks",), dict(os.environb))
    yield made
    made.close()


def begin(host: HostProcess, name: str, *args: Any, output: str = os.devnull) -> None:
    """Have it called."""
    fd = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    host.call(Call(f"tasks.{name}", args), {"BW_ISSUE_ID": "bw-1"}, fd, None, "results/r.json")
    os.close(fd)


def answer(
    host: HostProcess, name: str, *args: Any, output: str = os.devnull
) -> CallAnswer | HostExited:
    """What comes of one call."""
    begin(host, name, *args, output=output)
    return waited(host)


def until(holds: Callable[[], bool]) -> None:
    """Wait for it."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end
        os.sched_yield()


def waited(host: HostProcess) -> CallAnswer | HostExited:
    """The answer, whenever it comes."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        select.select([host.socket], [], [], 0.2)
        if (found := host.read()) is not None:
            return found
    raise AssertionError("no answer")


def outcome(found: CallAnswer | HostExited) -> Outcome:
    """Of an answer that leaves the process as it was."""
    assert isinstance(found, CallAnswer) and not found.spent, found
    return found.outcome


def alive(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


FINE = Outcome(OutcomeKind.SUCCESS, result='"fine"')


def test_descriptor_3_is_not_its_worker(host: HostProcess) -> None:
    assert "Bad file descriptor" in outcome(answer(host, "junk", 3)).error
    assert outcome(answer(host, "fine")) == FINE


@pytest.mark.parametrize("name", ["junk_to_all", "close_all"])
def test_a_process_that_spoils_its_connection_is_ended_and_its_call_failed(
    host: HostProcess, name: str
) -> None:
    found = answer(host, name)
    assert isinstance(found, HostExited) or (
        found.spent and found.outcome.kind is OutcomeKind.ERROR
    )
    assert host.buried and not alive(host.pid)


def test_closed_outputs_are_opened_again(host: HostProcess, tmp_path: Path) -> None:
    assert outcome(answer(host, "close_outputs")).kind is OutcomeKind.SUCCESS
    assert outcome(answer(host, "found", output=str(tmp_path / "log"))).result
    assert (tmp_path / "log").read_text() == "printed\n"


@pytest.mark.parametrize("function", ["raises", "raises_later"])
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("keyboard", "KeyboardInterrupt: so there"),
        ("exit", "it called exit('so there')"),
        ("generator", "GeneratorExit: so there"),
        ("base", "BaseException: so there"),
        ("cancelled", "CancelledError: so there"),
    ],
)
def test_whatever_is_raised_is_an_error_and_no_end(
    host: HostProcess, function: str, name: str, error: str
) -> None:
    assert outcome(answer(host, function, name)) == Outcome(OutcomeKind.ERROR, error)
    assert outcome(answer(host, "fine")) == FINE


def test_exceptions_that_cannot_be_shown_are_told_all_the_same(host: HostProcess) -> None:
    assert outcome(answer(host, "unspeakable")).error.endswith(
        "(its text cannot be had: ValueError)"
    )
    assert outcome(answer(host, "surrogate")).error == "ValueError: caf?"


def test_nothing_that_a_call_changes_is_met_by_the_next(host: HostProcess, tmp_path: Path) -> None:
    before = outcome(answer(host, "found")).result
    outcome(answer(host, "leaks"))
    log = tmp_path / "log"
    assert outcome(answer(host, "found", output=str(log))).result == before
    assert json.loads(before)[:4] == [str(tmp_path), None, "bw-1", True]
    assert log.read_text() == "printed\n"


def test_a_child_that_is_left_ends_with_the_call(host: HostProcess) -> None:
    found = answer(host, "child")
    assert isinstance(found, CallAnswer) and found.spent
    host.close()
    until(lambda: not alive(int(found.outcome.result)))


def test_a_fork_that_goes_on_beyond_its_function_answers_nobody(host: HostProcess) -> None:
    assert outcome(answer(host, "forks")).result == '"the parent"'
    assert outcome(answer(host, "fine")) == FINE


def test_a_death_is_noticed_beside_a_child_that_lives(host: HostProcess) -> None:
    assert answer(host, "forks_and_dies") == HostExited(9)


def test_a_few_threads_may_stay_and_many_may_not(host: HostProcess) -> None:
    outcome(answer(host, "threads", 3))
    assert outcome(answer(host, "fine")) == FINE
    found = answer(host, "threads", 100)
    assert isinstance(found, CallAnswer) and found.spent


def test_a_task_that_a_coroutine_leaves_does_not_go_on_in_the_next_one(
    host: HostProcess, tmp_path: Path
) -> None:
    outcome(answer(host, "leaves_a_task"))
    outcome(answer(host, "sleeps"))
    assert not (tmp_path / "late").exists()


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("nan", "its result is not JSON: Out of range float values"),
        ("object", "its result is not JSON: Object of type object"),
        ("large", "its result is 17825794 bytes of JSON; 16777216 are allowed"),
        ("deep", "its result is nested too deeply"),
    ],
)
def test_results_that_nobody_could_be_told_are_errors(
    host: HostProcess, what: str, error: str
) -> None:
    found = outcome(answer(host, "returns", what))
    assert found.kind is OutcomeKind.ERROR and found.error.startswith(error)
    assert outcome(answer(host, "fine")) == FINE


def test_a_long_result_lies_in_a_file_of_its_own(host: HostProcess, tmp_path: Path) -> None:
    found = answer(host, "returns", "some")
    assert isinstance(found, CallAnswer) and found.in_file
    file = tmp_path / "results" / "r.json"
    assert len(json.loads(file.read_text())) == 1 << 20 > limits.RESULT_CHARS_MAX
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["cleans_up", "cleans_up_later"])
def test_a_function_that_is_ended_may_clean_up(
    host: HostProcess, tmp_path: Path, name: str
) -> None:
    begin(host, name, str(tmp_path / "cleaned"))
    until(lambda: (tmp_path / "begun").exists())
    host.end(hard=False)
    assert waited(host) == HostExited(-signal.SIGTERM)
    assert (tmp_path / "cleaned").exists()


def test_one_that_will_not_end_is_killed(host: HostProcess, tmp_path: Path) -> None:
    begin(host, "ignores")
    until(lambda: (tmp_path / "begun").exists())
    host.end(hard=False)
    assert host.read() is None
    host.end(hard=True)
    assert waited(host) == HostExited(-signal.SIGKILL)


@pytest.mark.parametrize(
    ("seconds", "kept"),
    [("2", 2.0), ("None", None), ("-1", None), ("float('nan')", None), ("'soon'", None),
     ("1e9", limits.RETRY_AFTER_MAX_SECONDS)],
)  # fmt: skip
def test_a_retry_says_when_if_it_makes_sense(
    host: HostProcess, seconds: str, kept: float | None
) -> None:
    assert outcome(answer(host, "after", seconds)) == Outcome(OutcomeKind.RETRY, "later", kept)


def test_one_that_was_killed_while_idle_is_not_fit(host: HostProcess) -> None:
    assert host.is_fit()
    outcome(answer(host, "fine"))
    assert host.is_fit()
    os.kill(host.pid, signal.SIGTERM)
    until(lambda: not host.is_fit())


def test_its_process_ends_with_its_worker(host: HostProcess) -> None:
    outcome(answer(host, "threads", 1))
    host.socket.shutdown(2)
    until(lambda: not alive(host.pid))
