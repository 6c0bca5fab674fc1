"""The check of what lands tests the branch, and not the user's checkout."""

from __future__ import annotations

from beads_workers.checks.condition import CheckedBy, Condition, Found, Stage
from beads_workers.checks.plan import FleetPlan
from beads_workers.core.base.settings import FleetSettings


def _landing(plan: FleetPlan) -> FleetSettings | None:
    settings = plan.settings
    lands = settings is not None and settings.landing is not None
    return settings if lands and settings is not None and settings.work.verify else None


def _sees(plan: FleetPlan) -> Found:
    if (settings := _landing(plan)) is None:
        return None
    from beads_workers.checks import base, sees  # Only such a start loads the gate's modules.

    # A client that detaches after the start could not be told of a later failure.
    waits = not plan.owned
    seen = sees.check_sees(base.lander_settings(settings), plan.progress, waits=waits)
    plan.proof, plan.proving = seen.proof, seen.process
    return seen.check


def _known(plan: FleetPlan) -> Found:
    if (settings := _landing(plan)) is None:
        return None
    from beads_workers.checks import sees

    return sees.known(settings)


HOLDS = "what lands is verified by a check that tests the branch, and not the user's checkout"

CONDITIONS = (
    Condition(
        Stage.LANDING, "sees", f"{HOLDS}: what is known of it", _known, "", CheckedBy.BY_DOCTOR
    ),
    Condition(
        Stage.SEES,
        "sees",
        f"{HOLDS}; one that depends on no source is a warning",
        _sees,
        "--skip-base-check",
        CheckedBy.AT_THE_END,
    ),
)
