"""Which trace the running call belongs to: ``from beads_workers import trace_context``."""

from __future__ import annotations

import os

from beads_workers.core.traces import VARIABLES


def trace_context() -> dict[str, str]:
    """The W3C headers of the attempt that runs, by name: what a tracer's ``extract`` reads.

    ``traceparent``, and ``tracestate`` where there is one; empty where the work came without a
    context and the fleet makes no spans. They are ``TRACEPARENT`` and ``TRACESTATE`` of the
    environment.
    """
    found = ((name, os.environ.get(variable, "")) for name, variable in VARIABLES.items())
    return {name: text for name, text in found if text}
