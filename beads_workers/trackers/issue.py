"""An issue as our own trackers keep it: its JSON, and the job made from it.

Beads leaves out empty keys, and so do we; unknown keys are kept and returned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from beads_workers.core.base.model import (
    PRIORITY_DEFAULT,
    PRIORITY_LEAST_URGENT,
    PRIORITY_MOST_URGENT,
    IssueId,
    Job,
    call_of,
    path_of,
    value,
)
from beads_workers.core.base.ready import BLOCKS, HIDDEN_KEYS, PARENT_CHILD, UNTIL_CLOSED
from beads_workers.core.base.source import TrackedIssue
from beads_workers.core.base.times import parse_duration
from beads_workers.core.base.traces import KEY
from beads_workers.trackers.settlement_rules import OPEN, TOMBSTONE

TIMEOUT_LABEL = "timeout:"
DEFER_UNTIL = "defer_until"

ID_CHARS_MAX = 200
_ID = re.compile(rf"\w[\w.:-]{{0,{ID_CHARS_MAX - 1}}}")
_NOT_FIRST = ".:-"
"""Characters that no id begins with: its file would be hidden, or its argument an option."""
_TIMEOUT_SECONDS_MAX = 1e9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Value = TypeVar("_Value")


class BadIssue(ValueError):
    """The object is no issue; ``str()`` is one line that says why."""


@value
class Dependency:
    """A dependency."""

    depends_on_id: str
    # Says whether ``depends_on_id`` holds the issue back, is its parent, or only informs: see
    # ``core/base/ready``.
    type: str = BLOCKS
    created_at: str = ""
    # With ``waits-for`` the gate, in ``metadata``.
    extra: Mapping[str, Any] = field(default_factory=dict)


@value
class TrackerIssue:
    """An issue. Texts are empty if beads would leave out the key; times are RFC 3339 texts.

    ``extra``: keys that mean nothing to us, verbatim. ``comments``: beads' objects, verbatim.
    """

    id: str
    title: str
    description: str = ""
    status: str = OPEN
    priority: int = PRIORITY_DEFAULT
    issue_type: str = "task"
    assignee: str = ""
    labels: tuple[str, ...] = ()
    created_at: str = ""
    updated_at: str = ""
    closed_at: str = ""
    close_reason: str = ""
    notes: str = ""
    comments: tuple[Mapping[str, Any], ...] = ()
    dependencies: tuple[Dependency, ...] = ()
    timeout_seconds: float | None = None
    command: tuple[str, ...] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


_TEXTS = (
    "description",
    "issue_type",
    "assignee",
    "created_at",
    "updated_at",
    "closed_at",
    "close_reason",
    "notes",
)
_KNOWN = frozenset(
    {"id", "title", "status", "priority", "labels", "comments", "dependencies"}
    | {"timeout_seconds", "command", *_TEXTS}
)


def to_object(issue: TrackerIssue) -> dict[str, Any]:
    """Return the JSON object that beads would export, with our own keys and the unknown ones
    added."""
    listed: dict[str, Any] = {
        "id": issue.id,
        "title": issue.title,
        "description": issue.description,
        "notes": issue.notes,
        "status": issue.status,
        "priority": issue.priority,
        "issue_type": issue.issue_type,
        "assignee": issue.assignee,
        "created_at": issue.created_at,
        "updated_at": issue.updated_at,
        "closed_at": issue.closed_at,
        "close_reason": issue.close_reason,
        **issue.extra,
        "labels": list(issue.labels),
        "dependencies": [_dependency_object(issue.id, each) for each in issue.dependencies],
        "comments": [dict(each) for each in issue.comments],
        "timeout_seconds": issue.timeout_seconds,
        "command": None if issue.command is None else list(issue.command),
    }
    return {k: v for k, v in listed.items() if k in issue.extra or v not in ("", [], None)}


def from_object(fields: Mapping[str, Any], left_out: list[str] | None = None) -> TrackerIssue:
    """Read one object; raises ``BadIssue``. Missing keys take the defaults of ``TrackerIssue``.

    ``left_out``: if given, a label, comment or dependency that cannot be read is left out, and
    named there.
    """
    key = checked_id(fields.get("id"), "id")
    title = _typed(fields, "title", str, "")
    if not title.strip():
        raise BadIssue("it has no title")
    texts = {name: _typed(fields, name, str, "") for name in _TEXTS}
    for name in ("created_at", "updated_at", "closed_at"):
        _checked_time(texts[name], name)
    _checked_time(_typed(fields, DEFER_UNTIL, str, ""), DEFER_UNTIL)
    edges = _parts(fields, "dependencies", partial(_dependency, key), left_out)
    return TrackerIssue(
        id=key,
        title=title,
        status=_typed(fields, "status", str, "") or OPEN,
        priority=_priority(fields),
        labels=_parts(fields, "labels", partial(_of, str), left_out),
        comments=_parts(fields, "comments", partial(_of, dict), left_out),
        dependencies=tuple({(d.depends_on_id, d.type): d for d in edges}.values()),
        timeout_seconds=_seconds(fields),
        command=_texts(fields, "command") or None,
        extra={name: value for name, value in fields.items() if name not in _KNOWN},
        **{**texts, "issue_type": texts["issue_type"] or "task"},
    )


def to_seen(issue: TrackerIssue) -> TrackedIssue:
    """Return the issue as it is shown to a person who asks."""
    return TrackedIssue(
        issue_id=IssueId(issue.id),
        title=issue.title,
        status=issue.status,
        assignee=issue.assignee,
        priority=issue.priority,
        issue_type=issue.issue_type,
        labels=issue.labels,
        waits_for=_depends_on(issue, *UNTIL_CLOSED),
        parents=_depends_on(issue, PARENT_CHILD),
        deferred_until=_deferred_until(issue),
        hidden_by=next((key for key in HIDDEN_KEYS if issue.extra.get(key) is True), ""),
        closed_at=issue.closed_at,
        close_reason=issue.close_reason,
        calls=path_of(issue.extra, issue.labels),
        has_command=issue.command is not None,
    )


def due(issue: TrackerIssue) -> int | None:
    """Return until when the issue is deferred, in microseconds since 1970; None if it has no such
    time."""
    text = _deferred_until(issue)
    return microseconds(text) if text and issue.status != TOMBSTONE else None


def microseconds(time_text: str) -> int:
    """Return an RFC 3339 time as microseconds since 1970; without an offset it is UTC.

    Raises ``ValueError``. Only for comparing the tracker's own times with each other.
    """
    try:
        parsed = datetime.fromisoformat(time_text)
        aware = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
        return (aware - _EPOCH) // timedelta(microseconds=1)
    except OverflowError:
        raise ValueError(f"{time_text[:40]!r} is out of range") from None


def timeout_of(labels: Iterable[str]) -> float | None:
    """Return the seconds of a label ``timeout:2h``, for one attempt; None if no label has them."""
    for label in labels:
        if label.startswith(TIMEOUT_LABEL):
            try:
                seconds = parse_duration(label.removeprefix(TIMEOUT_LABEL))
            except ValueError:
                continue
            if 0 < seconds <= _TIMEOUT_SECONDS_MAX:
                return seconds
    return None


def enqueued_at(created_at: object) -> float:
    """Return when an issue was made, in epoch seconds; 0 if its tracker gives no valid time."""
    try:
        return max(0.0, microseconds(str(created_at)) / 1_000_000)
    except ValueError:
        return 0.0


def time_text(seconds: float) -> str:
    """Format seconds since 1970 as beads writes times: UTC, RFC 3339."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def checked_id(value: object, what: str) -> str:
    """Return an id that is safe as an argument and as a file name; raise ``BadIssue``."""
    if not isinstance(value, str) or not value:
        raise BadIssue(f"it has no {what}")
    if _ID.fullmatch(value):
        return value
    why = "holds more than letters, digits and . _ : -"
    if len(value) > ID_CHARS_MAX:
        why = f"has {len(value)} characters; {ID_CHARS_MAX} are allowed"
    elif value[0] in _NOT_FIRST:
        why = f"begins with {value[0]!r}"
    raise BadIssue(f"{what} {value[:40]!r} {why}")


