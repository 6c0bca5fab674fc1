"""The plan of a chaos: kills, their times, and the work; all of it follows from the seed.

The same seed strikes the same blows at the same intervals. Their effects differ: real processes are
never twice at the same point.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

PREFIX = "chaos"
FREEZE_SHARE = 0.12
"""Share of blows that only freeze (SIGSTOP, then SIGCONT); they come on top of the kills."""
FREEZE_SECONDS = (0.05, 1.2)


class Target(Enum):
    """Kind of victim of a blow."""

    ORCHESTRATOR = "orchestrator"
    WORKER = "worker"
    TASK = "task"
    ZYGOTE = "zygote"
    BD = "bd"
    LANDER = "lander"
    GATE = "gate"
    EVERYTHING = "everything at once"


class TaskKind(Enum):
    """Kind of task: what the command of an issue does, after a sleep."""

    FINE = "fine"
    FAILS_ONCE = "fails-once"
    LATER_ONCE = "later-once"
    """Exits with status 75 the first time: a retry that charges nothing."""
    STUBBORN = "stubborn"
    """Ignores TERM."""
    ESCAPES = "escapes"
    """Leaves a process behind that forked twice, leads its own session and ignores TERM."""
    HOPELESS = "hopeless"
    """Fails every time."""
    BREAKS = "breaks"
    """Succeeds, but its branch does not pass the gate; only if branches land."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Speed on a tracker: seconds between blows, issues of one round, task lengths in seconds.

    ``at_work``: an orchestrator is hit only while this many workers run a task.
    """

    interval_seconds: float
    issues: int
    task_seconds: tuple[float, float]
    at_work: int = 0


PACES = {"sqlite": Pace(0.5, 48, (0.02, 0.5)), "bd": Pace(1.0, 16, (0.2, 2.0))}
LANDING_PACE = Pace(1.5, 24, (0.02, 0.8))
"""Pace with landing: an attempt first makes a worktree, and a start the lander, so there must be
time to land something between two blows."""


def pace(source: str, only: Target | None, workers: int, *, landing: bool = False) -> Pace:
    """Return the pace; a chaos that only kills orchestrators hits each in the middle of its
    work."""
    if landing:
        return LANDING_PACE
    if only is not Target.ORCHESTRATOR:
        return PACES[source]
    # Long enough that every worker gets a task before the first worker has finished.
    return Pace(0.2, 3 * workers, (1.0, 3.0), at_work=workers)


@dataclass(frozen=True, slots=True)
class Blow:
    """A blow, ``wait_seconds`` after the one before."""

    target: Target
    wait_seconds: float
    # From 0 to 1; selects one of several victims.
    pick: float
    # 0 is a kill.
    freeze_seconds: float = 0.0
    # The blow waits until this many workers run a task.
    at_work: int = 0


WEIGHTS = {
    Target.ORCHESTRATOR: 34,
    Target.WORKER: 26,
    Target.TASK: 20,
    Target.ZYGOTE: 8,
    Target.BD: 0,
    Target.EVERYTHING: 4,
}
BD_WEIGHT = 25
"""Weight of ``bd``, whose calls can be killed only with that source."""

LANDING_WEIGHTS = {
    Target.ORCHESTRATOR: 26,
    Target.LANDER: 22,
    Target.GATE: 18,
    Target.WORKER: 10,
    Target.TASK: 8,
    Target.ZYGOTE: 4,
    Target.EVERYTHING: 12,
}

KINDS = {
    TaskKind.FINE: 76,
    TaskKind.FAILS_ONCE: 9,
    TaskKind.LATER_ONCE: 4,
    TaskKind.STUBBORN: 5,
    TaskKind.ESCAPES: 5,
    TaskKind.HOPELESS: 1,
}
LANDING_KINDS = KINDS | {TaskKind.BREAKS: 6}


def weights_of(source: str, only: Target | None, *, landing: bool = False) -> dict[Target, int]:
    """Return the weight of each kind of victim; with ``only``, just that one."""
    weights = LANDING_WEIGHTS if landing else WEIGHTS
    return {only: 1} if only else weights | ({Target.BD: BD_WEIGHT} if source == "bd" else {})


def blows(seed: int, kills: int, pace: Pace, weights: dict[Target, int]) -> Iterator[Blow]:
    """Yield blows: this many kills, with freezes in between."""
    chance = random.Random(f"blows {seed}")
    while kills:
        (target,) = chance.choices([*weights], [*weights.values()])
        # Mostly while work is done, and now and then right after the last blow: in a start or a
        # recovery.
        at_work = pace.at_work or int(chance.random() < 0.7)
        wait = chance.uniform(0.0, 1.4 if at_work else 0.5) * pace.interval_seconds
        freeze = 0.0
        if target is not Target.EVERYTHING and chance.random() < FREEZE_SHARE:
            freeze = chance.uniform(*FREEZE_SECONDS)
        yield Blow(target, wait, chance.random(), freeze, at_work)
        kills -= not freeze


def issue_rows(
    seed: int, number: int, pace: Pace, kinds: Mapping[TaskKind, int] = KINDS
) -> list[dict[str, object]]:
    """Return the issues of a round (from 1) as rows of beads' JSON Lines; the title is the task."""
    chance = random.Random(f"issues {seed} {number}")
    date = "2026-01-02T03:04:05Z"
    rows: list[dict[str, object]] = []
    for each in range(1, pace.issues + 1):
        (kind,) = chance.choices([*kinds], [*kinds.values()])
        seconds = chance.uniform(*pace.task_seconds)
        rows.append(
            {
                "id": f"{PREFIX}-{number}x{each}",
                "title": f"{kind.value} {seconds:.3f}",
                # bd 0.44 imports only one of two issues that differ in their ids alone.
                "description": f"{number}x{each}",
                "status": "open",
                "priority": chance.randrange(5),
                "issue_type": "task",
                "created_at": date,
                "updated_at": date,
            }
        )
    return rows


def as_lines(rows: list[dict[str, object]]) -> bytes:
    """Return rows as a file to import."""
    return b"".join(json.dumps(row).encode("ascii") + b"\n" for row in rows)
