"""Plans of a start from options, and the settings of a fleet from a plan."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from beads_workers.checks import fleet, landing, programs, project, worktrees
from beads_workers.checks.condition import Condition, Stage, conditions, listed
from beads_workers.checks.plan import FleetPlan, Progress
from beads_workers.checks.project import TrackerChoice
from beads_workers.checks.rules import Check, Grade, met
from beads_workers.checks.runner import start_checks
from beads_workers.cli.kinds import kind_said, need
from beads_workers.cli.refusals import need_met, refusal, refuse
from beads_workers.core.base.settings import FleetSettings, Landing, Sight, Tracing, Work, Worktrees
from beads_workers.options import Options, Resolved
from beads_workers.registry import service
from beads_workers.worktrees.git import BRANCHES


def silent(name: str, text: str) -> None:
    """Show no progress."""


def plan_of(
    resolved: Resolved,
    issues: tuple[str, ...],
    *,
    owned: bool,
    progress: Progress = silent,
) -> FleetPlan:
    """Return the plan of a start with these options.

    Raise ``CommandError`` for a wrong source.
    """
    kind = kind_said(resolved.options.source)
    if resolved.options.executor:
        need("executors")
    prepared = None
    if kind is not None and kind.prepare is not None:
        prepared = kind.prepare(resolved, issues, owned=owned)
    tracing = find_tracing(resolved.options.trace)
    return FleetPlan(
        resolved,
        kind,
        issues,
        owned=owned,
        tracing=tracing,
        prepared=prepared,
        progress=progress,
    )


def prepare(resolved: Resolved, issues: tuple[str, ...], *, owned: bool) -> FleetSettings:
    """Return the settings of a run; raise ``CommandError`` for the first failed condition."""
    plan = plan_of(resolved, issues, owned=owned)
    for condition, check in start_checks(plan, last=False):
        refuse_failed(condition, check)
    return planned(plan)


def refuse_failed(condition: Condition, check: Check) -> None:
    """Raise ``CommandError`` if the condition failed."""
    if check.status is Grade.FAIL:
        raise refusal(check, condition.lifted_by)


def planned(plan: FleetPlan) -> FleetSettings:
    """Return the settings of a plan whose conditions hold."""
    settings = plan.settings
    if settings is None:
        # git failed only now, after the conditions were checked.
        for step in (plan.tracker, plan.work, plan.worktrees, plan.landing):
            need_met(step)
    assert settings is not None, "a step that cannot be taken has failed as a condition"
    settings = replace(settings, night=plan.night)
    if plan.proof is None and plan.proving is None:
        return settings
    sight = plan.proof.sight if plan.proof is not None else Sight.UNKNOWN
    return replace(settings, work=replace(settings.work, sight=sight))


def find_work(resolved: Resolved) -> Work:
    """Return the work for a source that makes its own settings; raise ``CommandError``."""
    plan = FleetPlan(resolved, kind_said(resolved.options.source))
    for condition in conditions():
        if condition.stage in (Stage.TRUST, Stage.WORK) or condition.typed:
            for check in listed(condition.look(plan)):
                refuse_failed(condition, check)
    work = met(plan.work)
    assert work is not None, "its conditions hold"
    return work


# --- single steps, for other commands ------------------------------------------------------------


def find_tracker(source: str | None) -> TrackerChoice:
    """Return the given tracker, or the nearest; raise ``CommandError`` without one."""
    return need_met(project.find_tracker(source, kind_said(source), Path.cwd()))


def find_worktrees(options: Options, folder: Path, state_directory: str) -> Worktrees:
    """Return where worktrees are made from and to; raise ``CommandError`` if none can be made."""
    return need_met(worktrees.find_worktrees(options, folder, state_directory))


def find_landing(options: Options, folder: Path, base: str) -> Landing:
    """Return where branches land; raise ``CommandError`` if they cannot."""
    return need_met(landing.find_landing(options, folder, base))


def check_gate(verify: str | None) -> None:
    """Raise ``CommandError`` if the command cannot be a gate."""
    refuse(landing.gate(verify))


def check_modules(allowed: tuple[str, ...], folder: Path) -> None:
    """Raise ``CommandError`` if a module is missing."""
    refuse(programs.modules(allowed, folder))


def runnable(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command with an absolute path to its program; raise if it cannot be run."""
    refuse(programs.refused(argv, Path.cwd()))
    return programs.absolute(argv)


def settings_of(
    resolved: Resolved, tracker: TrackerChoice, work: Work, issues: tuple[str, ...], *, owned: bool
) -> FleetSettings:
    """Return the settings of a fleet whose tracker and work are known; raise ``CommandError``."""
    refuse(programs.notify(resolved.options.upkeep.notify))
    refuse(fleet.unpriced(resolved.options, work.agents))
    tracing = find_tracing(resolved.options.trace)
    return fleet.settings_of(resolved, tracker, work, issues, owned=owned, tracing=tracing)


# --- shown ---------------------------------------------------------------------------------------


def shown_functions(work: Work) -> str:
    """Return a phrase about the functions of issues that are called; "" if none are."""
    modules = ", ".join(work.allow_modules)
    return f"the function of {modules} that an issue names" if modules else ""


def shown_place(settings: FleetSettings) -> str:
    """Return the place where tasks run, as text."""
    found = settings.work.worktrees
    if found is None:
        return settings.project
    base = found.base_name
    if found.base_else:
        base = f"{base}, where they land"
    elif found.base != base:
        base = f"{base} ({found.base[:12]})"
    name = f"{BRANCHES}/<issue>/<attempt>"
    below = f"/{found.prefix.rstrip('/')}" if found.prefix else ""
    return f"{found.folder}/<issue>.<attempt>{below}, a worktree on {name} from {base}"


# --- spans ---------------------------------------------------------------------------------------


def find_tracing(asked: bool | None) -> Tracing | None:
    """Return the settings of spans; None if none are made.

    They are not made if nobody asked for them and they cannot be made.
    """
    if asked is None and service("tracing") is None:
        return None
    found: Tracing | None = need("tracing").tracing(asked, os.environ)
    return found


def tracing_lines(tracing: Tracing | None) -> list[tuple[str, str]]:
    """Return the lines about spans before a fleet starts, as names and texts."""
    return need("tracing").lines(tracing) if tracing is not None else []
