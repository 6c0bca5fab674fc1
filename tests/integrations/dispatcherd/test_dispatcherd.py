"""Tasks of dispatcherd in the process for functions: by its own ``TaskWorker``, and without it."""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beads_workers.core.base.model import Call, OutcomeKind
from beads_workers.core.base.settings import Ahead
from beads_workers.runtime.functions import (
    CallAnswer,
    CallAsked,
    CallBegun,
    HostExited,
    HostProcess,
)
from tests.support.dispatcherd import Dispatcherd
from tests.support.fleet import until

PATIENCE_SECONDS = 60.0
PLAIN = """
import time
from pathlib import Path
def echo(*args, **kwargs): return {"args": list(args), "kwargs": kwargs}
def write_down(file, line="ran"):
    with Path(file).open("a") as trace: print(line, file=trace)
def fail(message="no"): raise ValueError(message)
def sleep(seconds, file):
    try: write_down(file, "begun"), [time.sleep(0.05) for _ in range(int(seconds * 20))]
    finally: write_down(file, "left")
class Adder:
    def run(self, a, b): return a + b
def ask(bound, command, data=None): return [bound.uuid, bound.control(command, data)]
"""
DECORATED = """
import time
from beads_workers.executors.retry import Retry
from dispatcherd.publish import task
from dispatcherd.worker.exceptions import DispatcherCancel, DispatcherExit
from os import system
from plain import echo as _echo, write_down, fail, sleep
@task()
def doubled(n): return n * 2
@task()
class Adder:
    def run(self, a, b): return a + b
@task(bind=True)
def ask(bound, command, data=None):
    return [bound.uuid, bound.worker_id, bound.control(command, data)]
@task()
def odd(): return {1, 2}
@task()
def leave(result="<exit>"): raise DispatcherExit(result)
@task()
def again(): raise Retry("not yet", after_seconds=3)
@task()
def stubborn(file):
    try: write_down(file, "begun"), [time.sleep(0.05) for _ in range(6000)]
    except DispatcherCancel: write_down(file, "cleaned up")
    return "kept"
"""


MINE = """
from dispatcherd.worker.task import TaskWorker
from plain import write_down
class Mine(TaskWorker):
    def __init__(self, *, trace, **rest):
        super().__init__(**rest)
        self.trace = trace
    def on_start(self): write_down(self.trace, "start")
    def pre_task(self, message): write_down(self.trace, "before " + message["task"])
    def post_task(self, done): write_down(self.trace, f"after {done['result']}")
    def on_shutdown(self): write_down(self.trace, "shutdown")
"""


class Caller:
    """A process for functions, and what it says."""

    def __init__(self, folder: Path, environment: dict[bytes, bytes]) -> None:
        (folder / "plain.py").write_text(PLAIN)
        (folder / "decorated.py").write_text(DECORATED)
        self.folder = folder
        self.log = folder / "log"
        self.host = HostProcess(("plain", "decorated"), environment)

    def begin(self, path: str, *args: Any, **message: Any) -> None:
        """Have a task run; what else its message says as keywords."""
        kwargs = message.pop("kwargs", {})
        with self.log.open("ab") as log:
            call = Call(path, args, kwargs, {"uuid": "u1", **message})
            self.host.call(call, {"BW_WORKER_ID": "W3"}, log.fileno())

    def next_answer(self) -> CallAnswer | CallAsked | HostExited:
        """What it says next, but for that it has begun."""
        while isinstance(message := self.next(), CallBegun):
            pass
        return message

    def next(self) -> CallAnswer | CallAsked | CallBegun | HostExited:
        """What it says next."""
        poll = select.poll()
        poll.register(self.host.socket, select.POLLIN)
        while (said := self.host.read()) is None:
            assert poll.poll(PATIENCE_SECONDS * 1000), "it says nothing"
        return said

    def call(self, path: str, *args: Any, **message: Any) -> CallAnswer:
        """How it ends."""
        self.begin(path, *args, **message)
        message = self.next_answer()
        assert isinstance(message, CallAnswer), message
        return message

    def outcome(self, path: str, *args: Any, **message: Any) -> tuple[OutcomeKind, str]:
        """The same in short: its result or its error."""
        outcome = self.call(path, *args, **message).outcome
        return outcome.kind, outcome.result or outcome.error


Make = Callable[[], Caller]


def _made(folder: Path, monkeypatch: pytest.MonkeyPatch, *places: Path) -> Iterator[Caller]:
    monkeypatch.chdir(folder)
    paths = os.pathsep.join(map(str, places))
    made = Caller(folder, {**os.environb, b"PYTHONPATH": os.fsencode(paths)})
    yield made
    if not made.host.buried:
        made.host.close()


@pytest.fixture
def without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Caller]:
    """In a Python that has no dispatcherd."""
    yield from _made(tmp_path, monkeypatch)


