"""Peers with a daemon that keeps a queue: pueue and task-spooler.

Their queues are filled first, which is not counted; what is, is from letting them begin until the
last task has ended.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.tools.fetching import crate, debian
from benchmarks.tools.fleets import Broken, run
from benchmarks.tools.peers import environment

PUEUE = "4.0.4"
START_SECONDS = 20.0


class Pueue:
    """``pueue``, a shell of its own for each task: it knows no other way."""

    name: ClassVar[str] = "pueue"
    tasks: ClassVar[int] = 64

    def __init__(self, folder: Path, workers: int) -> None:
        self._programs = crate("pueue", PUEUE)
        self._folder = folder / "pueue"
        self._workers = workers
        places = {"XDG_CONFIG_HOME": "config", "XDG_DATA_HOME": "data", "XDG_RUNTIME_DIR": "run"}
        self._environment = environment(folder)
        for variable, name in places.items():
            self._environment[variable] = str(self._folder / name)
            (self._folder / name).mkdir(parents=True)

    def seconds(self, tasks: int) -> float:
        """From ``pueue start`` to the end of the last task, by pueue's own account."""
        daemon = [str(self._programs / "pueued"), "--daemonize"]
        _detached(daemon, self._folder, self._environment)
        try:
            _until(self._answers)
            self._ask("parallel", str(self._workers))
            self._ask("pause")
            for _ in range(tasks):
                self._ask("add", "--", "true")
            began = time.time()
            self._ask("start")
            self._ask("wait", "--all", "--quiet")
            ends = [
                _end(task) for task in json.loads(self._ask("status", "--json"))["tasks"].values()
            ]
            if len(ends) != tasks:
                raise Broken(f"pueue ran {len(ends)} of {tasks}")
            self._ask("clean")
            return max(ends) - began
        finally:
            self._ask("shutdown")
            _until(lambda: not self._answers())

    def _answers(self) -> bool:
        try:
            self._ask("status")
        except Broken:
            return False
        return True

    def _ask(self, *arguments: str) -> str:
        argv = [str(self._programs / "pueue"), *arguments]
        return run(argv, self._folder, self._environment)


class Spooler:
    """task-spooler, with as many slots; its tasks keep no output, which is its quickest way.

    A first task holds the queue until it is full.
    """

    name: ClassVar[str] = "task-spooler"
    tasks: ClassVar[int] = 300

    def __init__(self, folder: Path, workers: int) -> None:
        self._program = debian("tsp", "task-spooler")
        self._folder = folder
        self._workers = workers
        self._environment = environment(folder) | {
            "TS_SOCKET": str(folder / "tsp.sock"),
            "TS_MAXFINISHED": "10000",
            "TMPDIR": str(folder),
        }

    def seconds(self, tasks: int) -> float:
        """From the end of the task that held the queue to that of the last."""
        self._ask("-S", "1")
        try:
            # A server of its own for every round: it counts from 0.
            self._add("sleep", "3600")
            for _ in range(tasks):
                self._add("true")
            began = time.perf_counter()
            self._ask("-S", str(self._workers))
            self._ask("-k", "0")
            for number in range(tasks + 1 - self._workers, tasks + 1):
                self._ask("-w", f"{number}")
            seconds = time.perf_counter() - began
            ended = self._ask().count(" finished ") - 1
            if ended != tasks:
                raise Broken(f"task-spooler ran {ended} of {tasks}")
            return seconds
        finally:
            self._ask("-K")

    def _add(self, *task: str) -> None:
        _detached([self._program, "-n", *task], self._folder, self._environment)

    def _ask(self, *arguments: str) -> str:
        return run([self._program, *arguments], self._folder, self._environment)


def _detached(argv: list[str], folder: Path, environment: dict[str, str]) -> None:
    """What is started lives on, and would keep a pipe open that ``run`` reads to its end."""
    null = subprocess.DEVNULL
    subprocess.run(
        argv, cwd=folder, env=environment, stdin=null, stdout=null, stderr=null, check=True
    )


def _end(task: dict[str, Any]) -> float:
    ended: str = task["status"]["Done"]["end"]
    return datetime.fromisoformat(ended).timestamp()


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + START_SECONDS
    while not holds():
        if time.monotonic() > end:
            raise Broken("the daemon does not answer")
        time.sleep(0.05)
