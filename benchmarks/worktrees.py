"""``worktrees``: an attempt's worktree from the pool against one that it makes by itself, in pairs.

A repository of 50,000 files (200 MB) whose set-up hook takes 20 s. Between two attempts the branch
moves by one commit, as when another one lands. Both sides are the PREPARE step as a worker starts
it, from its start to its end; what is made ahead is made before the clock runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from pathlib import Path

from beads_workers.core.settings import Worktrees
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.worktrees.making import CannotPrepare
from beads_workers.worktrees.pool import make
from beads_workers.worktrees.preparation import Preparation
from beads_workers.worktrees.records import Records
from benchmarks.tools.figures import Figure, say
from benchmarks.tools.fleets import Broken

FILES, FILE_BYTES = 50_000, 4_000
SETUP_SECONDS = 20.0
GOAL = 0.1


class Ground:
    """The repository, its run, and worktrees of both kinds."""

    def __init__(self, folder: Path, files: int, setup_seconds: float) -> None:
        self.top = folder / "project"
        self.top.mkdir()
        named = {
            f"GIT_{who}_{what}": "bench@localhost"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        self.environment = os.environ | named | {"GIT_CONFIG_GLOBAL": os.devnull}
        self.git("init", "--quiet", "--initial-branch=main")
        (self.top / ".gitignore").write_text("deps/\n.beads-workers/\n")
        for number in range(files):
            file = self.top / "src" / str(number // 100) / f"{number}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{number:010}\n" * (FILE_BYTES // 11))
        self.commit("first")
        self.runs = RunDirectory(self.top / ".beads-workers")
        self.runs.create()
        self.run_id, _ = self.runs.create_run()
        self.settings = Worktrees(
            *(str(self.top), "", f"{self.top}/.git", f"{folder}/trees", str(self.runs.root)),
            *("main", "main"),
            setup=f"mkdir -p deps && sleep {setup_seconds} && touch deps/made",
        )
        self.attempt = 0

    def git(self, *arguments: str) -> None:
        """Call it in the project."""
        subprocess.run(["git", *arguments], cwd=self.top, env=self.environment, check=True)

    def commit(self, text: str) -> None:
        """The branch moves."""
        (self.top / "moved.txt").write_text(f"{text}\n")
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", text)

    def prepare(self, pool: int) -> float:
        """Run the PREPARE step; seconds until the task could begin."""
        self.attempt += 1
        place = self.runs.run(self.run_id) / "issues" / "W1.place"
        settings = replace(self.settings, pool=pool)
        asked = Preparation(settings, "bench", self.attempt, "W1", self.run_id, str(place))
        argv = [sys.executable, "-P", "-m", "beads_workers.worktrees.preparation"]
        began = time.monotonic()
        done = subprocess.run(
            argv, input=json.dumps(asdict(asked)), capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - began
        if done.returncode != 0 or not self._is_right(place, pool):
            raise Broken(f"no worktree: {done.stdout[-300:]}")
        place.unlink()
        self._remove()
        return seconds

    def _is_right(self, place: Path, pool: int) -> bool:
        folder = Path(json.loads(place.read_bytes())["folder"])
        text = (self.top / "moved.txt").read_text()
        right = (folder / "moved.txt").read_text() == text and (folder / "deps" / "made").exists()
        return right and folder.name.startswith("ready-") == bool(pool)

    def _remove(self) -> None:
        records = Records(self.runs.root)
        for record in records.all():
            self.git("worktree", "remove", "--force", record.path)
            records.forget(record)


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """Pairs of one attempt from the pool and one that makes its own."""
    files, setup_seconds = (5_000, 2.0) if quick else (FILES, SETUP_SECONDS)
    ground = Ground(folder, files, setup_seconds)
    cold, warm = list[float](), list[float]()
    for number in range(rounds):
        try:
            with redirect_stdout(sys.stderr):
                make(ground.settings, Records(ground.runs.root), ground.run_id)
        except CannotPrepare as error:
            raise Broken(str(error)) from None
        ground.commit(f"round {number}")
        warm.append(ground.prepare(2))
        cold.append(ground.prepare(0))
        say(f"  {warm[-1]:.2f} s from the pool, {cold[-1]:.2f} s without")
    name = f"worktrees: {files:,} files, set-up {setup_seconds:g} s: ready from the pool / cold"
    return [Figure(name, "s", tuple(warm), tuple(cold), GOAL, paired=True)]
