"""The task that a worker has in hand, and how far it has come."""

from __future__ import annotations

import json
from dataclasses import dataclass

from beads_workers.core.message_types import Done, Failed, Task
from beads_workers.core.outcomes import Outcome, OutcomeKind
from beads_workers.core.plans import Plan, Step, StepKind
from beads_workers.core.step_results import detail, failure, passed, reported, timed_out
from beads_workers.core.worker_events import StepAnswered, StepEnded, StepOver
from beads_workers.core.worker_states import WorkerState, WorkerStimulus


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

    def next_step(self) -> Step:
        """Go on to it."""
        self.position += 1
        return self.plan.steps[self.position]

    def step_ended(self, state: WorkerState, ended: StepOver) -> WorkerStimulus:
        """Take in how its step ended, while its worker was in ``state``: what comes of it."""
        well = passed(ended)
        if isinstance(ended, StepAnswered):
            self.is_stopping = ended.is_stopping
        if well and isinstance(ended, StepAnswered):
            self.result = ended.outcome.result
            self.result_file = ended.outcome.result_file
        elif well and isinstance(ended, StepEnded) and self.step.speaks:
            self.result, self.result_file = ended.result, ended.result_file
        owed: Step | None = None
        match state:
            case _ if self.step.kind is StepKind.REPORT:
                self.answer = reported(ended)
                owed = None if state is WorkerState.TIMING_OUT else self.plan.close
            case WorkerState.WORKING if well and self.position + 1 < len(self.plan.steps):
                return WorkerStimulus.STEP_PASSED
            case WorkerState.WORKING if well:
                self.answer = Outcome(OutcomeKind.SUCCESS)
                owed = self.plan.close
            case WorkerState.WORKING:
                self.answer = failure(self.step, ended)
                self.error_detail = detail(self.step, self.task, ended)
            case WorkerState.TIMING_OUT:
                seconds = (self.times_out_at or self.started) - self.started
                self.answer = timed_out(self.step, seconds, ended)
            case WorkerState.ABANDONING if well and self._has_returned(ended):
                # It was done before it was told to end: that there is nobody to hear it changes
                # nothing. An exit status says less: many programs exit with 0 on TERM.
                self.answer = Outcome(OutcomeKind.SUCCESS)
                owed = self.plan.close
            case WorkerState.CANCELLING | WorkerState.STOPPING | WorkerState.ABANDONING:
                why = "cancelled" if state is WorkerState.CANCELLING else "worker shut down"
                self.answer = Outcome(OutcomeKind.CANCELLED, why)
                owed = self.plan.give_back
            case _:
                pass  # Its answer was known before it was settled.
        if owed is None:
            return WorkerStimulus.TASK_OVER
        self.step = owed
        return WorkerStimulus.SETTLE_DUE

    def _has_returned(self, ended: StepOver) -> bool:
        """Whether its last step is a function that came to its end, whoever wanted what of it."""
        return isinstance(ended, StepAnswered) and self.position + 1 == len(self.plan.steps)

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
