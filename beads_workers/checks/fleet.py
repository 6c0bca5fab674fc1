"""The settings of a fleet, from options. The conditions, not this module, report errors."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from beads_workers.agents.adapter import load
from beads_workers.checks.hours import hours_of
from beads_workers.checks.named_agents import in_worktree
from beads_workers.checks.project import TrackerChoice
from beads_workers.checks.rules import Check, misused
from beads_workers.core.budget import Budget, read_budget
from beads_workers.core.model import COMMAND, FUNCTION, Filters
from beads_workers.core.policy import Policy
from beads_workers.core.settings import (
    Agent,
    FleetSettings,
    Landing,
    ProbePace,
    Tracing,
    Work,
    Worktrees,
)
from beads_workers.options import Options, Resolved, seconds_or_never
from beads_workers.runtime.project import STATE_FOLDER

T = TypeVar("T")


def known(value: T | None) -> T:
    """Return the value of an option that has a default."""
    assert value is not None, "resolve() fills in every default"
    return value


def work_of(
    options: Options,
    command: tuple[str, ...] | None,
    agents: tuple[Agent, ...],
    review: Agent | None,
) -> Work:
    """Return what is run, in the project's own folder."""
    return Work(
        command=command,
        agents=agents,
        review=review,
        fix_rounds=known(options.fix_rounds),
        stall_seconds=options.stall,
        continues=options.retry != "fresh",
        comments=known(options.comments),
        overage=bool(options.overage),
        verify=options.verify,
        timeout_seconds=options.timeout,
        term_grace_seconds=known(options.term_grace),
        suspends=bool(options.suspend),
        log_bytes_max=known(options.log_max),
        allow_modules=known(options.allow_module),
    )


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
    start_at, until = hours_of(options, time.time())
    return FleetSettings(
        workers=options.workers or 0,
        source=tracker.source,
        tracker=str(tracker.place),
        project=str(tracker.folder),
        state_directory=options.state_dir or str(tracker.folder / STATE_FOLDER),
        work=work,
        filters=replace(
            filters_of(options),
            only=issues,
            bring=() if issues or not options.workers else to_bring(work),
            hold_discovered=work.reads_issues and options.discovered != "take",
        ),
        policy=Policy(
            attempts_max=known(options.max_attempts),
            retry_delay_seconds=known(options.retry_delay),
            questions_max=known(options.questions),
        ),
        bd_calls=options.bd_calls or "grouped",
        bd_seconds=known(options.bd_timeout),
        until_empty=bool(options.until_empty),
        approve=bool(options.approve),
        issues_max=options.limit,
        runtime_max_seconds=options.max_runtime,
        start_at=start_at,
        until=until,
        idle_timeout_seconds=options.idle_timeout,
        poll_seconds=known(options.poll),
        stop_seconds=known(options.stop_timeout),
        orphan_grace_seconds=seconds_or_never(known(options.orphan_grace)),
        owned=owned,
        log_directory=options.log_dir,
        argv=tuple(sys.argv[1:]),
        folder=str(Path.cwd()),
        notify=options.notify,
        keep_runs=known(options.keep_runs),
        journal_bytes_max=known(options.journal_max),
        shared=bool(options.shared),
        metrics=options.metrics,
        tracing=tracing,
        source_options=tracker.options,
        pace=_pace(options),
        budget=_budget(options.budget),
        issue_budget=_budget(options.issue_budget),
    )


def _pace(options: Options) -> ProbePace:
    return ProbePace(
        reset_grace_seconds=known(options.reset_grace),
        probe_seconds=known(options.probe),
        person_wait_seconds=known(options.person_wait),
    )


def filters_of(options: Options) -> Filters:
    """Return the filters that the options set."""
    return Filters(
        labels=options.label or (),
        labels_any=options.label_any or (),
        exclude_labels=options.exclude_label or (),
        types=options.type or (),
        priorities=options.priority or (),
        parent=options.parent,
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
        remote=landing.remote or "",
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
