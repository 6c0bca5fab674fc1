"""The task that a worker has in hand, and how far it has come."""

from __future__ import annotations

import json
from dataclasses import dataclass

from beads_workers.core.message_types import Done, Failed, Task
from beads_workers.core.outcomes import Outcome, OutcomeKind
from beads_workers.core.plans import Plan, Step


@dataclass(slots=True)
class Current:
    """``answer`` is known once its steps have ended. Times are monotonic seconds.

    ``result``: the JSON text of what a step that succeeded gave back, or ``result_file``, the path
    of a file with it.
    """

    task: Task
    plan: Plan
    started: float
    times_out_at: float | None
    step: Step
    position: int = 0
    answer: Outcome | None = None
    error_detail: str = ""
    result: str = ""
    result_file: str = ""

    def report(self, worker_id: str, now: float) -> Done | Failed:
        """What the orchestrator is told of it."""
        answer = self.answer
        assert answer is not None
        issue_id, ms = self.task.issue_id, round((now - self.started) * 1000)
        if answer.kind is OutcomeKind.SUCCESS:
            return Done(issue_id, worker_id, ms, self._result(answer), self.result_file)
        return Failed(
            issue_id,
            worker_id,
            answer.error,
            ms,
            answer.kind,
            answer.retry_after_seconds,
            self.error_detail,
        )

    def _result(self, answer: Outcome) -> object:
        if self.result:
            return json.loads(self.result)
        return {"note": answer.note} if answer.note else None
