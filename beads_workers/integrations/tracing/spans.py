"""Spans: one for every ended attempt; for landing work also one for the landing and each gate.

The attempts come from ``core.records.issues``.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from beads_workers.core.base.model import OutcomeKind, value
from beads_workers.core.base.states import IssueState
from beads_workers.core.base.traces import SpanContext, parse
from beads_workers.core.records import journal as rec
from beads_workers.core.records.issues import Issue, Issues, RunningAttempt, Transition
from beads_workers.core.records.journal import Entry

NAME = "beads_workers.attempt"
LANDING_NAME = "beads_workers.landing"
GATE_NAME = "beads_workers.gate"
RRQ_NAME = "rrq.executor"
"""Name of the spans of RRQ executors, whoever made the executor."""

Value = str | int

_FINE = (OutcomeKind.SUCCESS.value, OutcomeKind.RETRY.value, OutcomeKind.CANCELLED.value)
"""Outcomes that are no error: success, a wish for another attempt, an end on purpose."""


@value
class Span:
    """One span. Times are seconds since 1970; ``parent``: None for the root of its trace.

    ``error``: None if nothing went wrong.
    """

    name: str
    context: SpanContext
    parent: SpanContext | None
    state: str
    began: float
    ended: float
    attributes: dict[str, Value]
    error: str | None = None


@value
class _Landing:
    """A branch that waits to land. ``context``: of its span; ``attempt``: of the attempt's span."""

    started: rec.Started
    context: SpanContext
    attempt: SpanContext
    began: float
    elapsed: float


class Spans:
    """Makes spans: ``add`` every entry of a run, in order.

    Attempts that are not sampled have none.
    """

    def __init__(self) -> None:
        self._common: dict[str, Value] = {}
        self._source = ""
        self._issues = Issues()
        self._landings: dict[str, _Landing] = {}
        self._gates: dict[int, Entry] = {}

    def add(self, entry: Entry) -> Iterator[Span]:
        """Yield the spans that end with this entry."""
        change = self._issues.apply(entry)
        match entry.record:
            case rec.RunStarted() as run:
                self._source = run.source
                self._common = {"beads.source": run.source, "beads.run.id": run.run_id}
            case rec.Finished() as finished if change is not None:
                if (span := self._finished(change, finished, entry)) is not None:
                    yield span
            case rec.GateRan() as ran:
                yield from self._gate(ran, entry)
            case rec.BranchLanded() as landed:
                found: dict[str, Value] = {"beads.landing.commit": landed.commit}
                found |= {"beads.landing.branch": landed.branch} if landed.branch else {}
                yield from self._landed(landed.issue_id, "landed", found, entry)
            case rec.LandingEnded() as ended:
                why: dict[str, Value] = {"beads.landing.refused": ended.why} if ended.why else {}
                yield from self._landed(ended.issue_id, ended.verdict, why, entry)

    def left(self, at: float) -> Iterator[Span]:
        """Yield the spans of unfinished attempts: the orchestrator is gone since ``at``."""
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
        # Measured by the monotonic clock, which nobody sets.
        ended = begun.at + entry.elapsed - begun.elapsed
        span = self._span(change.issue, begun, finished, ended)
        if span is not None and change.issue.state is IssueState.LANDING:
            context = _child(span.context, finished.request_id)
            self._landings[finished.issue_id] = _Landing(
                begun.started, context, span.context, span.ended, entry.elapsed
            )
        return span

    def _gate(self, ran: rec.GateRan, entry: Entry) -> Iterator[Span]:
        """Yield a span in the trace of each issue in the gated tree; none for a reused verdict."""
        if ran.state == "began":
            self._gates[ran.lane] = entry
            return
        began = self._gates.pop(ran.lane, None)
        for issue_id in ran.issues if began is not None else ():
            landing = self._landings.get(issue_id)
            if landing is None or began is None:
                continue
            at = landing.began + began.elapsed - landing.elapsed
            found: dict[str, Value] = {
                "beads.gate.tree": ran.tree,
                "beads.gate.verdict": ran.state,
                "beads.gate.issues": len(ran.issues),
            }
            yield Span(
                GATE_NAME,
                _child(landing.context, f"{ran.lane} {began.elapsed}"),
                landing.context,
                landing.started.tracestate,
                at,
                at + entry.elapsed - began.elapsed,
                self._of(landing.started) | found,
                (ran.why or ran.state) if ran.state in ("red", "none") else None,
            )

    def _landed(
        self, issue_id: str, how: str, found: dict[str, Value], entry: Entry
    ) -> Iterator[Span]:
        landing = self._landings.pop(issue_id, None)
        if landing is not None:
            yield Span(
                LANDING_NAME,
                landing.context,
                landing.attempt,
                landing.started.tracestate,
                landing.began,
                landing.began + entry.elapsed - landing.elapsed,
                self._of(landing.started) | {"beads.landing.verdict": how} | found,
                str(found["beads.landing.refused"]) if "beads.landing.refused" in found else None,
            )

    def _of(self, started: rec.Started) -> dict[str, Value]:
        return {
            **self._common,
            "beads.issue.id": started.issue_id,
            "beads.attempt": started.attempt,
            "beads.request.id": started.request_id,
        }

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


def _child(parent: SpanContext, name: str) -> SpanContext:
    """Return a child context; as in ``core.base.traces``, its id is a hash of something unique."""
    drawn = blake2b(f"{parent.span_id} {name}".encode(), digest_size=8).hexdigest()
    return SpanContext(parent.trace_id, drawn, parent.sampled)


def _of_rrq(started: rec.Started, finished: rec.Finished) -> dict[str, Value]:
    return {
        "rrq.job_id": started.issue_id,
        "rrq.function": started.title,
        "rrq.attempt": started.attempt,
        "rrq.worker_id": started.worker_id,
        "rrq.outcome": finished.outcome,
    }