@pytest.fixture
def with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Caller]:
    """In one that has it."""
    yield from _made(tmp_path, monkeypatch, Dispatcherd().packages)


@pytest.fixture(params=["without", "with_it"])
def either(request: pytest.FixtureRequest) -> Caller:
    """Both in turn."""
    made: Caller = request.getfixturevalue(request.param)
    return made


SUCCESS, ERROR, NOT_FOUND = OutcomeKind.SUCCESS, OutcomeKind.ERROR, OutcomeKind.NOT_FOUND
peers = pytest.mark.peers


@peers
def test_functions_and_classes_are_run_with_their_arguments(either: Caller) -> None:
    told = '{"args":[1],"kwargs":{"a":2}}'
    assert either.outcome("plain.echo", 1, kwargs={"a": 2}) == (SUCCESS, told)
    assert either.outcome("plain.Adder", 1, 2) == (SUCCESS, "3")


@peers
def test_a_failure_is_visible_and_the_next_task_is_run(either: Caller) -> None:
    assert either.outcome("plain.fail", "oh") == (ERROR, "ValueError: oh")
    assert "in fail" in either.log.read_text()
    assert either.outcome("plain.Adder", 1, 2) == (SUCCESS, "3")


@peers
@pytest.mark.parametrize("path", ["os.system", "decorated.system", "plain.nothing", "lambda: 1"])
def test_only_what_is_allowed_is_called(either: Caller, path: str) -> None:
    kind, error = either.outcome(path, "touch pwned")
    assert kind is NOT_FOUND, error
    assert not (either.folder / "pwned").exists()


@peers
def test_callbacks_are_run_and_errbacks_after_a_failure(either: Caller) -> None:
    trace = str(either.folder / "trace")
    after = [{"task": "plain.write_down", "args": [trace, "callback"]}]
    failed = [{"task": "plain.write_down", "args": [trace, "errback"]}]
    assert either.call("plain.echo", callbacks=after, errbacks=failed).outcome.kind is SUCCESS
    assert Path(trace).read_text() == "callback\n"
    assert either.outcome("plain.fail", callbacks=after, errbacks=failed)[0] is ERROR
    assert Path(trace).read_text() == "callback\nerrback\ncallback\n"


@peers
def test_a_callback_that_is_not_allowed_is_not_called(either: Caller) -> None:
    after = [{"task": "os.system", "args": ["touch pwned"]}]
    assert either.call("plain.echo", callbacks=after).outcome.kind is SUCCESS
    assert not (either.folder / "pwned").exists()


@peers
def test_a_bound_task_asks_and_waits_for_its_answer(either: Caller) -> None:
    either.begin("plain.ask", "running", {"uuid": "x"}, bind=True)
    assert either.next_answer() == CallAsked("running", {"uuid": "x"})
    either.host.tell({"worker-3": {"uuid": "x"}})
    said = either.next_answer()
    assert isinstance(said, CallAnswer)
    assert said.outcome.result == '["u1",{"worker-3":{"uuid":"x"}}]'


@peers
def test_sigusr1_cancels_a_task_which_may_clean_up(either: Caller) -> None:
    trace = either.folder / "trace"
    either.begin("plain.sleep", 300, str(trace))
    until(lambda: trace.exists() and "begun" in trace.read_text())
    either.host.ask_to_cancel()
    said = either.next_answer()
    assert isinstance(said, CallAnswer) and said.outcome.kind is ERROR
    assert trace.read_text() == "begun\nleft\n"
    assert either.outcome("plain.Adder", 1, 2) == (SUCCESS, "3")


@peers
def test_a_cancel_that_comes_late_does_no_harm(either: Caller) -> None:
    either.outcome("plain.echo")
    either.host.ask_to_cancel()
    assert either.outcome("plain.Adder", 1, 2) == (SUCCESS, "3")


@peers
def test_decorated_functions_and_classes_are_run(with_it: Caller) -> None:
    assert with_it.outcome("decorated.doubled", 4) == (SUCCESS, "8")
    assert with_it.outcome("decorated.Adder", 1, 2) == (SUCCESS, "3")


@peers
def test_a_task_that_is_registered_with_bind_asks_without_saying_so(with_it: Caller) -> None:
    with_it.begin("decorated.ask", "alive")
    assert with_it.next_answer() == CallAsked("alive", {})
    with_it.host.tell({"a": 1})
    said = with_it.next_answer()
    assert isinstance(said, CallAnswer) and said.outcome.result == '["u1",3,{"a":1}]'


@peers
def test_a_result_of_another_type_is_dropped_as_the_real_one_drops_it(with_it: Caller) -> None:
    assert with_it.outcome("decorated.odd") == (SUCCESS, "")


