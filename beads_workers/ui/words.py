"""Words of states, outcomes and times: what dashboard, page, report and lines call them."""

from __future__ import annotations

import calendar
import math
import re
import time
from enum import Enum
from functools import lru_cache

# --- states --------------------------------------------------------------------------------------

TROUBLE_WORDS = {
    "limited": "its limit is reached",
    "needs_person": "it needs a person",
    "backing_off": "it is overloaded",
}
"""Texts for an account's state if the agent gave no reason."""

VERDICT_WORDS = {
    "done": "done",
    "no_change": "changed nothing",
    "unfinished": "unfinished",
    "question": "asks a person",
    "capped": "stopped at our limit",
    "limited": "account limited",
    "needs_person": "account needs a person",
    "transient": "overloaded",
}

OUTCOME_WORDS = {
    "success": "done",
    "error": "failed",
    "timeout": "timed out",
    "lost": "worker died",
    "not_found": "not found",
    "retry": "asked for a retry",
    "cancelled": "cancelled",
    "question": "asked a question",
    "cut_off": "cut off",
    "running": "running",
    "not_ours": "done in vain",
}
"""Words for outcomes. ``cut_off``: the orchestrator was killed; ``not_ours``: see ``waste_of``."""

FATE_WORDS = {
    "closed": "closed",
    "quarantined": "quarantined",
    "asked": "waits for an answer",
    "awaits_approval": "awaits approval",
    "unclosed": "unclosed",
    "waiting_to_land": "waiting to land",
    "requeued": "requeued",
    "unfinished": "unfinished",
    "not_ours": "not ours",
}
"""Words for the values of ``history.Fate``."""


def fate_count(count: int, fate: str) -> str:
    """Return ``3 closed``, ``1 waits for an answer``, ``2 wait for an answer``."""
    words = FATE_WORDS[fate]
    if count != 1:
        words = re.sub("^(a?wait)s", r"\1", words)
    return f"{count:,} {words}"


DID_NOT_LAND = "did not land"
"""What became of a finished branch that was refused: its issue is quarantined, or goes back."""

NO_ERROR = "no error was given"

# --- backlog -------------------------------------------------------------------------------------


class State(Enum):
    """States of issues, in the order of their groups: the first two wait for a person."""

    NEEDS_YOU = "needs_you"
    QUARANTINED = "quarantined"
    RUNNING = "running"
    LANDING = "landing"
    RETRYING = "retrying"
    READY = "ready"
    BLOCKED = "blocked"
    LEFT_ALONE = "left_alone"
    CLOSED = "closed"


STATE_TITLES = {
    State.NEEDS_YOU: "needs you",
    State.QUARANTINED: "quarantined",
    State.RUNNING: "in progress",
    State.LANDING: FATE_WORDS["waiting_to_land"],
    State.RETRYING: "waiting for a retry",
    State.READY: "ready",
    State.BLOCKED: "blocked",
    State.LEFT_ALONE: "left alone",
    State.CLOSED: "closed",
}

ORDER_NAMES = ("priority", "time", "id", "title")
"""Orders of issues; the first one is the usual one."""


# --- times ---------------------------------------------------------------------------------------

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
