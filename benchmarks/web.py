"""What the live page costs: dispatch while 8 viewers look at it, and while nobody does.

The orchestrator and the clients of ``dispatch``, which go on working beside one ``watch --web``
whose viewers come and go every few seconds: neither how busy the machine is nor the length of the
journal differs much within a pair. The order changes each time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.dispatch import orchestrator
from benchmarks.tools.clients import Fleet
from benchmarks.tools.figures import Figure, say
from benchmarks.tools.fleets import Broken, Project, embedded
from benchmarks.tools.processes import cpu_seconds, thread_seconds
from benchmarks.tools.viewers import Viewers, served, viewing

GOAL = 1.10
VIEWERS = 8
LOADS = ((8, 0.02, 400), (100, 0.1, 1000))
"""Clients, seconds of work per task, tasks a second at most."""
SPREAD = 0.3
COME_SECONDS = 0.5
"""So long what the viewers are told at first may disturb."""
PAIRS = 8
WORKERS = 100


@dataclass(frozen=True, slots=True)
class Dispatched:
    """Microseconds: DONE to next TASK, and CPU time of the orchestrator's loop for each task."""

    p50: float
    cpu: float


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """p50 and the loop's CPU time, viewed / not; then what the server of the page takes."""
    pairs, seconds = (2, 1.0) if quick else (PAIRS, 2.0)
    found = [*_dispatch(rounds, pairs, seconds, folder)]
    return [*found, *_costs(rounds, 3.0 if quick else 10.0, folder)]


def _dispatch(rounds: int, pairs: int, seconds: float, folder: Path) -> Iterator[Figure]:
    for clients, work, per_second in LOADS:
        rows: list[dict[int, Dispatched]] = []
        issues = int(per_second * (1 + 2 * pairs * (seconds + 2 * COME_SECONDS)))
        for number in range(rounds):
            where = folder / f"{clients}-{number}"
            with orchestrator(where, issues) as path, served(Project(where)) as (url, _):
                pid = int(Project(where).status()["pid"])
                with viewing(url) as viewers, Fleet(path, clients, work, spread=SPREAD) as fleet:
                    for turn in range(pairs):
                        order = (0, VIEWERS) if turn % 2 == 0 else (VIEWERS, 0)
                        rows.append(
                            {count: _phase(pid, fleet, viewers, count, seconds) for count in order}
                        )
                        said = f"viewed {rows[-1][VIEWERS].p50:.0f}, alone {rows[-1][0].p50:.0f}"
                        say(f"web, {clients} clients, pair {len(rows)}: p50 {said} us")
                    if fleet.waits:
                        raise Broken(f"{fleet.waits} WAITs: there was always work")
        name, rest = f"web: {clients} clients,", f"{VIEWERS} viewers / none"
        ours, alone = zip(*((row[VIEWERS].p50, row[0].p50) for row in rows), strict=True)
        yield Figure(f"{name} p50, {rest}", "us", ours, alone, GOAL, paired=True)
        ours, alone = zip(*((row[VIEWERS].cpu, row[0].cpu) for row in rows), strict=True)
        yield Figure(f"{name} loop's CPU per task, {rest}", "us", ours, alone, paired=True)


def _phase(pid: int, fleet: Fleet, viewers: Viewers, count: int, seconds: float) -> Dispatched:
    before = viewers.have(count)
    fleet.run_for(COME_SECONDS)
    while count and viewers.have(count) == before:
        fleet.run_for(COME_SECONDS)
    spent = thread_seconds(pid)
    latencies = fleet.run_for(seconds)
    spent = thread_seconds(pid) - spent
    return Dispatched(median(latencies) * 1e6, spent / len(latencies) * 1e6)


def _costs(rounds: int, seconds: float, folder: Path) -> Iterator[Figure]:
    """CPU time of the server over wall time, 100 workers with tasks of 0.2 to 0.9 s."""
    whole = rounds * (2.0 + seconds) + 10.0
    project = embedded(folder / "costs", WORKERS + int(200 * whole))
    script = 'sleep "0.$((${BW_ISSUE_ID##*-} % 8 + 2))"'
    project.run("start", "-n", str(WORKERS), "-d", "--", "sh", "-c", script)
    cpu: list[float] = []
    frames: list[float] = []
    try:
        for _ in range(rounds):
            with served(project) as (url, pid), viewing(url) as viewers:
                viewers.have(VIEWERS)
                time.sleep(2.0)
                spent, seen = cpu_seconds(pid), viewers.have(VIEWERS)
                time.sleep(seconds)
                cpu.append(cpu_seconds(pid) - spent)
                frames.append(float(viewers.have(VIEWERS) - seen))
            say(f"web, {WORKERS} workers, {VIEWERS} viewers: {cpu[-1] / seconds:.1%} of a core")
    finally:
        project.run("stop", "--now")
    name, wall = f"web: {WORKERS} workers, {VIEWERS} viewers", (seconds,) * rounds
    yield Figure(f"{name}: server's CPU / wall", "s", tuple(cpu), wall)
    yield Figure(f"{name}: snapshots / s", "", tuple(frames), wall)
