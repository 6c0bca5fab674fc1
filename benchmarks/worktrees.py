"""``worktrees``: an attempt's worktree from the pool against one that it makes by itself, in pairs.

A repository of 50,000 files (200 MB) whose set-up hook takes 20 s. Between two attempts the branch
moves by one commit, as when another one lands. Both sides are the PREPARE step as a worker starts
it, from its start to its end; what is made ahead is made before the clock runs.

Then, in repositories of 2,000 and of 50 files without a set-up hook: an attempt after one that has
landed gets its worktree, against one that makes its own.

Last, in 50,000 files: a sparse worktree with 2 % of them, against one with all, in each of these
ways.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from beads_workers.core.base.settings import WorktreeRules, Worktrees
from beads_workers.core.records.landing import Add
from beads_workers.runtime.run_directory import RunDirectory
from beads_workers.worktrees.making import CannotPrepare
from beads_workers.worktrees.pool import make_free
from beads_workers.worktrees.preparation import Preparation
from beads_workers.worktrees.records import Records
from beads_workers.worktrees.reuse import landed, tip_of
from benchmarks.tools.figures import Figure, say
from benchmarks.tools.fleets import Broken

FILES, FILE_BYTES = 50_000, 4_000
AGAIN_FILES = (2_000, 50)
SETUP_SECONDS = 20.0
SPARSE_PARTS = 50
"""A sparse worktree has one of so many folders."""
GOAL = 0.1


class Ground:
    """The repository, its run, and worktrees of both kinds."""

    def __init__(self, folder: Path, files: int, setup_seconds: str | None) -> None:
        folder.mkdir(exist_ok=True)
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
            rules=WorktreeRules(
                setup=setup_seconds and f"mkdir -p deps && sleep {setup_seconds} && touch deps/made"
            ),
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
        seconds, place, said = self._prepared(pool=pool)
        if not self._is_right(place, pool):
            raise Broken(f"no worktree: {said}")
        place.unlink()
        self._remove()
        return seconds

    def ahead(self) -> float:
        """Make a worktree ahead, and take it; seconds until it is there for the pool."""
        began = time.monotonic()
        with redirect_stdout(sys.stderr):
            make_free(self.settings, Records(self.runs.root), self.run_id)
        seconds = time.monotonic() - began
        self.prepare(2)
        return seconds

    def next(self, reuse: int) -> float:
        """Run the PREPARE step after an attempt that has landed; seconds until the task could
        begin."""
        _, place, _ = self._prepared(reuse=reuse)
        first = json.loads(place.read_bytes())["folder"]
        (Path(first) / "work.txt").write_text(f"{self.attempt}\n")
        for words in (("add", "."), ("commit", "--quiet", "-m", "work")):
            subprocess.run(["git", *words], cwd=first, env=self.environment, check=True)
        (record,) = Records(self.runs.root).all()
        self.git("merge", "--quiet", "--ff-only", record.branch)
        tip = tip_of(record)
        self.git("update-ref", f"refs/bw/attempts/bench/{self.attempt}", tip)
        add = Add("bench", self.attempt, self.run_id, tip, record.base, record.branch)
        landed(replace(self.settings, reuse=reuse), add)
        seconds, place, said = self._prepared(reuse=reuse)
        if (json.loads(place.read_bytes())["folder"] == first) != bool(reuse):
            raise Broken(f"not as it was asked: {said}")
        place.unlink()
        self._remove()
        return seconds

    def _prepared(self, pool: int = 0, reuse: int = 0) -> tuple[float, Path, str]:
        self.attempt += 1
        place = self.runs.run(self.run_id) / "issues" / "W1.place"
        worktrees = replace(
            self.settings, rules=replace(self.settings.rules, pool=pool), reuse=reuse
        )
        asked = Preparation(worktrees, "bench", self.attempt, "W1", self.run_id, str(place))
        argv = [sys.executable, "-P", "-m", "beads_workers.worktrees.preparation"]
        began = time.monotonic()
        done = subprocess.run(
            argv, input=json.dumps(asdict(asked)), capture_output=True, text=True, check=False
        )
        seconds = time.monotonic() - began
        if done.returncode != 0:
            raise Broken(f"no worktree: {done.stdout[-300:]}{done.stderr[-800:]}")
        return seconds, place, done.stdout[-300:]

    def _is_right(self, place: Path, pool: int) -> bool:
        folder = Path(json.loads(place.read_bytes())["folder"])
        text = (self.top / "moved.txt").read_text()
        right = (folder / "moved.txt").read_text() == text
        made = not self.settings.rules.setup or (folder / "deps" / "made").exists()
        return right and made and folder.name.startswith("again-") == bool(pool)

    def _remove(self) -> None:
        records = Records(self.runs.root)
        for record in records.all():
            self.git("worktree", "remove", "--force", record.path)
            records.forget(record)


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """Pairs of one attempt from the pool and one that makes its own."""
    files, setup_seconds = (5_000, 2.0) if quick else (FILES, SETUP_SECONDS)
    ground = Ground(folder / "pool", files, f"{setup_seconds:g}")
    cold, warm = list[float](), list[float]()
    for number in range(rounds):
        try:
            with redirect_stdout(sys.stderr):
                make_free(ground.settings, Records(ground.runs.root), ground.run_id)
        except CannotPrepare as error:
            raise Broken(str(error)) from None
        ground.commit(f"round {number}")
        warm.append(ground.prepare(2))
        cold.append(ground.prepare(0))
        say(f"  {warm[-1]:.2f} s from the pool, {cold[-1]:.2f} s without")
    name = f"worktrees: {files:,} files, set-up {setup_seconds:g} s: ready from the pool / cold"
    figures = [Figure(name, "s", tuple(warm), tuple(cold), GOAL, paired=True)]
    figures += [_again(rounds, count, folder / str(count)) for count in AGAIN_FILES]
    return figures + _sparse(rounds, files, folder / "sparse")


def _again(rounds: int, files: int, folder: Path) -> Figure:
    ground = Ground(folder, files, None)
    again, cold = list[float](), list[float]()
    for _ in range(rounds):
        again.append(ground.next(1))
        cold.append(ground.next(0))
        say(f"  {again[-1]:.3f} s again, {cold[-1]:.3f} s new")
    name = f"worktrees: {files:,} files: ready in one that has landed / new"
    return Figure(name, "s", tuple(again), tuple(cold), 1.0, paired=True)


def _sparse(rounds: int, files: int, folder: Path) -> list[Figure]:
    ground = Ground(folder, files, None)
    cone = tuple(sorted(f"src/{number}" for number in range(files // 100 // SPARSE_PARTS)))
    ground.git("sparse-checkout", "set", *cone)
    ways: dict[str, Callable[[], float]] = {
        "cold": partial(ground.prepare, 0),
        "made ahead": ground.ahead,
        "used again": partial(ground.next, 1),
    }
    figures = []
    for way, ready in ways.items():
        sparse, whole = list[float](), list[float]()
        for _ in range(rounds):
            for seconds, wanted in ((sparse, cone), (whole, None)):
                ground.settings = replace(ground.settings, cone=wanted)
                seconds.append(ready())
            say(f"  {way}: {sparse[-1]:.2f} s with 2 %, {whole[-1]:.2f} s with all files")
        name = f"worktrees: {files:,} files: {way}, ready with 2 % of them / with all"
        figures.append(Figure(name, "s", tuple(sparse), tuple(whole), GOAL, paired=True))
    return figures
