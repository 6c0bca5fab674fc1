"""One program run to its end, and what that took: wall time, CPU time, what it printed."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.tools.fleets import Broken


@dataclass(frozen=True, slots=True)
class Taken:
    """Seconds, and bytes on its stdout. ``cpu``: user and system time, children's too."""

    wall: float
    cpu: float
    printed: int


def timed(argv: Sequence[str], folder: Path, codes: Sequence[int] = (0,)) -> Taken:
    """Run it; raises ``Broken`` for another exit code."""
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            argv,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in codes:
            raise Broken(f"{' '.join(argv)} exited {process.returncode}")
        return Taken(wall, usage.ru_utime + usage.ru_stime, output.seek(0, os.SEEK_END))


def typical(run: Callable[[], Taken], times: int) -> Taken:
    """The median of each of its numbers."""
    found = [run() for _ in range(times)]
    return Taken(
        median(t.wall for t in found),
        median(t.cpu for t in found),
        int(median(t.printed for t in found)),
    )
