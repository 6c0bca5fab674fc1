"""``landing``: generated branches land through the lander, and by a serial rebase-and-test script.

    python -m benchmarks.landing [--branches 60] [--seeds 5] [--flaky 0.05] [--jobs 2] [--gate 0.6]

28 % of the branches conflict textually, 5 % are halves of pairs that break each other, 5 % are
broken, and 10 % stand on another branch. The gate is ``python3 check.py``, which also counts its
runs. The least number of gates is what information allows: each says one bit about who of the
branches that merge is broken.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, comb, log2
from pathlib import Path
from random import Random

from beads_workers.core.landing import (
    Add,
    Idle,
    Landed,
    LanderSettings,
    Refused,
    from_line,
    settings_to_line,
    to_line,
)
from beads_workers.core.settings import Landing, Worktrees

ROOT = Path(__file__).parent.parent
BRANCH = "bw-landing/main"

CHECK = """\
import os, pathlib, random, sys, time
with open(os.environ["BENCH_RUNS"], "a") as runs:
    runs.write("run\\n")
time.sleep(float(os.environ["BENCH_GATE"]))
names = {path.name for path in pathlib.Path("marks").glob("*")}
if "broken" in {name.split("-")[0] for name in names}:
    sys.exit("broken")
for name in names:
    if name.startswith("pair") and name.endswith("a") and name[:-1] + "b" in names:
        sys.exit("two that do not fit")
if random.random() < float(os.environ["BENCH_FLAKY"]):
    sys.exit("flaky")
