"""What people change on a forge through us, as the token's login."""

from __future__ import annotations

from collections.abc import Iterable

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.ready import BLOCKS
from beads_workers.core.base.source import IssueEdit, NoSuchIssue, NotDone
from beads_workers.integrations.forge import reading
from beads_workers.integrations.forge.api import Forge, Gone, IssueChange, Thread
from beads_workers.trackers.settlement_rules import (
    CLOSED,
    OPEN,
    Ownership,
    outdated_marks,
    refuse_held,
)

WALK_MAX = 200
"""Issues that are looked at for a circle."""
TASK = "task"
"""The type of an issue without a label for it."""
_NAMES = {kind: label for label, kind in reversed(reading.TYPES.items())}


def add(forge: Forge, change: IssueEdit) -> IssueId:
    """See ``EditableSource.add``."""
    _refuse(change)
    labels = [*change.added_labels, *_labels(change)]
    assignees = (change.assignee,) if change.assignee else None
    made = IssueChange(
        title=change.title,
        body=change.description,
        labels_on=tuple(dict.fromkeys(labels)),
        assignees=assignees,
    )
    links = _links(forge, change)
    number = forge.create(made)
    _depend(forge, number, links)
    return IssueId(str(number))


def edit(forge: Forge, thread: Thread, ownership: Ownership, change: IssueEdit) -> None:
    """See ``EditableSource.edit``."""
    issue = thread.issue
    issue_id = IssueId(str(issue.number))
    _refuse(change)
    if change.status not in (None, OPEN, CLOSED):
        raise NotDone(f"a forge has no status {change.status}: open and closed are known")
    if change.status is not None or change.assignee is not None:
        refuse_held(issue_id, ownership)
    _depend(forge, issue.number, _links(forge, change))
    marks = outdated_marks(ownership.status, reading.marks_of(issue.labels), change)
    off = [*change.removed_labels, *(reading.MARKED[mark] for mark in marks)]
    if change.status in (OPEN, CLOSED):
        off.append(reading.BLOCKED)
    on = [*change.added_labels, *_labels(change)]
    off += _replaced(issue.labels, change, on)
    for text in (change.notes, change.reason if change.status == CLOSED else None):
        if text:
            forge.comment(issue.number, text)
    is_open = None if change.status is None else change.status == OPEN
    assignees = None if change.assignee is None else tuple(filter(None, [change.assignee]))
    forge.change(
        issue.number,
        IssueChange(
            title=change.title,
            body=change.description,
            is_open=None if is_open is issue.is_open else is_open,
            labels_on=tuple(label for label in on if label not in issue.labels),
            labels_off=tuple(label for label in off if label in issue.labels),
            assignees=assignees,
        ),
        issue.labels,
    )


def _refuse(change: IssueEdit) -> None:
    if change.command is not None:
        raise NotDone("an issue of a forge brings no command: everybody could write one")
    if change.timeout_seconds is not None:
        raise NotDone("a forge keeps no time limit of an issue", "give 'start' a --timeout")
    if change.issue_type not in (None, TASK, *_NAMES):
        raise NotDone(f"types here are {TASK}, {', '.join(_NAMES)}", "--add-label has others")


def _labels(change: IssueEdit) -> Iterable[str]:
    if change.priority is not None:
        yield f"P{change.priority}"
    if change.issue_type is not None and change.issue_type in _NAMES:
        yield _NAMES[change.issue_type]


def _replaced(labels: Iterable[str], change: IssueEdit, on: Iterable[str]) -> list[str]:
    """Return the labels that say another priority or type than the one that is wanted now."""
    fields = [label for label in labels if reading.says_field(label) and label not in on]
    return [
        label
        for label in fields
        if (change.issue_type if label.lower() in reading.TYPES else change.priority) is not None
    ]


def _links(forge: Forge, change: IssueEdit) -> list[tuple[int, bool]]:
    """Return the issues that one is to wait for, and those that it is not to; all are there."""
    for _, kind in change.depends_on:
        if kind != BLOCKS:
            raise NotDone(f"a forge knows only issues that wait for others, not {kind}")
    on = [(_there(forge, issue_id), True) for issue_id, _ in change.depends_on]
    return on + [(_there(forge, issue_id), False) for issue_id in change.depends_no_more_on]


def _depend(forge: Forge, number: int, links: Iterable[tuple[int, bool]]) -> None:
    for other, on in links:
        here = _here(forge, number)
        if on and other in here:
            continue  # Gitea fails if it is asked for what is there.
        if on and (number == other or _waits(forge, other, number)):
            raise NotDone(f"{number} and {other} would wait for each other")
        if not on and other not in here:
            where = "if it stands in the text of the issue, edit that"
            raise NotDone(f"{number} does not depend on {other} by a link of the forge; {where}")
        forge.depend(number, other, on=on)


def _waits(forge: Forge, number: int, other: int) -> bool:
    """Return whether an issue waits for another one, maybe through others."""
    found, seen = [number], {number}
    while found and len(seen) < WALK_MAX:
        here = _here(forge, found.pop())
        if other in here:
            return True
        found += sorted(here - seen)
        seen |= here
    return False


def _here(forge: Forge, number: int) -> set[int]:
    return {each.number for each in forge.blockers(number) if not each.place}


def _there(forge: Forge, issue_id: IssueId) -> int:
    """Return the number of an issue that there is; raise ``NoSuchIssue``."""
    number = reading.number_of(issue_id)
    try:
        if number is not None:
            forge.thread(number, history=False)
            return number
    except Gone:
        pass
    raise NoSuchIssue(issue_id)
