"""The run directory, leftovers of earlier runs, and other fleets here."""

from __future__ import annotations

import shlex
import time

from beads_workers.checks import leftovers
from beads_workers.checks.condition import CheckedBy, Condition, Found, Stage
from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.rules import met, ok
from beads_workers.runtime import live_page
from beads_workers.runtime.run_directory import tracker_folder


def _leftovers(plan: FleetPlan) -> Found:
    is_typed = plan.resolved.origin["state_dir"] == "command line"
    typed = f" --state-dir {shlex.quote(str(plan.state))}" if is_typed else ""
    return leftovers.leftovers(plan.state, typed)


def _fleet(plan: FleetPlan) -> Found:
    if (running := leftovers.living(plan.state)) is not None:
        return running
    tracker = met(plan.tracker)
    if tracker is not None:
        folder = tracker_folder(str(tracker.place))
        if (other := leftovers.elsewhere(folder)) is not None:
            return other
    return ok("fleet", "none is running here")


def _page(plan: FleetPlan) -> Found:
    page = live_page.lingering(plan.state)
    return [] if page is None else ok("page", live_page.shown(page, time.time()))


CONDITIONS = (
    Condition(
        Stage.STATE,
        "state",
        "the run directory is of this user and writable, and can lock files and bind sockets",
        lambda plan: leftovers.state(plan.state),
    ),
    Condition(
        Stage.STATE,
        "sockets",
        "/tmp is writable, and can bind sockets",
        lambda plan: leftovers.sockets(),
    ),
    Condition(
        Stage.STATE,
        "leftovers",
        "earlier runs left nothing unsettled; what they left is a warning",
        _leftovers,
        asked=CheckedBy.BY_DOCTOR,  # The next start settles it.
    ),
    Condition(
        Stage.STATE,
        "slots",
        "no world of a worktree waits to be torn down; one is a warning",
        lambda plan: leftovers.owed(plan.state),
        asked=CheckedBy.BY_DOCTOR,  # The next start or clean tears it down.
    ),
    Condition(
        Stage.FLEET,
        "fleet",
        "no other fleet works here; one is a warning",
        _fleet,
        # Two starts may race: the lock decides, and start ends with exit 5.
        asked=CheckedBy.BY_DOCTOR,
    ),
    Condition(
        Stage.FLEET,
        "page",
        "how long the live page of an earlier start is served, and what ends it",
        _page,
        asked=CheckedBy.BY_DOCTOR,
    ),
)
