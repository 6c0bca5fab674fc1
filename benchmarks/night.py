"""``night``: what a fleet costs beside its agents, against scripts that drain the same backlog.

Eight agents at a time sleep, write a file, change another, and end. ``true`` verifies, and all that
is finished lands. One script keeps eight worktrees and uses them again, the other has ``git
worktree add`` make one for each issue. Both commit the agent's work, and cherry-pick it onto a
branch of their own.

The cost of an issue is the CPU time of all processes for ``MANY`` issues, less that for ``FEW``,
for each of the ``MANY - FEW``: starting and ending a fleet is in neither. The agents' own CPU time
is taken off on all sides. ``tools.family`` adds up what every process has used, also of those that
left their parents. Times compare with a script that makes the same eight worktrees, two at a time.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from time import time

from benchmarks.tools.figures import Figure, in_turns, say
from benchmarks.tools.fleets import Broken, embedded, fill, need, ours, run

FEW, MANY, WORKERS = 8, 40, 8
SIZES: dict[int, float | None] = {50: None, 2_000: 7.0, 20_000: 4.0}
"""Files of the repository; the most that an issue may cost, in times of the script that uses its
worktrees again."""
ADDING_GOAL = 0.9
PROCESSES_GOAL, PYTHON_GOAL = 25.0, 0.2
FIRST_SECONDS, EIGHTH_SHARE, END_SECONDS = 1.5, 1.2, 1.0
NAPS = 1.0
ROOT = Path(__file__).parent.parent

AGENT = """\
: >"$BENCH/$BW_ISSUE_ID.begun"
sleep "$BENCH_NAP"
echo "$BW_ISSUE_ID" >"new-$BW_ISSUE_ID"
echo "$BW_ISSUE_ID" >>"src/0/${BW_ISSUE_ID#bench-}.txt"
: >"$BENCH/$BW_ISSUE_ID.ended"
"""

AGAIN = """\
set -e
tree=$BENCH/trees/$BENCH_SLOT
cd "$BENCH_TOP"
[ -d "$tree" ] || flock "$BENCH/lock" git worktree add -q --detach "$tree" landing
cd "$tree"
tip=$(git rev-parse landing)  # It may move while checkout looks it up twice.
git checkout -q -B "work/$1" "$tip"
git clean -qfd
BW_ISSUE_ID=bench-$1 sh "$BENCH/agent.sh"
git add -A
git commit -qm "number $1"
sh -c true
flock "$BENCH/lock" git -C "$BENCH/landing" cherry-pick "work/$1" >/dev/null
"""

ADDING = """\
set -e
tree=$BENCH/trees/$1
cd "$BENCH_TOP"
flock "$BENCH/lock" git worktree add -q -b "work/$1" "$tree" landing
cd "$tree"
BW_ISSUE_ID=bench-$1 sh "$BENCH/agent.sh"
git add -A
git commit -qm "number $1"
sh -c true
flock "$BENCH/lock" git -C "$BENCH/landing" cherry-pick "work/$1" >/dev/null
cd "$BENCH_TOP"
flock "$BENCH/lock" git worktree remove "$tree"
git branch -q -D "work/$1"
"""

MAKING = """\
cd "$BENCH_TOP" && git worktree add -q -b "made/$1" "$BENCH/trees/$1" HEAD && : >"$BENCH/$1.made"
"""


@dataclass(slots=True)
class Taken:
    """CPU seconds of all processes beside the agents. ``first``, ``eighth``: seconds from the start
    to these agents; ``end``: from the end of the last agent to the end of everything."""

    cpu: float
    first: float
    eighth: float
    end: float


@dataclass(slots=True)
class Ground:
    """A folder with a new repository for each contestant, of ``files`` files."""

    folder: Path
    files: int
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = {
            f"GIT_{who}_{what}": "bench@localhost"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        # The place of the fleet's worktrees is below HOME.
        self.environment = os.environ | named | {"GIT_CONFIG_GLOBAL": os.devnull}
        self.environment |= {"XDG_CACHE_HOME": str(self.folder / "cache")}
        self.environment |= {"BENCH": str(self.marks), "BENCH_TOP": str(self.top)}
        self.environment |= {"BENCH_NAP": str(NAPS), "PYTHONPATH": str(ROOT)}

    @property
    def top(self) -> Path:
        """The repository."""
        return self.folder / "project"

    @property
    def marks(self) -> Path:
        """Where agents leave their marks, and scripts their worktrees."""
        return self.folder / "bench"

    def begin(self) -> None:
        """Make the repository and the agent anew."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.top.mkdir(parents=True)
        self.marks.mkdir()
        (self.marks / "agent.sh").write_text(AGENT)
        for number in range(self.files):
            file = self.top / "src" / str(number // 100) / f"{number}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{number:010}\n" * 40)
        self.git("init", "--quiet", "--initial-branch=main")
        (self.top / ".gitignore").write_text("/.beads-workers/\n/beads-workers.toml\n")
        self.git("add", ".")
        self.git("commit", "--quiet", "-m", "first")

    def git(self, *arguments: str) -> str:
        """Call it in the repository."""
        return run(["git", *arguments], self.top, self.environment)

    def measured(self, argv: list[str], environment: dict[str, str]) -> Taken:
        """Run a whole drain to its last process, and see what it took."""
        family = [sys.executable, "-m", "benchmarks.tools.family", *argv]
        began = time()
        said = run(family, self.top, self.environment | environment)
        ended = time()
        begun = sorted(mark.stat().st_mtime for mark in self.marks.glob("*.begun"))
        last = max(mark.stat().st_mtime for mark in self.marks.glob("*.ended"))
        cpu = float(said.rsplit("\n", 2)[-2])
        return Taken(cpu, begun[0] - began, begun[WORKERS - 1] - began, ended - last)

    # --- contestants ------------------------------------------------------------------------------

    def fleet(self, issues: int, environment: dict[str, str] | None = None) -> Taken:
        """Ours; ``environment``: variables for this time."""
        self.begin()
        project = embedded(self.top, 1, self.environment)
        agent = json.dumps(["sh", str(self.marks / "agent.sh")])
        (self.top / "beads-workers.toml").write_text(
            f'[agents.napper]\nadapter = "plain"\nargv = {agent}\n'
        )
        asked = ("--until-empty", "-n", str(WORKERS), "--agent", "napper", "--verify", "true")
        # The first issue makes the verdict on the base known, as on any night but the first.
        project.run("start", "--trust", *asked)
        self._forget_marks()
        fill(project, 2, issues)
        taken = self.measured([ours(), "start", "--trust", *asked], environment or {})
        if (closed := project.closed()) != issues:
            raise Broken(f"closed {closed} of {issues}")
        landed = self.git("ls-tree", "--name-only", "bw-landing/main").split()
        if sum(name.startswith("new-") for name in landed) != issues + 1:
            raise Broken("not all has landed")
        return taken

    def script(self, text: str, issues: int) -> Taken:
        """One of the scripts."""
        self.begin()
        (self.marks / "issue.sh").write_text(text)
        self.git("worktree", "add", "-q", "-b", "landing", str(self.marks / "landing"))
        drain = (
            f"seq {issues} | xargs -P{WORKERS} -n1 --process-slot-var=BENCH_SLOT"
            f" sh {self.marks}/issue.sh"
        )
        taken = self.measured(["sh", "-c", drain], {})
        if len(list((self.marks / "landing").glob("new-*"))) != issues:
            raise Broken("the script has not landed everything")
        return taken

    def agents(self, count: int) -> float:
        """CPU seconds of so many agents alone."""
        self._forget_marks()
        each = f"env BW_ISSUE_ID=bench-@ sh {self.marks}/agent.sh"
        alone = f"cd {self.folder} && mkdir -p src/0 && seq {count} | xargs -P{WORKERS} -I@ {each}"
        return self.measured(["sh", "-c", alone], {"BENCH_NAP": "0.1"}).cpu

    def making(self) -> tuple[float, float]:
        """Seconds until the first of eight worktrees stands, made two at a time, and all eight."""
        self.begin()
        (self.marks / "make.sh").write_text(MAKING)
        began = time()
        two = f"seq {WORKERS} | xargs -P2 -n1 sh {self.marks}/make.sh"
        run(["sh", "-c", two], self.top, self.environment)
        made = sorted(mark.stat().st_mtime for mark in self.marks.glob("*.made"))
        return made[0] - began, made[-1] - began

    def _forget_marks(self) -> None:
        for ending in ("begun", "ended"):
            for mark in self.marks.glob(f"*.{ending}"):
                mark.unlink()


# --- counts ---------------------------------------------------------------------------------------


def counted(ground: Ground, few: int, many: int) -> tuple[Counter[str], float]:
    """Return git processes by subcommand, and Python's CPU seconds, of all issues beyond ``few``.

    Not from the rounds: git and Python write down what they do here, which costs time.
    """
    found = []
    for issues in (few, many):
        notes = ground.folder.parent / f"notes-{issues}"
        shutil.rmtree(notes, ignore_errors=True)
        for name in ("git", "python"):
            (notes / name).mkdir(parents=True)
        beside = os.pathsep.join((str(ROOT), str(ROOT / "benchmarks/tools/counted")))
        ground.fleet(
            issues,
            {
                "GIT_TRACE2_EVENT": str(notes / "git"),
                "BENCH_PYTHON": str(notes / "python"),
                "PYTHONPATH": beside,
            },
        )
        seconds = sum(float(note.read_text()) for note in (notes / "python").iterdir())
        found.append((Counter(_commands(notes / "git")), seconds))
    (few_calls, few_seconds), (many_calls, many_seconds) = found
    many_calls.subtract(few_calls)
    return many_calls, many_seconds - few_seconds


def _commands(notes: Path) -> Iterator[str]:
    for note in notes.iterdir():
        for line in note.read_text(errors="replace").splitlines():
            event = json.loads(line)
            if event["event"] == "cmd_name":
                yield event["name"]


# --- figures --------------------------------------------------------------------------------------


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """The cost of an issue in each size of repository; counts and times where 2,000 files are."""
    need("xargs", "findutils")
    few, many = (WORKERS, 2 * WORKERS) if quick else (FEW, MANY)
    figures = list[Figure]()
    for files, goal in SIZES.items():
        if quick and files > 2_000:
            continue
        ground = Ground(folder / str(files), files)
        figures += _costs(ground, rounds, few, many, goal)
        if files == 2_000:
            figures += _counts(ground, few, many)
            figures += _times(ground, rounds)
        shutil.rmtree(folder / str(files))
    return figures


def _costs(
    ground: Ground, rounds: int, few: int, many: int, goal: float | None
) -> Iterator[Figure]:
    ground.begin()
    napping = ground.agents(many) / many
    whole: dict[str, list[float]] = {"ours": [], "again": [], "adding": []}

    def cost(name: str) -> float:
        taken = []
        for issues in (few, many):
            texts = {"again": AGAIN, "adding": ADDING}
            one = ground.script(texts[name], issues) if name in texts else ground.fleet(issues)
            taken.append(one.cpu - napping * issues)
        whole[name].append(taken[1])
        return (taken[1] - taken[0]) / (many - few)

    what = f"night: {ground.files:,} files"
    rows = in_turns(what, rounds, {name: lambda name=name: cost(name) for name in whole})  # type: ignore[misc]
    title = f"{what}: CPU of an issue beside its agent / script that uses its worktrees again"
    yield Figure(title, "s", rows["ours"], rows["again"], goal, paired=True)
    title = f"{what}: the same / script with worktree add"
    yield Figure(title, "s", rows["ours"], rows["adding"], paired=True)
    title = f"{what}: CPU of {many} issues, start and end included / script with worktree add"
    yield Figure(title, "s", tuple(whole["ours"]), tuple(whole["adding"]), ADDING_GOAL, paired=True)


def _counts(ground: Ground, few: int, many: int) -> Iterator[Figure]:
    calls, seconds = counted(ground, few, many)
    issues, what = many - few, f"night: {ground.files:,} files"
    each = {name: count / issues for name, count in calls.most_common()}
    say(", ".join(f"{name} {count:.2f}" for name, count in each.items() if count >= 0.05))
    yield Figure(
        f"{what}: processes of git for an issue", "", (sum(each.values()),), goal=PROCESSES_GOAL
    )
    for name, count in each.items():
        if count >= 0.5:
            yield Figure(f"{what}: of these, {name}", "", (count,))
    yield Figure(f"{what}: CPU of Python for an issue", "s", (seconds / issues,), goal=PYTHON_GOAL)


def _times(ground: Ground, rounds: int) -> Iterator[Figure]:
    firsts, eighths, ends = list[float](), list[float](), list[float]()
    for number in range(rounds):
        one, all_made = ground.making()
        taken = ground.fleet(WORKERS)
        firsts.append(taken.first - one)
        eighths.append(taken.eighth - EIGHTH_SHARE * all_made)
        ends.append(taken.end)
        say(
            f"times, round {number + 1} of {rounds}: first agent {taken.first:.2f} (script"
            f" {one:.2f}), eighth {taken.eighth:.2f} (script {all_made:.2f}), end {taken.end:.2f}"
        )
    what = f"night: {ground.files:,} files"
    yield Figure(
        f"{what}: first agent, less the script's first worktree",
        "s",
        tuple(firsts),
        goal=FIRST_SECONDS,
    )
    yield Figure(
        f"{what}: eighth agent, less {EIGHTH_SHARE} times the script's eight",
        "s",
        tuple(eighths),
        goal=FIRST_SECONDS,
    )
    yield Figure(f"{what}: from the last agent to the end", "s", tuple(ends), goal=END_SECONDS)
