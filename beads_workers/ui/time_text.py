"""Durations and times of day, as all that a person reads shows them."""

from __future__ import annotations

import calendar
import math
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

HALF_DAY_SECONDS = 12 * 3600.0


def duration(seconds: float, *, units: int = 2) -> str:
    """Return two units in prose: ``40 ms``, ``2.4 s``, ``3 min 20 s``, ``7 h 5 min``, ``2 d``; or
    the first one of them."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0005 else "0 s"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        large, name, small, rest_name = 60, "min", 1, "s"
    elif whole < 86400:
        large, name, small, rest_name = 3600, "h", 60, "min"
    else:
        large, name, small, rest_name = 86400, "d", 3600, "h"
    count, rest = divmod(whole, large)
    has_rest = units > 1 and rest >= small
    return f"{count} {name} {rest // small} {rest_name}" if has_rest else f"{count} {name}"


def elapsed(seconds: float, *, units: int = 2) -> str:
    """Return the duration of what still runs, without tenths, which would flicker."""
    return duration(int(max(0.0, seconds)), units=units)


@lru_cache(maxsize=64)
def _written(second: int, *, date: bool, seconds: bool) -> str:
    # Cached, because thousands of lines may be in one second.
    form = ("%Y-%m-%d " if date else "") + ("%H:%M:%S" if seconds else "%H:%M")
    return time.strftime(form, time.localtime(second))


def clock(at: float, now: float | None = None, *, seconds: bool = True) -> str:
    """Return the local time of day of epoch seconds; with the date if ``now`` is another day."""
    date = False
    if now is not None and abs(at - now) >= HALF_DAY_SECONDS:
        date = time.localtime(at)[:3] != time.localtime(now)[:3]
    return _written(math.floor(at), date=date, seconds=seconds)


def moment(at: float, *, seconds: bool = True) -> str:
    """Return local date and time of epoch seconds."""
    return _written(math.floor(at), date=True, seconds=seconds)


def began_at(run_id: str | None) -> float | None:
    """Return the epoch seconds at which a run began, from its id; None if it does not say so."""
    try:
        return float(calendar.timegm(time.strptime((run_id or "")[:15], "%Y%m%d-%H%M%S")))
    except ValueError:
        return None


def wall_clock(snapshot: Mapping[str, Any], age: float) -> float | None:
    """Return the epoch seconds of this moment of the run, which in a replay is in the past; None
    if its id does not tell when it began. ``age``: seconds since the snapshot was made."""
    began = began_at(snapshot["run_id"])
    if began is None:
        return None
    return began + float(snapshot["uptime_seconds"]) + (age if snapshot["running"] else 0.0)


def done_about(snapshot: Mapping[str, Any], age: float = 0.0) -> str:
    """Return when all that is known will be closed at this rate: ``done about 03:40``; "" if
    nothing tells."""
    eta, now = snapshot["eta_seconds"], wall_clock(snapshot, age)
    if eta is None or now is None or not snapshot["running"]:
        return ""
    return f"done about {clock(max(now - age + eta, now), now, seconds=False)}"
