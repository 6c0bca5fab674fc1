"""What a task costs as fleet, backlog and history grow: CPU time of the orchestrator, all threads.

By raw workers that talk (``tools.clients``): real processes would take most of the machine, and
nothing of them is the orchestrator's cost. At the same rate for every size, because a busier
loop does more in one turn. All sizes live side by side and are driven in turn.

History: a hundred thousand tasks by workers that only talk; before and after it, what a task
costs, what ``status --json`` costs, and how much memory the orchestrator takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.dispatch import orchestrator
from benchmarks.tools.clients import Fleet
from benchmarks.tools.commands import Taken, timed, typical
from benchmarks.tools.figures import Figure, say
from benchmarks.tools.fleets import Project, fill, ours
from benchmarks.tools.processes import cpu_seconds, resident_bytes
from benchmarks.tools.talkers import Talkers

GOAL = 1.2
RATE = 400
"""Tasks a second: far from what the loop can do, even beside others on a busy machine."""
SPREAD = 0.3
SECONDS = 3.0
WORKERS = (10, 100, 1000)
BACKLOG_WORKERS, BACKLOGS = 10, (100, 10_000, 100_000)
TALKERS, HISTORY, SAMPLE = 100, 100_000, 2000


@dataclass(slots=True)
class Driven:
    """One size: its orchestrator, its workers, and the issues that it has been given."""

    project: Project
    pid: int
    fleet: Fleet
    issues: int

    def cost(self, seconds: float) -> float:
        """Microseconds of CPU time for each task, over so many seconds."""
        # What this takes is put in first: the backlog ends as large as it was.
        more = int(RATE * seconds)
        fill(self.project, self.issues + 1, more)
        self.issues += more
        before = cpu_seconds(self.pid)
        tasks = len(self.fleet.run_for(seconds))
        self.fleet.pause()
        return 1e6 * (cpu_seconds(self.pid) - before) / tasks


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """Microseconds for each task; then milliseconds, bytes and MB."""
    seconds = 0.5 if quick else SECONDS
    by_workers = {n: (n, 2 * n + 100) for n in WORKERS}
    by_backlog = {n // 10 if quick else n: (BACKLOG_WORKERS, n) for n in BACKLOGS}
    if quick:
        by_backlog = {n: (workers, n) for n, (workers, _) in by_backlog.items()}
    figures = list(_sizes("workers", by_workers, rounds, seconds, folder / "workers"))
    figures += _sizes("issues in the backlog", by_backlog, rounds, seconds, folder / "backlog")
    return [*figures, *_history(HISTORY // 50 if quick else HISTORY, folder / "history")]


def _sizes(
    what: str, sizes: dict[int, tuple[int, int]], rounds: int, seconds: float, folder: Path
) -> Iterator[Figure]:
    rows: dict[int, list[float]] = {size: [] for size in sizes}
    with ExitStack() as stack:
        driven = {
            size: _driven(stack, folder / f"{size}", workers, backlog)
            for size, (workers, backlog) in sizes.items()
        }
        for number in range(rounds):
            for size in sizes if number % 2 == 0 else reversed(sizes):
                rows[size].append(driven[size].cost(seconds))
            text = ", ".join(f"{size:,}: {row[-1]:.0f} us" for size, row in rows.items())
            say(f"growth, {what}, round {number + 1} of {rounds}: {text}")
    least, *more = (tuple(row) for row in rows.values())
    few, *many = sizes
    for size, row in zip(many, more, strict=True):
        name = f"growth: CPU per task, {size:,} {what} / {few:,}"
        yield Figure(name, "us", row, least, GOAL, paired=True)


def _driven(stack: ExitStack, where: Path, workers: int, backlog: int) -> Driven:
    work = workers / RATE
    # Each works on one, and the first of each is not counted.
    issues = backlog + 2 * workers
    path = stack.enter_context(orchestrator(where, issues))
    fleet = stack.enter_context(Fleet(path, workers, work, spread=SPREAD))
    fleet.run_for(work)
    fleet.pause()
    project = Project(where)
    return Driven(project, int(project.status()["pid"]), fleet, issues)


@dataclass(frozen=True, slots=True)
class Moment:
    """Of a run: what a task costs (microseconds), ``status``, and the orchestrator's memory."""

    task: float
    status: Taken
    memory: int


def _history(tasks: int, where: Path) -> Iterator[Figure]:
    with orchestrator(where, tasks + 3 * SAMPLE) as path, Talkers(path, TALKERS) as talkers:
        project = Project(where)
        pid = int(project.status()["pid"])
        talkers.dispatches(TALKERS + SAMPLE // 4)
        young = _moment(project, pid, talkers)
        say(f"growth: {tasks:,} tasks...")
        talkers.dispatches(tasks)
        old = _moment(project, pid, talkers)
        size = project.journal_bytes()
    after = typical(lambda: timed([ours(), "status", "--json"], where, (3,)), 5)
    name = f"after {tasks:,} tasks"
    bare = f"growth: {name} / at first:"
    yield Figure(f"{bare} CPU per task", "us", (old.task,), (young.task,), GOAL)
    yield Figure(f"{bare} status, CPU", "ms", *_pair(old.status.cpu, young.status.cpu, 1e3))
    yield Figure(f"{bare} status, size", "bytes", *_pair(old.status.printed, young.status.printed))
    yield Figure(f"{bare} orchestrator", "MB", *_pair(old.memory, young.memory, 1e-6))
    yield Figure(f"growth: journal {name}", "bytes/task", (size / (tasks + 2 * SAMPLE),))
    yield Figure(f"growth: status {name}, no fleet", "ms", (1e3 * after.cpu,))


def _pair(old: float, young: float, factor: float = 1.0) -> tuple[tuple[float], tuple[float]]:
    return (old * factor,), (young * factor,)


def _moment(project: Project, pid: int, talkers: Talkers) -> Moment:
    before = cpu_seconds(pid)
    talkers.dispatches(SAMPLE)
    task = 1e6 * (cpu_seconds(pid) - before) / SAMPLE
    shown = typical(lambda: timed([ours(), "status", "--json"], project.folder), 5)
    return Moment(task, shown, resident_bytes(pid))
