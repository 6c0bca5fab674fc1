"""From DONE to the next TASK, for raw version 1 clients, against a bare echo server.

Ours is the real orchestrator (``start -n 0``) on the embedded tracker with enough ready issues, and
everything that it does counts: its journal, claiming ahead, closing, and where a worker has to
wait for the tracker, that wait. The clients "work" for 20 ms (1 and 8 of them) or 100 ms (100, as
in the protocol's own example) between TASK and DONE; without that, ahead of every DONE there
would be all the others in a queue, and what is measured is throughput.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median, quantiles

from benchmarks.clients import Fleet
from benchmarks.figures import Figure, say
from benchmarks.fleets import Broken, embedded

GOAL = 4.0
LOADS = ((1, 0.02, 400), (8, 0.02, 2000), (100, 0.1, 4000))
"""Clients, seconds of work per task, samples."""

Latencies = list[float]
Server = Callable[[Path, int], AbstractContextManager[str]]
"""Starts in a folder with so many issues, gives the socket's path, and ends it all."""


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """Microseconds: p50 with its goal, p99 without one."""
    figures: list[Figure] = []
    for clients, work, wanted in LOADS:
        samples = wanted // 4 if quick else wanted
        rows: dict[str, list[Latencies]] = {"ours": [], "peer": []}
        for number in range(rounds):
            servers: list[tuple[str, Server]] = [
                ("ours", orchestrator),
                ("peer", _echo),
            ]
            for name, server in servers if number % 2 == 0 else reversed(servers):
                where = folder / f"{clients}-{number}-{name}"
                rows[name].append(_drive(server, where, clients, work, samples))
            p50 = [median(rows[name][-1]) * 1e6 for name in ("ours", "peer")]
            text = f"ours {p50[0]:.0f} us, peer {p50[1]:.0f} us"
            say(f"dispatch, {clients} clients, round {number + 1} of {rounds}: p50 {text}")
        figures += _figures(clients, rows)
    return figures


def _figures(clients: int, rows: dict[str, list[Latencies]]) -> Iterator[Figure]:
    for name, percent, goal in (("p50", 50, GOAL), ("p99", 99, None)):
        ours, peer = (
            tuple(1e6 * quantiles(row, n=100)[percent - 1] for row in rows[side])
            for side in ("ours", "peer")
        )
        yield Figure(f"dispatch: {clients} clients {name} / echo", "us", ours, peer, goal)


def _drive(server: Server, where: Path, clients: int, work: float, samples: int) -> Latencies:
    where.mkdir()
    with server(where, samples + 4 * clients + 50) as path:
        fleet = Fleet(path, clients, work)
        fleet.run(samples)
    if fleet.waits:
        raise Broken(f"{fleet.waits} WAITs: there was always work")
    return fleet.latencies


@contextmanager
def orchestrator(where: Path, issues: int) -> Iterator[str]:
    """A fleet without workers of its own, on so many issues; gives its socket's path."""
    project = embedded(where, issues)
    project.run("start", "-n", "0", "-d", "--", "true")
    try:
        yield str(project.status()["socket"])
    finally:
        project.run("stop", "--timeout", "1")


@contextmanager
def _echo(where: Path, issues: int) -> Iterator[str]:
    path = where / "echo.sock"
    server = subprocess.Popen([sys.executable, "-m", "benchmarks.echo", str(path)])
    try:
        began = time.monotonic()
        while not path.exists():
            if time.monotonic() - began > 10:
                raise Broken("the echo server did not start")
            time.sleep(0.01)
        time.sleep(0.1)
        yield str(path)
    finally:
        server.kill()
        server.wait()
