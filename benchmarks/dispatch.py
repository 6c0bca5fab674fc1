"""From DONE to the next TASK, for raw version 1 clients, against a bare echo server.

Ours is the real orchestrator (``start -n 0``) on the embedded tracker with enough ready issues, and
everything that it does counts: its journal, claiming ahead, closing, and where a worker has to
wait for the tracker, that wait. Both servers live through all rounds and are driven in turn, a
second or two each; before a turn ends every answer that is due is heard, so neither begins its
next turn with a queue.

Two questions: how long a worker waits that works for a while between TASK and DONE (without that,
ahead of every DONE there would be all the others in a queue), and how many tasks a second leave
when a hundred workers only talk.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from benchmarks.tools.clients import Fleet
from benchmarks.tools.figures import Figure, Goal, in_turn, say
from benchmarks.tools.fleets import Broken, Project, embedded
from benchmarks.tools.processes import cpu_seconds
from benchmarks.tools.talkers import Talkers

P50_GOAL, P99_GOAL = 2.0, 2.5
RATE_GOAL = 0.25
TALKERS = 100
WARM_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Load:
    """So many clients, the seconds that each works on a task, and the seconds of one turn."""

    clients: int
    work: float
    seconds: float
    goals: bool = False

    def tasks(self, seconds: float) -> int:
        """At most so many are asked for in that time."""
        return self.clients + int(self.clients * seconds / self.work)


LOADS = (
    Load(1, 0.01, 2.0),
    Load(8, 0.02, 2.0, goals=True),
    Load(100, 0.1, 2.0),
    Load(1000, 1.0, 3.0),
)
SPREAD = 0.3
"""Tasks of exactly the same length keep clients in step that were once answered together."""


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """Microseconds for p50 and p99, then tasks a second."""
    figures: list[Figure] = []
    for load in LOADS:
        figures += _latencies(load, rounds, 0.5 if quick else load.seconds, folder)
    return figures + _throughput(rounds, 1000 if quick else 8000, folder)


def _latencies(load: Load, rounds: int, seconds: float, folder: Path) -> Iterator[Figure]:
    tasks = load.tasks(rounds * seconds + WARM_SECONDS + load.work) * 2
    rows: dict[str, list[list[float]]] = {"ours": [], "peer": []}
    with ExitStack() as stack:
        fleets = {}
        for name, path, _ in _servers(stack, folder / f"{load.clients}", tasks):
            fleet = Fleet(path, load.clients, load.work, spread=SPREAD)
            fleets[name] = stack.enter_context(fleet)
            fleet.run_for(load.work + WARM_SECONDS)
            fleet.pause()
        for number in range(rounds):
            for name in ("ours", "peer") if number % 2 == 0 else ("peer", "ours"):
                rows[name].append(fleets[name].run_for(seconds))
                fleets[name].pause()
            p50 = [median(rows[name][-1]) * 1e6 for name in ("ours", "peer")]
            text = f"ours {p50[0]:.0f} us, echo {p50[1]:.0f} us"
            say(f"dispatch, {load.clients} clients, round {number + 1} of {rounds}: p50 {text}")
        if fleets["ours"].waits:
            raise Broken(f"{fleets['ours'].waits} WAITs: there was always work")
    for what, percent, goal in (("p50", 50, P50_GOAL), ("p99", 99, P99_GOAL)):
        ours, peer = (
            tuple(1e6 * quantiles(row, n=100)[percent - 1] for row in rows[side])
            for side in ("ours", "peer")
        )
        name = f"dispatch: {load.clients} clients {what} / echo"
        yield Figure(name, "us", ours, peer, goal if load.goals else None, paired=True)


def _throughput(rounds: int, tasks: int, folder: Path) -> list[Figure]:
    """Tasks a second, and the CPU time of the server's threads for each of them."""
    cost: dict[str, list[float]] = {"ours": [], "peer": []}
    with ExitStack() as stack:
        found = {}
        for name, path, pid in _servers(stack, folder / "talk", tasks * (rounds + 1)):
            talkers = stack.enter_context(Talkers(path, TALKERS))
            talkers.dispatches(tasks // 4)
            found[name] = (talkers, pid)

        def rate(name: str) -> float:
            talkers, pid = found[name]
            before = cpu_seconds(pid)
            seconds = talkers.dispatches(tasks)
            cost[name].append(1e6 * (cpu_seconds(pid) - before) / tasks)
            return tasks / seconds

        title = f"dispatch: {TALKERS} clients that only talk"
        ours, peer = in_turn(title, rounds, lambda: rate("ours"), lambda: rate("peer"))
    spent = tuple(cost["ours"]), tuple(cost["peer"])
    return [
        Figure(f"{title} / echo", "tasks/s", ours, peer, RATE_GOAL, Goal.AT_LEAST, paired=True),
        Figure(f"{title}: server's CPU per task / echo", "us", *spent, paired=True),
    ]


def _servers(stack: ExitStack, where: Path, issues: int) -> Iterator[tuple[str, str, int]]:
    """Both, for as long as ``stack``: what it is, its socket, its process."""
    where.mkdir()
    path = stack.enter_context(orchestrator(where / "ours", issues))
    yield "ours", path, int(Project(where / "ours").status()["pid"])
    yield "peer", *stack.enter_context(_echo(where))


@contextmanager
def orchestrator(where: Path, issues: int) -> Iterator[str]:
    """A fleet without workers of its own, on so many issues; gives its socket's path."""
    project = embedded(where, issues)
    project.run("start", "-n", "0", "-d", "--", "true")
    try:
        yield str(project.status()["socket"])
    finally:
        # 1: the clients' process lives on, and stop says that it keeps what it was given.
        project.run("stop", "--timeout", "1", codes=(0, 1))


@contextmanager
def _echo(where: Path) -> Iterator[tuple[str, int]]:
    path = where / "echo.sock"
    server = subprocess.Popen([sys.executable, "-m", "benchmarks.tools.echo", str(path)])
    try:
        began = time.monotonic()
        while not path.exists():
            if time.monotonic() - began > 10:
                raise Broken("the echo server did not start")
            time.sleep(0.01)
        yield str(path), server.pid
    finally:
        server.kill()
        server.wait()
