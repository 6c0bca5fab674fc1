"""A real process that calls real functions, as a worker sees it."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.model import Call, Outcome, OutcomeKind
from beads_workers.runtime.functions import CallAnswer, HostExited, HostProcess

TASKS = """
import asyncio, os, sys, time
from beads_workers.executors.retry import Retry
calls = []
def count(): calls.append(1); return len(calls)
def say(text): print(text); print("oh", file=sys.stderr); return {"said": text}
async def later(seconds): await asyncio.sleep(seconds); return "later"
def again(): raise Retry("not yet", after_seconds=3)
def leave(code): os._exit(code)
def die(): os.kill(os.getpid(), 11)
def sleep(): time.sleep(300)
def variable(): return os.environ["BW_ISSUE_ID"]
def length(text): return len(text)
def silence(): sys.stdout.close()
"""
PATIENCE_SECONDS = 60.0


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostProcess]:
    (tmp_path / "tasks.py").write_text(TASKS)
    monkeypatch.chdir(tmp_path)
    made = HostProcess(("tasks",), dict(os.environb))
    yield made
    if not made.buried:
        made.close()


def answer(
    host: HostProcess, name: str, *args: Any, output: Path | None = None, **kwargs: Any
) -> Outcome | HostExited:
    """What comes of one call."""
    found = called(host, name, *args, output=output, **kwargs)
    return found.outcome if isinstance(found, CallAnswer) else found


def called(
    host: HostProcess, name: str, *args: Any, output: Path | None = None, **kwargs: Any
) -> CallAnswer | HostExited:
    """What comes of one call, whole."""
    path = output or Path(os.devnull)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    host.call(Call(f"tasks.{name}", args, kwargs), {"BW_ISSUE_ID": "bw-1"}, fd)
    os.close(fd)
    return waited(host)


def waited(host: HostProcess) -> CallAnswer | HostExited:
    """The answer, whenever it comes."""
    while select.select([host.socket], [], [], PATIENCE_SECONDS)[0]:
        if (found := host.read()) is not None:
            return found
    raise AssertionError("no answer")


def test_a_module_is_imported_once_and_each_call_is_answered(host: HostProcess) -> None:
    results = [answer(host, "count") for _ in range(3)]
    assert results == [Outcome(OutcomeKind.SUCCESS, result=str(n)) for n in (1, 2, 3)]


def test_what_a_call_prints_goes_where_its_output_belongs(
    host: HostProcess, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        answer(host, "say", name, output=tmp_path / name)
    assert (tmp_path / "one").read_text().splitlines() == ["one", "oh"]
    assert (tmp_path / "two").read_text().splitlines() == ["two", "oh"]


def test_coroutines_retries_and_variables(host: HostProcess) -> None:
    assert answer(host, "later", seconds=0) == Outcome(OutcomeKind.SUCCESS, result='"later"')
    assert answer(host, "again") == Outcome(OutcomeKind.RETRY, "not yet", 3)
    assert answer(host, "variable") == Outcome(OutcomeKind.SUCCESS, result='"bw-1"')


def test_what_is_not_there_or_not_allowed_is_not_found(host: HostProcess) -> None:
    for name in ("nothing", "os.system"):
        outcome = answer(host, name)
        assert isinstance(outcome, Outcome) and outcome.kind is OutcomeKind.NOT_FOUND


def test_a_traceback_goes_into_the_output(host: HostProcess, tmp_path: Path) -> None:
    outcome = answer(host, "length", 5, output=tmp_path / "log")
    assert isinstance(outcome, Outcome)
    assert outcome.error == "TypeError: object of type 'int' has no len()"
    assert "def length" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(("name", "args", "status"), [("leave", (3,), 3), ("die", (), -11)])
def test_a_process_that_dies_says_how(
    host: HostProcess, name: str, args: tuple[int, ...], status: int
) -> None:
    assert answer(host, name, *args) == HostExited(status)


@pytest.mark.parametrize("hard", [False, True])
def test_a_call_can_be_ended(host: HostProcess, tmp_path: Path, *, hard: bool) -> None:
    fd = os.open(os.devnull, os.O_WRONLY)
    host.call(Call("tasks.sleep"), {}, fd)
    os.close(fd)
    assert not select.select([host.socket], [], [], 0.3)[0]
    host.end(hard=hard)
    assert waited(host) == HostExited(-signal.SIGKILL if hard else -signal.SIGTERM)


def test_megabytes_of_arguments_arrive(host: HostProcess) -> None:
    assert answer(host, "length", "é" * 5_000_000) == Outcome(OutcomeKind.SUCCESS, result="5000000")


def test_a_function_that_closes_its_output_is_answered_all_the_same(host: HostProcess) -> None:
    assert answer(host, "silence") == Outcome(OutcomeKind.SUCCESS)


def test_no_descriptor_of_ours_is_left_by_a_hundred_calls(host: HostProcess) -> None:
    answer(host, "count")
    before = len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{host.pid}/fd"))  # noqa: PTH208
    for _ in range(100):
        answer(host, "count")
    after = len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{host.pid}/fd"))  # noqa: PTH208
    assert after == before
