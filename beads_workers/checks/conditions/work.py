"""The work: the command or agent exists, and may be run."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial

from beads_workers.agents.presets import find_agents
from beads_workers.checks import fleet, night, programs, project
from beads_workers.checks.condition import Condition, Found, Stage
from beads_workers.checks.conditions.settings import edit
from beads_workers.checks.plan import FleetPlan, what_to_type
from beads_workers.checks.rules import Check, Grade, met, misused, ok, warn
from beads_workers.core.base.budget import read_budget
from beads_workers.options import value_of
from beads_workers.registry import service

PUSHED = "name the modules of the tasks: --allow-module MODULE; or type a command behind --"


def _command(plan: FleetPlan) -> Found:
    kind = plan.kind
    if kind is not None and kind.work_checks is not None:
        return kind.work_checks(plan.doctor_input)  # type: ignore[no-any-return]
    if plan.options.executor:
        return _executors(plan)
    if plan.command is None:
        return None
    if plan.resolved.origin["command"] == "command line":
        return programs.command(plan.command, plan.folder)
    found = programs.command(plan.command, plan.folder, edit(plan.resolved.file))
    return [_in_file(each, plan.resolved.origin["command"]) for each in found]


def _in_file(check: Check, file: str) -> Check:
    is_ok = check.status is Grade.OK
    return check if is_ok else replace(check, text=f"command in {file}: {check.text}")


def _executors(plan: FleetPlan) -> list[Check]:
    found = service("executors")
    if found is None:
        return []
    if isinstance(plan.executors, Check):
        return [plan.executors]
    named = found.commands_of(plan.options)
    return [programs.executor(each, plan.folder, edit(plan.resolved.file)) for each in named]


def _modules(plan: FleetPlan) -> Found:
    allowed = plan.options.work.allow_modules
    if not allowed or plan.options.executor:
        return None
    wrong = programs.modules(allowed, plan.folder)
    if wrong is not None or plan.command is not None or plan.agents:
        return wrong
    return ok("command", f"functions of {', '.join(allowed)}, which are there")


def _something(plan: FleetPlan) -> Found:
    special = plan.kind is not None and plan.kind.work_checks is not None
    options = plan.options
    if special or options.executor or options.work.allow_modules or isinstance(plan.chosen, Check):
        return None
    if plan.command is not None or plan.agents:
        return None
    brought = plan.commands_brought
    if isinstance(brought, Check):
        return None  # The check of the tracker reports this.
    if brought:
        return ok("command", "each issue's own command")
    tracker = met(plan.tracker)
    hint = PUSHED if plan.is_pushed else project.allow_functions(tracker) if tracker else ""
    agents = find_agents(os.environ.get("PATH", ""))
    more = f"--agent {agents[0]}" if agents else "-- ./do-issue.sh {id}"
    text = "nothing to run: no command and no agent"
    return misused("command", text, hint or what_to_type(), f"beads-workers doctor {more}")


def _brought(plan: FleetPlan) -> Found:
    tracker, brought = met(plan.tracker), plan.commands_brought
    if tracker is None or plan.options.issue_commands or plan.options.executor:
        return None
    if isinstance(brought, Check):
        return None  # The check of the tracker reports this.
    return project.committed_commands(tracker, brought)


def _notify(plan: FleetPlan) -> Found:
    return programs.notify(plan.options.upkeep.notify)


def _budget(plan: FleetPlan) -> Found:
    if isinstance(plan.chosen, Check) or plan.agents:
        return None
    key = next((key for key in ("budget", "issue_budget") if value_of(plan.options, key)), None)
    if key is None:
        return None
    origin = plan.resolved.origin[key]
    text = "has no effect without an agent: a command does not tell what it costs"
    if origin != "command line":
        return warn("budget", f"{key} in {origin} {text}")
    flag = f"--{key.replace('_', '-')}"
    return misused("budget", f"{flag} {text}", f"leave it out, or say --agent; {ENDS}")


ENDS = "--limit N and --max-runtime TIME end any run"
SHORT_SECONDS = 120.0
"""Shortest plausible time limit of an agent: a shorter one probably lacks its unit."""


def _night(plan: FleetPlan) -> Found:
    budget = plan.options.budget
    if not budget or not plan.agents:
        return None
    return night.spent(plan.state_directory, read_budget(budget), plan.night)


def _timeout(plan: FleetPlan) -> Found:
    seconds = plan.options.work.timeout_seconds
    if seconds is None or seconds >= SHORT_SECONDS or not any(a.adapter for a in plan.agents):
        return None
    text = f"an attempt of an agent ends after {seconds:g} seconds (--timeout)"
    return warn("timeout", text, hint=f"a number is seconds; minutes are --timeout {seconds:g}m")


def _prices(plan: FleetPlan) -> Found:
    return fleet.unpriced(plan.options, plan.agents)


_command_holds = partial(Condition, Stage.WORK, "command")
_budget_holds = partial(Condition, Stage.WORK, "budget")

CONDITIONS = (
    _command_holds(
        "the command can be run: found, executable, its interpreter there, no issue text in a"
        " script, no misspelt placeholder",
        _command,
    ),
    _command_holds("the modules of --allow-module are there", _modules),
    _command_holds(
        "there is something to run: a command, an agent, or issues with one",
        _something,
        unsaid=True,
    ),
    _command_holds(
        "commands of issues come from a tracker that git does not track",
        _brought,
        "--issue-commands",
    ),
    Condition(Stage.WORK, "notify", "what --notify runs is installed, and safe", _notify),
    _budget_holds("a budget in dollars has prices for each agent", _prices),
    _budget_holds("a budget goes with agents", _budget),
    _budget_holds("the night has not spent the budget", _night),
    Condition(Stage.WORK, "timeout", "an agent has minutes; less is a warning", _timeout),
)
