"""``scripts/bench``: runs the benchmarks that are named, and prints what they found."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    bd,
    cli,
    dashboard,
    dispatch,
    dispatcherd,
    functions,
    growth,
    junk,
    landing,
    night,
    rrq,
    rrq_serving,
    start,
    tasks,
    web,
    worktrees,
)
from benchmarks.tools.figures import Figure, say
from benchmarks.tools.fleets import Broken
from benchmarks.tools.printing import markdown, table

Benchmark = Callable[[int, bool, Path], list[Figure]]

BENCHMARKS: dict[str, Benchmark] = {
    "cli": cli.measure,
    "start": start.measure,
    "growth": growth.measure,
    "dispatch": dispatch.measure,
    "junk": junk.measure,
    "dashboard": dashboard.measure,
    "web": web.measure,
    "tasks": tasks.measure,
    "functions": functions.measure,
    "dispatcherd": dispatcherd.measure,
    "landing": landing.measure,
    "bd": bd.measure,
    "rrq": rrq.measure,
    "rrq-executor": rrq_serving.measure,
    "worktrees": worktrees.measure,
    "night": night.measure,
}
"""Each takes the number of rounds, whether to be quick, and a folder of its own."""


def main(arguments: list[str]) -> int:
    """0 unless something broke: a goal that is missed is shown, and no failure."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--markdown", action="store_true", help="the table, ready to paste")
    parser.add_argument("--rounds", type=int, default=3, help="of each (default 3)")
    parser.add_argument("--quick", action="store_true", help="fewer issues and samples")
    said = parser.parse_args(arguments)
    if unknown := set(said.names) - BENCHMARKS.keys():
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    _raise_file_limit()
    figures, broken = _measure(said.names or list(BENCHMARKS), max(1, said.rounds), said.quick)
    if said.json:
        print(json.dumps({"machine": machine(), "figures": [f.as_json() for f in figures]}))
    elif figures:
        print(f"{machine()}\n\n{markdown(figures) if said.markdown else table(figures)}")
    return 1 if broken else 0


def _measure(names: list[str], rounds: int, quick: bool) -> tuple[list[Figure], bool]:
    figures: list[Figure] = []
    broken = False
    for name in names:
        say(f"{name}...")
        with tempfile.TemporaryDirectory(prefix="beads-workers-bench-") as folder:
            try:
                figures += BENCHMARKS[name](rounds, quick, Path(folder))
            except (Broken, TimeoutError, OSError) as error:
                say(f"{name} broke: {error}")
                broken = True
    return figures, broken


def _raise_file_limit() -> None:
    """A thousand clients on each of two servers; the soft limit is often 1,024."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))


def machine() -> str:
    """What the figures were taken on, and how busy it was."""
    load = os.getloadavg()[0]
    python = platform.python_version()
    return f"{os.cpu_count()} cores, load {load:.1f}, Python {python}, Linux {platform.release()}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
