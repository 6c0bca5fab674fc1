"""What ``bd`` prints, as values. The exit status and the JSON are judged together.

``stderr`` holds warnings, hints and, in ``bd`` 1.x, error objects; text there is no failure by
itself. Junk, an error object where an array belongs, or nothing at all is never "no issues".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from beads_workers.core.jobs import (
    PRIORITY_DEFAULT,
    PRIORITY_LEAST_URGENT,
    PRIORITY_MOST_URGENT,
    IssueId,
)
from beads_workers.core.json_fields import is_deep, strict_loads
from beads_workers.core.source import SourceError
from beads_workers.core.values import value
from beads_workers.sources.bd.calls import Answer, plain

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")

OPEN, IN_PROGRESS, BLOCKED, CLOSED = "open", "in_progress", "blocked", "closed"


@value
class Row:
    """One issue as ``bd`` showed it; ``original`` is its object, but for what is nested deeply."""

    issue_id: IssueId
    title: str
    status: str
    assignee: str
    priority: int
    issue_type: str
    labels: tuple[str, ...]
    description: str
    notes: str
    original: Mapping[str, Any]


@value
class Refusal:
    """Why one issue of a group was not written. ``lost``: somebody else was faster."""

    issue_id: str
    error: str
    lost: bool


def is_safe_id(issue_id: str) -> bool:
    """Whether an id may stand as an argument: it cannot be taken for an option or a path."""
    return _ID.match(issue_id) is not None


def rows(answer: Answer) -> list[Row]:
    """The issues of a call that must succeed with an array; raises ``SourceError`` otherwise."""
    if answer.status != 0:
        raise failed(answer)
    return _rows_of(answer, _json(answer))


def rows_of_group(answer: Answer) -> list[Row]:
    """The issues that a group write names as written, whatever became of the others.

    Raises ``SourceError`` when the call says neither what it did nor what it refused: such a
    call may have done anything.
    """
    if not answer.stdout.strip() and (refusals(answer) or _losses(answer)):
        return []
    if answer.status != 0 and not refusals(answer):
        raise failed(answer)
    return _rows_of(answer, _json(answer))


def object_of(answer: Answer) -> dict[str, Any]:
    """The object of a call that must succeed with one; raises ``SourceError`` otherwise."""
    if answer.status != 0:
        raise failed(answer)
    value = _json(answer)
    if not isinstance(value, dict) or "error" in value:
        raise failed(answer)
    return value


def refusals(answer: Answer) -> list[Refusal]:
    """What ``bd`` 1.x says per id about a group that did not wholly succeed."""
    entries = _error_object(answer).get("failed")
    found = []
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict):
            error = _text(entry, "error")
            lost = entry.get("guard_mismatch") is True or "claim" in error
            found.append(Refusal(_text(entry, "id"), plain(error), lost))
    return found


def failed(answer: Answer) -> SourceError:
    """Why a call did not do what it was asked, in one line with a hint."""
    message = plain(_text(_error_object(answer), "error")) or _complaint(answer)
    if answer.cut:
        message = "its answer is larger than any that is sensible"
    elif not message:
        message = plain(answer.stdout[:200].decode("utf-8", "replace"))
        message = f"no JSON in its answer: {message}" if message else "it printed nothing"
    status = f" (exit {answer.status})" if answer.status else ""
    return SourceError(f"bd {answer.command}{status}: {message}", _hint(message))


def is_out_of_sync(answer: Answer) -> bool:
    """``bd`` 0.x without its daemon, when another process has just written the JSON Lines."""
    return answer.status != 0 and b"out of sync with JSONL" in answer.stdout + answer.stderr


def _losses(answer: Answer) -> bool:
    # bd 0.x exits 0 with nothing on stdout when every claim of the group was lost.
    return answer.status == 0 and b"already claimed" in answer.stderr


def _json(answer: Answer) -> Any:
    if answer.cut:
        raise failed(answer)
    try:
        return strict_loads(answer.stdout)
    except (ValueError, RecursionError):
        raise failed(answer) from None


def _rows_of(answer: Answer, value: Any) -> list[Row]:
    if not isinstance(value, list) or not all(isinstance(x, dict) for x in value):
        raise failed(answer)
    return [_row(x) for x in value if is_safe_id(_text(x, "id"))]


def _row(issue: dict[str, Any]) -> Row:
    labels = issue.get("labels")
    return Row(
        issue_id=IssueId(_text(issue, "id")),
        title=_text(issue, "title"),
        status=_text(issue, "status"),
        assignee=_text(issue, "assignee"),
        priority=_priority(issue.get("priority")),
        issue_type=_text(issue, "issue_type") or "task",
        labels=tuple(x for x in labels if isinstance(x, str)) if isinstance(labels, list) else (),
        description=_text(issue, "description"),
        notes=_text(issue, "notes"),
        # A field that cannot be passed on must not hold up its issue, or all others.
        original={name: value for name, value in issue.items() if not _is_deep(value)},
    )


def _is_deep(value: Any) -> bool:
    return isinstance(value, dict | list) and is_deep(value)


def _priority(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        return PRIORITY_DEFAULT
    return min(max(value, PRIORITY_MOST_URGENT), PRIORITY_LEAST_URGENT)


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""


def _error_object(answer: Answer) -> dict[str, Any]:
    """The ``{"error": ...}`` of either output: 0.x prints it on stdout, 1.x mostly on stderr."""
    lines = answer.stderr.splitlines()
    for text in (answer.stdout, answer.stderr, *reversed(lines), _braced(answer.stderr)):
        if not text.lstrip().startswith(b"{"):
            continue
        try:
            value = strict_loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and "error" in value:
            return value
    return {}


def _braced(text: bytes) -> bytes:
    return text[text.find(b"{") : text.rfind(b"}") + 1]


def _complaint(answer: Answer) -> str:
    lines = answer.stderr.decode("utf-8", "replace").splitlines()
    said = [line.removeprefix("Error: ") for line in lines if line.startswith("Error")]
    return plain((said or [x for x in lines if x.strip()] or [""])[0])


def _hint(message: str) -> str:
    if "no beads database" in message:
        return "run bd init in the project, or start in a folder below the one that holds .beads"
    if "locked" in message or "lock " in message:
        return "another process holds the tracker; it is asked again later"
    if "JSON" in message or "printed nothing" in message:
        return "is this bd really beads? see what bd ready --json prints"
    return "see what bd doctor says"
