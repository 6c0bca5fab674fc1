"""What looking costs: dispatch with and without a dashboard, and the dashboard itself.

A real ``watch`` on a pseudo-terminal that is always read (``benchmarks.tools.screen``).

Dispatch: the orchestrator and the clients of ``dispatch``, which go on working while a dashboard
comes and goes, three times in a round, so that all is measured on the same orchestrator; the order
changes each time.

The dashboard itself: ``start -n 100`` with tasks of 0.2 to 0.9 s, and with tasks that outlast it,
where only clocks change: CPU time of the ``watch`` process over wall time, its start left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.dispatch import orchestrator
from benchmarks.tools.clients import Fleet
from benchmarks.tools.figures import Figure, say
from benchmarks.tools.fleets import Broken, Project, embedded
from benchmarks.tools.processes import thread_seconds
from benchmarks.tools.screen import Reading, watching

DISPATCH_GOAL = 1.10
SHARE_GOAL = 0.10
LOADS = ((8, 0.02, 400), (100, 0.1, 1000))
"""Clients, seconds of work per task, tasks a second at most."""
SPREAD = 0.3
"""Tasks of exactly the same length keep clients in step that were once answered together."""
SIZES = ((80, 24), (200, 50))
COME_SECONDS = 1.5
"""So long a dashboard may take until it shows something."""
GO_SECONDS = 0.5
WORKERS = 100
TASKS = {
    "short tasks": ('sleep "0.$((${BW_ISSUE_ID##*-} % 8 + 2))"', 200.0),
    "long tasks": ("sleep 600", 0.0),
}
"""What each task is, and how many a second there are at most, besides the first of each worker."""

Size = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Dispatched:
    """Microseconds: DONE to next TASK, and CPU time of the orchestrator's loop for each task."""

    p50: float
    cpu: float


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """p50 and the loop's CPU time, watched / alone; then what ``watch`` takes and writes."""
    found = list(_dispatch(rounds, 1 if quick else 3, 2.0, folder))
    for name in TASKS:
        found += _costs(name, rounds, 4.0 if quick else 10.0, folder)
    return found


def _dispatch(rounds: int, turns: int, seconds: float, folder: Path) -> Iterator[Figure]:
    kinds: list[Size | None] = [None, *SIZES]
    for clients, work, per_second in LOADS:
        rows: list[dict[Size | None, Dispatched]] = []
        issues = int(per_second * (COME_SECONDS + seconds + GO_SECONDS) * len(kinds) * turns)
        for number in range(rounds):
            where = folder / f"{clients}-{number}"
            with orchestrator(where, issues) as path:
                pid = int(Project(where).status()["pid"])
                with Fleet(path, clients, work, spread=SPREAD) as fleet:
                    for turn in range(turns):
                        order = kinds if (number + turn) % 2 == 0 else kinds[::-1]
                        rows.append(
                            {kind: _phase(where, pid, fleet, kind, seconds) for kind in order}
                        )
                        said = ", ".join(
                            f"{_named(kind)} {rows[-1][kind].p50:.0f}" for kind in kinds
                        )
                        say(f"dashboard, {clients} clients, pair {len(rows)}: p50 {said} us")
                if fleet.waits:
                    raise Broken(f"{fleet.waits} WAITs: there was always work")
        for size in SIZES:
            name, rest = f"dashboard: {clients} clients,", f"{_named(size)} / alone"
            pairs = [(row[size], row[None]) for row in rows]
            ours, alone = zip(*((a.p50, b.p50) for a, b in pairs), strict=True)
            yield Figure(f"{name} p50, {rest}", "us", ours, alone, DISPATCH_GOAL, paired=True)
            ours, alone = zip(*((a.cpu, b.cpu) for a, b in pairs), strict=True)
            yield Figure(f"{name} loop's CPU per task, {rest}", "us", ours, alone, paired=True)


def _phase(where: Path, pid: int, fleet: Fleet, size: Size | None, seconds: float) -> Dispatched:
    """With a dashboard of that size or (None) without one."""
    if size is None:
        fleet.run_for(COME_SECONDS)
        return _dispatched(pid, fleet, seconds)
    with watching(Project(where), *size) as screen:
        fleet.run_for(COME_SECONDS)
        before = screen.read()
        found = _dispatched(pid, fleet, seconds)
        if not screen.read().since(before).frames:
            raise Broken("the dashboard stands still")
        screen.leave()
        fleet.run_for(GO_SECONDS)
    return found


def _dispatched(pid: int, fleet: Fleet, seconds: float) -> Dispatched:
    before = thread_seconds(pid)
    latencies = fleet.run_for(seconds)
    spent = thread_seconds(pid) - before
    return Dispatched(median(latencies) * 1e6, spent / len(latencies) * 1e6)


def _costs(name: str, rounds: int, seconds: float, folder: Path) -> Iterator[Figure]:
    script, per_second = TASKS[name]
    where = folder / name.replace(" ", "-")
    # A hundred workers need a moment to come, and another one to go.
    whole = rounds * len(SIZES) * (COME_SECONDS + seconds + GO_SECONDS) + 10.0
    project = embedded(where, WORKERS + int(per_second * whole))
    project.run("start", "-n", str(WORKERS), "-d", "--", "sh", "-c", script)
    try:
        rows: dict[Size, list[Reading]] = {size: [] for size in SIZES}
        for number in range(rounds):
            for size in SIZES:
                with watching(project, *size) as screen:
                    screen.over(COME_SECONDS)
                    rows[size].append(screen.over(seconds))
                share = rows[size][-1].cpu / rows[size][-1].wall
                say(f"dashboard, {name}, round {number + 1}, {_named(size)}: {share:.1%} of a core")
        if not project.status()["queue"]["running"]:
            raise Broken("nothing runs any more")
    finally:
        project.run("stop", "--now")
    for size in SIZES:
        yield from _of(f"dashboard: {name}, {WORKERS} workers, {_named(size)}", rows[size])


def _of(name: str, readings: list[Reading]) -> Iterator[Figure]:
    wall = tuple(reading.wall for reading in readings)
    cpu = tuple(reading.cpu for reading in readings)
    yield Figure(f"{name}: CPU / wall", "s", cpu, wall, SHARE_GOAL)
    for what, written in (
        ("bytes", tuple(float(reading.bytes) for reading in readings)),
        ("frames", tuple(float(reading.frames) for reading in readings)),
    ):
        yield Figure(f"{name}: {what} / s", "", written, wall)


def _named(size: Size | None) -> str:
    return f"{size[0]}x{size[1]}" if size else "alone"
