"""What it costs to watch agents: CPU of the orchestrator, and what a plain fleet notices of it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from statistics import median

from beads_workers.runtime import sessions
from benchmarks.dispatch import orchestrator
from benchmarks.tools.clients import Fleet as Clients
from benchmarks.tools.processes import cpu_seconds
from tests.night.figures import Row, Rows
from tests.night.ground import Ground, ground, wait_until
from tests.support.worktrees import in_worktrees

FULL = 20
"""From this size on there are enough pairs to promise something of their median."""
AGENTS = 8
CPU_SHARE = 0.01
CLIENTS, WORK, TURN, ROUNDS = 8, 0.02, 0.7, 14
P50_RATIO = 1.25
"""Of medians of pairs on a machine that others use; without a cause it is 0.9 to 1.1."""


def prove(size: int, folder: Path) -> list[Row]:
    """Eight agents that stream for as long as it takes."""
    agents, rounds = (AGENTS, ROUNDS) if size >= FULL else (3, 4)
    rows = Rows("cost")
    with ground(folder, "cost") as place:
        script = 'write a.py "1"; run "touch begun"; stall 300s always; write b.py "2"'
        place.project.create_many([{"description": f"[[stub: {script}]]"}] * agents)
        fleet = place.start("-n", str(agents), "--agent", "claude")
        wait_until(lambda: len(in_worktrees(place.project, "begun")) == agents, 90, "all are busy")
        time.sleep(2.0)
        before, since = cpu_seconds(fleet.pid), time.monotonic()
        seconds = 20.0 if size >= FULL else 8.0
        time.sleep(seconds)
        share = (cpu_seconds(fleet.pid) - before) / (time.monotonic() - since)
        busy = sum(bool(w.get("tokens")) for w in fleet.status()["workers"])
        rows.equal("agents whose tokens status shows", busy, agents)
        rows.at_most("CPU of the orchestrator, of a core", 100 * share, 100 * CPU_SHARE, " %")
        beside, alone = _latencies(place, folder, rounds)
        ratio = median(b / a for b, a in zip(beside, alone, strict=True))
        shown = f"{median(beside) * 1e6:.0f} us, alone {median(alone) * 1e6:.0f} us"
        rows.count("dispatch p50 of a plain fleet beside it", shown)
        if size >= FULL:
            rows.at_most("the ratio of both, median of pairs", ratio, P50_RATIO)
        else:
            rows.count("the ratio of both, median of a few pairs", f"{ratio:.2f}")
        fleet.call("stop", "--timeout", "1")
        fleet.wait()
    return rows.rows


def _latencies(place: Ground, folder: Path, rounds: int) -> tuple[list[float], list[float]]:
    """p50 of turns while the agents' fleet runs, and while all of it is frozen."""
    beside: list[float] = []
    alone: list[float] = []
    tasks = int(CLIENTS * (rounds * 2 * TURN + 2) / WORK) * 2
    (folder / "plain").mkdir()
    with (
        orchestrator(folder / "plain" / "ours", tasks) as path,
        Clients(path, CLIENTS, WORK, spread=0.3) as clients,
    ):
        clients.run_for(0.5)
        clients.pause()
        for number in range(rounds):
            for frozen in (True, False) if number % 2 else (False, True):
                held = _signal(place, signal.SIGSTOP) if frozen else []
                try:
                    (alone if frozen else beside).append(median(clients.run_for(TURN)))
                    clients.pause()
                finally:
                    _thaw(held)
    return beside, alone


def _signal(place: Ground, number: signal.Signals) -> list[tuple[int, int]]:
    found = [(pid, sessions.start_time(pid)) for pid in place.fleets[-1].token_holders()]
    held = [(pid, started) for pid, started in found if started is not None and pid != os.getpid()]
    return [(pid, started) for pid, started in held if sessions.kill(pid, started, number)]


def _thaw(held: list[tuple[int, int]]) -> None:
    for pid, started in held:
        sessions.kill(pid, started, signal.SIGCONT)
