"""Start-up of the command line, against a typer application with nothing in it, and bare Python.

The same command of both: the empty application has a ``status``, a ``--version`` and a ``--help``,
and its rich markup is off like ours. The three programs are run one after the other, again and
again; a round's number is the median of its runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.tools.commands import Taken, timed
from benchmarks.tools.figures import Figure, say
from benchmarks.tools.fleets import Project, embedded, ours

GOAL = 1.3
WARM = 2

EMPTY = """import typer

app = typer.Typer(rich_markup_mode=None)


def show(value: bool) -> None:
    if value:
        print("0.1.0")
        raise typer.Exit


@app.callback()
def main(version: bool = typer.Option(False, "--version", is_eager=True, callback=show)) -> None:
    pass


@app.command()
def status() -> None:
    print("nothing")


app()
"""


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """Milliseconds of wall time, from the shell's view."""
    runs = 2 if quick else 25
    empty = folder / "empty.py"
    empty.write_text(EMPTY)
    project = embedded(folder / "project", 20)

    def figures(name: str, argument: str, codes: Sequence[int] = (0,)) -> list[Figure]:
        return _compared(name, argument, project, empty, (rounds, runs), codes)

    found = [*figures("--version", "--version"), *figures("--help", "--help")]
    project.run("start", "-n", "4", "--until-empty", "--", "true")
    found += figures("status after a run", "status", (3,))
    project.run("start", "-n", "4", "-d", "--", "true")
    try:
        found += figures("status of a fleet", "status")
    finally:
        project.run("stop")
    return found


def _compared(
    name: str,
    argument: str,
    project: Project,
    empty: Path,
    times: tuple[int, int],
    codes: Sequence[int],
) -> list[Figure]:
    programs = {
        "ours": ([ours(), argument], codes),
        "empty": ([sys.executable, str(empty), argument], (0,)),
        "bare": ([sys.executable, "-c", ""], (0,)),
    }
    rows: dict[str, list[Taken]] = {key: [] for key in programs}
    found: dict[str, list[float]] = {key: [] for key in programs}
    rounds, runs = times
    for number in range(rounds):
        for row in rows.values():
            row.clear()
        for _ in range(runs + WARM):
            for key, (argv, allowed) in programs.items():
                rows[key].append(timed(argv, project.folder, allowed))
        for key, row in rows.items():
            found[key].append(1000 * median(taken.wall for taken in row[WARM:]))
        text = ", ".join(f"{key} {row[-1]:.1f}" for key, row in found.items())
        cpu = ", ".join(
            f"{key} {1000 * median(t.cpu for t in row):.1f}" for key, row in rows.items()
        )
        say(f"cli: {name}, round {number + 1} of {rounds}: {text} ms; of CPU {cpu} ms")
    mine, theirs, python = (tuple(found[key]) for key in programs)
    return [
        Figure(f"cli: {name} / empty typer", "ms", mine, theirs, GOAL, paired=True),
        Figure(f"cli: {name} / bare Python", "ms", mine, python, paired=True),
    ]
