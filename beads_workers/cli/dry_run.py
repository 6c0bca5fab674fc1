"""``start --dry-run``: what would be taken, and how it would be run. Changes nothing."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict

from beads_workers.cli.errors import EXIT_TRACKER, CommandError
from beads_workers.cli.shown_work import shown_command
from beads_workers.cli.worktree_checks import shown_place
from beads_workers.core.jobs import IssueId, Listed
from beads_workers.core.settings import NOTIFY_DESKTOP, FleetSettings
from beads_workers.core.source import Source, SourceError
from beads_workers.core.text import printable
from beads_workers.edge.opening import open_source


def show(settings: FleetSettings, *, as_json: bool) -> None:
    """Print the listing and the command; raises ``CommandError`` where the tracker fails."""
    source = open_source(settings, "beads-workers/dry-run")
    try:
        description = source.describe()
        taken = source.take(0, ())
        calls = _calls(settings, source, taken.listed)
    except SourceError as error:
        raise CommandError(str(error), error.hint, EXIT_TRACKER) from None
    finally:
        source.close()
    if as_json:
        print(json.dumps(_as_json(settings, description, taken.listed, calls)))
        return
    print(f"tracker  {description}")
    print(f"command  {printable(shown_command(settings.work))}")
    if settings.work.verify:
        print(f"verify   sh -c {shlex.quote(printable(settings.work.verify))}")
    print(f"folder   {printable(shown_place(settings))}")
    if settings.notify:
        print(f"notify   {_shown(settings.notify)}")
    for row in taken.listed:
        called = f"  calls {printable(calls[row.issue_id], 80)}" if row.issue_id in calls else ""
        print(f"{printable(row.issue_id)} P{row.priority} {printable(row.title, 70)}{called}")
    more = "+" if taken.more else ""
    print(f"{len(taken.listed)}{more} would be taken by {settings.workers} workers")
    if settings.work.agent is not None:
        print("\nprompt, with the issue's own text in place of {title} and {description}:\n")
        print(settings.work.agent.prompt)


def _calls(
    settings: FleetSettings, source: Source, listed: tuple[Listed, ...]
) -> dict[IssueId, str]:
    """The functions that these issues name, where the fleet calls any."""
    if not (settings.work.allow_modules or settings.work.executors):
        return {}
    seen = source.look([row.issue_id for row in listed])
    return {issue_id: each.calls for issue_id, each in seen.items() if each.calls}


def _shown(notify: str) -> str:
    return notify if notify == NOTIFY_DESKTOP else f"sh -c {shlex.quote(printable(notify))}"


def _as_json(
    settings: FleetSettings,
    description: str,
    listed: tuple[Listed, ...],
    calls: dict[IssueId, str],
) -> dict[str, object]:
    work = settings.work
    return {
        "tracker": description,
        "command": list(work.command or (work.agent.argv if work.agent else ())),
        "agent": work.agent.name if work.agent else None,
        "prompt": work.agent.prompt if work.agent else None,
        "verify": work.verify,
        "notify": settings.notify,
        "workers": settings.workers,
        "worktrees": asdict(work.worktrees) if work.worktrees else None,
        "issues": [
            {"issue_id": row.issue_id, "title": row.title, "priority": row.priority}
            | ({"calls": calls[row.issue_id]} if row.issue_id in calls else {})
            for row in listed
        ],
    }
