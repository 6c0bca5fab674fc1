"""``true`` for each of 1,000 issues: the embedded tracker with 8 workers, and GNU parallel.

Ours is the whole of ``start``: Python's start-up, the orchestrator, eight workers, claims, the
journal and its syncs, and every issue closed on disk. Creating the issues is left out. The peer
has the numbers on its stdin, and keeps neither results nor a log.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

from benchmarks.figures import Figure, in_turn
from benchmarks.fleets import Broken, embedded, need

GOAL = 2.0
WORKERS = 8


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """Seconds for all of them."""
    issues = 200 if quick else 1000
    parallel = need("parallel", "parallel")
    numbers = "".join(f"{number}\n" for number in range(issues))

    def ours() -> float:
        project = embedded(folder / "ours", issues)
        seconds = project.timed_start("-n", str(WORKERS), "--until-empty", "--", "true")
        if project.closed() != issues:
            raise Broken(f"closed {project.closed()} of {issues}")
        shutil.rmtree(project.folder)
        return seconds

    def peer() -> float:
        began = time.perf_counter()
        subprocess.run(
            [parallel, "--will-cite", f"-j{WORKERS}", "true"],
            input=numbers,
            text=True,
            check=True,
            capture_output=True,
        )
        return time.perf_counter() - began

    mine, theirs = in_turn("tasks", rounds, ours, peer)
    name = f"tasks: {issues} x true, {WORKERS} workers / GNU parallel"
    return [Figure(name, "s", tuple(mine), tuple(theirs), GOAL, faster=True)]
