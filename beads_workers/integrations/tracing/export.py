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
from beads_workers.core import traces
from beads_workers.core.plain import to_plain
from beads_workers.integrations.tracing.spans import NAME, Span
from beads_workers.integrations.tracing.tracer import Batches, ExportStatus, bounds

# --- otlp ----------------------------------------------------------------------------------------
# To OpenTelemetry: spans as its SDK has them, sent by its exporter over OTLP/HTTP.
#
# Only ``exporting`` imports this; the package comes with the extra ``otel``.


SERVICE = "beads-workers"
"""What we are called, unless ``OTEL_SERVICE_NAME`` or ``OTEL_RESOURCE_ATTRIBUTES`` say other."""

ERROR_CHARS_MAX = 300


class Exporter:
    """Configured by the standard variables, which the package reads itself."""

    def __init__(self) -> None:
        self._said = _Said()
        log = logging.getLogger("opentelemetry")
        log.addHandler(self._said)
        log.propagate = False
        self._exporter = OTLPSpanExporter()
        made = Resource.create({SERVICE_NAME: SERVICE, "service.version": __version__})
        self._resource = made.merge(OTELResourceDetector().detect())
        self._scope = InstrumentationScope("beads_workers", __version__)

    def export(self, spans: Sequence[Span]) -> str:
        """See ``Batches``. It gives up after the time that the standard names: 10 s."""
        self._said.last = ""
        result = self._exporter.export([self._readable(span) for span in spans])
        if result is SpanExportResult.SUCCESS:
            return ""
        return self._said.last or "the collector did not take them"

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


class _Said(logging.Handler):
    """The last thing that the package complained of."""

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
    # Through whole microseconds: a float of this size has no more.
    return round(epoch * 1e6) * 1000


# --- export --------------------------------------------------------------------------------------
# The process that exports spans: ``python -m beads_workers.integrations.tracing.export JOURNAL``.
#
# Its stdin ends with the orchestrator; then it exports what is left, and ends. On stdout it says
# what became of the spans, a JSON line whenever some were dropped, and one at its end.


LAST_SECONDS = 3.0
"""For what is left at the end: a collector that is there takes it in a fraction of that."""


def main(journal: str) -> None:
    """Until the orchestrator has ended."""
    # It goes when its parent has gone, and not before.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    limits = bounds(os.environ)
    batches = Batches(Path(journal), Exporter().export, limits)
    threading.Thread(target=_send, args=(batches,), daemon=True).start()
    told = 0
    while not select.select([0], [], [], limits.delay_seconds)[0]:
        batches.look()
        if batches.account.dropped != told:
            told = batches.account.dropped
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
        pass  # The orchestrator was killed: nobody is left to be told.


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    main(sys.argv[1])
    # Whoever still waits for a collector waits for nothing.
    os._exit(0)
