"""What people change in the built-in tracker: each function inside the caller's ``transaction``.

See ``core.base.source.EditableSource``. ``now``: the time as the tracker keeps it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import IssueComment, IssueEdit, NoSuchIssue, NotDone
from beads_workers.trackers.issue import BadIssue, Dependency, TrackerIssue, from_object, to_object
from beads_workers.trackers.settlement_rules import (
    BLOCKED,
    CLOSED,
    IN_PROGRESS,
    OPEN,
    Ownership,
    other_run,
    outdated_marks,
    refuse_held,
)
from beads_workers.trackers.sqlite.exchange import DependencyCycle, write_issues
from beads_workers.trackers.sqlite.store import SqliteStore

STATUSES = (OPEN, IN_PROGRESS, BLOCKED, "deferred", CLOSED)
"""Statuses that a person may set; an import keeps others."""

_PLAIN = ("title", "description", "notes", "priority", "issue_type", "assignee")
"""Fields that are written as they are given."""


def add(store: SqliteStore, change: IssueEdit, author: str, now: str) -> IssueId:
    """See ``EditableSource.add``."""
    blank = TrackerIssue(id=store.new_id(), title="", created_at=now, updated_at=now)
    blank = replace(blank, extra={"created_by": author} if author else {})
    _write(store, _changed(store, blank, change, now))
    return IssueId(blank.id)


def edit(store: SqliteStore, issue_id: IssueId, change: IssueEdit, now: str) -> None:
    """See ``EditableSource.edit``."""
    issue = _issue(store, issue_id)
    if change.status is not None or change.assignee is not None:
        refuse_held(issue_id, Ownership(issue.status, issue.assignee))
    changed = _changed(store, issue, change, now)
    if changed != issue:
        _write(store, replace(changed, updated_at=now))


def comment(
    store: SqliteStore, issue_id: IssueId, text: str, author: str, now: str
) -> IssueComment:
    """See ``EditableSource.comment``."""
    issue = _issue(store, issue_id)
    # Comments of an import may have texts as ids; those of one issue never repeat.
    numbers = [each["id"] for each in issue.comments if isinstance(each.get("id"), int)]
    number = max(numbers, default=0) + 1
    kept = {"id": number, "issue_id": issue_id, "author": author, "text": text, "created_at": now}
    _write(store, replace(issue, comments=(*issue.comments, kept), updated_at=now))
    return IssueComment(str(number), author, text, now)


def delete(store: SqliteStore, issue_id: IssueId) -> None:
    """See ``EditableSource.delete``."""
    issue = _issue(store, issue_id)
    refuse_held(issue_id, Ownership(issue.status, issue.assignee))
    store.delete(issue_id)


def _issue(store: SqliteStore, issue_id: IssueId) -> TrackerIssue:
    for issue in store.issues([issue_id]):
        return issue
    raise NoSuchIssue(issue_id)


def _write(store: SqliteStore, issue: TrackerIssue) -> None:
    try:
        write_issues(store, [issue])
    except DependencyCycle as cycle:
        raise NotDone(
            f"these would wait for each other: {cycle}", "take one of these dependencies away"
        ) from None


def _changed(store: SqliteStore, issue: TrackerIssue, change: IssueEdit, now: str) -> TrackerIssue:
    """Return the issue with the change, checked as an imported one is."""
    given = {name: getattr(change, name) for name in (*_PLAIN, "command", "timeout_seconds")}
    fields: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
    fields |= _moved(issue, change, now)
    labels = (*issue.labels, *change.added_labels)
    gone = (*change.removed_labels, *outdated_marks(issue.status, issue.labels, change))
    kept = (each for each in dict.fromkeys(labels) if each not in gone)
    needed = _needed(store, issue, change, now)
    try:
        return from_object(
            to_object(replace(issue, labels=tuple(kept), dependencies=needed, **fields))
        )
    except BadIssue as error:
        raise NotDone(f"this is no issue: {error}") from None


def _moved(issue: TrackerIssue, change: IssueEdit, now: str) -> Mapping[str, str]:
    """Return the fields that go with another status."""
    if change.status is None or change.status == issue.status:
        return {}
    if change.status not in STATUSES:
        raise NotDone(
            f"the status cannot be {change.status[:40]!r}", f"it is one of {', '.join(STATUSES)}"
        )
    if change.status == CLOSED:
        return {"status": CLOSED, "closed_at": now, "close_reason": change.reason}
    # What a run has closed is nobody's when it is open again.
    assignee = "" if other_run(issue.assignee) else issue.assignee
    moved = {"status": change.status, "closed_at": "", "close_reason": "", "assignee": assignee}
    return moved | ({} if change.assignee is None else {"assignee": change.assignee})


def _needed(
    store: SqliteStore, issue: TrackerIssue, change: IssueEdit, now: str
) -> tuple[Dependency, ...]:
    named = [needed for needed, _ in change.depends_on]
    for each in named:
        if each not in store.known(named):
            raise NoSuchIssue(each)
    there = {each.depends_on_id for each in issue.dependencies}
    for each in change.depends_no_more_on:
        if each not in there:
            raise NotDone(f"{issue.id} does not depend on {each}")
    found = {(each.depends_on_id, each.type): each for each in issue.dependencies}
    for key in change.depends_on:
        found.setdefault(key, Dependency(*key, now))
    gone = change.depends_no_more_on
    return tuple(each for each in found.values() if each.depends_on_id not in gone)
