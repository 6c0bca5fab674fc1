"""Spans: one for every attempt that has ended, as ``core.issues`` tells of them."""

from __future__ import annotations

from collections.abc import Iterator

from beads_workers.core import journal as rec
from beads_workers.core.issues import Issue, Issues, RunningAttempt, Transition
from beads_workers.core.journal import Entry
from beads_workers.core.model import OutcomeKind, value
from beads_workers.core.traces import SpanContext, parse

NAME = "beads_workers.attempt"
RRQ_NAME = "rrq.executor"
"""What executors of RRQ call theirs, whoever made them."""

Value = str | int

_FINE = (OutcomeKind.SUCCESS.value, OutcomeKind.RETRY.value, OutcomeKind.CANCELLED.value)
"""Outcomes that are no error: it did, asked for another try, or was ended on purpose."""


@value
class Span:
    """One attempt. Times in seconds since 1970; ``parent``: None for the root of its trace.

    ``error``: None where nothing went wrong.
    """

    name: str
    context: SpanContext
    parent: SpanContext | None
    state: str
    began: float
    ended: float
    attributes: dict[str, Value]
    error: str | None = None


class Spans:
    """``add`` every entry of a run, in order. What is not sampled leaves nothing."""

    def __init__(self) -> None:
        self._common: dict[str, Value] = {}
        self._source = ""
        self._issues = Issues()

    def add(self, entry: Entry) -> Span | None:
        """The span that ends with this entry, if one does."""
        change = self._issues.apply(entry)
        match entry.record:
            case rec.RunStarted() as run:
                self._source = run.source
                self._common = {"beads.source": run.source, "beads.run.id": run.run_id}
            case rec.Finished() as finished if change is not None:
                return self._finished(change, finished, entry)
        return None

    def left(self, at: float) -> Iterator[Span]:
        """The orchestrator is gone, since ``at``: attempts that nobody saw the end of."""
        under_way = [issue for issue in self._issues.known.values() if issue.attempt]
        self._issues = Issues()
        for issue in under_way:
            assert issue.attempt is not None, "it was asked for that"
            started = issue.attempt.started
            lost = rec.Finished(
                issue.issue_id,
                started.worker_id,
                started.attempt,
                started.request_id,
                OutcomeKind.LOST.value,
                "",
                "the orchestrator died",
            )
            span = self._span(issue, issue.attempt, lost, max(issue.attempt.at, at))
            if span is not None:
                yield span

    def _finished(self, change: Transition, finished: rec.Finished, entry: Entry) -> Span | None:
        begun = change.attempt
        if begun is None or begun.started.request_id != finished.request_id:
            return None
        # By the clock that nobody sets.
        ended = begun.at + entry.elapsed - begun.elapsed
        return self._span(change.issue, begun, finished, ended)

    def _span(
        self, issue: Issue, begun: RunningAttempt, finished: rec.Finished, ended: float
    ) -> Span | None:
        started = begun.started
        context = parse(started.traceparent) if started.traceparent else None
        if context is None or not context.sampled:
            return None
        rrq = self._source == "rrq"
        path = issue.claimed.path if issue.claimed else ""
        attributes = self._attributes(started, finished, path)
        return Span(
            RRQ_NAME if rrq else NAME,
            context,
            parse(started.trace_parent),
            started.tracestate,
            begun.at,
            max(begun.at, ended),
            attributes | (_of_rrq(started, finished) if rrq else {}),
            None if finished.outcome in _FINE else finished.error or finished.outcome,
        )

    def _attributes(
        self, started: rec.Started, finished: rec.Finished, path: str
    ) -> dict[str, Value]:
        found: dict[str, Value] = {
            **self._common,
            "beads.issue.id": started.issue_id,
            "beads.issue.title": started.title,
            "beads.issue.priority": started.priority,
            "beads.worker.id": started.worker_id,
            "beads.attempt": started.attempt,
            "beads.request.id": started.request_id,
            "beads.outcome": finished.outcome,
            "beads.verdict": finished.verdict,
            "beads.duration_ms": finished.duration_ms,
        }
        if path:
            found["code.function.name"] = path
        if finished.outcome not in _FINE:
            found["error.type"] = finished.outcome
        return found


def _of_rrq(started: rec.Started, finished: rec.Finished) -> dict[str, Value]:
    return {
        "rrq.job_id": started.issue_id,
        "rrq.function": started.title,
        "rrq.attempt": started.attempt,
        "rrq.worker_id": started.worker_id,
        "rrq.outcome": finished.outcome,
    }
