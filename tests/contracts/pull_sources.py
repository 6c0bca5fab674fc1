"""Who asks, and how the contract tests ask a source."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import Result, Settlement, Source

US = "beads-workers/host/run-1"
THEM = "beads-workers/host/run-2"
STRANGER = "alice"

MakeSource = Callable[..., Source]
"""``make(actor, filters, listed_max)``: one more source on the test's tracker."""


def taken(source: Source, limit: int = 10, skip: Sequence[IssueId] = ()) -> list[IssueId]:
    """Take, and return the ids of the jobs."""
    return [job.issue_id for job in source.take(limit, skip).jobs]


def settled(source: Source, *settlements: Settlement) -> list[Result]:
    """Settle a group, check that every answer is to its settlement, and return the results."""
    answers = source.settle(settlements)
    assert [answer.settlement for answer in answers] == list(settlements)
    return [answer.result for answer in answers]
