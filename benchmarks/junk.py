"""Dispatch beside a flood: 100,000 junk lines and 1,000 connections that say nothing, 8 workers.

The same fleet of raw clients is timed quiet, then beside the flood, again and again, so that both
halves of a ratio come from the same seconds of the same orchestrator. The flood comes from a
process of its own (``python -m benchmarks.junk SOCKET``) as fast as it is read, with the least
claim to the processor: how the kernel shares two cores is not what is asked here.
"""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from statistics import quantiles

from benchmarks.dispatch import orchestrator
from benchmarks.tools.clients import Fleet
from benchmarks.tools.figures import Figure, say
from benchmarks.tools.fleets import Broken

GOAL = 2.0
CLIENTS, WORK_SECONDS = 8, 0.02
QUIET_SECONDS = 3.0
SILENT = 1000
LINES = 100_000
LINES_PER_CONNECTION = 900
"""Under the limit at which a connection is closed: every line is read, and complained of."""
JUNK = (b"{\n", b"no JSON at all\n", b'{"type":"READY"}\n', b"\xff\xfe\n", b'{"type":7}\n')
WARM_SECONDS = 1.0


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """p99 beside the flood / quiet, in microseconds of one orchestrator."""
    rows: dict[str, list[float]] = {"flood": [], "quiet": []}
    per_second = CLIENTS / WORK_SECONDS
    issues = int(per_second * (WARM_SECONDS + rounds * (QUIET_SECONDS + 25)))
    with orchestrator(folder / "junk", issues) as path, Fleet(path, CLIENTS, WORK_SECONDS) as fleet:
        fleet.run_for(WARM_SECONDS)
        for number in range(rounds):
            quiet = fleet.run_for(QUIET_SECONDS)
            loud, seconds = _flooded(fleet, path, LINES // 4 if quick else LINES)
            for name, latencies in (("quiet", quiet), ("flood", loud)):
                rows[name].append(1e6 * quantiles(latencies, n=100)[98])
            text = f"p99 {rows['flood'][-1]:.0f} us beside a flood of {seconds:.1f} s"
            say(f"junk, round {number + 1} of {rounds}: {text}, {rows['quiet'][-1]:.0f} us quiet")
    flood, still = tuple(rows["flood"]), tuple(rows["quiet"])
    return [Figure("junk: 8 clients p99 / quiet", "us", flood, still, GOAL, paired=True)]


def _flooded(fleet: Fleet, path: str, lines: int) -> tuple[list[float], float]:
    began = time.monotonic()
    latencies: list[float] = []
    with subprocess.Popen([sys.executable, "-m", "benchmarks.junk", path, str(lines)]) as flood:
        while flood.poll() is None:
            latencies += fleet.run_for(0.1)
    if flood.returncode:
        raise Broken("the flood broke off")
    return latencies, time.monotonic() - began


def main(path: str, lines: int) -> None:
    """Connect without a word, then send junk on many connections in turn."""
    os.nice(19)
    silent = [_connect(path) for _ in range(SILENT)]
    junk = itertools.cycle(JUNK)
    pieces = [b"".join(itertools.islice(junk, LINES_PER_CONNECTION))] * (
        lines // LINES_PER_CONNECTION
    )
    talkers = [_connect(path) for _ in pieces]
    for talker, piece in zip(talkers, pieces, strict=True):
        talker.sendall(piece)
    for sock in (*talkers, *silent):
        # Read to the end: what was sent is read there before our end of it is seen.
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 16):
            pass


def _connect(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(path)
    return sock


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
