"""What waits for a person, whether a fleet runs or not: open questions, branches to approve."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from beads_workers.cli.client import ControlClient, connect
from beads_workers.cli.errors import CommandError
from beads_workers.exits import EXIT_NOT_RUNNING


class Waiting(NamedTuple):
    """``client``: of the running fleet; None without one. The rows are those of ``status``."""

    client: ControlClient | None
    questions: list[dict[str, Any]]
    approvals: list[dict[str, Any]]


def waiting(directory: Path) -> Waiting:
    """Return what waits for a person here, the longest waiting first."""
    try:
        client = connect(directory)
    except CommandError as error:
        if error.exit_code != EXIT_NOT_RUNNING:
            raise
        return _remembered(directory)
    shown = client.ask("bw.status")
    return Waiting(client, shown["questions"], shown["approvals"])


def _remembered(directory: Path) -> Waiting:
    """Return what the journals of ended runs say."""
    from beads_workers.core.issues import Issues, Standing
    from beads_workers.core.journal import Entry
    from beads_workers.core.status import approval_row, question_row
    from beads_workers.runtime.run_directory import RunDirectory

    issues = Issues()
    for entry in RunDirectory(directory).left_over()[1].retry_entries.values():
        issues.apply(Entry(entry, 0.0, 0.0))
    asked = sorted(issues.standing(Standing.ASKED), key=lambda each: question_row(each)["asked_at"])
    done = issues.standing(Standing.AWAITS_APPROVAL)
    return Waiting(None, [question_row(each) for each in asked], [approval_row(e) for e in done])
