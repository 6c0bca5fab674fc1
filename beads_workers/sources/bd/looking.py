"""Looking at issues for people who ask: what ``bd`` knows of them, without ever writing.

``bd`` 1.3 lists issues with their dependencies; older ones only tell them with ``bd show``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from beads_workers.core.jobs import IssueId, path_of
from beads_workers.core.source import Seen
from beads_workers.sources.bd.answers import OPEN, Row, is_safe_id, rows
from beads_workers.sources.bd.calls import Answer
from beads_workers.sources.bd.tracker import IDS_PER_CALL_MAX, Tracker

WAITING = ("blocks", "conditional-blocks", "waits-for")
"""Kinds of dependencies that hold an issue back; the others only inform."""


def look(tracker: Tracker, issue_ids: Sequence[IssueId]) -> dict[IssueId, Seen]:
    """See ``Source.look``; one or two calls for every hundred issues."""
    seen: dict[IssueId, Seen] = {}
    safe = [issue_id for issue_id in dict.fromkeys(issue_ids) if is_safe_id(issue_id)]
    for start in range(0, len(safe), IDS_PER_CALL_MAX):
        part = safe[start : start + IDS_PER_CALL_MAX]
        # "show" fails for a mere missing one, and takes a part of an id for the whole.
        found = _list(tracker, "--all", "--limit=0", f"--id={','.join(part)}", ids=len(part))
        seen |= {row.issue_id: _seen(row) for row in _whole(tracker, found)}
    return seen


def unfinished(tracker: Tracker, rows_max: int) -> list[Seen]:
    """See ``Source.unfinished``."""
    found = _list(tracker, "--sort=priority", f"--limit={rows_max}")
    return [_seen(row) for row in _whole(tracker, found)]


def ready(tracker: Tracker) -> frozenset[IssueId]:
    """See ``Source.ready``."""
    brief = ["--brief"] if tracker.abilities.brief else []
    shown = rows(_ask(tracker, "ready", "--json", "--limit=0", *brief))
    return frozenset(row.issue_id for row in shown if row.status == OPEN)


def _whole(tracker: Tracker, found: Sequence[Row]) -> list[Row]:
    """The rows of a listing with what this ``bd`` may leave out there: dependencies, deferral."""
    if tracker.abilities.brief_list:
        return list(found)
    ids = [row.issue_id for row in found]
    shown: list[Row] = []
    for start in range(0, len(ids), IDS_PER_CALL_MAX):
        part = ids[start : start + IDS_PER_CALL_MAX]
        shown += rows(_ask(tracker, "show", "--json", *part, ids=len(part)))
    return [row for row in shown if row.issue_id in ids]


def _list(tracker: Tracker, *arguments: str, ids: int = 0) -> list[Row]:
    brief = ["--brief"] if tracker.abilities.brief_list else []
    hidden = tracker.abilities.hidden
    return rows(_ask(tracker, "list", "--json", *hidden, *brief, *arguments, ids=ids))


def _ask(tracker: Tracker, *arguments: str, ids: int = 0) -> Answer:
    readonly = ["--readonly"] if tracker.abilities.readonly else []
    return tracker.ask([*arguments, *readonly], ids=ids)


def _seen(row: Row) -> Seen:
    fields = row.original
    named = _dependencies(fields)
    parent = fields.get("parent")
    parents = [name for name, kind in named if kind == "parent-child"]
    if isinstance(parent, str) and parent not in parents:
        parents.append(parent)
    return Seen(
        issue_id=row.issue_id,
        title=row.title,
        status=row.status,
        assignee=row.assignee,
        priority=row.priority,
        issue_type=row.issue_type,
        labels=row.labels,
        waits_for=_ids(name for name, kind in named if kind in WAITING),
        parents=_ids(parents),
        deferred_until=_text(fields, "defer_until"),
        closed_at=_text(fields, "closed_at"),
        close_reason=_text(fields, "close_reason"),
        calls=path_of(fields, row.labels),
    )


def _dependencies(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Id and kind of each, as a listing names them or as ``bd show`` does."""
    named = fields.get("dependencies")
    found = [each for each in named if isinstance(each, dict)] if isinstance(named, list) else []
    return [
        (
            _text(each, "depends_on_id") or _text(each, "id"),
            _text(each, "type") or _text(each, "dependency_type") or "blocks",
        )
        for each in found
    ]


def _ids(names: Iterable[str]) -> tuple[IssueId, ...]:
    return tuple(IssueId(name) for name in dict.fromkeys(names) if is_safe_id(name))


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""
