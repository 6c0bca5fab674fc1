"""What functions may import from us: ``Retry``, ``progress``, and which trace the running call
belongs to."""

from __future__ import annotations

import os
from contextlib import suppress

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


# --- progress ------------------------------------------------------------------------------------
# How far the running call is: ``from beads_workers import progress``.


def progress(activity: str = "", percent: float | None = None) -> None:
    """Say what the running task does now, and how much of it is done (0 to 100).

    People see it in the dashboard and in ``status`` within a second; only the newest counts.
    Outside of a task it does nothing. A shell writes the same line to ``$BW_PROGRESS``.
    """
    path = os.environ.get("BW_PROGRESS")
    if not path:
        return
    share = "" if percent is None else f"{min(max(percent, 0), 100):.0f}% "
    line = share + " ".join(activity.split()) + "\n"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return  # A full disk stops nobody's work for the sake of a line.
    with open(fd, "w", encoding="utf-8", errors="replace") as file, suppress(OSError):
        file.write(line)


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
