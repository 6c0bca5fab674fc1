"""The repository that tasks work in."""

from __future__ import annotations

from beads_workers.checks.condition import CheckedBy, Condition, Found, Stage
from beads_workers.checks.plan import FleetPlan


def _git(plan: FleetPlan) -> Found:
    from beads_workers.checks import repository  # Only doctor needs it.

    return repository.git(plan.folder, agent=bool(plan.agents), in_worktrees=plan.wants_worktrees)


CONDITIONS = (
    Condition(
        Stage.GIT,
        "git",
        "what tasks change can be undone: a clean repository, and a name to commit with; less is a"
        " warning",
        _git,
        asked=CheckedBy.BY_DOCTOR,  # No result of it prevents a start.
    ),
)