@peers
def test_a_task_that_exits_has_its_result_and_stops_its_worker(with_it: Caller) -> None:
    said = with_it.call("decorated.leave")
    assert (said.outcome.kind, said.outcome.result) == (SUCCESS, '"<exit>"')
    assert said.is_stopping
    assert with_it.call("decorated.leave", {"a": 1}).outcome.result == '{"a":1}'
    assert not with_it.call("decorated.doubled", 1).is_stopping


@peers
def test_a_retry_is_a_retry(with_it: Caller) -> None:
    outcome = with_it.call("decorated.again").outcome
    assert (outcome.kind, outcome.retry_after_seconds) == (OutcomeKind.RETRY, 3)


@peers
def test_a_task_may_catch_its_cancellation(with_it: Caller) -> None:
    trace = with_it.folder / "trace"
    with_it.begin("decorated.stubborn", str(trace))
    until(lambda: trace.exists() and "begun" in trace.read_text())
    with_it.host.ask_to_cancel()
    said = with_it.next_answer()
    assert isinstance(said, CallAnswer) and said.outcome.result == '"kept"'
    assert trace.read_text() == "begun\ncleaned up\n"


@peers
def test_term_ends_a_task_at_once(either: Caller) -> None:
    trace = either.folder / "trace"
    either.begin("plain.sleep", 300, str(trace))
    until(lambda: trace.exists() and "begun" in trace.read_text())
    either.host.end(hard=False)
    ended = either.next_answer()
    assert ended == HostExited(-signal.SIGTERM)


@peers
def test_the_settings_choose_the_worker_class_and_let_tasks_publish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    trace = tmp_path / "trace"
    worker = {"worker_cls": "mine.Mine", "worker_kwargs": {"trace": str(trace)}}
    config = tmp_path / "dispatcher.yml"
    config.write_text(json.dumps({"version": 2, "brokers": {}, "worker": worker}))
    monkeypatch.setitem(os.environb, b"DISPATCHERD_CONFIG_FILE", os.fsencode(config))
    for caller in _made(tmp_path, monkeypatch, Dispatcherd().packages):
        assert caller.outcome("decorated.doubled", 4) == (SUCCESS, "8")
        caller.call("decorated.leave")
        caller.host.retire()
    lines = ["start", "before decorated.doubled", "after 8", "before decorated.leave"]
    assert trace.read_text().splitlines() == [*lines, "after <exit>", "shutdown"]
    trace.unlink()
    for caller in _made(tmp_path, monkeypatch, Dispatcherd().packages):
        caller.call("decorated.doubled", 4)
        caller.host.retire()
    assert trace.read_text().splitlines()[-2:] == ["after 8", "shutdown"]


def test_what_may_be_called_is_imported_before_it_says_that_it_is_ready(without: Caller) -> None:
    (without.folder / "plain.py").write_text("open('imported', 'w').close()")
    without.host.set_up({"BW_WORKER_ID": "W3"}, Ahead.MESSAGES)
    until(without.host.warms)
    assert (without.folder / "imported").exists()


RESTS = """
from dispatcherd.worker.task import TaskWorker
from plain import write_down
class Mine(TaskWorker):
    def on_idle(self):
        write_down("trace", "idle")
        print("in no log")
        raise OSError("no database")
"""


@peers
@pytest.mark.parametrize("ahead", [True, False])
def test_a_worker_class_is_told_again_and_again_that_there_is_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ahead: bool
) -> None:
    (tmp_path / "mine.py").write_text(RESTS)
    config = tmp_path / "dispatcher.yml"
    worker = {"worker_cls": "mine.Mine", "worker_kwargs": {"idle_timeout": 0.05}}
    config.write_text(json.dumps({"version": 2, "brokers": {}, "worker": worker}))
    monkeypatch.setitem(os.environb, b"DISPATCHERD_CONFIG_FILE", os.fsencode(config))
    trace = tmp_path / "trace"
    for caller in _made(tmp_path, monkeypatch, Dispatcherd().packages):
        if ahead:
            caller.host.set_up({"BW_WORKER_ID": "W3"}, Ahead.MESSAGES)
            until(lambda: trace.exists() and trace.read_text().count("idle") > 1)
        assert caller.outcome("decorated.doubled", 4) == (SUCCESS, "8")
        before = trace.read_text().count("idle") if ahead else 0
        until(lambda before=before: trace.exists() and trace.read_text().count("idle") > before + 1)
        assert caller.host.is_fit()
        assert caller.outcome("decorated.doubled", 5) == (SUCCESS, "10")
        assert "in no log" not in caller.log.read_text()


