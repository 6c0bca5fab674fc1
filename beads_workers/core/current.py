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
    of a file with it. ``is_stopping``: it has said that its worker is to end. ``was_asked``: to end
    by itself; it has not been told yet.
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
    is_stopping: bool = False
    was_asked: bool = False

    @property
    def asks_first(self) -> bool:
        """Whether it is to be asked to end before it is told: a task of dispatcherd is, because its
        author expects that."""
        return self.step.call is not None and self.step.call.message is not None

    def report(self, worker_id: str, now: float) -> Done | Failed:
        """What the orchestrator is told of it."""
        answer = self.answer
        assert answer is not None
        issue_id, ms = self.task.issue_id, round((now - self.started) * 1000)
        if answer.kind is OutcomeKind.SUCCESS:
            result = self._result(answer)
            return Done(issue_id, worker_id, ms, result, self.result_file, self.is_stopping)
        return Failed(
            issue_id,
            worker_id,
            answer.error,
            ms,
            answer.kind,
            answer.retry_after_seconds,
            self.error_detail,
            self.is_stopping,
        )

    def _result(self, answer: Outcome) -> object:
        if self.result:
            return json.loads(self.result)
        return {"note": answer.note} if answer.note else None
