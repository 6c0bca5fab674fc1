"""Spans are a fold over the journal: one for each attempt, and what it says."""

from __future__ import annotations

from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry, Record
from beads_workers.core.records.receipts import Receipt
from beads_workers.integrations.tracing.spans import Span, Spans

TRACE = "0af7651916cd43dd8448eb211c80319c"
OWN, PARENT = f"00-{TRACE}-b7ad6b7169203331-01", f"00-{TRACE}-00f067aa0ba902b7-01"
UNSAMPLED = f"{OWN[:-1]}0"


class Run:
    """Its journal, and the spans so far; every record is a second later."""

    def __init__(self, source: str = "bd") -> None:
        self.spans = Spans()
        self.made: list[Span] = []
        self.elapsed = 0.0
        self.add(rec.RunStarted("run-1", 1, "actor", source, "/project"))

    def add(self, *records: Record, jump: float = 0.0) -> Run:
        """Journal these; ``jump``: the wall clock is set by so much."""
        for record in records:
            at = 1000.0 + self.elapsed + jump
            self.made += self.spans.add(Entry(record, at, self.elapsed))
            self.elapsed += 1.0
        return self


def started(traceparent: str = OWN, issue_id: str = "a", request_id: str = "r.1") -> rec.Started:
    return rec.Started(issue_id, "W1", 2, request_id, "a title", 1, traceparent, PARENT, "vendor=x")


def finished(outcome: str = "success", error: str = "", request_id: str = "r.1") -> rec.Finished:
    return rec.Finished("a", "W1", 2, request_id, outcome, "finish", error, 950)


def test_an_attempt_becomes_a_span_with_all_that_is_known_of_it() -> None:
    (span,) = Run().add(rec.Claimed("a", path="shop.tasks.pay"), started(), finished()).made
    assert (str(span.context), str(span.parent), span.state) == (OWN, PARENT, "vendor=x")
    assert (span.name, span.began, span.ended) == ("beads_workers.attempt", 1002.0, 1003.0)
    assert span.error is None
    assert span.attributes == {
        "beads.source": "bd",
        "beads.run.id": "run-1",
        "beads.issue.id": "a",
        "beads.issue.title": "a title",
        "beads.issue.priority": 1,
        "beads.worker.id": "W1",
        "beads.attempt": 2,
        "beads.request.id": "r.1",
        "beads.outcome": "success",
        "beads.verdict": "finish",
        "beads.duration_ms": 950,
        "code.function.name": "shop.tasks.pay",
    }


def test_failures_are_errors_and_what_was_wished_for_is_none() -> None:
    for outcome in ("error", "timeout", "lost", "not_found"):
        (span,) = Run().add(started(), finished(outcome, "boom")).made
        assert (span.error, span.attributes["error.type"]) == ("boom", outcome)
    for outcome in ("success", "retry", "cancelled"):
        (span,) = Run().add(started(), finished(outcome, "not now")).made
        assert span.error is None and "error.type" not in span.attributes
    (span,) = Run().add(started(), finished("lost")).made
    assert span.error == "lost"


def test_an_executor_of_rrq_calls_its_spans_as_they_are_called_there() -> None:
    (span,) = Run("rrq").add(started(), finished()).made
    assert span.name == "rrq.executor"
    assert span.attributes["rrq.job_id"] == "a" and span.attributes["rrq.function"] == "a title"


def test_what_is_not_recorded_or_has_no_context_makes_no_span() -> None:
    for header in (UNSAMPLED, "", "nonsense"):
        assert Run().add(started(header), finished()).made == []


def test_how_long_it_took_is_by_the_clock_that_nobody_sets() -> None:
    (span,) = Run().add(started()).add(finished(), jump=-5000.0).made
    assert span.ended - span.began == 1.0


def test_an_end_that_belongs_to_another_attempt_makes_no_span() -> None:
    assert Run().add(started(), finished(request_id="r.9")).made == []
    assert Run().add(finished()).made == []


def test_attempts_that_the_orchestrator_s_death_ended_are_told_as_lost() -> None:
    run = Run().add(started(), finished(), started(OWN, "b", "r.2"))
    (span,) = run.spans.left(1010.0)
    assert (span.attributes["beads.issue.id"], span.ended) == ("b", 1010.0)
    assert span.error == "the orchestrator died" and span.attributes["beads.outcome"] == "lost"
    assert list(run.spans.left(1020.0)) == []


RECEIPT = Receipt("done", branch="bw/a/2", base="b" * 40, head="a" * 40)
TO_LAND = rec.Finished("a", "W1", 2, "r.1", "success", "land", receipt=RECEIPT)


def test_landing_and_its_gates_are_spans_below_the_attempts() -> None:
    began = rec.GateRan(0, "began", "tree", ("a", "b"))
    red = rec.GateRan(0, "red", "tree", ("a", "b"), 1.0, "verify: exit status 1")
    run = Run().add(
        started(), TO_LAND, began, red, rec.GateRan(1, "green", "kept", ("a",), kept=True)
    )
    attempt, gate = run.made
    run.add(rec.BranchLanded("a", 2, "c" * 40, "bw-landing/main"), jump=-5000.0)
    landing = run.made[-1]
    assert [span.name for span in (gate, landing)] == [
        "beads_workers.gate",
        "beads_workers.landing",
    ]
    assert (landing.parent, gate.parent) == (attempt.context, landing.context)
    assert {span.context.trace_id for span in run.made} == {TRACE}
    assert len({span.context.span_id for span in run.made}) == 3
    assert (landing.began, landing.ended, landing.error) == (
        attempt.ended,
        attempt.ended + 4.0,
        None,
    )
    assert (gate.began, gate.ended) == (attempt.ended + 1.0, attempt.ended + 2.0)
    assert gate.error == "verify: exit status 1" and gate.attributes["beads.gate.issues"] == 2
    assert landing.attributes["beads.landing.commit"] == "c" * 40
    assert landing.attributes["beads.landing.verdict"] == "landed" and landing.state == "vendor=x"
    assert run.add(rec.LandingEnded("a", "requeue")).made[-1] is landing, "it is over"


def test_what_does_not_land_is_an_error_and_what_is_not_sampled_leaves_nothing() -> None:
    ended = rec.LandingEnded("a", "mend", "conflict")
    landing = Run().add(started(), TO_LAND, ended).made[-1]
    assert (landing.error, landing.attributes["beads.landing.verdict"]) == ("conflict", "mend")
    gates = rec.GateRan(0, "began", "tree", ("a",)), rec.GateRan(0, "green", "tree", ("a",))
    assert Run().add(started(UNSAMPLED), TO_LAND, *gates, ended).made == []
