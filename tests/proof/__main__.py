"""``scripts/prove``: every proof at full size, several side by side, and one table at the end."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.proof.parts import PARTS, ROOT, Part
from tests.proof.table import Figure, figure_of, machine, table

LOOK_SECONDS = 0.5
LEAVE_SECONDS = 30.0
"""A proof that is told to end removes what it has made."""
Running = tuple[Part, subprocess.Popen[bytes], Path, float]


def main(arguments: list[str]) -> int:
    """0 when every proof ended and found nothing."""
    parser = argparse.ArgumentParser(prog="scripts/prove", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join({p.name for p in PARTS}))
    parser.add_argument("--quick", action="store_true", help="a fiftieth of everything")
    parser.add_argument("--minutes", type=float, default=60.0, help="at most (default 60)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="side by side")
    parser.add_argument("--out", type=Path, default=Path("proof.json"), help="for the figures")
    said = parser.parse_args(arguments)
    if unknown := set(said.names) - {part.name for part in PARTS}:
        parser.error(f"no such proof: {', '.join(sorted(unknown))}")
    parts = [p for p in PARTS if not said.names or p.name in said.names]
    began = time.monotonic()
    figures = run_all(parts, said.quick, said.jobs, began + said.minutes * 60)
    seconds = time.monotonic() - began
    shown = {
        "machine": machine(),
        "seconds": round(seconds),
        "figures": [f.__dict__ for f in figures],
    }
    said.out.write_text(json.dumps(shown, indent=1) + "\n")
    print(f"{machine()}, {seconds / 60:.0f} minutes\n\n{table(figures)}")
    return 1 if any(figure.broken for figure in figures) else 0


def run_all(parts: Sequence[Part], quick: bool, jobs: int, deadline: float) -> list[Figure]:
    """Start what there is room for, the longest first; end what is late."""
    with tempfile.TemporaryDirectory(prefix="beads-workers-proof-") as folder:
        return run_in(Path(folder), parts, quick, jobs, deadline)


def run_in(
    folder: Path, parts: Sequence[Part], quick: bool, jobs: int, deadline: float
) -> list[Figure]:
    """See ``run_all``; what they print goes to files in ``folder``."""
    waiting, running, figures = list(parts), list[Running](), list[Figure]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs and time.monotonic() < deadline:
                part = waiting.pop(0)
                running.append(begin(part, quick, folder / f"{len(waiting)}.out"))
            if time.monotonic() >= deadline:
                figures += [Figure(p.name, p.what, 0, 0.0, ("no time was left",)) for p in waiting]
                waiting.clear()
                end(running)
            running, ended = still(running)
            for part, process, output, since in ended:
                figures.append(conclude(part, process.returncode, output, time.monotonic() - since))
                say(f"{part.name} ended: {figures[-1].broken or 'nothing broken'}")
            time.sleep(LOOK_SECONDS)
    finally:
        end(running)
    return figures


def begin(part: Part, quick: bool, output: Path) -> Running:
    """Start one."""
    say(f"{part.name} ({part.size(quick):,}) begins")
    with output.open("wb") as file:
        process = subprocess.Popen(
            part.command(quick), stdout=file, env=part.environment(), cwd=ROOT
        )
    return part, process, output, time.monotonic()


def still(running: list[Running]) -> tuple[list[Running], list[Running]]:
    """Those that run, and those that have ended."""
    living = [each for each in running if each[1].poll() is None]
    return living, [each for each in running if each not in living]


def end(running: Sequence[Running]) -> None:
    """Ask all to end, and wait until they have."""
    for _, process, _, _ in running:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    for _, process, _, _ in running:
        try:
            process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def conclude(part: Part, status: int, output: Path, seconds: float) -> Figure:
    """What a proof said; one that said nothing is broken."""
    try:
        told: Any = json.loads(output.read_bytes())
    except ValueError:
        told = None
    if not isinstance(told, dict):
        return Figure(part.name, part.what, 0, seconds, (f"exit {status}, and no figures",))
    return figure_of(part, told, status, seconds)


def say(text: str) -> None:
    """Progress, on stderr."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
