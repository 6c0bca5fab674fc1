"""A pytest plugin for the tests of dispatcherd's own source: a fleet stands in for its service.

Those tests look into the service's objects. What they look for is asked of the fleet, by
dispatcherd's own control commands on the fleet's control socket. The fleet listens on the brokers
of their configuration; publishers and ``Control`` are dispatcherd's, unchanged, but for one thing:
a fleet refuses a lambda that comes as text. Each that stands in the tests is a function of a
module here, and that function's name is sent in its place.

Without ``UPSTREAM_FLEET`` the real service is tried, as the tests have it.

Runs in the environment of ``scripts/setup-peers dispatcherd-tests``, and so has nothing of ours:
the fleet's command comes in ``UPSTREAM_FLEET``, PostgreSQL in ``UPSTREAM_CONNINFO``.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import logging
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import dispatcherd.testing.asyncio
import dispatcherd.testing.subprocess
import pytest
from dispatcherd.brokers import pg_notify
from dispatcherd.brokers import socket as socket_broker
from dispatcherd.control import Control

LAMBDAS = "unnamed"
"""No name that begins with ``lambda``: that is refused, too."""
MODULES = ("tests.data.methods", "asyncio_tests.integration.test_signal_handling", LAMBDAS)
"""Where the tests' tasks are."""
WORKERS = 6
"""As large as the pool of the tests' own configuration may grow."""
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.02
log = logging.getLogger("upstream")


# --- what stands in for the service --------------------------------------------------------------


class FleetService:
    """One fleet, with what the tests read of a ``DispatcherMain``."""

    def __init__(self, config):
        self.folder = Path(tempfile.mkdtemp(prefix="bw-upstream-"))
        file = self.folder / "dispatcher.json"
        service = {**config.get("service", {})}
        process = {"preload_modules": ["tests.data.methods", LAMBDAS]}
        pool = {"min_workers": WORKERS, "max_workers": WORKERS}
        service |= {"pool_kwargs": pool, "process_manager_kwargs": process}
        file.write_text(json.dumps({**config, "service": service}))
        self._errors = (self.folder / "errors").open("w+")
        command = [*json.loads(os.environ["UPSTREAM_FLEET"]), "start"]
        source = ["--source", f"dispatcherd:{file}", "--state-dir", str(self.folder / "state")]
        modules = [word for name in MODULES for word in ("--allow-module", name)]
        self._process = subprocess.Popen(
            [*command, *source, *modules],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
        )
        self._asked = 0
        self.pool = Pool(self)
        self._wait_until(self._is_up)

    def _is_up(self):
        assert self._process.poll() is None, self.said()
        run = self.folder / "state" / "run.json"
        if not run.exists():
            return False
        sockets = json.loads(run.read_text())
        where = sockets.get("control_socket")
        if not where or not Path(where).exists():
            return False
        self._control = Control("socket", {"socket_path": where})
        workers = self.ask("workers").values()
        return len(workers) == WORKERS and all(each["status"] == "ready" for each in workers)

    def _wait_until(self, holds):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, self.said()
            time.sleep(POLL_SECONDS)

    def said(self):
        """What it wrote of its errors."""
        self._errors.seek(0)
        return self._errors.read()

    def ask(self, command):
        """The answer to a control command, without who gave it."""
        self._asked += 1
        (answer,) = self._control.control_with_reply(command, timeout=10)
        return {key: each for key, each in answer.items() if key != "node_id"}

    @property
    def control_count(self):
        """Control messages that came from the tests."""
        counted = self.ask("main")["control_count"]
        return counted - self._asked

    @property
    def producers(self):
        """One for each broker."""
        return [SimpleNamespace(**each) for each in self.ask("producers").values()]

    def results(self):
        """What the tasks have returned, from the journal, where it is JSON."""
        for journal in sorted(self.folder.glob("state/runs/*/journal.jsonl")):
            for line in journal.read_text().splitlines():
                record = json.loads(line)
                if record.get("e") == "finished" and "result" in record:
                    yield json.loads(record["result"])

    def stop(self):
        """End it; it leaves nothing."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(PATIENCE_SECONDS)
        finally:
            self._process.kill()


class Pool:
    """What the tests read of its pool."""

    def __init__(self, service):
        self._service = service
        self.events = SimpleNamespace(work_cleared=WorkCleared(service))
        self.blocker = Blocker(service)

    @property
    def finished_count(self):
        return self._service.ask("main")["pool"]["finished_count"]

    @property
    def canceled_count(self):
        return self._service.ask("main")["pool"]["canceled_count"]

    @property
    def received_count(self):
        counted = self._service.ask("main")
        return counted["received_count"] - counted["control_count"]

    @property
    def workers(self):
        running = self._service.ask("running")
        busy = [each for name, each in running.items() if name.startswith("worker-")]
        tasks = busy + [None] * (WORKERS - len(busy))
        return [SimpleNamespace(current_task=each) for each in tasks]


class Blocker:
    """Of tasks that wait for one like them, or were dropped for it."""

    def __init__(self, service):
        self._service = service

    def count(self):
        return sum(name.startswith("blocked-") for name in self._service.ask("running"))

    @property
    def discard_count(self):
        counted, there = self._service.ask("main"), self._service.ask("running")
        ended = counted["pool"]["finished_count"] + counted["pool"]["canceled_count"]
        return counted["received_count"] - counted["control_count"] - ended - len(there)


class WorkCleared:
    """The service's event: set when something has ended and nothing is left."""

    def __init__(self, service):
        self._service, self._ended_before = service, 0

    def _ended(self):
        pool = self._service.ask("main")["pool"]
        return pool["finished_count"] + pool["canceled_count"]

    def clear(self):
        self._ended_before = self._ended()

    def is_set(self):
        return self._ended() > self._ended_before and not self._service.ask("running")

    async def wait(self):
        while not self.is_set():
            await asyncio.sleep(POLL_SECONDS)
        for result in self._service.results():
            log.debug("result: %s", result)
        return True


