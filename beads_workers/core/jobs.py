"""A job: one piece of work, whatever source it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NewType

IssueId = NewType("IssueId", str)
"""A job's id in its source; unique within the one source of a run."""

PRIORITY_MOST_URGENT = 0
PRIORITY_LEAST_URGENT = 4
PRIORITY_DEFAULT = 2


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is given to do. A source builds it from a claimed issue.

    ``original`` is the issue as the tracker showed it (JSON object), handed to commands in
    ``BW_ISSUE_FILE``. ``command`` is set only where a person attached one to the issue.
    """

    source: str
    issue_id: IssueId
    title: str
    priority: int = PRIORITY_DEFAULT
    issue_type: str = "task"
    labels: tuple[str, ...] = ()
    description: str = ""
    command: tuple[str, ...] | None = None
    timeout_seconds: float | None = None
    original: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listed:
    """One row of a listing: what the tracker says could be taken. A cache, never a claim."""

    issue_id: IssueId
    title: str
    priority: int = PRIORITY_DEFAULT


@dataclass(frozen=True, slots=True)
class Filters:
    """Which ready issues a fleet takes; every part that is set must hold.

    ``labels`` all present, ``labels_any`` at least one, ``exclude_labels`` none; ``types`` and
    ``priorities`` any of; ``parent`` the id of an epic; ``only`` these ids and no others.
    """

    labels: tuple[str, ...] = ()
    labels_any: tuple[str, ...] = ()
    exclude_labels: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    priorities: tuple[int, ...] = ()
    parent: str | None = None
    only: tuple[str, ...] = ()
