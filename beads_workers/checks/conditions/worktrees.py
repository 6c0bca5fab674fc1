"""Worktrees: attempts work in separate folders."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from beads_workers.checks import machine, worktrees
from beads_workers.checks.condition import CheckedBy, Condition, Found, Stage, skip
from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.rules import Check, met, ok, warn
from beads_workers.core.base.settings import Worktrees
from beads_workers.worktrees.git import GitError


def _can_be_made(plan: FleetPlan) -> Found:
    found = plan.worktrees
    if isinstance(found, Check):
        return found
    if found is not None:
        text = f"each attempt gets one of its own, from {found.base_name}, in {found.folder}"
        return ok("worktree", f"{text}{worktrees.staying(found)}")
    work = met(plan.work)
    if work is not None and work.agent is not None and not plan.is_pushed:
        return worktrees.crowd(work, plan.options) or ok(
            "worktree", "none: what runs, runs in the project's own folder"
        )
    return None


def _room(plan: FleetPlan) -> Found:
    found = met(plan.worktrees)
    return machine.below_floor(Path(found.folder), found.rules.disk_floor_bytes) if found else None


def _copies(plan: FleetPlan) -> Found:
    found = met(plan.worktrees)
    return worktrees.patterns_without_files(found) if found is not None else None


def _moved(plan: FleetPlan) -> Found:
    found = met(plan.worktrees)
    return worktrees.of_another_place(found) if found is not None else None


def _filters(plan: FleetPlan) -> Found:
    from beads_workers.checks import contents  # Only for fleets with worktrees.

    return _in_fresh(plan, "filters", lambda where: list(contents.filters_without_program(where)))


def _submodules(plan: FleetPlan) -> Found:
    from beads_workers.checks import contents

    return _in_fresh(plan, "submodules", contents.empty_submodules)


def _in_fresh(plan: FleetPlan, name: str, look: Callable[[Worktrees], Found]) -> Found:
    """Check the base commit of attempts."""
    where = met(plan.worktrees)
    if where is not None and plan.settings is not None:
        where = plan.settings.work.worktrees  # The landing branch, if branches land.
    try:
        return look(where) if where is not None else None
    except GitError as error:
        return warn(name, f"not checked: {error}")


_worktree = partial(Condition, Stage.WORKTREES, "worktree")

CONDITIONS = (
    _worktree(
        "worktrees can be made: a git checkout with a commit to begin with, no branch 'bw', a"
        " folder that git ignores and no other user could replace; without them agents do not"
        " share the checkout",
        _can_be_made,
    ),
    _worktree("more than [worktree] disk_floor is free for them", _room, skip("worktree")),
    _worktree("[worktree] copy names files that are there; less is a warning", _copies),
    _worktree(
        "worktrees lead to the project, which was not moved since the last command that uses them;"
        " less is a warning",
        _moved,
        asked=CheckedBy.BY_DOCTOR,  # A start repairs it.
    ),
    Condition(
        Stage.WORKTREES,
        "filters",
        "the programs of git's filters are there, if they are required",
        _filters,
        skip("filters"),
        CheckedBy.BESIDE,
    ),
    Condition(
        Stage.WORKTREES,
        "submodules",
        "[worktree] setup fills submodules; less is a warning",
        _submodules,
        asked=CheckedBy.BESIDE,
    ),
)
