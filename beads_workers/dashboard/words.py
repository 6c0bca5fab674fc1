"""What reports call things, and durations in prose; ``figures`` has those of fixed width."""

from __future__ import annotations

import time

from beads_workers.core.history import Fate, History

OUTCOME_WORDS = {
    "success": "done",
    "error": "failed",
    "timeout": "timed out",
    "lost": "worker died",
    "not_found": "not found",
    "retry": "asked for a retry",
    "cancelled": "taken back",
    "cut_off": "cut off",
    "running": "running",
    "not_ours": "done in vain",
}
"""Of attempts. ``cut_off``: the orchestrator was killed; ``not_ours``: see ``findings.waste``."""

FATE_WORDS = {
    Fate.CLOSED: "closed",
    Fate.SET_ASIDE: "set aside",
    Fate.NOT_CLOSED: "done, not closed yet",
    Fate.GIVEN_BACK: "given back",
    Fate.UNFINISHED: "unfinished",
    Fate.LEFT_ALONE: "left alone",
}


def duration(seconds: float) -> str:
    """In prose, two figures of it: ``40 ms``, ``2.4 s``, ``3 min 20 s``, ``7 h 5 min``, ``2 d``."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0005 else "0 s"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return _two(whole, 60, "min", 1, "s")
    if whole < 86400:
        return _two(whole, 3600, "h", 60, "min")
    return _two(whole, 86400, "d", 3600, "h")


def _two(whole: int, large: int, name: str, small: int, rest_name: str) -> str:
    count, rest = divmod(whole, large)
    return f"{count} {name} {rest // small} {rest_name}" if rest // small else f"{count} {name}"


def dropped(history: History) -> str:
    """One sentence about a beginning that is no longer in the journal; empty where it is there."""
    if history.dropped is None:
        return ""
    first = duration(history.dropped_seconds)
    return f"of the first {first} only this is known: {history.dropped.counts}"


def moment(at: float) -> str:
    """Date and time of epoch seconds, here."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def clock(at: float) -> str:
    """The time of day of epoch seconds, here."""
    return time.strftime("%H:%M:%S", time.localtime(at))
