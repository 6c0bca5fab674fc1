"""``start --dry-run``: shows what would be taken and how it would be run. Changes nothing."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from beads_workers.agents.adapter import load
from beads_workers.attempts.delivered import delivered_by_us
from beads_workers.attempts.prompts import first_prompt
from beads_workers.checks.contents import submodules
from beads_workers.checks.rules import Check
from beads_workers.cli.checking import to_json
from beads_workers.cli.preparation import shown_place
from beads_workers.cli.shown_work import shown_command
from beads_workers.cli.tracker_access import open_tracker
from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId, Job, ListedIssue, value
from beads_workers.core.base.plans import Plan
from beads_workers.core.base.settings import NOTIFY_DESKTOP, FleetSettings, WorkerSettings
from beads_workers.core.base.source import ReadableSource, Source
from beads_workers.core.base.text import printable
from beads_workers.core.base.wire import Task
from beads_workers.core.records.assignment import read_assignment
from beads_workers.core.schedule.agent_work import agents_for
from beads_workers.executors.command import plan


@value
class ShownPrompt:
    """The prompt that an agent would get for an issue in its first attempt."""

    issue_id: str
    agent: str
    model: str
    prompt: str


@value
class _Seen:
    """The answers of the source. ``calls``: the functions that issues name."""

    description: str
    listed: tuple[ListedIssue, ...]
    more: bool
    calls: dict[IssueId, str]
    prompts: tuple[ShownPrompt, ...]


def show(settings: FleetSettings, warnings: Sequence[Check], *, as_json: bool) -> None:
    """Print the listing and the command, and the prompts of named issues.

    Raise ``CommandError`` if the tracker fails.
    """
    with open_tracker(settings, "dry-run") as source:
        seen = _look(settings, source)
    if as_json:
        fields = {"warnings": [to_json(each) for each in warnings]}
        print(json.dumps(_as_json(settings, seen) | fields))
        return
    _print_listing(settings, seen)
    for each in seen.prompts:
        model = f" ({each.model})" if each.model else ""
        print(f"\nprompt of {printable(each.issue_id)} for {each.agent}{model}:\n")
        print(_readable(each.prompt) if sys.stdout.isatty() else each.prompt)
    if settings.work.agent is not None and not seen.prompts:
        _print_template(settings)


def _look(settings: FleetSettings, source: Source) -> _Seen:
    description = source.describe()
    taken = source.take(0, ())
    named = [IssueId(each) for each in settings.filters.only]
    prompts: list[ShownPrompt] = []
    if named and settings.work.reads_issues and isinstance(source, ReadableSource):
        jobs = source.read(named)
        made = [prompt_of(jobs[each], settings) for each in named if each in jobs]
        prompts = [each for each in made if each is not None]
    calls = _calls(settings, source, taken.listed)
    return _Seen(description, taken.listed, taken.more, calls, tuple(prompts))


def prompt_of(job: Job, settings: FleetSettings) -> ShownPrompt | None:
    """Return the prompt of an issue as a worker makes it; None if no agent would work on it."""
    candidates = agents_for(job, [agent for agent in settings.work.agents if agent.adapter])
    if job.command or not candidates:
        return None
    agent, model = candidates[0]
    may_ask = settings.policy.questions_max > 0
    who = {"name": agent.name, "model": model, "may_ask": may_ask}
    payload = {"issue": dict(job.original), "agent": who}
    task = Task(
        job.issue_id,
        job.priority,
        job.title[: limits.TITLE_CHARS_MAX],
        job.description,
        job.issue_type,
        job.labels,
        1,
        payload=payload,
    )
    made = plan(task, _worker(settings))
    steps: Sequence[Any] = made.steps if isinstance(made, Plan) else ()
    attempt = next((step for step in steps if step.is_attempt), None)
    if attempt is None:
        return None
    asked = read_assignment(attempt.stdin)
    adapter = load(asked.agent.adapter)
    assert adapter is not None, "the settings name adapters that are there"
    worktrees, room = settings.work.worktrees, adapter.prompt_bytes_max
    text = first_prompt(
        asked,
        delivered_by_us(asked),
        resumed=False,
        worktree=worktrees is not None,
        room=room,
        submodules=submodules(worktrees) if worktrees else (),
    )
    return ShownPrompt(job.issue_id, agent.name, model, text)


def _worker(settings: FleetSettings) -> WorkerSettings:
    """Return the settings of a worker that is never started; no path of it is in a prompt."""
    return WorkerSettings(
        worker_id="W1",
        socket_path="",
        orchestrator_pid=0,
        project=settings.project,
        run_id="dry-run",
        run_directory=f"{settings.state_directory}/runs/dry-run",
        actor="beads-workers/dry-run",
        work=replace(settings.work, bd_argv=None),
    )


def _readable(prompt: str) -> str:
    """Return the prompt for a terminal: without control characters, with its lines as they are."""
    return "\n".join(printable(line) if line else "" for line in prompt.split("\n"))


def _print_listing(settings: FleetSettings, seen: _Seen) -> None:
    print(f"tracker  {seen.description}")
    print(f"command  {printable(shown_command(settings.work))}")
    if settings.work.verify:
        print(f"verify   sh -c {shlex.quote(printable(settings.work.verify))}")
    print(f"folder   {printable(shown_place(settings))}")
    if settings.upkeep.notify:
        print(f"notify   {_shown(settings.upkeep.notify)}")
    calls = seen.calls
    for row in seen.listed:
        called = f"  calls {printable(calls[row.issue_id], 80)}" if row.issue_id in calls else ""
        print(f"{printable(row.issue_id)} P{row.priority} {printable(row.title, 70)}{called}")
    more = "+" if seen.more else ""
    print(f"{len(seen.listed)}{more} would be taken by {settings.workers} workers")


def _print_template(settings: FleetSettings) -> None:
    agent = settings.work.agent
    assert agent is not None, "only a fleet with an agent has a prompt"
    if agent.adapter and not agent.prompt:
        print("\n'beads-workers start --dry-run ISSUE' prints the prompt of an issue")
        return
    print("\nprompt, with the issue's own text in place of {title} and {description}:\n")
    print(agent.prompt)


def _calls(
    settings: FleetSettings, source: Source, listed: tuple[ListedIssue, ...]
) -> dict[IssueId, str]:
    """Return the functions that these issues name, if the fleet calls any."""
    if not (settings.work.allow_modules or settings.work.executors):
        return {}
    seen = source.look([row.issue_id for row in listed])
    return {issue_id: each.calls for issue_id, each in seen.items() if each.calls}


def _shown(notify: str) -> str:
    return notify if notify == NOTIFY_DESKTOP else f"sh -c {shlex.quote(printable(notify))}"


def _as_json(settings: FleetSettings, seen: _Seen) -> dict[str, object]:
    work, calls = settings.work, seen.calls
    shown = {
        "tracker": seen.description,
        "command": list(work.command or (work.agent.argv if work.agent else ())),
        "agent": work.agent.name if work.agent else None,
        "prompt": work.agent.prompt if work.agent else None,
        "verify": work.verify,
        "notify": settings.upkeep.notify,
        "workers": settings.workers,
        "worktrees": asdict(work.worktrees) if work.worktrees else None,
        "issues": [
            {"issue_id": row.issue_id, "title": row.title, "priority": row.priority}
            | ({"calls": calls[row.issue_id]} if row.issue_id in calls else {})
            for row in seen.listed
        ],
    }
    return shown | ({"prompts": [asdict(each) for each in seen.prompts]} if seen.prompts else {})
