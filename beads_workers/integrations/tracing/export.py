"""The process that exports spans: ``python -m`` with the path of a journal."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from beads_workers import __version__
from beads_workers.core.base import traces
from beads_workers.core.base.plain import to_plain
from beads_workers.integrations.tracing.spans import NAME, Span
from beads_workers.integrations.tracing.tracer import Batches, ExportStatus, bounds

# --- otlp ----------------------------------------------------------------------------------------
# Spans in the form of OpenTelemetry's SDK, sent by its exporter over OTLP/HTTP.
#
# Only the exporting process imports this; the package comes with the extra ``otel``.


SERVICE = "beads-workers"
"""Service name, unless ``OTEL_SERVICE_NAME`` or ``OTEL_RESOURCE_ATTRIBUTES`` give another."""

ERROR_CHARS_MAX = 300


class Exporter:
    """An OTLP exporter, configured by the standard variables, which the package reads itself."""

    def __init__(self) -> None:
        self._last_message = _LastMessage()
        log = logging.getLogger("opentelemetry")
        log.addHandler(self._last_message)
        log.propagate = False
        self._exporter = OTLPSpanExporter()
        made = Resource.create({SERVICE_NAME: SERVICE, "service.version": __version__})
        self._resource = made.merge(OTELResourceDetector().detect())
        self._scope = InstrumentationScope("beads_workers", __version__)

    def export(self, spans: Sequence[Span]) -> str:
        """Export spans; see ``Batches``. Gives up after the time of the standard variable: 10 s."""
        self._last_message.last = ""
        result = self._exporter.export([self._readable(span) for span in spans])
        if result is SpanExportResult.SUCCESS:
            return ""
        return self._last_message.last or "the collector did not take them"

    def _readable(self, span: Span) -> ReadableSpan:
        error = span.error
        status = Status() if error is None else Status(StatusCode.ERROR, error[:ERROR_CHARS_MAX])
        return ReadableSpan(
            span.name,
            _context(span.context, span.state),
            None if span.parent is None else _context(span.parent, span.state, remote=True),
            self._resource,
            span.attributes,
            kind=SpanKind.CONSUMER if span.name == NAME else SpanKind.INTERNAL,
            status=status,
            start_time=_nanoseconds(span.began),
            end_time=_nanoseconds(span.ended),
            instrumentation_scope=self._scope,
        )


class _LastMessage(logging.Handler):
    """Keeps the last message that the package logged."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """See ``logging``."""
        self.last = " ".join(record.getMessage().split())[:ERROR_CHARS_MAX]


def _context(context: traces.SpanContext, state: str, *, remote: bool = False) -> SpanContext:
    return SpanContext(
        int(context.trace_id, 16),
        int(context.span_id, 16),
        remote,
        TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT),
        TraceState.from_header([state] if state else []),
    )


def _nanoseconds(epoch: float) -> int:
    # Rounded to microseconds: a float of this size is no more precise.
    return round(epoch * 1e6) * 1000


# --- export --------------------------------------------------------------------------------------
# The process that exports spans: ``python -m beads_workers.integrations.tracing.export JOURNAL``.
#
# Its stdin ends with the orchestrator; then it exports what is left, and exits. On stdout it writes
# its ``ExportStatus`` as a JSON line, whenever spans were dropped, and at its end.


LAST_SECONDS = 3.0
"""Longest time for spans that are left at the end: a working collector needs a fraction of it."""


def main(journal: str) -> None:
    """Export spans until the orchestrator has ended."""
    # Signals are ignored: this process ends when its parent has ended, and not before.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    limits = bounds(os.environ)
    batches = Batches(Path(journal), Exporter().export, limits)
    threading.Thread(target=_send, args=(batches,), daemon=True).start()
    reported = 0
    while not select.select([0], [], [], limits.delay_seconds)[0]:
        batches.look()
        if batches.account.dropped != reported:
            reported = batches.account.dropped
            _say(batches.account)
    batches.finish(time.time(), LAST_SECONDS)
    _say(batches.account)


def _send(batches: Batches) -> None:
    while batches.send():
        pass


def _say(account: ExportStatus) -> None:
    try:
        os.write(1, json.dumps(to_plain(account)).encode() + b"\n")
    except BrokenPipeError:
        pass  # The orchestrator was killed: nobody reads the line.


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    main(sys.argv[1])
    # The thread that sends may still wait for a collector: it is not joined.
    os._exit(0)
