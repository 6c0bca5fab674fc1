"""Worktrees: attempts are kept out of each other's way."""

from __future__ import annotations

from pathlib import Path

from beads_workers.checks import machine, worktrees
from beads_workers.checks.condition import Condition, Found, Stage, skip
from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.rules import Check, met, ok


def _can_be_made(plan: FleetPlan) -> Found:
    found = plan.worktrees
    if isinstance(found, Check):
        return found
    if found is not None:
        text = f"each attempt gets one of its own, from {found.base_name}, in {found.folder}"
        return ok("worktree", text)
    work = met(plan.work)
    if work is not None and work.agent is not None and not plan.is_pushed:
        return worktrees.crowd(work, plan.options) or ok(
            "worktree", "none: what runs, runs in the project's own folder"
        )
    return None


def _room(plan: FleetPlan) -> Found:
    found = met(plan.worktrees)
    return machine.below_floor(Path(found.folder), found.disk_floor_bytes) if found else None


def _copies(plan: FleetPlan) -> Found:
    found = met(plan.worktrees)
    return worktrees.patterns_without_files(found) if found is not None else None


CONDITIONS = (
    Condition(
        Stage.WORKTREES,
        "worktree",
        "worktrees can be made: a git checkout with a commit to begin with, no branch 'bw', a"
        " folder that git ignores; without them agents do not share the checkout",
        _can_be_made,
    ),
    Condition(
        Stage.WORKTREES,
        "worktree",
        "more than [worktree] disk_floor is free for them",
        _room,
        skip("worktree"),
    ),
    Condition(
        Stage.WORKTREES,
        "worktree",
        "[worktree] copy names files that are there; less is a warning",
        _copies,
    ),
)
