"""The command that checks the work."""

from __future__ import annotations

import shlex

from beads_workers.checks import programs
from beads_workers.checks.condition import Condition, Found, Stage
from beads_workers.checks.conditions.settings import edit
from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.rules import Check, met, ok, warn
from beads_workers.core.base.text import printable
from beads_workers.options import FILE_NAME


def _verify(plan: FleetPlan) -> Found:
    line = plan.options.work.verify
    if line:
        return programs.verify(line, plan.folder)
    if plan.tracker is None or plan.command is not None or plan.options.executor:
        return None
    return _unverified(plan)


def _unverified(plan: FleetPlan) -> Check | None:
    from beads_workers.checks.verify import propose, shown  # It reads TOML and JSON.

    found, review = propose(plan.folder), met(plan.review)
    if not any(each.adapter for each in plan.agents):
        return ok("verify", f"none is set; proposed: {shown(found)}") if found else None
    name = printable(review.name, 40) if review is not None else ""
    who = f"only {name} looks at the work" if name else "nothing is verified"
    if found is None or not found.line:
        text = f"{who}: what an agent calls done is closed. No command that checks was recognised"
        text += f"; proposed: {shown(found)}" if found else ""
        own = f"touch {shlex.quote(str(plan.folder / FILE_NAME))}"
        return warn("verify", text, edit(plan.resolved.file) or own)
    text = f"{who}; proposed: {shown(found)}"
    return warn("verify", text, "beads-workers config verify --write")


CONDITIONS = (
    Condition(
        Stage.VERIFY,
        "verify",
        "the line of --verify is one that a shell understands; agents without one are a warning",
        _verify,
    ),
)
