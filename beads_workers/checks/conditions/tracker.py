"""The tracker: found, writable, answering, and with the named issues in it."""

from __future__ import annotations

from functools import partial

from beads_workers.checks import project
from beads_workers.checks.condition import CheckedBy, Condition, Found, Stage
from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.rules import Check, met


def _found(plan: FleetPlan) -> Found:
    found = plan.tracker
    if isinstance(found, Check):
        return found
    return project.both_here(found, plan.resolved.file) if found is not None else None


def _writable(plan: FleetPlan) -> Found:
    found = met(plan.tracker)
    # A kind that locates its tracker also checks the access to it.
    if found is None or (plan.said_kind is not None and plan.said_kind.locate is not None):
        return None
    return project.access(found.place)


def _opens(plan: FleetPlan) -> Found:
    found = plan.commands_brought
    return found if isinstance(found, Check) else None


def _answers(plan: FleetPlan) -> Found:
    kind = plan.kind
    if isinstance(plan.commands_brought, Check):
        return None  # Another condition reports that the tracker cannot be opened.
    if kind is None or not (plan.doctor_input.fleet or plan.is_pushed):
        return None
    from beads_workers.checks.tracker import tracker  # Only doctor loads bd's modules.

    return (kind.checks or tracker)(plan.doctor_input)


def _named(plan: FleetPlan) -> Found:
    return project.named_issues(plan.plain) if plan.issues and plan.plain is not None else None


_tracker = partial(Condition, Stage.TRACKER, "tracker")

CONDITIONS = (
    _tracker(
        "there is a tracker here or above, of the kind of --source, and of this user",
        _found,
        typed=("source",),
    ),
    _tracker("this user may write the tracker's files", _writable),
    _tracker("a built-in tracker can be opened", _opens),
    _tracker(
        "the source answers, its program is installed and new enough, and nothing is in its way",
        _answers,
        # A starting fleet asks the same, and start ends with its message.
        asked=CheckedBy.BY_DOCTOR,
    ),
    Condition(
        Stage.TRACKER,
        "issues",
        "issues that are named exist; a closed one is a warning",
        _named,
        asked=CheckedBy.BESIDE,
    ),
)
