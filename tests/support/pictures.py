"""Pictures of every view of the dashboard, at each size and in each theme, of one real run.

    python -m tests.support.pictures [--tree CHECKOUT] [--views main,landing] [--stay SECONDS]

The real claude works on the stub of its API. Pictures, their texts and an ``index.html`` with all
of them are in ``~/.cache/beads-workers/pictures/COMMIT``. ``--tree``: another checkout, whose views
are taken with the same keys; a view that it lacks is taken all the same. ``--stay`` keeps the run
for looking at it by hand: ``env.sh`` beside the pictures is to be sourced.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME

from tests.night.ground import Ground
from tests.support.agent_projects import AgentProject
from tests.support.picture import svg
from tests.support.real_agents import cache
from tests.support.screens import REPOSITORY, TmuxScreen

SIZES = ((60, 20), (80, 24), (120, 35), (200, 50))
THEMES = {
    "dark": ({"BW_THEME": "dark"}, SVG_EXPORT_THEME),
    "light": ({"BW_THEME": "light"}, DEFAULT_TERMINAL_THEME),
    "plain": ({"NO_COLOR": "1"}, SVG_EXPORT_THEME),
}
VIEWS = {
    "main": "",
    "ended": "Tab",
    "landing": "2",
    "quarantined": "3",
    "decide": "4",
    "issues": "3 e 5",
    "log": "3 e j Enter",
    "diff": "3 e j d",
    "why": "3 e j y",
    "landed": "2 d",
    "needs-you": "!",
    "question": "4 Enter",
    "approval": "4 j d",
    "help": "?",
    "palette": ": r e",
    "answer": "4 i E U R O S",
}
"""View -> its keys from the first screen, as tmux names them."""
START = "start -n 7 --agent claude --land --max-attempts 2 --skip-base-check --verify"
CHECK = """#!/bin/sh
for file in broken*.py; do
  [ ! -e "$file" ] || { echo 'ImportError: no module named money'; exit 1; }
done
"""
SLOW = "; ".join(f'write slow{{n}}.py "step {step}"; wait 100s' for step in range(9))
ISSUES: tuple[tuple[int, str, str], ...] = (
    (0, "Prices with cents", 'tokens 42000 900; write cents.py "def cents(p): return p"; commit'),
    (0, "Which currency totals are in", 'say "Outcome: question: EUROS or DOLLARS, by default?"'),
    (1, "Discounts are added twice", 'write broken{n}.py "import money"'),
    (1, "Orders by day", 'tokens 38000 700; write orders.py "def by_day(o): return o"'),
    (1, "Refunds in part", 'write broken{n}.py "import money"'),
    (1, "Round half up", 'say "Outcome: failed: the rules of rounding are not in this repository"'),
    (1, "A new table of prices, which a person is to see before it lands", 'write t.py "t = 1"'),
    (2, "Send an invoice", "tokens 55000 1100; " + SLOW),
    (2, "Login fails on Safari", "tokens 61000 1400; " + SLOW),
    (2, "Stock of each warehouse", SLOW),
    (2, "Ship what was paid", SLOW),
    (3, "Delete carts that nobody paid", SLOW),
    (3, "Letters for late payers", SLOW),
    (3, "Tidy the names of countries", SLOW),
)
"""Priority, title, and what the stub makes of it. Six run on: one worker retries."""
SECONDS_MAX = 120.0
KEY_SECONDS, SETTLED_SECONDS = 0.2, 0.6


def fill(project: AgentProject) -> None:
    """Write the check and the backlog."""
    (project.folder / "check").write_text(CHECK)
    (project.folder / "check").chmod(0o755)
    rows: list[Mapping[str, Any]] = []
    for number, (priority, title, script) in enumerate(ISSUES, 1):
        row = {"title": title, "priority": priority, "labels": []}
        row["description"] = f"[[stub: {script.replace('{n}', str(number))}]]"
        row["labels"] = ["land:ask"] if "a person" in title else []
        if "late payers" in title:
            row["dependencies"] = [{"depends_on_id": "bw-8", "type": "blocks"}]
        rows.append(row)
    project.create_many(rows)


class Run:
    """One run of a checkout on a ground of its own."""

    def __init__(self, ground: Ground, tree: Path) -> None:
        assert isinstance(ground.project, AgentProject)
        fill(ground.project)
        self.folder = ground.project.folder
        self.program = f"{shlex.quote(sys.executable)} -m beads_workers"
        said = {**ground.project.environment, "PYTHONPATH": str(tree), "BW_CACHE": str(cache())}
        said |= {"COLORTERM": "truecolor", "PYTHONDONTWRITEBYTECODE": "1"}
        self.environment = {name: text for name, text in said.items() if name != "NO_COLOR"}

    def screen(self, command: str, env: Mapping[str, str], size: tuple[int, int]) -> TmuxScreen:
        """Start a command of the program in a terminal of its own."""
        whole = f"exec {self.program} {command}"
        return TmuxScreen().start(whole, *size, {**self.environment, **env}, self.folder)

    def status(self) -> Mapping[str, Any]:
        """Return what ``status --json`` says; empty before the run."""
        said = self.call("status", "--json")
        return dict(json.loads(said.stdout)) if said.returncode == 0 else {}

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the program to its end."""
        words = [*shlex.split(self.program), *arguments]
        env = self.environment
        return subprocess.run(
            words, cwd=self.folder, env=env, capture_output=True, text=True, check=False
        )

    def ready(self) -> bool:
        """Return whether everything that is to be seen is there."""
        if not (shown := self.status()):
            return False
        queue, landed = shown["queue"], (shown["landing"] or {}).get("landed", 0)
        decide = queue["questions"], queue["awaiting_approval"]
        return all(decide) and landed >= 2 and queue["quarantined"] >= 3 and queue["running"] >= 6


