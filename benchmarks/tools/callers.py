"""What people use instead of us to have Python functions called: dispatcherd, huey and RQ.

Each is driven in its own way and at its quickest setting, by small programs that are written into
its folder and run by its own Python. Its workers are all up, and its functions imported, before the
clock starts; it stops when the last function is called.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Protocol

from benchmarks.tools.fetching import debian, python_environment
from benchmarks.tools.fleets import Broken, run

PATIENCE_SECONDS = 120.0
ENVIRONMENT = "queues-1"
DISPATCHERD = "2026.5.27"
REQUIREMENTS = (f"dispatcherd=={DISPATCHERD}", "huey==3.5.4", "rq==3.0.0", "redis==8.1.0")

FUNCTIONS = """
import os, time
def noop(): pass
def hold(path):
    open(f"{path}.{os.getpid()}", "w").close()
    while not os.path.exists(path): time.sleep(0.001)
def mark(path):
    with open(path + ".new", "w") as file: file.write(repr(time.time()))
    os.rename(path + ".new", path)
"""
"""``hold`` returns when the gate is there; ``mark`` is called last, and says when."""


class Caller(Protocol):
    """Made with a folder of its own, and how many workers it has."""

    name: ClassVar[str]
    tasks: ClassVar[int]
    """So many are enough for its rate."""

    def __init__(self, folder: Path, workers: int) -> None: ...

    def rate(self, tasks: int) -> float:
        """Calls a second of a function that does nothing."""
        ...


class _Scripted:
    """A peer with a ``serve.py`` and a ``fill.py``; both find everything in their arguments."""

    name: ClassVar[str]
    functions: ClassVar[str]
    serve: ClassVar[str] = ""
    fill: ClassVar[str]

    def __init__(self, folder: Path, workers: int) -> None:
        self.python = python_environment(ENVIRONMENT, REQUIREMENTS)
        self.folder = folder / type(self).__name__.lower()
        self.folder.mkdir(parents=True)
        self.workers = workers
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8"}
        for name in ("functions", "serve", "fill"):
            text = getattr(self, name)
            file = "shop" if name == "functions" else name
            (self.folder / f"{file}.py").write_text(text)

    def script(self, name: str, *arguments: object) -> str:
        """Run one of its programs to its end."""
        argv = [str(self.python), f"{name}.py", *map(str, arguments)]
        return run(argv, self.folder, self.environment)

    @contextmanager
    def running(self, argv: Sequence[str]) -> Iterator[None]:
        """Its service, or its workers."""
        with (self.folder / "log").open("ab") as log:
            service = subprocess.Popen(
                argv,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield
        finally:
            os.killpg(service.pid, signal.SIGTERM)
            try:
                service.wait(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(service.pid, signal.SIGKILL)
                service.wait()

    def until(self, pattern: str, files: int = 1) -> Path:
        """Wait for so many files in its folder; returns one."""
        end = time.monotonic() + PATIENCE_SECONDS
        while len(found := list(self.folder.glob(pattern))) < files:
            if time.monotonic() > end:
                told = (self.folder / "log").read_text(errors="replace")[-500:]
                raise Broken(f"{self.name} did not get so far: {told}")
            time.sleep(0.01)
        return found[0]

    def ended(self) -> float:
        """When ``mark`` was called, in epoch seconds."""
        file = self.until("mark")
        ended = float(file.read_text())
        file.unlink()
        return ended

    def stored_rate(self, tasks: int, argv: Sequence[str]) -> float:
        """Of one that keeps its tasks somewhere: that is full before its workers begin."""
        gate = self.folder / "gate"
        self.script("fill", self.workers, tasks, gate, self.folder / "mark")
        with self.running(argv):
            self.until("gate.*", self.workers)
            began = time.time()
            gate.touch()
            ended = self.ended()
        for file in self.folder.glob("gate*"):
            file.unlink()
        return tasks / (ended - began)


class Dispatcherd(_Scripted):
    """dispatcherd with its Unix socket broker: it keeps nothing, so its tasks are sent to it, all
    at once over one connection, which is its quickest way."""

    name: ClassVar[str] = f"dispatcherd {DISPATCHERD}"
    tasks: ClassVar[int] = 5000
    functions: ClassVar[str] = FUNCTIONS.replace("def ", "@task(queue='bench')\ndef ").replace(
        "import os", "from dispatcherd.publish import task\nimport os", 1
    )
    serve: ClassVar[str] = """
