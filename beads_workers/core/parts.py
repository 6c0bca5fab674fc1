"""The parts of one orchestrator, made together and handed to whoever ties them."""

from __future__ import annotations

from dataclasses import dataclass, field

from beads_workers.core.crew import Crew
from beads_workers.core.desk import Desk
from beads_workers.core.hindrances import Hindrances
from beads_workers.core.lane import Lane
from beads_workers.core.leases import Leases
from beads_workers.core.ledger import Ledger
from beads_workers.core.records import Listed
from beads_workers.core.roster import Roster
from beads_workers.core.settings import FleetSettings
from beads_workers.core.states import RunState
from beads_workers.core.storm import Storm
from beads_workers.core.tasks import Tasks
from beads_workers.core.traces import Traces

BY_HAND = "a person asked for it"
"""The reason of a pause that needs no explanation."""


@dataclass(slots=True)
class Parts:
    """``state``: of the run, changed only in ``endings``; ``state_reason``: why. ``reason``: of the
    coming SHUTDOWN.

    ``literal``: on this source a plain v1 worker claims and closes by itself. ``listed``: what the
    last listing showed; kept by ``intake``. ``pushed``: work comes to the source by itself, and
    somebody waits for its answer.
    """

    settings: FleetSettings
    run_id: str
    literal: bool
    pushed: bool
    desk: Desk
    roster: Roster
    crew: Crew
    lane: Lane
    ledger: Ledger
    storm: Storm
    tasks: Tasks
    traces: Traces
    hindrances: Hindrances
    leases: Leases
    state: RunState = RunState.RECOVERING
    state_reason: str = ""
    reason: str = "user_requested"
    listed: Listed = field(default_factory=Listed)


def make_parts(
    settings: FleetSettings, run_id: str, now: float, *, literal: bool, pushed: bool
) -> Parts:
    """Everything new and empty."""
    desk = Desk(now)
    lane = Lane(desk, pushed=pushed)
    ledger = Ledger(desk.timers)
    storm = Storm(desk, lane, ledger)
    traces = Traces(settings.tracing, keeps=not settings.policy.hand_back)
    tasks = Tasks(desk, lane, ledger, storm, settings.policy, run_id, traces)
    return Parts(
        settings,
        run_id,
        literal,
        pushed,
        desk,
        Roster(),
        Crew(desk),
        lane,
        ledger,
        storm,
        tasks,
        traces,
        Hindrances(desk),
        Leases(desk, tasks, settings.work.term_grace_seconds),
    )
