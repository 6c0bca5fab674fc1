"""What an issue of a forge says to a fleet: labels, the body's words about others, texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from beads_workers.core.base.model import PRIORITY_DEFAULT, IssueId
from beads_workers.core.base.source import MARKS
from beads_workers.integrations.forge.api import ForgeComment, ForgeIssue
from beads_workers.trackers.issue import Dependency, TrackerIssue
from beads_workers.trackers.settlement_rules import Ownership

READY = "ready"
IN_PROGRESS, BLOCKED = "bw:in-progress", "bw:blocked"
MARKED = {mark: f"bw:{mark}" for mark in MARKS}
"""The labels of marks."""
OURS = (IN_PROGRESS, BLOCKED, *MARKED.values())
"""Labels that a fleet puts on issues, and takes off again."""

ABOUT = {
    IN_PROGRESS: "A fleet of agents works on it.",
    BLOCKED: "A fleet has given it up for now: its last comment says why.",
    **dict.fromkeys(MARKED.values(), "It waits for a person."),
}
"""What people read of these labels."""

TYPES = {"bug": "bug", "enhancement": "feature", "feature": "feature", "epic": "epic"}
_WORDS = {"critical": 0, "urgent": 0, "high": 1, "medium": 2, "normal": 2, "low": 3, "lowest": 4}
_PRIORITY = re.compile(r"(?:priority[:/ ]*)?(?:p)?([0-4])|priority[:/ ]+([a-z]+)", re.IGNORECASE)
_CODE = re.compile(r"(?ms)^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)|`[^`\n]*`")
_QUOTE = re.compile(r"(?m)^ {0,3}>.*$")
_COMMENT = re.compile(r"(?s)<!--.*?(?:-->|\Z)")
_LIST = r"#\d{1,9}(?!\d)(?:(?:\s*,\s*(?:and\s+)?|\s+and\s+)#\d{1,9}(?!\d))*"
_WAITS = re.compile(rf"(?i)\b(?:blocked by|depends on):?\s+({_LIST})")
_TASK = re.compile(r"(?m)^[ \t]*[-*+] \[[ xX]\] +(?:.*[ \t])?#(\d{1,9})\b")
_NUMBER = re.compile(r"#(\d{1,9})")


def number_of(text: str) -> int | None:
    """Return the number that an id names; None if it is none of a forge."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def marks_of(labels: Iterable[str]) -> list[str]:
    """Return the marks that an issue has, by its labels."""
    return [mark for mark, label in MARKED.items() if label in labels]


def says_field(label: str) -> bool:
    """Return whether a label stands for a field of an issue: its priority or its type."""
    return label.lower() in TYPES or _priority(label) is not None


def _priority(label: str) -> int | None:
    match = _PRIORITY.fullmatch(label.strip())
    if match and match[1] and label.strip() != match[1]:
        return int(match[1])
    return _WORDS.get(match[2].lower()) if match and match[2] else None


def priority_of(labels: Iterable[str]) -> int:
    """Return the priority that labels say: ``P1``, ``priority: high``; the most urgent of them."""
    said = (priority for label in labels if (priority := _priority(label)) is not None)
    return min(said, default=PRIORITY_DEFAULT)


def waits_in(body: str) -> tuple[int, ...]:
    """Return the issues that a body says to wait for, outside code and quotes: "blocked by #12",
    and the entries of its task list."""
    for hidden in (_COMMENT, _CODE, _QUOTE):
        body = hidden.sub(" ", body)
    named = [n for each in _WAITS.findall(body) for n in _NUMBER.findall(each)]
    numbers = dict.fromkeys(map(int, (*named, *_TASK.findall(body))))
    return tuple(number for number in numbers if number)


def in_order(issues: Iterable[ForgeIssue]) -> list[ForgeIssue]:
    """Return issues as they are to be worked on: the most urgent first, then the oldest."""
    return sorted(issues, key=lambda issue: (priority_of(issue.labels), issue.number))


def to_tracker(
    issue: ForgeIssue,
    ownership: Ownership,
    waits_for: Iterable[int] = (),
    comments: Sequence[ForgeComment] = (),
) -> TrackerIssue:
    """Return an issue as our own trackers keep it. ``comments``: those that may be read."""
    types = (TYPES[label.lower()] for label in issue.labels if label.lower() in TYPES)
    told = {*OURS, *filter(says_field, issue.labels)}
    return TrackerIssue(
        id=str(issue.number),
        title=issue.title.strip() or f"#{issue.number}",
        description=issue.body,
        status=ownership.status,
        priority=priority_of(issue.labels),
        issue_type=next(types, "task"),
        assignee=ownership.assignee,
        labels=tuple(label for label in issue.labels if label not in told)
        + tuple(marks_of(issue.labels)),
        created_at=issue.created_at,
        updated_at=issue.updated_at,
        closed_at=issue.closed_at,
        comments=tuple(
            {
                "id": each.comment_id,
                "author": each.author,
                "text": each.text,
                "created_at": each.created_at,
            }
            for each in comments
        ),
        extra={"created_by": issue.author},
        dependencies=tuple(Dependency(IssueId(str(number))) for number in waits_for),
    )
