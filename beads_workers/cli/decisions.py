"""What a person decides while no fleet runs: written to the tracker, or kept for the next start.

The commands, ``morning`` and the page of an ended run have it carried out here. Requests have the
names and fields of those to a running fleet; ``bw.close`` and ``bw.merge`` are ours alone.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beads_workers.cli.waiting import Waiting, waiting
from beads_workers.core.base.text import printable
from beads_workers.errors import CommandError
from beads_workers.exits import EXIT_RUNNING, EXIT_UNKNOWN

if TYPE_CHECKING:
    from beads_workers.core.base.model import IssueId
    from beads_workers.core.base.source import Settled
    from beads_workers.core.records.journal import Record

Answer = dict[str, Any]


def decide(directory: Path, control: str, fields: Mapping[str, Any]) -> Answer:
    """Carry a decision out and return what is said of it; raise ``CommandError``."""
    if (carry_out := DECISIONS.get(control)) is None:
        raise CommandError("no fleet is running here", "'beads-workers start' runs one")
    return carry_out(directory, fields)


def _answer(directory: Path, fields: Mapping[str, Any]) -> Answer:
    from beads_workers.cli.answer import give

    found, wanted = waiting(directory), fields["issue_ids"]
    found.refuse_over(wanted)
    rows = [row for row in found.questions if row["issue_id"] in wanted]
    if not rows:
        raise CommandError(f"{printable(wanted[0], 60)} asks nothing", "", EXIT_UNKNOWN)
    return give(found, directory, rows, fields["text"])


def _approve(directory: Path, fields: Mapping[str, Any]) -> Answer:
    from beads_workers.core.records.journal import Approved

    commits, found = fields["commits"], waiting(directory)
    found.refuse_over(commits)
    rows = {row["issue_id"]: row["commit"] for row in found.approvals}
    if other := [key for key, seen in commits.items() if not rows.get(key, "").startswith(seen)]:
        hint = f"'beads-workers diff {other[0]}' shows it"
        what = f"{', '.join(other)}: no branch awaits approval at that commit"
        raise CommandError(printable(what), printable(hint), EXIT_UNKNOWN)
    _keep(directory, [Approved(key, rows[key]) for key in commits])
    return {"text": f"approved: {' '.join(commits)}; the next start lands it"}


def refuse_unless_rejectable(found: Waiting, issue_id: str) -> None:
    """Raise ``CommandError`` unless the branch of this issue awaits approval, or is in review."""
    found.refuse_over([issue_id])
    if issue_id not in (*(row["issue_id"] for row in found.approvals), *found.reviewed):
        hint = "'beads-workers status' shows what does"
        what = f"{printable(issue_id, 60)} awaits no approval, and is not in review"
        raise CommandError(what, hint, EXIT_UNKNOWN)


def _reject(directory: Path, fields: Mapping[str, Any]) -> Answer:
    from beads_workers.core.base.limits import LESSON_CHARS_MAX
    from beads_workers.core.records.issues import REJECTED
    from beads_workers.core.records.journal import LandingEnded

    (issue_id,) = fields["issue_ids"]
    refuse_unless_rejectable(waiting(directory), issue_id)
    back = LandingEnded(issue_id, "requeue", REJECTED, fields["text"][:LESSON_CHARS_MAX])
    _keep(directory, [back], opens=[issue_id])
    return {"text": f"rejected: {issue_id}; the next start sends it back"}


def _keep(directory: Path, records: Sequence[Record], opens: Sequence[str] = ()) -> None:
    """Keep decisions for the next start. ``opens``: issues that are opened in the tracker first:
    what is blocked, and not remembered as waiting, would stay so."""
    from beads_workers.cli.source_listing import editable
    from beads_workers.core.base.model import IssueId
    from beads_workers.core.base.source import reopening
    from beads_workers.runtime.retention import decided
    from beads_workers.runtime.run_directory import AlreadyRunning, RunDirectory

    runs = RunDirectory(directory)
    try:
        lock = runs.lock()
    except AlreadyRunning as error:
        raise CommandError(str(error), "type it again: the fleet takes it", EXIT_RUNNING) from None
    try:
        if opens:
            with editable() as tracker:
                tracker.settle([reopening(IssueId(each), is_answered=False) for each in opens])
        for each in records:
            decided(runs, each)
    finally:
        os.close(lock)


def _retry(directory: Path, fields: Mapping[str, Any]) -> Answer:
    done, wrong = reopen(directory, fields["issue_ids"])
    if wrong:
        raise not_retried(wrong)
    return {"text": f"will be retried: {', '.join(done)}"}


def reopen(
    directory: Path, issues: Sequence[str], source: str | None = None
) -> tuple[list[IssueId], list[Settled]]:
    """Reopen quarantined issues in the tracker; the next start gives them new attempts. Return
    those that are open, and the answers about the others."""
    from beads_workers.cli.tracker_access import open_tracker, settings_to_write
    from beads_workers.cli.trust import refuse_hooks
    from beads_workers.core.base.model import IssueId
    from beads_workers.core.base.source import Result, reopening
    from beads_workers.core.requests.retry import IN_REVIEW
    from beads_workers.runtime.retention import forget
    from beads_workers.runtime.run_directory import RunDirectory

    refuse_hooks(source)
    with open_tracker(settings_to_write(directory, source), "retry") as tracker:
        # Whoever answers a question by a close wants its issue to go on.
        remembered = RunDirectory(directory).left_over()[1].retry_entries
        asked = {i for i, entry in remembered.items() if entry.quarantined and entry.question}
        reviewed = [i for i in issues if i in remembered and remembered[IssueId(i)].in_review]
        if reviewed:
            raise CommandError(f"{' '.join(reviewed)}: {IN_REVIEW}", "", EXIT_UNKNOWN)
        settled = tracker.settle([reopening(IssueId(i), i in asked) for i in issues])
    done = [s.settlement.issue_id for s in settled if s.result is Result.APPLIED]
    forget(RunDirectory(directory), done)
    return done, [s for s in settled if s.result is not Result.APPLIED]


def not_retried(wrong: Sequence[Settled]) -> CommandError:
    """Return what is said of issues that are not open again."""
    what = "; ".join(
        f"{s.settlement.issue_id}: {s.error or s.result.value.replace('_', ' ')}" for s in wrong
    )
    hint = "'beads-workers retry --all' tries all that is quarantined, 'list' shows the issues"
    return CommandError(f"not retried: {what}", hint, EXIT_UNKNOWN)


def _close(directory: Path, fields: Mapping[str, Any]) -> Answer:
    from beads_workers.cli.edit import close_in
    from beads_workers.cli.source_listing import editable

    with editable() as tracker:
        closed, _ = close_in(tracker, fields["issue_ids"], fields.get("text") or "not needed")
    return {"text": f"closed: {', '.join(each.issue_id for each in closed) or 'it was already'}"}


def _merge(directory: Path, fields: Mapping[str, Any]) -> Answer:
    from beads_workers.cli.last_run import last_run, merge_of
    from beads_workers.worktrees.git import GitError, git

    last = last_run(directory)
    if last is None or not (command := merge_of(last)):
        return {"text": "nothing is left to merge"}
    if " && " in command or not any(each in command for each in FORWARD):
        where = printable(f"in {last['project']}: {command}")
        raise CommandError("your branch has commits of its own, or is not checked out", where)
    try:
        git(last["project"], *shlex.split(command)[1:])
    except GitError as error:
        raise CommandError(f"{command}: {error}") from None
    return {"text": f"merged: {command}"}


FORWARD = ("git merge --ff-only ", "git fetch . ", "git branch ")
"""Commands that bring what has landed to the person's branch, and can change nothing else."""

DECISIONS: Mapping[str, Callable[[Path, Mapping[str, Any]], Answer]] = {
    "bw.answer": _answer,
    "bw.approve": _approve,
    "bw.close": _close,
    "bw.merge": _merge,
    "bw.reject": _reject,
    "bw.retry": _retry,
}