def _deferred_until(issue: TrackerIssue) -> str:
    found = issue.extra.get(DEFER_UNTIL)
    return found if isinstance(found, str) else ""


def _depends_on(issue: TrackerIssue, *kinds: str) -> tuple[IssueId, ...]:
    found = (d.depends_on_id for d in issue.dependencies if d.type in kinds)
    return tuple(map(IssueId, dict.fromkeys(found)))


def _dependency_object(issue_id: str, dependency: Dependency) -> dict[str, Any]:
    listed = {
        "issue_id": issue_id,
        "depends_on_id": dependency.depends_on_id,
        "type": dependency.type,
        "created_at": dependency.created_at,
    }
    return {key: value for key, value in listed.items() if value} | dict(dependency.extra)


def _dependency(issue_id: str, value: object) -> Dependency:
    fields = _of(dict, value)
    if _typed(fields, "issue_id", str, issue_id) != issue_id:
        raise BadIssue("it names another issue as its own")
    depends_on_id = checked_id(fields.get("depends_on_id"), "depends_on_id")
    if depends_on_id == issue_id:
        raise BadIssue("the issue depends on itself")
    created_at = _typed(fields, "created_at", str, "")
    known = ("issue_id", "depends_on_id", "type", "created_at")
    extra = {name: value for name, value in fields.items() if name not in known}
    return Dependency(depends_on_id, _typed(fields, "type", str, "") or BLOCKS, created_at, extra)


