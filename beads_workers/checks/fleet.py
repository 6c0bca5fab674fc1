"""The settings of a fleet, from options. The conditions, not this module, report errors."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

from beads_workers import registry
from beads_workers.agents.adapter import load
from beads_workers.checks.hours import hours_of
from beads_workers.checks.named_agents import in_worktree
from beads_workers.checks.project import TrackerChoice, source_options
from beads_workers.checks.rules import Check, misused
from beads_workers.core.base.budget import Budget, read_budget
from beads_workers.core.base.model import COMMAND, FUNCTION
from beads_workers.core.base.settings import (
    Agent,
    FleetSettings,
    Landing,
    PlaceSettings,
    Tracing,
    Work,
    Worktrees,
)
from beads_workers.options import Options, Resolved, seconds_or_never
from beads_workers.runtime.project import STATE_FOLDER


def work_of(
    options: Options,
    command: tuple[str, ...] | None,
    agents: tuple[Agent, ...],
    review: Agent | None,
) -> Work:
    """Return what is run, in the project's own folder."""
    continues = options.retry != "fresh"
    return replace(options.work, command=command, agents=agents, review=review, continues=continues)


def slots_of(resolved: Resolved) -> tuple[int, tuple[PlaceSettings, ...]]:
    """Return how many workers there are, and the places of some of them; raise ``ValueError``."""
    options = resolved.options
    if not options.on:
        return options.workers, ()
    found = registry.need("places")
    local, places = found.find_places(options.on, options.tables.get("places"))
    said = resolved.origin.get("workers") == "command line"
    if said and local is not None:
        raise ValueError(f"-n and --on {found.LOCAL} both say how many workers there are here")
    here = (options.workers if said else 0) if local is None else local
    return here + sum(place.slots for place in places), places


def known_slots(resolved: Resolved) -> tuple[int, tuple[PlaceSettings, ...]]:
    """Return ``slots_of``; no places if they cannot be read, which a condition reports."""
    try:
        return slots_of(resolved)
    except ValueError:
        return resolved.options.workers, ()


def settings_of(
    resolved: Resolved,
    tracker: TrackerChoice,
    work: Work,
    issues: tuple[str, ...],
    *,
    owned: bool,
    tracing: Tracing | None,
) -> FleetSettings:
    """Return the settings of a fleet whose tracker and work are known."""
    options = resolved.options
    workers, places = known_slots(resolved)
    start_at, until = hours_of(options, time.time())
    return FleetSettings(
        workers=workers,
        places=places,
        source=tracker.source,
        tracker=str(tracker.place),
        project=str(tracker.folder),
        state_directory=options.state_dir or str(tracker.folder / STATE_FOLDER),
        work=work,
        filters=replace(
            options.filters,
            only=issues,
            bring=() if issues or not options.workers else to_bring(work),
            hold_discovered=work.reads_issues and options.discovered != "take",
        ),
        policy=replace(options.policy, questions_max=options.questions),
        ending=options.ending,
        tracking=options.tracking,
        upkeep=options.upkeep,
        pace=options.pace,
        start_at=start_at,
        until=until,
        orphan_grace_seconds=seconds_or_never(options.orphan_grace),
        owned=owned,
        argv=tuple(sys.argv[1:]),
        folder=str(Path.cwd()),
        tracing=tracing,
        source_options=source_options(tracker, options),
        budget=_budget(options.budget),
        issue_budget=_budget(options.issue_budget),
    )


def to_bring(work: Work) -> tuple[str, ...]:
    """Return what an issue must bring, any of it, if the fleet has nothing of its own to run.

    Issues that bring none of it are left alone.
    """
    if work.executors:
        return () if work.function else (FUNCTION,)
    if work.command or work.agent or work.contexts:
        return ()
    return (FUNCTION, COMMAND) if work.allow_modules else (COMMAND,)


def in_worktrees(work: Work, worktrees: Worktrees, beads: str | None) -> Work:
    """Return the work with a worktree for each attempt. ``beads``: folder ``.beads``, or None."""
    agents = tuple(map(in_worktree, work.agents))
    return replace(work, agents=agents, worktrees=replace(worktrees, beads=beads))


def landing_on(settings: FleetSettings, landing: Landing) -> FleetSettings:
    """Return the settings of a fleet in worktrees whose branches land."""
    worktrees = settings.work.worktrees
    assert worktrees is not None, "nothing lands without worktrees"
    on = replace(
        worktrees,
        base=f"refs/heads/{landing.branch}",
        base_name=landing.branch,
        base_else=landing.start,
        remote=landing.remote,
        base_there=landing.theirs,
    )
    return replace(settings, landing=landing, work=replace(settings.work, lands=True, worktrees=on))


def _budget(text: str | None) -> Budget | None:
    return None if text is None else read_budget(text)


def unpriced(options: Options, agents: tuple[Agent, ...]) -> Check | None:
    """Refuse a budget in dollars for an agent that reports no costs and has no prices."""
    budgets = [read_budget(each) for each in (options.budget, options.issue_budget) if each]
    if not any(budget.dollars is not None for budget in budgets):
        return None
    for agent in agents:
        adapter = load(agent.adapter) if agent.adapter else None
        if not agent.prices and (adapter is None or not adapter.tells_money):
            return misused(
                "budget",
                f"a budget in dollars, and nobody knows what {agent.name} costs",
                f'give [agents.{agent.name}] prices = {{ "*" = [1.25, 10, 0.125] }}'
                " in beads-workers.toml (dollars for a million tokens: input, output, cached"
                " input), or a budget in tokens: 5Mtok",
            )
    return None
