"""A hundred workers: how soon they are there, what memory they take, and what they cost idle.

Until READY: from just before ``start`` is run until the hundredth READY is in the journal.
Memory: what each worker shares with nobody, and all that the orchestrator has in RAM. Idle: CPU
time and wake-ups of the orchestrator, the zygote and the workers, over seconds in which there is
nothing to do; the first few are left out. On ``bd``, its own are not counted.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import bd
from benchmarks.tools.figures import Figure, say
from benchmarks.tools.fleets import Broken, Project, embedded
from benchmarks.tools.processes import (
    cpu_seconds,
    parent,
    private_bytes,
    proportional_bytes,
    resident_bytes,
    wake_ups,
)

WORKERS = 100
READY_GOAL_SECONDS = 0.3
WORKER_GOAL_MB, ORCHESTRATOR_GOAL_MB = 1.8, 30.0
IDLE_GOAL_PERCENT = 0.2
SETTLE_SECONDS, IDLE_SECONDS = 4.0, 20.0
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """A fleet that is there: its processes, and how long it took."""

    orchestrator: int
    zygote: int
    workers: list[int]
    ready_seconds: float

    @property
    def pids(self) -> list[int]:
        """All of ours; no task and no ``bd``."""
        return [self.orchestrator, self.zygote, *self.workers]


@dataclass(frozen=True, slots=True)
class Idle:
    """Of one core, in percent; and how often a second one of them woke."""

    percent: float
    wake_ups: float


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """Seconds, MB, percent."""
    seconds = 3.0 if quick else IDLE_SECONDS
    rows: dict[str, list[float]] = {"ready": [], "worker": [], "orchestrator": [], "fleet": []}
    idle: list[Idle] = []
    for number in range(rounds):
        with _fleet(embedded(folder / f"{number}", 0)) as fleet:
            time.sleep(1.0 if quick else SETTLE_SECONDS)
            idle.append(_idle(fleet, seconds))
            rows["ready"].append(fleet.ready_seconds)
            private = [private_bytes(pid) for pid in fleet.workers]
            rows["worker"].append(sum(private) / len(private) / 1e6)
            rows["orchestrator"].append(resident_bytes(fleet.orchestrator) / 1e6)
            rows["fleet"].append(sum(map(proportional_bytes, fleet.pids)) / 1e6)
        text = f"READY after {rows['ready'][-1]:.2f} s, idle {idle[-1].percent:.3f} % of a core"
        say(f"start, round {number + 1} of {rounds}: {text}")
    figures = [
        _figure(f"start: {WORKERS} workers READY", "s", rows["ready"], READY_GOAL_SECONDS),
        _figure("start: private memory of a worker", "MB", rows["worker"], WORKER_GOAL_MB),
        _figure("start: orchestrator", "MB", rows["orchestrator"], ORCHESTRATOR_GOAL_MB),
        _figure("start: the whole fleet, shared memory once", "MB", rows["fleet"]),
        *_idle_figures(f"idle: {WORKERS} workers waiting", idle),
    ]
    return figures + _on_bd(seconds, quick, folder)


def _on_bd(seconds: float, quick: bool, folder: Path) -> list[Figure]:
    try:
        project = bd.template(folder / "bd", folder / "home", "1.3.0", 0)
    except Broken as broken:
        say(f"start: not on bd: {broken}")
        return []
    with _fleet(project) as fleet:
        time.sleep(1.0 if quick else SETTLE_SECONDS)
        idle = _idle(fleet, seconds)
    say(f"start, on bd: idle {idle.percent:.3f} % of a core")
    return list(_idle_figures(f"idle on bd 1.3.0: {WORKERS} workers waiting", [idle]))


def _figure(name: str, unit: str, row: list[float], goal: float | None = None) -> Figure:
    return Figure(name, unit, tuple(row), goal=goal)


def _idle_figures(name: str, idle: list[Idle]) -> Iterator[Figure]:
    yield _figure(f"{name}, of one core", "%", [i.percent for i in idle], IDLE_GOAL_PERCENT)
    yield _figure(f"{name}, wake-ups", "/s", [i.wake_ups for i in idle])


@contextmanager
def _fleet(project: Project) -> Iterator[Fleet]:
    began = time.time()
    project.run("start", "-n", str(WORKERS), "-d", "--", "true")
    try:
        joined = _until(lambda: _joined(project))
        pid = int(project.status()["pid"])
        workers = [int(entry["pid"]) for entry in joined]
        zygote = parent(workers[0])  # Other children of the orchestrator are calls of the tracker.
        yield Fleet(pid, zygote, workers, float(joined[WORKERS - 1]["t"]) - began)
    finally:
        project.run("stop")
        shutil.rmtree(project.folder)


def _joined(project: Project) -> list[dict[str, Any]]:
    lines = project.journal().read_text().splitlines(keepends=True)
    joined = [line for line in lines if '"e":"worker_joined"' in line and line.endswith("\n")]
    return [json.loads(line) for line in joined] if len(joined) >= WORKERS else []


def _until(found: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    end = time.monotonic() + PATIENCE_SECONDS
    while not (answer := found()):
        if time.monotonic() > end:
            raise Broken(f"{WORKERS} workers did not come")
        time.sleep(0.05)
    return answer


def _idle(fleet: Fleet, seconds: float) -> Idle:
    def spent() -> tuple[float, int]:
        return sum(map(cpu_seconds, fleet.pids)), sum(map(wake_ups, fleet.pids))

    before, began = spent(), time.monotonic()
    time.sleep(seconds)
    after, passed = spent(), time.monotonic() - began
    return Idle(100 * (after[0] - before[0]) / passed, (after[1] - before[1]) / passed)
