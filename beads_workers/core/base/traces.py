"""W3C trace contexts: the trace that an attempt belongs to, and the headers it is given.

A context is a header ``traceparent``, with or without a ``tracestate``. Ids are hashes of unique
texts, because the core has no randomness. Source: docs/TRACING.md; W3C, Trace Context, level 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from beads_workers.core.base.model import IssueId, Job, value
from beads_workers.core.base.settings import Tracing

PARENT = "traceparent"
STATE = "tracestate"
KEY = "trace_context"
"""Key of the headers in an issue, a job envelope and a TASK."""

VARIABLES = {PARENT: "TRACEPARENT", STATE: "TRACESTATE"}
"""Names of the headers in the environment of what runs."""

STATE_CHARS_MAX = 512
"""Length of a state that everybody must pass on; a longer one is left out."""

HEADERS_MAX = 16
"""Maximum of headers with other names, which are passed on as they came."""


@value
class SpanContext:
    """One span: both ids as lower-case hex (32 and 16 characters)."""

    trace_id: str
    span_id: str
    sampled: bool

    def __str__(self) -> str:
        """Return the header ``traceparent``."""
        return f"00-{self.trace_id}-{self.span_id}-0{int(self.sampled)}"


def parse(traceparent: str) -> SpanContext | None:
    """Read the header; return None for an invalid one, which is to be ignored."""
    found = _HEADER.fullmatch(traceparent.strip())
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or not (trace_id.strip("0") and span_id.strip("0")):
        return None
    if version == "00" and more:
        return None
    return SpanContext(trace_id, span_id, bool(int(flags, 16) & 1))


_HEADER = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


def headers_of(job: Job) -> dict[str, str]:
    """Return the headers that the job's sender wants passed on, by lower-case name."""
    return read_headers(job.trace_context)


def read_headers(found: Any) -> dict[str, str]:
    """Return the headers in untrusted data of any type."""
    if not isinstance(found, Mapping):
        return {}
    texts = ((str(name).lower(), text) for name, text in found.items() if isinstance(text, str))
    return dict(list(texts)[:HEADERS_MAX])


def variables(headers: Any) -> dict[str, str]:
    """Return the environment of what runs under these headers; empty if the context is invalid."""
    known = read_headers(headers)
    if parse(known.get(PARENT, "")) is None:
        return {}
    added = {VARIABLES[PARENT]: known[PARENT].strip()}
    if state := _state(known):
        added[VARIABLES[STATE]] = state
    return added


@value
class Traced:
    """The trace context of one attempt."""

    # The headers for what runs.
    headers: Mapping[str, str]
    # ``own`` and ``parent``: ``traceparent`` of its span and of the span that it continues, "" if
    # there is none.
    own: str = ""
    parent: str = ""
    # The ``tracestate``.
    state: str = ""


NOT_TRACED = Traced({})


class Traces:
    """The traces of one run; ``tracing`` is None if received headers are only passed on.

    ``keeps``: attempts of one issue belong together, so the first one's context is kept for those
    that follow.
    """

    def __init__(self, tracing: Tracing | None, *, keeps: bool) -> None:
        self.tracing = tracing
        self._keeps = keeps
        self._kept: dict[str, str] = {}

    def begin(self, job: Job, request_id: str) -> Traced:
        """Begin an attempt. It continues its sender's trace, or that of the attempt before it."""
        headers = headers_of(job)
        if self.tracing is None:
            return Traced(headers) if headers else NOT_TRACED
        parent = parse(headers.get(PARENT, ""))
        state = _state(headers) if parent else ""
        parent = parent or parse(self._kept.get(job.issue_id, ""))
        own = self._span(self.tracing, parent, request_id)
        if parent is None and self._keeps:
            self._kept[job.issue_id] = str(own)
        others = {name: text for name, text in headers.items() if name not in VARIABLES}
        given = {**others, PARENT: str(own), **({STATE: state} if state else {})}
        return Traced(given, str(own), str(parent or ""), state)

    def keep(self, issue_id: str, traceparent: str) -> None:
        """Keep the trace of an issue that an earlier run has begun."""
        if traceparent:
            self._kept[issue_id] = traceparent

    def forget(self, issue_id: IssueId) -> None:
        """Forget an issue's trace: there will be no further attempt."""
        self._kept.pop(issue_id, None)

    @staticmethod
    def _span(tracing: Tracing, parent: SpanContext | None, request_id: str) -> SpanContext:
        import hashlib  # Every worker loads this module, and none makes spans.

        drawn = hashlib.blake2b(f"{tracing.seed} {request_id}".encode(), digest_size=24).hexdigest()
        trace_id = parent.trace_id if parent else drawn[16:]
        if parent is not None and tracing.follows_parent:
            sampled = parent.sampled
        else:
            # As the standard's sampler by ratio: every process comes to the same decision.
            sampled = int(trace_id[16:], 16) < tracing.ratio * (1 << 64)
        return SpanContext(trace_id, drawn[:16], sampled)


def _state(headers: Mapping[str, str]) -> str:
    state = headers.get(STATE, "").strip()
    fits = state.isascii() and state.isprintable() and len(state) <= STATE_CHARS_MAX
    return state if fits else ""
