"""Start-up of the command line, by hyperfine, against a typer application with nothing in it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from statistics import median

from benchmarks.tools.figures import Figure, in_turn
from benchmarks.tools.fleets import Project, embedded, need, ours

GOAL = 1.3

EMPTY = """import typer

app = typer.Typer(rich_markup_mode=None)


@app.command()
def status() -> None:
    print("nothing")


app()
"""


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """Milliseconds, the median of hyperfine's runs in each round."""
    hyperfine = need("hyperfine", "hyperfine")
    runs = 10 if quick else 25
    (folder / "empty.py").write_text(EMPTY)
    empty = [sys.executable, str(folder / "empty.py")]
    project = embedded(folder / "project", 20)

    def timed(argv: list[str], where: Project) -> float:
        out = folder / "hyperfine.json"
        options = ["-N", "-i", "--warmup=3", f"--runs={runs}", "--style=none"]
        subprocess.run(
            [hyperfine, *options, f"--export-json={out}", shlex.join(argv)],
            cwd=where.folder,
            check=True,
            capture_output=True,
        )
        return 1000.0 * float(median(json.loads(out.read_text())["results"][0]["times"]))

    def figure(name: str, *arguments: str) -> Figure:
        mine, theirs = in_turn(
            f"cli: {name}",
            rounds,
            lambda: timed([ours(), *arguments], project),
            lambda: timed(empty, project),
        )
        return Figure(f"cli: {name} / empty typer", "ms", mine, theirs, GOAL)

    figures = [figure("--version", "--version"), figure("--help", "--help")]
    project.run("start", "-n", "4", "--until-empty", "--", "true")
    figures.append(figure("status after a run", "status"))
    project.run("start", "-n", "4", "-d", "--", "true")
    try:
        figures.append(figure("status of a fleet", "status"))
    finally:
        project.run("stop")
    return figures
