"""Lines of a project that a start would run, and those that are not trusted."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.planted import hooks, planted
from beads_workers.checks.trust import trust
from beads_workers.options import TRUST_ALL, RiskyLine
from beads_workers.runtime.trust import in_repository


def untrusted(plan: FleetPlan) -> list[RiskyLine]:
    """Return the lines that this start would run and the user has not trusted."""
    if plan.options.trust == TRUST_ALL:
        return []
    return _each_once([*plan.resolved.untrusted, *planted(plan)])


def untrusted_hooks(plan: FleetPlan) -> list[RiskyLine]:
    """Return the untrusted hooks, which run as soon as an issue changes in the tracker."""
    return [] if plan.options.trust == TRUST_ALL else list(hooks(plan))


def everything(plan: FleetPlan) -> list[RiskyLine]:
    """Return the lines that any start would run here, whether trusted or not."""
    resolved = plan.resolved
    if in_repository(plan.folder):
        resolved = replace(resolved, options=replace(resolved.options, worktree=True))
    others = planted(FleetPlan(resolved, plan.said_kind), new=False, any_agent=True)
    return _each_once([*resolved.trusted, *resolved.untrusted, *others])


def record(plan: FleetPlan) -> None:
    """Trust what this start runs, so that it stays trusted when it is committed.

    Nothing is recorded if ``--trust`` let it through.
    """
    if plan.options.trust is not None:
        return
    file = plan.resolved.file
    with suppress(OSError):  # Then the next start asks again.
        trust(
            [*plan.resolved.trusted, *planted(plan, new=False)],
            *(plan.folder, *([file.parent] if file else [])),
        )


def _each_once(lines: Iterable[RiskyLine]) -> list[RiskyLine]:
    return list({(line.folder, line.digest): line for line in lines}.values())
