"""``landing``: generated branches land through the lander, by a serial script, and by other queues.

    python -m benchmarks.landing [--branches 60] [--seeds 5] [--flaky 0.05] [--jobs 2] [--peers 1]

28 % of the branches conflict textually, 5 % are halves of pairs that break each other, 5 % are
broken, and 10 % stand on another branch. The gate is ``python3 check.py``, which also counts its
runs. The least number of gates is what information allows: each says one bit about who of the
branches that merge is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, comb, log2
from pathlib import Path
from random import Random

from beads_workers.core.base.settings import Landing, LandingRules, WorktreeRules, Worktrees
from beads_workers.core.records.landing import (
    Add,
    Idle,
    Landed,
    LanderSettings,
    Refused,
    from_line,
    settings_to_line,
    to_line,
)
from benchmarks.tools.figures import Figure, Goal, say
from benchmarks.tools.fleets import Broken

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
        Landing(BRANCH, place.git("rev-parse", "main"), "main", rules=LandingRules(jobs=jobs)),
        Worktrees(
            *(str(place.top), "", f"{place.top}/.git", f"{place.folder}/worktrees"),
            *(f"{place.folder}/state", BRANCH, BRANCH),
            rules=WorktreeRules(disk_floor_bytes=0),
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


_CACHE = os.environ.get("BW_CACHE") or str(Path.home() / ".cache" / "beads-workers")
MERGETRAIN, SIGBOUND = "mergetrain 3.7.1", "sigbound 2.3.0"
PROGRAMS = {MERGETRAIN: "mergetrain", SIGBOUND: "sig"}
TRAIN = """\
version: 2
project:
  name: bench
gates:
  - name: verify
    run: python3 check.py
