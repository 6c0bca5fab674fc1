"""Trace contexts: what is one, whose trace an attempt belongs to, and what it is given."""

from __future__ import annotations

import pytest

from beads_workers.core.base.settings import Tracing
from beads_workers.core.base.traces import SpanContext, Traces, parse, variables
from beads_workers.core.base.wire import Task
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Started
from beads_workers.core.schedule.commands import Command
from beads_workers.core.views.recovery import recovery_state
from tests.core.playbook import Play, done, failed, job, ready, records, sent_messages

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
TRACING = Tracing("seed")


@pytest.mark.parametrize(
    ("header", "sampled"),
    [
        (PARENT, True),
        (f" {PARENT} ", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"cc-{TRACE}-{SPAN}-01-what the future adds", True),
    ],
)
def test_a_context_is_read(header: str, *, sampled: bool) -> None:
    assert parse(header) == SpanContext(TRACE, SPAN, sampled)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0x",
        f"00-{TRACE}-{SPAN}-01\n\n",
        f"{PARENT}\0",
    ],
)
def test_what_is_no_context_is_none(header: str) -> None:
    expected = parse(PARENT) if header.strip() == PARENT else None
    assert parse(header) == expected
    assert (variables({"traceparent": header}) == {}) is (expected is None)


def test_what_is_written_is_read_again() -> None:
    for context in (SpanContext(TRACE, SPAN, True), SpanContext(TRACE, SPAN, False)):
        assert parse(str(context)) == context


def test_an_attempt_is_a_child_of_the_context_that_its_job_came_with() -> None:
    made = {"Traceparent": PARENT, "tracestate": "a=b", "x-other": "kept"}
    traced = Traces(TRACING, keeps=True).begin(job("a", trace_context=made), "r.1")
    own = parse(traced.own)
    assert own is not None and own.trace_id == TRACE and own.span_id != SPAN
    assert (traced.parent, traced.state) == (PARENT, "a=b")
    assert traced.headers == {"traceparent": traced.own, "tracestate": "a=b", "x-other": "kept"}


def test_attempts_of_one_issue_share_a_trace_and_those_of_two_do_not() -> None:
    traces = Traces(TRACING, keeps=True)
    first, next_attempt = traces.begin(job("a"), "r.1"), traces.begin(job("a"), "r.2")
    third, other = traces.begin(job("a"), "r.3"), traces.begin(job("b"), "r.4")
    assert first.parent == other.parent == ""
    assert next_attempt.parent == third.parent == first.own
    spans = [parse(each.own) for each in (first, next_attempt, third, other)]
    assert len({span.span_id for span in spans if span}) == 4
    assert len({span.trace_id for span in spans if span}) == 2


def test_one_that_is_over_or_whose_retries_are_another_s_begins_anew() -> None:
    for keeps in (True, False):
        traces = Traces(TRACING, keeps=keeps)
        traces.begin(job("a"), "r.1")
        traces.forget(job("a").issue_id)
        assert traces.begin(job("a"), "r.2").parent == ""
    traces = Traces(TRACING, keeps=False)
    traces.begin(job("a"), "r.1")
    assert traces.begin(job("a"), "r.2").parent == ""


def test_a_context_that_is_none_is_as_good_as_missing() -> None:
    made = {"traceparent": "what?", "tracestate": "a=b", "baggage": "c=d"}
    traced = Traces(TRACING, keeps=True).begin(job("a", trace_context=made), "r")
    assert (traced.parent, traced.state) == ("", "")
    assert traced.headers == {"traceparent": traced.own, "baggage": "c=d"}


def test_without_a_tracer_what_came_is_passed_on_and_nothing_is_made() -> None:
    traces = Traces(None, keeps=True)
    assert traces.begin(job("a"), "r").headers == {}
    made = {"traceparent": PARENT, "tracestate": "a=b"}
    traced = traces.begin(job("a", trace_context=made), "r")
    assert (traced.headers, traced.own) == (made, "")
    assert variables(traced.headers) == {"TRACEPARENT": PARENT, "TRACESTATE": "a=b"}


@pytest.mark.parametrize(
    ("tracing", "parent", "sampled"),
    [
        (Tracing("s"), f"00-{TRACE}-{SPAN}-00", False),
        (Tracing("s", follows_parent=False), f"00-{TRACE}-{SPAN}-00", True),
        (Tracing("s", ratio=0.0), PARENT, True),
        (Tracing("s", ratio=0.0, follows_parent=False), PARENT, False),
        (Tracing("s", ratio=0.0), "", False),
    ],
)
def test_who_decides_what_is_recorded(tracing: Tracing, parent: str, *, sampled: bool) -> None:
    made = {"traceparent": parent}
    own = parse(Traces(tracing, keeps=True).begin(job("a", trace_context=made), "r").own)
    assert own is not None and own.sampled is sampled


def test_a_ratio_is_kept() -> None:
    traces = Traces(Tracing("seed", ratio=0.25), keeps=False)
    owns = [parse(traces.begin(job(f"i{n}"), f"r.{n}").own) for n in range(2000)]
    assert 400 < sum(own is not None and own.sampled for own in owns) < 600


@pytest.mark.parametrize("state", ["a=ü", "a=\nb", "x" * 513, 7])
def test_a_state_that_is_none_is_left_out(state: object) -> None:
    assert variables({"traceparent": PARENT, "tracestate": state}) == {"TRACEPARENT": PARENT}


@pytest.mark.parametrize("headers", [None, [], "x", {"traceparent": 7}, {7: PARENT}])
def test_anything_may_stand_where_headers_should(headers: object) -> None:
    assert variables(headers) == {}


# --- in an orchestrator -----------------------------------------------------------------------


def traceparent_of(commands: list[Command]) -> str:
    """The ``traceparent`` in the one TASK."""
    (task,) = [message for message in sent_messages(commands) if isinstance(message, Task)]
    return str(task.payload["trace_context"]["traceparent"])


def test_a_worker_is_given_the_context_that_the_journal_has() -> None:
    play = Play(tracing=TRACING)
    play.join(1)
    commands = play.answer("a")
    (started,) = records(commands, Started)
    assert traceparent_of(commands) == started.traceparent and parse(started.traceparent)


def next_attempt(play: Play) -> Started:
    """The next attempt, when the issue has cooled down."""
    play.wait(3600.0)
    play.quiet()
    play.do(ready(1))
    (started,) = records(play.answer("a"), Started)
    return started


def test_a_retry_is_in_the_same_trace_also_in_the_next_run() -> None:
    play = Play(tracing=TRACING)
    play.join(1)
    first = traceparent_of(play.answer("a"))
    play.do(failed(1, "a"))
    play.quiet()
    left = rec_left(play)
    assert left.traceparent == first
    later = Play(checkpointed=[left], tracing=Tracing("another seed"))
    later.connect(1)
    for retried in (next_attempt(play), next_attempt(later)):
        assert retried.trace_parent == first and retried.traceparent != first


def rec_left(play: Play) -> rec.Checkpointed:
    """What the journal would have the next run carry over."""
    (retry_entry,) = recovery_state(play.entries).checkpoint()
    return retry_entry


def test_what_is_done_leaves_no_trace_behind() -> None:
    play = Play(tracing=TRACING)
    play.join(1)
    play.answer("a")
    play.do(done(1, "a"))
    play.quiet()
    assert all(
        not retry_entry.traceparent for retry_entry in recovery_state(play.entries).checkpoint()
    )
