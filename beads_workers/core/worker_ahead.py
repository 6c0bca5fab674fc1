"""The TASKs that a worker keeps for later, in their order: none of them has begun.

Source: docs/PROTOCOL.md, "Tasks ahead".
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from beads_workers.core.jobs import IssueId
from beads_workers.core.message_types import NOT_BEGUN, Failed, Task
from beads_workers.core.outcomes import OutcomeKind
from beads_workers.core.plans import Plan


@dataclass(slots=True)
class Ahead:
    """``room``: how many there may be."""

    room: int
    _kept: deque[tuple[Task, Plan]] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, task: Task, plan: Plan) -> bool:
        """For later; False where it is one too many."""
        if len(self._kept) >= self.room:
            return False
        self._kept.append((task, plan))
        return True

    def next(self) -> tuple[Task, Plan]:
        """The one to begin now."""
        return self._kept.popleft()

    def has(self, issue_id: IssueId) -> bool:
        """Whether it is kept."""
        return any(task.issue_id == issue_id for task, _ in self._kept)

    def give_back(self, worker_id: str, why: str, only: IssueId | None = None) -> list[Failed]:
        """Keep it, or all of them, no longer: what the orchestrator is told."""
        back = [task for task, _ in self._kept if only in (None, task.issue_id)]
        self._kept = deque(kept for kept in self._kept if kept[0] not in back)
        return [
            Failed(
                task.issue_id,
                worker_id,
                why,
                0,
                OutcomeKind.CANCELLED,
                error_detail=NOT_BEGUN,
                request_id=task.request_id,
            )
            for task in back
        ]
