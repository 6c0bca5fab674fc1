"""What is claimed and unsent, in the order in which it is sent."""

from __future__ import annotations

import heapq

from beads_workers.core.jobs import IssueId


class Backlog:
    """By priority, then by age. It may hold what is claimed no longer: whoever takes it looks."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, IssueId]] = []
        self._added = 0

    def add(self, issue_id: IssueId, priority: int) -> None:
        """Line it up."""
        self._added += 1
        heapq.heappush(self._heap, (priority, self._added, issue_id))

    def next(self) -> IssueId | None:
        """Take the first one off."""
        return heapq.heappop(self._heap)[2] if self._heap else None

    def in_order(self) -> list[IssueId]:
        """All of them, the next one first."""
        return [issue_id for _, _, issue_id in sorted(self._heap)]
