"""What people change in a project of ``bd``: its own commands, called in the person's name.

See ``core.base.source.EditableSource``. An issue is looked at first: ``bd`` would take a part of an
id for the whole, and lets anybody change what a fleet holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.ready import BLOCKS
from beads_workers.core.base.source import IssueComment, IssueEdit, NoSuchIssue, NotDone
from beads_workers.trackers.bd.calls import BdResult
from beads_workers.trackers.bd.tracker import (
    CLOSED,
    BdRow,
    BdTracker,
    failed,
    is_safe_id,
    object_of,
    quoted,
    refusals,
)
from beads_workers.trackers.issue import TIMEOUT_LABEL
from beads_workers.trackers.settlement_rules import (
    Ownership,
    other_run,
    outdated_marks,
    refuse_held,
)

_STDIN = "/dev/stdin"
"""A text may be longer than an argument; 0.x does not take ``-`` everywhere."""


def add(tracker: BdTracker, change: IssueEdit, author: str) -> IssueId:
    """See ``EditableSource.add``."""
    _look(tracker, [needed for needed, _ in change.depends_on])
    labels = [*change.added_labels, *_own_work(change)]
    arguments = ["create", "--json", f"--title={change.title}", *_fields(change)]
    arguments += [f"--labels={quoted(each)}" for each in labels]
    # In 1.x "blocks:ID" is the other direction; ID alone is the same in both.
    arguments += [
        f"--deps={needed}" if kind == BLOCKS else f"--deps={kind}:{needed}"
        for needed, kind in change.depends_on
    ]
    made = object_of(_asked(tracker, arguments, author, change.description or ""))
    return IssueId(str(made.get("id")))


def edit(tracker: BdTracker, issue_id: IssueId, change: IssueEdit, author: str) -> None:
    """See ``EditableSource.edit``; several calls if several things change."""
    needed = [*(each for each, _ in change.depends_on), *change.depends_no_more_on]
    seen = _look(tracker, [issue_id, *needed])[issue_id]
    if change.status is not None or change.assignee is not None:
        refuse_held(issue_id, Ownership(seen.status, seen.assignee))
    _depend(tracker, issue_id, change, author)
    closes = change.status == CLOSED != seen.status
    if fields := _updates(seen, change):
        arguments = ["update", "--json", *fields, "--", issue_id]
        _asked(tracker, arguments, author, change.description or "")
    if closes:
        reason = [f"--reason={change.reason}"] if change.reason else []
        _asked(tracker, ["close", "--json", *reason, "--", issue_id], author)


def comment(tracker: BdTracker, issue_id: IssueId, text: str, author: str) -> IssueComment:
    """See ``EditableSource.comment``."""
    _look(tracker, [issue_id])
    arguments = ["comments", "add", "--json", f"--author={author}", f"--file={_STDIN}"]
    kept = object_of(_asked(tracker, [*arguments, "--", issue_id], author, text))
    return IssueComment(*(str(kept.get(key, "")) for key in ("id", "author", "text", "created_at")))


def delete(tracker: BdTracker, issue_id: IssueId, author: str) -> None:
    """See ``EditableSource.delete``."""
    seen = _look(tracker, [issue_id])[issue_id]
    refuse_held(issue_id, Ownership(seen.status, seen.assignee))
    _asked(tracker, ["delete", "--json", "--force", "--", issue_id], author)


def _look(tracker: BdTracker, issue_ids: Sequence[IssueId]) -> dict[IssueId, BdRow]:
    seen = tracker.look([each for each in issue_ids if is_safe_id(each)]) if issue_ids else {}
    for each in issue_ids:
        if each not in seen:
            raise NoSuchIssue(each)
    return seen


def _fields(change: IssueEdit) -> list[str]:
    """Return the options that ``create`` and ``update`` share."""
    fields = []
    if change.description is not None:
        # An empty text from stdin is refused by 1.x.
        fields.append(f"--body-file={_STDIN}" if change.description else "--description=")
    if change.priority is not None:
        fields.append(f"--priority={change.priority}")
    if change.issue_type is not None:
        fields.append(f"--type={change.issue_type}")
    if change.notes is not None:
        fields.append(f"--notes={change.notes}")
    if change.assignee is not None:
        fields.append(f"--assignee={change.assignee}")
    return fields


def _updates(seen: BdRow, change: IssueEdit) -> list[str]:
    fields = _fields(change)
    if change.title is not None:
        fields.append(f"--title={change.title}")
    if change.status not in (None, CLOSED, seen.status):
        fields.append(f"--status={change.status}")
        if change.assignee is None and other_run(seen.assignee):
            fields.append("--assignee=")  # What a run has closed is nobody's when it is open.
    gone = [*change.removed_labels, *outdated_marks(seen.status, seen.labels, change)]
    if own := _own_work(change):
        gone += [each for each in seen.labels if each.startswith(TIMEOUT_LABEL)]
    fields += [f"--remove-label={quoted(each)}" for each in gone]
    return fields + [f"--add-label={quoted(each)}" for each in (*change.added_labels, *own)]


def _own_work(change: IssueEdit) -> list[str]:
    """Return the labels that stand for the issue's own work; ``bd`` keeps no commands."""
    if change.command:
        raise NotDone(
            "bd keeps no command with an issue",
            "put it into the description, or name a function: --label call:MODULE.NAME",
        )
    seconds = change.timeout_seconds
    return [] if seconds is None else [f"{TIMEOUT_LABEL}{seconds:g}s"]


def _depend(tracker: BdTracker, issue_id: IssueId, change: IssueEdit, author: str) -> None:
    for needed, kind in change.depends_on:
        arguments = ["dep", "add", "--json", f"--type={kind}", "--", issue_id, needed]
        _asked(tracker, arguments, author)
    if not change.depends_no_more_on:
        return
    shown = tracker.details([issue_id])[issue_id].original.get("dependencies")
    there = {each.get("id") for each in shown or [] if isinstance(each, dict)}
    for needed in change.depends_no_more_on:
        if needed not in there:
            # 1.x says that it was removed.
            raise NotDone(f"{issue_id} does not depend on {needed}")
        _asked(tracker, ["dep", "remove", "--json", "--", issue_id, needed], author)


def _asked(tracker: BdTracker, arguments: Sequence[str], author: str, text: str = "") -> BdResult:
    """Make one call in the author's name; raise ``NotDone`` if ``bd`` says why it refuses."""
    answer = tracker.ask(arguments, ids=1, text=text, actor=author)
    if answer.status == 0 and (answer.stdout.strip() or not answer.stderr.strip()):
        return answer
    error = failed(answer)
    if error.passing:
        raise error
    why = "; ".join(each.error for each in refusals(answer)) or str(error)
    # 1.x keeps issues of other people, and issues that wait, from being closed by mistake.
    forced = f"if you mean it: bd {arguments[0]} --force {arguments[-1]}"
    raise NotDone(why, forced if "--force" in why else "")
