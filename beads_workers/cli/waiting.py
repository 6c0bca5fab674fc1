"""What waits for a person, whether a fleet runs or not: as the tracker has it, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from beads_workers.cli.client import ControlClient, connect_if_running
from beads_workers.core.base.text import printable
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_UNKNOWN


class Waiting(NamedTuple):
    """What waits; the rows are those of ``status``."""

    # Of the running fleet; None without one.
    client: ControlClient | None
    questions: list[dict[str, Any]]
    approvals: list[dict[str, Any]]
    quarantined: list[dict[str, Any]]
    # Issues of ended runs whose pull requests are open.
    reviewed: tuple[str, ...] = ()
    # Issues that the fleet or a journal still counts here, and why they do not wait.
    over: Mapping[str, str] = {}

    def refuse_over(self, issue_ids: Iterable[str]) -> None:
        """Raise ``CommandError`` if one of these issues waits no longer."""
        for each in issue_ids:
            if (why := self.over.get(each)) is not None:
                raise CommandError(f"{each} waits for nothing: {printable(why)}", "", EXIT_UNKNOWN)


def waiting(directory: Path, *, look: bool = True) -> Waiting:
    """Return what waits for a person here, the longest waiting first.

    ``look``: what the tracker shows as waiting no longer is left out.
    """
    if (client := connect_if_running(directory)) is None:
        found = _remembered(directory)
    else:
        shown = client.ask("bw.status")
        found = Waiting(client, shown["questions"], shown["approvals"], shown["quarantined"])
    kinds = (found.questions, found.approvals, found.quarantined)
    branches = {row["issue_id"]: row.get("branch", "") for rows in kinds for row in rows}
    over = over_here(directory, branches) if look else {}
    left = [[row for row in rows if row["issue_id"] not in over] for rows in kinds]
    return Waiting(found.client, left[0], left[1], left[2], found.reviewed, over)


def over_here(
    directory: Path, branches: Mapping[str, str], *, or_open: bool = False
) -> dict[str, str]:
    """Return which of these issues wait for nobody any more, and why; ``branches``: that of each.

    ``or_open``: as for ``why_over``. If the tracker cannot be asked, nothing is known.
    """
    if not branches:
        return {}  # Most often: nothing that opens a tracker is loaded.
    from beads_workers.cli.tracker_access import open_tracker, settings_here
    from beads_workers.core.base.model import IssueId
    from beads_workers.core.base.source import why_over
    from beads_workers.registry import kind_of

    over: dict[str, str] = {}
    try:
        settings = settings_here(directory)
        if not kind_of(settings.source).capabilities.looks:
            return over
        with open_tracker(settings, "waiting") as tracker:
            seen = tracker.look([IssueId(each) for each in branches])
    except CommandError:
        return over
    for issue_id, branch in branches.items():
        found = seen.get(IssueId(issue_id))
        status, assignee = (found.status, found.assignee) if found is not None else ("", "")
        if why := why_over(status, assignee, or_open=or_open):
            over[issue_id] = f"{why}; its branch stays: {branch}" if branch else why
    return over


def _remembered(directory: Path) -> Waiting:
    """Return what the journals of ended runs say."""
    from beads_workers.core.records.issues import Issues, Standing
    from beads_workers.core.records.journal import Entry
    from beads_workers.core.views.status import approval_row, quarantined_row, question_row
    from beads_workers.runtime.run_directory import RunDirectory

    issues = Issues()
    for entry in RunDirectory(directory).left_over()[1].retry_entries.values():
        issues.apply(Entry(entry, 0.0, 0.0))
    asked = sorted(issues.standing(Standing.ASKED), key=lambda each: question_row(each)["asked_at"])
    questions = [question_row(each) for each in asked]
    approvals = [approval_row(each) for each in issues.standing(Standing.AWAITS_APPROVAL)]
    out = [quarantined_row(each) for each in issues.standing(Standing.QUARANTINED)]
    reviewed = tuple(each.issue_id for each in issues.standing(Standing.IN_REVIEW))
    return Waiting(None, questions, approvals, out, reviewed)
