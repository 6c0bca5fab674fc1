"""Requirements of the machine."""

from __future__ import annotations

from pathlib import Path

from beads_workers.checks import leftovers, machine
from beads_workers.checks.condition import CheckedBy, Condition, Found, Stage, skip
from beads_workers.checks.plan import FleetPlan


def _disk(plan: FleetPlan) -> Found:
    tracker = Path(plan.doctor_input.fleet.tracker) if plan.doctor_input.fleet else plan.folder
    places = [(plan.state, "the run directory"), (tracker, "the tracker")]
    return machine.disk([*places, (leftovers.TMP, str(leftovers.TMP))])


def _has_agents(plan: FleetPlan) -> bool:
    return bool(plan.agents)


CONDITIONS = (
    Condition(
        Stage.MACHINE,
        "python",
        "which Python and which beads-workers this is",
        lambda plan: machine.python(),
        asked=CheckedBy.BY_DOCTOR,
    ),
    Condition(
        Stage.MACHINE,
        "kernel",
        "Linux 5.3 or later, and /proc is mounted",
        lambda plan: machine.kernel(),
    ),
    Condition(
        Stage.ROOM,
        "disk",
        "32 MB and 200 files are free for the run directory, the tracker and /tmp",
        _disk,
        skip("disk"),
    ),
    Condition(
        Stage.ROOM,
        "files",
        "each worker can have a file open",
        lambda plan: machine.file_limit(plan.workers),
        skip("files"),
    ),
    Condition(
        Stage.ROOM,
        "processes",
        "the limit of processes leaves room for the workers and their tasks",
        lambda plan: machine.processes(plan.workers, agent=_has_agents(plan)),
        skip("processes"),
    ),
    Condition(
        Stage.ROOM,
        "memory",
        "memory for the workers is available; less is a warning",
        lambda plan: machine.memory(plan.workers, agent=_has_agents(plan)),
    ),
    Condition(
        Stage.FLEET,
        "clock",
        "the clock is sane: not before 2025, nor before the end of the last run",
        lambda plan: machine.clock(leftovers.last_seen(plan.state)),
        skip("clock"),
    ),
    Condition(
        Stage.FLEET,
        "ntp",
        "whether anything keeps the clock",
        lambda plan: machine.ntp(),
        asked=CheckedBy.BY_DOCTOR,
    ),
)
