"""Requirements of other machines on which attempts run."""

from __future__ import annotations

from collections.abc import Iterator

from beads_workers import registry
from beads_workers.checks import fleet
from beads_workers.checks.condition import CheckedBy, Condition, Found, Stage, skip
from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.rules import Check, misused, ok, warn
from beads_workers.core.base.settings import PlaceSettings


def _named(plan: FleetPlan) -> Found:
    try:
        workers, places = fleet.slots_of(plan.resolved)
    except ValueError as error:
        return misused("places", str(error), "see docs/MACHINES.md")
    if not places:
        return None
    if plan.is_pushed or plan.options.executor or plan.options.work.allow_modules:
        return misused("places", "only commands and agents run on other machines", "leave --on out")
    if plan.options.tracking.bd_calls == "worker":
        text = "a worker on another machine has no tracker"
        return misused("places", text, "leave --bd-calls worker out")
    away = ", ".join(f"{each.name} ({each.engine}, {each.slots})" for each in places)
    here = workers - sum(each.slots for each in places)
    return ok("places", f"{away}; {here} here")


def _reached(plan: FleetPlan) -> Found:
    settings = plan.settings
    if settings is None or not settings.places:
        return None
    found = registry.need("hosts").look(settings, settings.places)
    if not settings.workers_here and all(why for _, _, why in found):
        whys = "; ".join(f"{place.name}: {why}" for place, _, why in found)
        return misused("hosts", whys, "no place is reached")
    return list(_lines(found))


def _lines(found: list[tuple[PlaceSettings, str, str]]) -> Iterator[Check]:
    for place, has, why in found:
        if why:
            hint = "it is asked again while the others work"
            yield warn("hosts", f"{place.name}: {why}", hint=hint)
        else:
            yield ok("hosts", f"{place.name}: {has}")


CONDITIONS = (
    Condition(
        Stage.SETTINGS,
        "places",
        "`--on` names places that are known, and what runs there can run there",
        _named,
        typed=("on",),
    ),
    Condition(
        Stage.WORK,
        "hosts",
        "a place is reached, and has Python 3.11, git, the agents and room",
        _reached,
        skip("hosts"),
        asked=CheckedBy.BESIDE,
    ),
)
