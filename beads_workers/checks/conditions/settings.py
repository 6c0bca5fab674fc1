"""Requirements of the settings: readable files, and options that fit together."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path

from beads_workers.checks import combinations
from beads_workers.checks.condition import CheckedBy, Condition, Found, Stage, conditions, skip
from beads_workers.checks.hours import no_time_left
from beads_workers.checks.plan import FleetPlan
from beads_workers.checks.rules import Check, misused, ok, warn
from beads_workers.core.base.text import counted, printable
from beads_workers.options import FILE_NAME


def edit(file: Path | None) -> str:
    """Return a command that opens the settings in the user's editor; "" if there are none."""
    return f"${{EDITOR:-vi}} {shlex.quote(str(file))}" if file is not None else ""


def _read(plan: FleetPlan) -> Found:
    if plan.wrong:
        return plan.wrong
    file = plan.resolved.file
    where = str(file) if file else f"no {FILE_NAME} here or above"
    return ok("settings", f"{where}; {counted(plan.options.workers, 'worker')}")


OTHER_NAMES = (
    *("beads-worker.toml", "beads_workers.toml", "beadsworkers.toml", ".beads-workers.toml"),
    *("beads-workers.yaml", "beads-workers.yml", "beads-workers.json", "beads-workers.ini"),
)
"""Misspelt names of the settings file, which are not read."""


def _other_name(plan: FleetPlan) -> Found:
    if (folder := plan.folder / FILE_NAME).is_dir():
        return misused("settings", f"{folder} is a folder", remedy=f"rmdir {folder}")
    found = next(
        (plan.folder / name for name in OTHER_NAMES if (plan.folder / name).exists()), None
    )
    if found is None or plan.resolved.file is not None:
        return None
    remedy = f"mv {shlex.quote(str(found))} {shlex.quote(str(plan.folder / FILE_NAME))}"
    return warn("settings", f"{found} is not read: settings are in {FILE_NAME}", remedy)


def _skipped(plan: FleetPlan) -> Found:
    names = plan.options.skip_check
    if not names:
        return None
    known = sorted({each.name for each in conditions() if each.lifted_by == skip(each.name)})
    wrong = next((name for name in names if name not in known), None)
    if wrong is None:
        return None
    text = f"--skip-check does not lift a condition '{printable(wrong, 40)}'"
    return misused("settings", text, f"it lifts {', '.join(known)}")


def _chosen(plan: FleetPlan) -> Found:
    return _in_file(plan, plan.chosen)


def _reviewer(plan: FleetPlan) -> Found:
    return _in_file(plan, plan.review)


def _in_file(plan: FleetPlan, found: object) -> Check | None:
    return replace(found, remedy=edit(plan.resolved.file)) if isinstance(found, Check) else None


def _together(plan: FleetPlan) -> Found:
    options, kind = plan.options, plan.kind
    if kind is None or plan.is_pushed:
        return None
    rules = (
        combinations.shared_without_leases(options, kind),
        combinations.shared_claims_without_leases(options),
        combinations.grace_beyond_lease(options),
        combinations.no_hand_over(options, kind),
        combinations.functions_in_worktrees(options),
        combinations.anyone_unlimited(options, plan.command, plan.agents),
        combinations.landing_without_worktrees(options, worktrees=plan.wants_worktrees),
    )
    return next((wrong for wrong in rules if wrong is not None), None)


def _hours(plan: FleetPlan) -> Found:
    return no_time_left(plan.options)


_settings = partial(Condition, Stage.SETTINGS, "settings")
_of_work = partial(Condition, Stage.WORK, "settings")

CONDITIONS = (
    _settings(
        "beads-workers.toml can be read, is of this user, and has known keys and values",
        _read,
        # A start already ended with the same message before it had a plan.
        asked=CheckedBy.BY_DOCTOR,
    ),
    _settings(
        "no file is meant to be beads-workers.toml and has another name; one is a warning",
        _other_name,
    ),
    _settings("--skip-check names conditions that it lifts", _skipped, typed=("skip_check",)),
    _settings("--until comes after --start-at, and after now", _hours, typed=("until", "start_at")),
    _of_work(
        "there is a command or agents, not both, and the agents are known",
        _chosen,
        typed=("agent", "prompt"),
    ),
    _of_work("the agent of --review is known", _reviewer, typed=("review",)),
    _of_work(
        "the options go together: --shared, --bd-calls, --allow-module, --worktree, --land-on",
        _together,
    ),
)