import logging, sys
from dispatcherd import run_service
from dispatcherd.config import setup

if __name__ == "__main__":
    workers = int(sys.argv[1])
    logging.basicConfig(level=logging.ERROR)
    pool = {"min_workers": workers, "max_workers": workers}
    setup({"version": 2, "service": {"pool_kwargs": pool},
           "brokers": {"socket": {"socket_path": "socket"}},
           "publish": {"default_broker": "socket"}})
    run_service()
"""
    fill: ClassVar[str] = """
import json, os, socket, sys, time, uuid
workers, tasks, mark = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
def line(name, *args):
    message = {"task": f"shop.{name}", "time_pub": time.time(), "uuid": str(uuid.uuid4())}
    return json.dumps(message | ({"args": args} if args else {})).encode() + b"\\n"
def send(lines):
    with socket.socket(socket.AF_UNIX) as service:
        service.connect("socket")
        service.sendall(b"".join(lines))
        while not os.path.exists(mark): time.sleep(0.005)
send([line("noop")] * 50 * workers + [line("mark", mark)])
os.unlink(mark)
many = [line("noop") for _ in range(tasks)] + [line("mark", mark)]
began = time.time()
send(many)
print(began)
"""

    @contextmanager
    def serving(self) -> Iterator[None]:
        """The service, which listens."""
        (self.folder / "socket").unlink(missing_ok=True)
        with self.running([str(self.python), "serve.py", str(self.workers)]):
            self.until("socket")
            yield

    def rate(self, tasks: int) -> float:
        """From the first byte that is sent to the end of the last call."""
        with self.serving():
            began = float(self.script("fill", self.workers, tasks, self.folder / "mark"))
            return tasks / (self.ended() - began)


class Huey(_Scripted):
    """huey on SQLite, with processes for workers."""

    name: ClassVar[str] = "huey (SQLite)"
    tasks: ClassVar[int] = 2000
    functions: ClassVar[str] = (
        "from huey import SqliteHuey\nhuey = SqliteHuey(filename='huey.db')\n"
        + FUNCTIONS.replace("def ", "@huey.task()\ndef ")
    )
    fill: ClassVar[str] = """
import sys
import shop
workers, tasks, gate, mark = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
for _ in range(workers): shop.hold(gate)
for _ in range(tasks): shop.noop()
shop.mark(mark)
"""

    def rate(self, tasks: int) -> float:
        """From the moment when all workers are up."""
        consumer = str(self.python.parent / "huey_consumer")
        options = ["-k", "process", "-w", str(self.workers), "-n", "-q"]
        return self.stored_rate(tasks, [consumer, "shop.huey", *options])


class Rq(_Scripted):
    """RQ on a Redis of its own, with workers that fork for no job: its quickest kind."""

    name: ClassVar[str] = "RQ (Redis)"
    tasks: ClassVar[int] = 1000
    functions: ClassVar[str] = FUNCTIONS
    fill: ClassVar[str] = """
import sys
from redis import Redis
from rq import Queue
workers, tasks, gate, mark = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
queue = Queue("bench", connection=Redis(unix_socket_path="redis.sock"))
for _ in range(workers): queue.enqueue("shop.hold", gate)
queue.enqueue_many([Queue.prepare_data("shop.noop") for _ in range(tasks)])
queue.enqueue("shop.mark", mark)
"""

    def __init__(self, folder: Path, workers: int) -> None:
        self._redis = debian("redis-server", "redis-server")
        super().__init__(folder, workers)

    def rate(self, tasks: int) -> float:
        """From the moment when all workers are up."""
        redis = [self._redis, "--port", "0", "--unixsocket", "redis.sock"]
        (self.folder / "redis.sock").unlink(missing_ok=True)
        url = f"unix://{self.folder}/redis.sock"
        pool = [str(self.python.parent / "rq"), "worker-pool", "bench", "--url", url]
        kind = ["-w", "rq.worker.SimpleWorker", "-n", str(self.workers), "--quiet"]
        with self.running([*redis, "--save", "", "--dir", str(self.folder)]):
            self.until("redis.sock")
            return self.stored_rate(tasks, [*pool, *kind])
