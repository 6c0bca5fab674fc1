"""The agents of a fleet: installed, answering, logged in, and held by guards."""

from __future__ import annotations

from beads_workers.checks.condition import CheckedBy, Condition, Found, Stage, skip
from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.rules import met


def _all(plan: FleetPlan) -> Found:
    if not plan.agents or plan.is_all_away:
        return None
    from beads_workers.checks import agents  # Only for fleets with agents.

    return [line for each in plan.agents for line in agents.agent(each, plan.folder)]


def _reviewer(plan: FleetPlan) -> Found:
    review = met(plan.review)
    if review is None or plan.is_all_away:
        return None
    from beads_workers.checks import agents

    return agents.reviewer(review, plan.agents, plan.folder)


def _guards(plan: FleetPlan) -> Found:
    if not plan.agents:
        return None
    from beads_workers.checks import agents

    review = met(plan.review)
    everyone = [*plan.agents, *([review] if review and review not in plan.agents else [])]
    return agents.guards(everyone, agents.tools_here(plan.folder), plan.folder)


CONDITIONS = (
    Condition(
        Stage.AGENTS,
        "agent",
        "each agent is installed, answers --version, may run as this user, and is logged in",
        _all,
        skip("agent"),
        CheckedBy.BESIDE,
    ),
    Condition(
        Stage.AGENTS,
        "review",
        "so does the agent of --review",
        _reviewer,
        skip("review"),
        CheckedBy.BESIDE,
    ),
    Condition(
        Stage.AGENTS,
        "guards",
        "git can refuse an agent's push (2.31 or later)",
        _guards,
        skip("guards"),
        CheckedBy.BESIDE,
    ),
)
