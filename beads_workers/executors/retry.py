"""What functions may import from us: ``Retry``, and which trace the running call belongs to."""

from __future__ import annotations

import os

from beads_workers.core.traces import VARIABLES

# --- retry ---------------------------------------------------------------------------------------
# What a function raises to be tried again: ``from beads_workers import Retry``.


class Retry(Exception):
    """Raise this in a function that is to be tried again, without fault of its own.

    ``after_seconds``: no sooner than that, and a day at most; None leaves it to the back-off of
    the fleet. Such an attempt is not charged, but the twentieth in a row is. Anything that is no
    number from 0 on counts as None.
    """

    def __init__(self, reason: str = "", *, after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.after_seconds = after_seconds


# --- traces --------------------------------------------------------------------------------------
# Which trace the running call belongs to: ``from beads_workers import trace_context``.


def trace_context() -> dict[str, str]:
    """The W3C headers of the attempt that runs, by name: what a tracer's ``extract`` reads.

    ``traceparent``, and ``tracestate`` where there is one; empty where the work came without a
    context and the fleet makes no spans. They are ``TRACEPARENT`` and ``TRACESTATE`` of the
    environment.
    """
    found = ((name, os.environ.get(variable, "")) for name, variable in VARIABLES.items())
    return {name: text for name, text in found if text}
