"""Spans: a fold over the journal, one span for every attempt that has ended."""

from __future__ import annotations

from collections.abc import Iterator

from beads_workers.core import records as rec
from beads_workers.core.journal_lines import Entry
from beads_workers.core.outcomes import OutcomeKind
from beads_workers.core.traces import SpanContext, parse
from beads_workers.core.values import value

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
        self._open: dict[str, tuple[rec.Started, Entry]] = {}
        self._paths: dict[str, str] = {}

    def add(self, entry: Entry) -> Span | None:
        """The span that ends with this entry, if one does."""
        match entry.record:
            case rec.RunStarted() as run:
                self._source = run.source
                self._common = {"beads.source": run.source, "beads.run.id": run.run_id}
            case rec.Claimed(issue_id=issue_id, path=path) if path:
                self._paths[issue_id] = path
            case rec.Started() as started if started.traceparent:
                self._open[started.issue_id] = started, entry
            case rec.Finished() as finished:
                return self._finished(finished, entry)
            case rec.SettledRecord(issue_id=issue_id, action=action) if action != "hand_over":
                self._paths.pop(issue_id, None)
        return None

    def left(self, at: float) -> Iterator[Span]:
        """The orchestrator is gone, since ``at``: attempts that nobody saw the end of."""
        for issue_id, (started, entry) in self._open.items():
            lost = rec.Finished(
                issue_id,
                started.worker_id,
                started.attempt,
                started.request_id,
                OutcomeKind.LOST.value,
                "",
                "the orchestrator died",
            )
            if (span := self._span(started, entry, lost, max(entry.at, at))) is not None:
                yield span
        self._open.clear()

    def _finished(self, finished: rec.Finished, entry: Entry) -> Span | None:
        known = self._open.pop(finished.issue_id, None)
        if known is None or known[0].request_id != finished.request_id:
            return None
        started, began = known
        # By the clock that nobody sets.
        return self._span(started, began, finished, began.at + entry.elapsed - began.elapsed)

    def _span(
        self, started: rec.Started, began: Entry, finished: rec.Finished, ended: float
    ) -> Span | None:
        context = parse(started.traceparent)
        if context is None or not context.sampled:
            return None
        rrq = self._source == "rrq"
        return Span(
            RRQ_NAME if rrq else NAME,
            context,
            parse(started.trace_parent),
            started.tracestate,
            began.at,
            max(began.at, ended),
            self._attributes(started, finished) | (_of_rrq(started, finished) if rrq else {}),
            None if finished.outcome in _FINE else finished.error or finished.outcome,
        )

    def _attributes(self, started: rec.Started, finished: rec.Finished) -> dict[str, Value]:
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
        if path := self._paths.get(started.issue_id):
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