@contextlib.asynccontextmanager
async def adispatcher_service(config):
    """In place of dispatcherd's own."""
    service = FleetService(config)
    try:
        yield service
    finally:
        service.stop()


@contextlib.contextmanager
def dispatcher_service(config, main_events=(), pool_events=()):
    """In place of dispatcherd's own: tells of its events in ``q_out``."""
    service, told, over = FleetService(config), queue.Queue(), threading.Event()

    def watch():
        while not over.is_set():
            if service.pool.events.work_cleared.is_set():
                service.pool.events.work_cleared.clear()
                told.put("work_cleared")
            time.sleep(POLL_SECONDS)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield SimpleNamespace(q_out=told)
    finally:
        over.set()
        watching.join()
        service.stop()


# --- what is changed on the publishers' side -----------------------------------------------------


def lambdas(folder):
    """The text of each lambda in the tests, and the name it has in a module made of them."""
    found = {}
    for file in sorted(folder.glob("**/test_*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and _is_lambda(text):
                found.setdefault(text, f"{LAMBDAS}.function_{len(found)}")
    return found


def _is_lambda(text):
    with contextlib.suppress(SyntaxError):
        return isinstance(ast.parse(text, mode="eval").body, ast.Lambda)
    return False


def translated(message, names):
    """The message with the name of a function where a lambda stood."""
    if message in names:
        return names[message]
    try:
        read = json.loads(message)
    except ValueError:
        return message
    if isinstance(read, dict) and read.get("task") in names:
        return json.dumps({**read, "task": names[read["task"]]})
    return message


def _translate(broker, names):
    publish, apublish = broker.publish_message, broker.apublish_message

    def publish_message(self, *args, message, **kwargs):
        return publish(self, *args, message=translated(message, names), **kwargs)

    async def apublish_message(self, *args, message, **kwargs):
        return await apublish(self, *args, message=translated(message, names), **kwargs)

    broker.publish_message, broker.apublish_message = publish_message, apublish_message


def stand_in():
    """Before anything of the tests is imported: their ``conftest`` is, before any hook of ours."""
    names = lambdas(Path.cwd())
    lines = [f"{name.partition('.')[2]} = {text}" for text, name in names.items()]
    Path(f"{LAMBDAS}.py").write_text("\n".join(lines) + "\n")
    for broker in (pg_notify.Broker, socket_broker.Broker):
        _translate(broker, names)
    dispatcherd.testing.asyncio.adispatcher_service = adispatcher_service
    dispatcherd.testing.subprocess.dispatcher_service = dispatcher_service


@pytest.hookimpl(tryfirst=True)
def pytest_plugin_registered(plugin, manager):
    """Their ``conftest`` names a server of its own."""
    if hasattr(plugin, "CONNECTION_STRING") and hasattr(plugin, "BASIC_CONFIG"):
        plugin.CONNECTION_STRING = os.environ["UPSTREAM_CONNINFO"]
        broker = plugin.BASIC_CONFIG["brokers"]["pg_notify"]
        broker["config"]["conninfo"] = plugin.CONNECTION_STRING


if "UPSTREAM_FLEET" in os.environ:
    stand_in()
