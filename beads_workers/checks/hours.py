"""The hours of a fleet, from ``--start-at`` and ``--until``."""

from __future__ import annotations

import time

from beads_workers.checks.rules import Check, misused
from beads_workers.core.schedule.hours import moment
from beads_workers.options import Options


def hours_of(options: Options, now: float) -> tuple[float | None, float | None]:
    """Return the epoch seconds from which on, and until when, attempts begin.

    The end counts from the beginning: with ``--start-at 23:00 --until 07:00``, the fleet works for
    eight hours whenever it is typed.
    """
    start_at = moment(options.start_at, now) if options.start_at else None
    after = now if start_at is None else max(now, start_at)
    return start_at, moment(options.until, after) if options.until else None


def no_time_left(options: Options) -> Check | None:
    """Refuse an end that comes before the beginning, or has passed: both were given with a date."""
    now = time.time()
    start_at, until = hours_of(options, now)
    if until is None or until > max(now, start_at or 0.0):
        return None
    before = "now" if until <= now else f"--start-at {options.start_at}"
    text = f"--until {options.until} comes before {before}: no attempt could begin"
    return misused("settings", text, "give a later time, or a time of day: --until 07:00")
