"""What a worker is given to do: a job, from an issue of our own trackers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from beads_workers.core.jobs import IssueId, Job, call_of
from beads_workers.core.traces import KEY
from beads_workers.sources.issue import Issue, enqueued_at, to_object


def to_job(issue: Issue, source: str) -> Job:
    """What a worker is given to do."""
    call = call_of(issue.extra, ())
    if call is None and issue.labels:
        call = call_of(to_object(issue), issue.labels)
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
        timeout_seconds=issue.timeout_seconds,
        original=_Original(issue),
        enqueued_at=enqueued_at(issue.created_at),
        trace_context=issue.extra.get(KEY),
    )


class _Original(Mapping[str, Any]):
    """``to_object`` of an issue, made when somebody looks: a function needs only its arguments."""

    __slots__ = ("_issue", "_object")

    def __init__(self, issue: Issue) -> None:
        self._issue = issue
        self._object: dict[str, Any] | None = None

    def __getitem__(self, name: str) -> Any:
        return self._made()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made())

    def __len__(self) -> int:
        return len(self._made())

    def _made(self) -> dict[str, Any]:
        if self._object is None:
            self._object = to_object(self._issue)
        return self._object
