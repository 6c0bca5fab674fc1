"""A collector of OpenTelemetry for tests: real OTLP/HTTP, whose spans are kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Wire
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True)
class Seen:
    """One span that arrived. Ids as hex, ``parent`` empty for a root; times in nanoseconds."""

    name: str
    trace: str
    span: str
    parent: str
    state: str
    kind: str
    status: str
    message: str
    began: int
    ended: int
    attributes: dict[str, Any]
    resource: dict[str, Any]


@dataclass
class Collector:
    """``url``: what ``OTEL_EXPORTER_OTLP_ENDPOINT`` is to be; ``status``: what it answers."""

    url: str = ""
    status: int = 200
    spans: list[Seen] = field(default_factory=list)
    requests: int = 0
    answers: threading.Event = field(default_factory=threading.Event)
    """Clear it, and nobody gets an answer."""

    def of(self, issue_id: str) -> list[Seen]:
        """Those of one issue, in the order in which they began."""
        found = [span for span in self.spans if span.attributes["beads.issue.id"] == issue_id]
        return sorted(found, key=lambda span: span.began)


@contextmanager
def collecting() -> Iterator[Collector]:
    """One that listens on a port of its own, until the end."""
    collector = Collector()
    collector.answers.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.requests += 1
            collector.answers.wait()
            if collector.status == 200:
                assert self.path == "/v1/traces"
                collector.spans += spans_in(body)
            self.send_response(collector.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield collector
    finally:
        collector.answers.set()
        server.shutdown()
        server.server_close()
        thread.join()


def spans_in(body: bytes) -> list[Seen]:
    """All spans of one export, as protobuf has them."""
    request = ExportTraceServiceRequest.FromString(body)
    return [
        _seen(span, _values(each.resource.attributes))
        for each in request.resource_spans
        for scope in each.scope_spans
        for span in scope.spans
    ]


def _seen(span: Wire, resource: dict[str, Any]) -> Seen:
    return Seen(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.trace_state,
        Wire.SpanKind.Name(span.kind),
        Status.StatusCode.Name(span.status.code),
        span.status.message,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _values(span.attributes),
        resource,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
