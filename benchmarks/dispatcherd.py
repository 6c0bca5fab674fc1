"""Tasks that do nothing, from a publisher of dispatcherd, against the real service.

The same client sends the same tasks over the same kind of Unix socket, all at once over one
connection, to as many workers, which are up before the clock starts. It runs from the first byte
that is sent to the end of the last call. The real one keeps nothing; ours has every task on file
before it is begun, and journals it. Then, how long ``alive`` takes: with nothing to do, and with
ten thousand tasks that wait.
"""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.tools.callers import FUNCTIONS, Dispatcherd
from benchmarks.tools.fetching import Missing
from benchmarks.tools.figures import Figure, Goal, in_turn
from benchmarks.tools.fleets import Broken, ours, run

WORKERS = 2
TASKS = 10_000
ASKED = 300
PATIENCE_SECONDS = 30.0
RATE_GOAL = 1.3
IDLE_SECONDS_MAX = 0.001
QUEUED_SECONDS_MAX = 0.005


class Ours(Dispatcherd):
    """A fleet in the place of the service."""

    name: ClassVar[str] = "beads-workers"
    functions: ClassVar[str] = FUNCTIONS

    @contextmanager
    def serving(self) -> Iterator[None]:
        """A fleet that runs as a service does, and has nothing from an earlier one."""
        shutil.rmtree(self.folder / ".beads-workers", ignore_errors=True)
        (self.folder / "socket").unlink(missing_ok=True)
        where = f"dispatcherd+unix://{self.folder / 'socket'}"
        start = [ours(), "start", "-d", "-n", str(self.workers), "--source", where]
        run([*start, "--allow-module", "shop"], self.folder, self.environment)
        try:
            yield
        finally:
            run([ours(), "stop"], self.folder, self.environment)


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """Tasks a second, paired; and the median of ``alive``."""
    try:
        mine, real = Ours(folder, WORKERS), Dispatcherd(folder, WORKERS)
    except Missing as missing:
        raise Broken(str(missing)) from missing
    tasks = TASKS // 10 if quick else TASKS
    both = in_turn(
        "dispatcherd tasks a second", rounds, lambda: mine.rate(tasks), lambda: real.rate(tasks)
    )
    name = f"dispatcherd: {tasks} tasks, {WORKERS} workers / {real.name}"
    return [
        Figure(name, "tasks/s", *both, RATE_GOAL, Goal.AT_LEAST, paired=True),
        *_alive(mine, real, rounds, 0, IDLE_SECONDS_MAX),
        *_alive(mine, real, rounds, tasks, QUEUED_SECONDS_MAX),
    ]


def _alive(mine: Ours, real: Dispatcherd, rounds: int, queued: int, most: float) -> list[Figure]:
    what = f"dispatcherd: 'alive' with {queued} tasks queued, median"
    both = in_turn(what, rounds, lambda: _median(mine, queued), lambda: _median(real, queued))
    return [
        Figure(what, "s", both[0], goal=most),
        Figure(f"{what} / {real.name}", "s", *both),
    ]


def _median(service: Dispatcherd, queued: int) -> float:
    with service.serving():
        _until_answered(service.folder / "socket")
        where, gate = service.folder / "socket", service.folder / "gate"
        hold = {"task": "shop.hold", "args": [str(gate)], "uuid": "hold"}
        _send(where, [hold] * service.workers)
        service.until("gate.*", service.workers)
        _send(where, [{"task": "shop.noop", "uuid": f"q{n}"} for n in range(queued)])
        for _ in range(20):
            _ask(where)
        median = statistics.median(_ask(where) for _ in range(ASKED))
        gate.touch()
    for file in service.folder.glob("gate*"):
        file.unlink()
    return median


def _until_answered(where: Path) -> None:
    """The real one's socket is there a moment before anybody listens."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            _ask(where)
            return
        except ConnectionRefusedError:
            if time.monotonic() > end:
                raise
        time.sleep(0.01)


def _send(where: Path, messages: list[dict[str, Any]]) -> None:
    with socket.socket(socket.AF_UNIX) as service:
        service.connect(str(where))
        service.sendall(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        # It is all read when this is answered: the connection is read in its order.
        service.sendall(b'{"control": "alive", "reply_to": "r"}\n')
        service.recv(4096)


def _ask(where: Path) -> float:
    """Seconds for a request over a connection of its own, as ``dispatcherctl`` makes it."""
    began = time.perf_counter()
    with socket.socket(socket.AF_UNIX) as service:
        service.connect(str(where))
        service.sendall(b'{"control": "alive", "reply_to": "r"}\n')
        service.recv(4096)
    return time.perf_counter() - began