"""


def program(peer: str) -> Path:
    """Where ``scripts/setup-peers NAME`` installs it."""
    return Path(_CACHE, "peers", peer.replace(" ", "-"), "bin", PROGRAMS[peer])


def can_run(peer: str) -> bool:
    """Whether it is there; sigbound asks for ``git merge-tree --merge-base``, of git 2.40."""
    told = ["git", "merge-tree", "-h"]
    usage = subprocess.run(told, capture_output=True, text=True, check=False)
    return program(peer).exists() and (
        peer != SIGBOUND or "merge-base" in usage.stdout + usage.stderr
    )


def mergetrain(place: Place, _jobs: int) -> Measured:
    """The merge queue of that name, unattended; it pushes, so it gets a remote, and wants each
    branch in a worktree. Making those is not in its time."""
    (place.folder / "mergetrain.yaml").write_text(TRAIN)
    (place.top / ".git/info/exclude").write_text(".mergetrain\n")
    origin = str(place.folder / "origin.git")
    place.git("init", "-q", "--bare", "-b", "main", origin)
    place.git("remote", "add", "origin", origin)
    place.git("push", "-q", "origin", "main")
    for add in place.adds:
        tree = str(place.folder / "desks" / add.issue_id)
        place.git("worktree", "add", "-q", tree, f"bw/{add.issue_id}/1")

    def call(*arguments: str) -> str:
        given = ("--config", str(place.folder / "mergetrain.yaml"), "--repo", str(place.top))
        done = subprocess.run(
            [str(program(MERGETRAIN)), *given, *arguments],
            cwd=place.top,
            env=place.environment,
            capture_output=True,
            text=True,
        )
        return done.stdout + done.stderr

    begun = time.monotonic()
    for add in place.adds:
        tree = str(place.folder / "desks" / add.issue_id)
        named = ("--task", add.issue_id, "--branch", f"bw/{add.issue_id}/1", "--worktree", tree)
        if "queued job" not in (said := call("enqueue", *named, "--auto")):
            raise Broken(f"mergetrain: {said}")
    while "no auto-approved queued jobs" not in call("daemon", "--once"):
        pass
    seconds = time.monotonic() - begun
    place.git("fetch", "-q", "origin")
    landed = set(place.git("ls-tree", "--name-only", "origin/main:new").splitlines())
    refused = {add.issue_id for add in place.adds} - landed
    return Measured(landed, refused, place.counted(), seconds)


BATCH = 6
"""Branches in a run of sigbound. It bisects so many one by one; of more than that, as of a run in
which two that are green alone are red together, it may land nothing."""


def sigbound(place: Place, jobs: int) -> Measured:
    """Runs of a few branches, unattended, each on top of what has landed: its agents have only to
    merge theirs, and what is red together is bisected."""
    place.git("branch", BRANCH, "main")
    begun = time.monotonic()
    for first in range(0, len(place.adds), BATCH):
        names = [add.issue_id for add in place.adds[first : first + BATCH]]
        tasks = place.folder / "tasks.json"
        tasks.write_text(json.dumps([{"id": name, "prompt": name} for name in names]))
        done = subprocess.run(
            [
                *(str(program(SIGBOUND)), "run", "-repo", str(place.top), "-base", BRANCH),
                *("-tasks", str(tasks), "-parallel-agents", str(jobs)),
                *("-agent", 'git merge -q --no-edit "bw/$SIGBOUND_TASK_ID/1"'),
                *("-verify", "python3 check.py", "-verify-bisect"),
            ],
            cwd=place.top,
            env=place.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 3, 4, 5):  # All, none of them green, some, none that merges.
            raise Broken(f"sigbound: {done.stdout}{done.stderr}")
    seconds = time.monotonic() - begun
    files = place.git("ls-tree", "--name-only", BRANCH, "new/").splitlines()
    landed = {name.removeprefix("new/") for name in files}
    refused = {add.issue_id for add in place.adds} - landed
    measured = Measured(landed, refused, place.counted(), seconds)
    if landed:
        check(place, measured)
    return measured


PEERS: Mapping[str, Callable[[Place, int], Measured]] = {
    MERGETRAIN: mergetrain,
    SIGBOUND: sigbound,
}


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


# --- figures --------------------------------------------------------------------------------------

BRANCHES, JOBS, GATE_SECONDS = 60, 2, 0.6
SEEDS, SEEDS_OF_PEERS = 5, 2
"""mergetrain takes two minutes for each."""
GATES_GOAL, SECONDS_GOAL = 1.8, 0.65


@dataclass(frozen=True, slots=True)
class Seed:
    """One repository, by all contestants in turn. ``low``: the fewest gates that can tell."""

    ours: Measured
    serial: Measured
    low: int
    peers: Mapping[str, Measured] = field(default_factory=dict)


def compete(
    seed: int, branches: int, flaky: float, *, peers: Sequence[str], gate: float, jobs: int
) -> Seed:
    """Raises ``Broken`` where something landed wrongly."""
    folder = Path(tempfile.mkdtemp(prefix="bw-bench-"))
    try:
        names = ("ours", "serial", *peers)
        made = {n: Place(folder / n.partition(" ")[0], seed, branches, gate, flaky) for n in names}
        ours, theirs = lander(made["ours"], jobs), serial(made["serial"])
        check(made["ours"], ours)
        others = {peer: PEERS[peer](made[peer], jobs) for peer in peers}
        return Seed(ours, theirs, least(made["ours"], ours), others)
    finally:
        shutil.rmtree(folder)


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """For ``scripts/bench``: five seeds at least, with honest gates and with flaky ones."""
    seeds, branches = (1, 12) if quick else (max(rounds, SEEDS), BRANCHES)
    figures = list[Figure]()
    for flaky in (0.0, 0.05):
        found = []
        for seed in range(seeds):
            say(f"  seed {seed}, {flaky:.0%} flaky")
            compared = seed < SEEDS_OF_PEERS and not flaky and not quick
            peers = [peer for peer in PEERS if compared and can_run(peer)]
            one = compete(seed, branches, flaky, peers=peers, gate=GATE_SECONDS, jobs=JOBS)
            found.append(one)
        figures += _figures(found, f"{branches} branches, {flaky:.0%} of gates lie")
    return figures


def _figures(found: Sequence[Seed], what: str) -> Iterator[Figure]:
    def figure(
        name: str, unit: str, pairs: Sequence[tuple[float, float]], goal: float | None = None
    ) -> Figure:
        ours, peer = zip(*pairs, strict=True)
        return Figure(f"landing: {what}: {name}", unit, ours, peer, goal, paired=True)

    honest = "0%" in what
    least_of = [(float(s.ours.runs), float(s.low)) for s in found]
    yield figure("gate runs / the least possible", "runs", least_of, GATES_GOAL if honest else None)
    times = [(s.ours.seconds, s.serial.seconds) for s in found]
    yield figure("wall time / serial script", "s", times, SECONDS_GOAL if honest else None)
    runs = [(float(s.ours.runs), float(s.serial.runs)) for s in found]
    yield figure("gate runs / serial script", "runs", runs)
    landed = [(float(len(s.ours.landed)), float(len(s.serial.landed))) for s in found]
    made = figure("branches that landed / serial script", "", landed, 1.0)
    yield replace(made, sense=Goal.AT_LEAST)
    for peer in PEERS:
        if both := [(s.ours, s.peers[peer]) for s in found if peer in s.peers]:
            pairs = [(a.seconds, b.seconds) for a, b in both]
            yield figure(f"wall time / {peer}", "s", pairs)
            pairs = [(float(a.runs), float(b.runs)) for a, b in both]
            yield figure(f"gate runs / {peer}", "runs", pairs)
            pairs = [(float(len(a.landed)), float(len(b.landed))) for a, b in both]
            yield figure(f"branches that landed / {peer}", "", pairs)


def run(arguments: Sequence[str] = ()) -> None:
    """Print a row for each seed, and the medians."""
    parser = argparse.ArgumentParser(prog="landing", description=__doc__)
    parser.add_argument("--branches", type=int, default=BRANCHES)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--flaky", type=float, default=0.0)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--gate", type=float, default=GATE_SECONDS, help="seconds of a gate")
    parser.add_argument("--peers", type=int, default=0, help="so many seeds by other queues")
    asked = parser.parse_args(list(arguments))
    print(f"{asked.branches} branches, {asked.jobs} lanes, {asked.flaky:.0%} of green gates lie")
    print("seed  landed (serial)  gates (serial, least)  ratio  seconds (serial)  share")
    ratios, shares = [], []
    for number in range(asked.seeds):
        peers = [peer for peer in PEERS if number < asked.peers and can_run(peer)]
        seed = compete(
            *(number, asked.branches, asked.flaky), peers=peers, gate=asked.gate, jobs=asked.jobs
        )
        ours, theirs = seed.ours, seed.serial
        ratios.append(ours.runs / seed.low)
        shares.append(ours.seconds / theirs.seconds)
        print(
            f"{number:4}  {len(ours.landed):6} {len(theirs.landed):8}  {ours.runs:5}"
            f" {theirs.runs:8} {seed.low:6}  {ratios[-1]:5.2f}  {ours.seconds:7.1f}"
            f" {theirs.seconds:8.1f}  {shares[-1]:5.2f}",
            flush=True,
        )
        for peer, other in seed.peers.items():
            told = f"{len(other.landed)} landed, {other.runs} gates, {other.seconds:.1f} s"
            print(f"      {peer}: {told}", flush=True)
    print(f"medians: gates {statistics.median(ratios):.2f} of the least,", end=" ")
    print(f"{statistics.median(shares):.2f} of the serial script's time")


if __name__ == "__main__":
    run(sys.argv[1:])