@peers
def test_modules_that_the_settings_preload_are_there_before_the_worker_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "first.py").write_text("import sys; sys.modules['set_up'] = sys")
    (tmp_path / "mine.py").write_text(
        "import set_up\nfrom dispatcherd.worker.task import TaskWorker as Mine\n"
    )
    config = tmp_path / "dispatcher.yml"
    service = {"process_manager_kwargs": {"preload_modules": ["first"]}}
    worker = {"worker_cls": "mine.Mine"}
    config.write_text(json.dumps({"version": 2, "service": service, "worker": worker}))
    monkeypatch.setitem(os.environb, b"DISPATCHERD_CONFIG_FILE", os.fsencode(config))
    for caller in _made(tmp_path, monkeypatch, Dispatcherd().packages):
        assert caller.outcome("decorated.doubled", 4) == (SUCCESS, "8")


GETS_READY = """
import time
from dispatcherd.worker.task import TaskWorker
from plain import write_down
class Mine(TaskWorker):
    def on_start(self):
        write_down("trace", "begun")
        while not __import__("os").path.exists("go"): time.sleep(0.01)
"""


def _getting_ready(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Caller]:
    """A process that was told to get ready, and waits for the file ``go`` within that."""
    (folder / "mine.py").write_text(GETS_READY)
    config = folder / "dispatcher.yml"
    config.write_text("version: 2\nworker: {worker_cls: mine.Mine}\n")
    monkeypatch.setitem(os.environb, b"DISPATCHERD_CONFIG_FILE", os.fsencode(config))
    for caller in _made(folder, monkeypatch, Dispatcherd().packages):
        caller.host.set_up({"BW_WORKER_ID": "W3"}, Ahead.MESSAGES)
        until((folder / "trace").exists)
        yield caller


@peers
def test_what_got_ready_ahead_says_when_it_calls_and_only_for_the_first_of_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for caller in _getting_ready(tmp_path, monkeypatch):
        caller.begin("decorated.doubled", 4)
        (tmp_path / "go").touch()
        assert caller.next() == CallBegun()
        said = caller.next()
        assert isinstance(said, CallAnswer) and said.outcome.result == "8"
        caller.begin("decorated.doubled", 5)
        assert isinstance(caller.next(), CallAnswer)
        assert (tmp_path / "trace").read_text() == "begun\n"


@peers
def test_a_cancel_while_it_gets_ready_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for caller in _getting_ready(tmp_path, monkeypatch):
        caller.begin("decorated.doubled", 4)
        caller.host.ask_to_cancel()
        assert caller.next_answer() == HostExited(-signal.SIGTERM)


@peers
def test_settings_that_lead_nowhere_are_the_answer_and_may_be_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "dispatcher.yml"
    config.write_text("version: 2\nworker: {worker_cls: gone.Mine}\n")
    monkeypatch.setitem(os.environb, b"DISPATCHERD_CONFIG_FILE", os.fsencode(config))
    for caller in _made(tmp_path, monkeypatch, Dispatcherd().packages):
        kind, error = caller.outcome("decorated.doubled", 4)
        assert kind in (ERROR, NOT_FOUND) and "dispatcherd's worker cannot be made" in error
        (tmp_path / "gone.py").write_text(
            "from dispatcherd.worker.task import TaskWorker as Mine\n"
        )
        assert caller.outcome("decorated.doubled", 4) == (SUCCESS, "8")


@peers
def test_a_hook_that_fails_after_the_task_fails_it_visibly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "from dispatcherd.worker.task import TaskWorker\n"
        "class Mine(TaskWorker):\n"
        "    def pre_task(self, message): raise ValueError('before')\n"
        "    def post_task(self, done): raise ValueError('after')\n"
    )
    config = tmp_path / "dispatcher.yml"
    config.write_text("version: 2\nworker: {worker_cls: mine.Mine}\n")
    monkeypatch.setitem(os.environb, b"DISPATCHERD_CONFIG_FILE", os.fsencode(config))
    for caller in _made(tmp_path, monkeypatch, Dispatcherd().packages):
        assert caller.outcome("decorated.doubled", 4) == (ERROR, "ValueError: after")
        assert "pre_task failed" in caller.log.read_text()


@peers
@pytest.mark.parametrize("said", ["None", "{}", "{'worker': 1, 'event': 'ready'}"])
def test_a_worker_class_that_does_not_say_how_a_task_ended_has_failed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    (tmp_path / "mine.py").write_text(
        "from dispatcherd.worker.task import TaskWorker\n"
        "class Mine(TaskWorker):\n"
        f"    def perform_work(self, message, **more): return {said}\n"
    )
    config = tmp_path / "dispatcher.yml"
    config.write_text("version: 2\nworker: {worker_cls: mine.Mine}\n")
    monkeypatch.setitem(os.environb, b"DISPATCHERD_CONFIG_FILE", os.fsencode(config))
    for caller in _made(tmp_path, monkeypatch, Dispatcherd().packages):
        kind, error = caller.outcome("decorated.doubled", 4)
        assert kind is ERROR and "does not say how it ended" in error