"""


@dataclass(slots=True)
class Measured:
    """``seconds``: wall time; ``runs``: of the gate."""

    landed: set[str]
    refused: set[str]
    runs: int
    seconds: float


class Place:
    """A repository with a branch for each issue, made anew for each contestant."""

    def __init__(self, folder: Path, seed: int, branches: int, gate: float, flaky: float) -> None:
        self.top = folder / "project"
        self.top.mkdir(parents=True)
        self.folder, self.adds = folder, list[Add]()
        self.after: dict[str, str] = {}
        self.runs = folder / "runs"
        named = {
            f"GIT_{who}_{what}": "bench@localhost"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        self.environment = os.environ | named
        self.environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "BENCH_RUNS": str(self.runs)}
        self.environment |= {"BENCH_GATE": str(gate), "BENCH_FLAKY": str(flaky)}
        self._generate(Random(seed), branches)

    def git(self, *arguments: str, check: bool = True) -> str:
        """What git prints in the project."""
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.top,
            env=self.environment,
            capture_output=True,
            text=True,
            check=check,
        )
        return done.stdout.strip() if check else str(done.returncode)

    def counted(self) -> int:
        """How often the gate has run since the last time."""
        count = len(self.runs.read_text().splitlines()) if self.runs.exists() else 0
        self.runs.unlink(missing_ok=True)
        return count

    def _generate(self, random: Random, many: int) -> None:
        lines = "".join(f"line {number}\n" for number in range(20))
        self.git("init", "-q", "-b", "main")
        files = {f"src/file{number}": lines for number in range(30)}
        self._commit({"check.py": CHECK, "marks/none": "", **files}, "start")
        base = self.git("rev-parse", "HEAD")
        kinds = ["conflict"] * round(many * 0.28) + ["broken"] * round(many * 0.05)
        kinds += [f"pair{n // 2}{'ab'[n % 2]}" for n in range(2 * round(many * 0.05))]
        kinds += ["plain"] * (many - len(kinds))
        random.shuffle(kinds)
        plain = [number for number, kind in enumerate(kinds) if kind == "plain"]
        chained = set(random.sample(plain[1:], round(many * 0.1)))
        for number, kind in enumerate(kinds):
            name = f"issue-{number:02}"
            before = [n for n in plain if n < number]
            start = base
            if number in chained and before:
                self.after[name] = f"issue-{random.choice(before):02}"
                start = f"bw/{self.after[name]}/1"
            self.git("checkout", "-q", "-b", f"bw/{name}/1", start)
            changed = {f"new/{name}": name, f"marks/{_mark(kind, name)}": ""}
            if kind == "conflict":
                # Two or three branches change the same line.
                file = f"src/file{random.randrange(max(1, many // 8))}"
                changed[file] = lines.replace("line 7\n", f"line 7 of {name}\n")
            self._commit(changed, f"Work on {name}")
            head = self.git("rev-parse", "HEAD")
            self.adds.append(Add(name, 1, "bench", head, base, ended_at=float(number)))
        self.git("checkout", "-q", "main")

    def _commit(self, files: dict[str, str], message: str) -> None:
        for name, text in files.items():
            path = self.top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git("add", "--all")
        self.git("commit", "-q", "-m", message)


def _mark(kind: str, name: str) -> str:
    return f"broken-{name}" if kind == "broken" else kind if kind.startswith("pair") else name


def lander(place: Place, jobs: int) -> Measured:
    """Drain all branches through the lander; a chained one comes when what it stands on landed."""
    settings = LanderSettings(
        Landing(BRANCH, place.git("rev-parse", "main"), "main", jobs=jobs),
        Worktrees(
            *(str(place.top), "", f"{place.top}/.git", f"{place.folder}/worktrees"),
            *(f"{place.folder}/state", BRANCH, BRANCH),
            disk_floor_bytes=0,
        ),
        "bench",
        "python3 check.py",
    )
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "beads_workers.landing.run"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=place.environment | {"PYTHONPATH": str(ROOT)},
    )
    assert process.stdin is not None and process.stdout is not None
    landed, refused = set[str](), set[str]()
    process.stdin.write(settings_to_line(settings))
    waiting = {add.issue_id: add for add in place.adds}

    def ready() -> None:
        assert process.stdin is not None
        for name in list(waiting):
            before = place.after.get(name)
            if before is None or before in landed | refused:
                process.stdin.write(to_line(waiting.pop(name)))
        process.stdin.flush()

    ready()
    for line in process.stdout:
        match from_line(line):
            case Landed(issue_id):
                landed.add(issue_id)
                refused.discard(issue_id)
                ready()
            case Refused(issue_id):
                refused.add(issue_id)
                ready()
            case Idle() if not waiting and len(landed) + len(refused) == len(place.adds):
                break
    seconds = time.monotonic() - begun
    process.stdin.close()
    assert process.wait() == 0
    return Measured(landed, refused, place.counted(), seconds)


def serial(place: Place) -> Measured:
    """The script that most people write: rebase each branch, test it, go on; one more try."""
    begun = time.monotonic()
    work = place.folder / "serial"
    place.git("worktree", "add", "-q", "-b", "serial", str(work), "main")
    landed, refused = set[str](), set[str]()

    def git(*arguments: str) -> int:
        return subprocess.run(
            ["git", *arguments], cwd=work, env=place.environment, capture_output=True, check=False
        ).returncode

    for add in place.adds:
        picked = git("cherry-pick", add.commit) == 0
        if not picked:
            git("cherry-pick", "--abort")
            refused.add(add.issue_id)
            continue
        test = ["python3", "check.py"]
        if subprocess.run(test, cwd=work, env=place.environment, capture_output=True).returncode:
            git("reset", "-q", "--hard", "HEAD~1")
            refused.add(add.issue_id)
        else:
            landed.add(add.issue_id)
    return Measured(landed, refused, place.counted(), time.monotonic() - begun)


def least(place: Place, measured: Measured) -> int:
    """Of gates, for those that merge."""
    red = [add.issue_id for add in place.adds if add.issue_id in measured.refused]
    culprits = sum("broken" in _marks(place, name) or "pair" in _marks(place, name) for name in red)
    mergeable = len(measured.landed) + culprits
    return max(1, ceil(log2(comb(mergeable, culprits))))


def _marks(place: Place, name: str) -> str:
    return place.git("diff", "--name-only", "main", f"bw/{name}/1", "--", "marks")


def check(place: Place, measured: Measured) -> None:
    """What has landed is on the branch, and the branch is green."""
    present = set(place.git("ls-tree", "--name-only", f"{BRANCH}:new").splitlines())
    assert present == measured.landed, present ^ measured.landed
    marks = place.git("ls-tree", "--name-only", f"{BRANCH}:marks").splitlines()
    assert not any(mark.startswith("broken") for mark in marks)
    assert not any(
        f"{mark[:-1]}b" in marks for mark in marks if mark[:4] == "pair" and mark[-1] == "a"
    )


def run(arguments: Sequence[str] = ()) -> None:
    """Print a row for each seed, and the medians."""
    parser = argparse.ArgumentParser(prog="landing", description=__doc__)
    parser.add_argument("--branches", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--flaky", type=float, default=0.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--gate", type=float, default=0.6, help="seconds that a gate takes")
    asked = parser.parse_args(list(arguments))
    print(f"{asked.branches} branches, {asked.jobs} lanes, {asked.flaky:.0%} of green gates lie")
    print("seed  landed (serial)  gates (serial, least)  ratio  seconds (serial)  share")
    ratios, shares = [], []
    for seed in range(asked.seeds):
        folder = Path(tempfile.mkdtemp(prefix="bw-bench-"))
        try:
            made = [
                Place(folder / name, seed, asked.branches, asked.gate, asked.flaky)
                for name in ("ours", "theirs")
            ]
            ours, theirs = lander(made[0], asked.jobs), serial(made[1])
            check(made[0], ours)
            low = least(made[0], ours)
        finally:
            shutil.rmtree(folder)
        ratios.append(ours.runs / low)
        shares.append(ours.seconds / theirs.seconds)
        print(
            f"{seed:4}  {len(ours.landed):6} {len(theirs.landed):8}  {ours.runs:5} {theirs.runs:8}"
            f" {low:6}  {ratios[-1]:5.2f}  {ours.seconds:7.1f} {theirs.seconds:8.1f}"
            f"  {shares[-1]:5.2f}",
            flush=True,
        )
    print(f"medians: gates {statistics.median(ratios):.2f} of the least,", end=" ")
    print(f"{statistics.median(shares):.2f} of the serial script's time")


if __name__ == "__main__":
    run(sys.argv[1:])
