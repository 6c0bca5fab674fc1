"""No-op tasks a second, eight at a time: the embedded tracker, against what people use instead.

Ours is the whole of ``start``: Python's start-up, the orchestrator, eight workers, claims, the
journal and its syncs, and every issue closed on disk. Creating the issues is left out, and so is
filling the queues of pueue and task-spooler. xargs and GNU parallel read numbers from a file, and
keep neither results nor a log. All run under the same few environment variables, because GNU
parallel is the slower the more of them there are. Rates are compared: the slow ones get few tasks.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.tools.fetching import Missing
from benchmarks.tools.figures import Figure, Goal, Measure, in_turns, say
from benchmarks.tools.fleets import Broken, embedded
from benchmarks.tools.peers import Parallel, Peer, Xargs, environment
from benchmarks.tools.queues import Pueue, Spooler

WORKERS = 8
FEW, MANY = 1000, 5000
GOALS = {FEW: 0.6, MANY: 0.75}
"""At least so many times the rate of xargs."""
PARALLEL_GOAL = 3.0
OTHERS: tuple[type[Peer], ...] = (Parallel, Pueue, Spooler)


def measure(rounds: int, quick: bool, folder: Path) -> list[Figure]:
    """Tasks a second; each peer in the same rounds."""
    share = 10 if quick else 1
    few_variables = environment(folder)

    def ours(issues: int) -> float:
        project = embedded(folder / "ours", issues, few_variables)
        seconds = project.timed_start("-n", str(WORKERS), "--until-empty", "--", "true")
        if project.closed() != issues:
            raise Broken(f"closed {project.closed()} of {issues}")
        shutil.rmtree(project.folder)
        return issues / seconds

    few, many = FEW // share, MANY // share
    measures: dict[str, Measure] = {}
    for issues in (few, many):
        measures[f"ours {issues}"] = lambda issues=issues: ours(issues)  # type: ignore[misc]
        measures[f"xargs {issues}"] = _rate(Xargs(folder, WORKERS), issues)
    others: dict[str, str] = {}
    for kind in OTHERS:
        try:
            peer = kind(folder, WORKERS)
        except Missing as missing:
            say(f"tasks: not compared with {kind.name}: {missing}")
            continue
        others[kind.name] = f"{kind.name} {kind.tasks // share}"
        measures[others[kind.name]] = _rate(peer, kind.tasks // share)
    rows = in_turns("tasks a second", rounds, measures)

    figures = []
    for issues, goal in zip((few, many), GOALS.values(), strict=True):
        mine, theirs = rows[f"ours {issues}"], rows[f"xargs {issues}"]
        name = f"tasks: {issues} x true, {WORKERS} workers / xargs -P{WORKERS}"
        figures.append(Figure(name, "tasks/s", mine, theirs, goal, Goal.AT_LEAST, paired=True))
    for name, row in others.items():
        goal_here = PARALLEL_GOAL if name == Parallel.name else None
        title = f"tasks: {few} x true, {WORKERS} workers / {name}"
        mine, theirs = rows[f"ours {few}"], rows[row]
        figures.append(
            Figure(title, "tasks/s", mine, theirs, goal_here, Goal.AT_LEAST, paired=True)
        )
    return figures


def _rate(peer: Peer, tasks: int) -> Measure:
    return lambda: tasks / peer.seconds(tasks)