def _parts(
    fields: Mapping[str, Any], name: str, read: Callable[[Any], _Value], left_out: list[str] | None
) -> tuple[_Value, ...]:
    found: list[_Value] = []
    values = fields.get(name) or []
    for number, each in enumerate(values if isinstance(values, list) else [values], 1):
        try:
            found.append(read(each))
        except BadIssue as error:
            if left_out is None:
                raise BadIssue(f"{name}: {error}") from None
            left_out.append(f"{name}, number {number}: {error}")
    return tuple(found)


def _of(kind: type[_Value], value: object) -> _Value:
    if not isinstance(value, kind):
        raise BadIssue(f"it is not of type {kind.__name__}")
    return value


def _typed(fields: Mapping[str, Any], name: str, kind: type[_Value], default: _Value) -> _Value:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise BadIssue(f"{name} is not of type {kind.__name__}")
    return value


def _texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = _typed(fields, name, list, [])
    if not all(isinstance(value, str) for value in values):
        raise BadIssue(f"{name} is not a list of texts")
    return tuple(values)


def _priority(fields: Mapping[str, Any]) -> int:
    value = fields.get("priority", PRIORITY_DEFAULT)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadIssue("priority is not a whole number")
    if not PRIORITY_MOST_URGENT <= value <= PRIORITY_LEAST_URGENT:
        raise BadIssue(f"priority {str(value)[:20]} is not in 0 to 4")
    return value


def _seconds(fields: Mapping[str, Any]) -> float | None:
    value = fields.get("timeout_seconds")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadIssue("timeout_seconds is not a number")
    if not 0 < value <= _TIMEOUT_SECONDS_MAX:
        raise BadIssue("timeout_seconds is not above 0, or longer than thirty years")
    return value


def _checked_time(value: str, name: str) -> None:
    if not value:
        return
    try:
        microseconds(value)
    except ValueError:
        raise BadIssue(f"{name} {value[:40]!r} is not a time") from None


# --- issue job -----------------------------------------------------------------------------------
# The work that a worker gets: a job, from an issue of our own trackers.


def to_job(issue: TrackerIssue, source: str, needed: Iterable[TrackerIssue] = ()) -> Job:
    """Return the job for a worker; ``needed``: issues that it depends on, to be described in the
    job."""
    call = call_of(issue.extra, ())
    if call is None and issue.labels:
        call = call_of(to_object(issue), issue.labels)
    lazy = _Original(issue, tuple(needed))
    original: Mapping[str, Any] = lazy if call is not None else lazy.made()
    return Job(
        source=source,
        issue_id=IssueId(issue.id),
        title=issue.title,
        priority=issue.priority,
        issue_type=issue.issue_type,
        labels=issue.labels,
        description=issue.description,
        command=issue.command,
        call=call,
        timeout_seconds=issue.timeout_seconds or timeout_of(issue.labels),
        original=original,
        enqueued_at=enqueued_at(issue.created_at),
        trace_context=issue.extra.get(KEY),
    )


class _Original(Mapping[str, Any]):
    """``to_object`` of an issue, built at the first access: a function needs only its arguments."""

    __slots__ = ("_issue", "_needed", "_object")

    def __init__(self, issue: TrackerIssue, needed: tuple[TrackerIssue, ...] = ()) -> None:
        self._issue = issue
        self._needed = needed
        self._object: dict[str, Any] | None = None

    def __getitem__(self, name: str) -> Any:
        return self.made()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.made())

    def __len__(self) -> int:
        return len(self.made())

    def made(self) -> dict[str, Any]:
        """Return the whole object, built now if necessary."""
        if self._object is None:
            self._object = to_object(self._issue)
            if self._needed:
                by_id = {each.id: each for each in self._needed}
                rows = self._object["dependencies"]
                self._object["dependencies"] = [
                    _dependency_fields(by_id.get(row["depends_on_id"])) | row for row in rows
                ]
        return self._object


def _dependency_fields(issue: TrackerIssue | None) -> dict[str, str]:
    """Return what a dependant is told of an issue, by the names that ``bd show`` uses."""
    if issue is None:
        return {}
    fields = {"title": issue.title, "status": issue.status, "close_reason": issue.close_reason}
    return {name: text for name, text in fields.items() if text}
