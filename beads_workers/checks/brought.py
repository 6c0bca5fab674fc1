"""What a start would run of all that came with a project, and what of it is not trusted."""

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
    """What this start would run, and the user has not said yes to."""
    if plan.options.trust == TRUST_ALL:
        return []
    return _each_once([*plan.resolved.untrusted, *planted(plan)])


def untrusted_hooks(plan: FleetPlan) -> list[RiskyLine]:
    """Of that, what runs as soon as an issue changes in the tracker."""
    return [] if plan.options.trust == TRUST_ALL else list(hooks(plan))


def everything(plan: FleetPlan) -> list[RiskyLine]:
    """All that any start would run here, whether it is trusted or not."""
    resolved = plan.resolved
    if in_repository(plan.folder):
        resolved = replace(resolved, options=replace(resolved.options, worktree=True))
    others = planted(FleetPlan(resolved, plan.said_kind), new=False, any_agent=True)
    return _each_once([*resolved.trusted, *resolved.untrusted, *others])


def record(plan: FleetPlan) -> None:
    """What a start runs is trusted: it stays so when it is committed. Not if it was let through."""
    if plan.options.trust is not None:
        return
    file = plan.resolved.file
    with suppress(OSError):  # Then it is asked about again.
        trust(
            [*plan.resolved.trusted, *planted(plan, new=False)],
            *(plan.folder, *([file.parent] if file else [])),
        )


def _each_once(lines: Iterable[RiskyLine]) -> list[RiskyLine]:
    return list({(line.folder, line.digest): line for line in lines}.values())