def keep(screen: TmuxScreen, theme: str, folder: Path, view: str) -> None:
    """Keep what a screen shows."""
    size = f"{screen.ask('pane_width')}x{screen.ask('pane_height')}"
    (folder / f"{size}-{view}-{theme}.txt").write_text(screen.text())
    drawn = svg(screen.styled(), int(size.partition("x")[0]), f"{view} {size}", THEMES[theme][1])
    (folder / f"{size}-{view}-{theme}.svg").write_text(drawn)


def views(run: Run, folder: Path, wanted: Mapping[str, str]) -> None:
    """Keep each view at each size, each in a dashboard that has just begun."""
    for size, (view, keys) in product(SIZES, wanted.items()):
        screens = {theme: run.screen("watch", env, size) for theme, (env, _) in THEMES.items()}
        try:
            for screen in screens.values():
                screen.wait_for("closed")
            for key in keys.split():
                for screen in screens.values():
                    screen.keys(key)
                time.sleep(KEY_SECONDS)
            time.sleep(SETTLED_SECONDS)
            for theme, screen in screens.items():
                keep(screen, theme, folder, view)
        finally:
            for screen in screens.values():
                screen.close()


def end(run: Run, fleet: TmuxScreen, folder: Path) -> None:
    """Keep what there is before the end, and after it."""
    watching = [run.screen("watch", THEMES["dark"][0], size) for size in SIZES]
    try:
        for screen in watching:
            screen.wait_for("closed")
        keep(fleet, "dark", folder, "output")
        for screen in watching:
            keep(screen, "dark", folder, "before-end")
        run.call("stop")
        fleet.wait_for("next:")
        for screen in watching:
            screen.wait_for("next:")
            keep(screen, "dark", folder, "after-end")
        keep(fleet, "dark", folder, "output-ended")
    finally:
        for screen in watching:
            screen.close()


def index(folder: Path) -> str:
    """Return a page with all pictures: a row for each view, a column for each theme."""

    def rows() -> Iterator[str]:
        for width, height in SIZES:
            yield f"<h2>{width}x{height}</h2><table>"
            names = sorted(
                {p.name.split("-", 1)[1].rsplit("-", 1)[0] for p in folder.glob("*.svg")}
            )
            for view in names:
                files = (f"{width}x{height}-{view}-{theme}.svg" for theme in THEMES)
                cells = "".join(f'<td><img loading="lazy" src="{file}">' for file in files)
                yield f"<tr><th>{view}{cells}"
            yield "</table>"

    style = "body{font:14px sans-serif}th{text-align:left;vertical-align:top}img{max-width:60vw}"
    return f'<!doctype html><meta charset="utf-8"><style>{style}</style>' + "\n".join(rows())


def stay(run: Run, folder: Path, seconds: float) -> None:
    """Keep the run for a while, and say how to look at it."""
    said = run.environment.items()
    lines = [f"export {name}={shlex.quote(text)}" for name, text in said if name.isidentifier()]
    (folder / "env.sh").write_text("\n".join([*lines, f"cd {shlex.quote(str(run.folder))}", ""]))
    print(folder / "env.sh", flush=True)
    time.sleep(seconds)
    run.call("stop", "--wait")


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(description="Pictures of the dashboard of a real run.")
    parser.add_argument("--tree", type=Path, default=REPOSITORY, help="another checkout")
    parser.add_argument("--views", default="", help="only these, with commas between them")
    parser.add_argument("--stay", type=float, default=0.0, help="only keep a run for this long")
    said = parser.parse_args()
    commit = subprocess.check_output(
        ["git", "-C", said.tree, "rev-parse", "--short", "HEAD"], text=True
    ).strip()
    folder = cache() / "pictures" / commit
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {view: VIEWS[view] for view in said.views.split(",")} if said.views else VIEWS
    with tempfile.TemporaryDirectory(prefix="bw-pictures-", ignore_cleanup_errors=True) as place:
        ground = Ground(Path(place) / "g")
        try:
            run = Run(ground, said.tree.resolve())
            # Its output is no terminal: it prints a line for each event.
            command = f"{run.program} {START} {run.folder / 'check'} 2>&1 | cat; exec cat"
            with TmuxScreen().start(command, 120, 50, run.environment, run.folder) as fleet:
                deadline = time.monotonic() + SECONDS_MAX
                while not run.ready():
                    assert time.monotonic() < deadline, fleet.text()
                    time.sleep(1)
                if said.stay:
                    stay(run, folder, said.stay)
                    return
                views(run, folder, wanted)
                end(run, fleet, folder)
        finally:
            ground.close()
    (folder / "index.html").write_text(index(folder))
    print(folder / "index.html")


if __name__ == "__main__":
    main()
