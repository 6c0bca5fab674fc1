"""How an attempt ended. A closed set: whatever a worker, a signal or a peer does becomes one."""

from __future__ import annotations

import json
from enum import Enum
from typing import Any

from beads_workers.core import limits
from beads_workers.core.values import value

NOTE_CHARS_MAX = 300
"""A note is for a line on a screen, and the reason of a close."""


class OutcomeKind(Enum):
    """The values are the wire names (``outcome`` in DONE and FAILED of version 1.1)."""

    SUCCESS = "success"
    ERROR = "error"
    RETRY = "retry"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lost"
    NOT_FOUND = "not_found"


@value
class Outcome:
    """``error`` is one line for people; ``retry_after_seconds`` only goes with ``RETRY``.

    With ``SUCCESS`` only: ``note``, one line on what came of the work; ``result``, the JSON text of
    what a function returned, "" where there is none; ``result_file``, where that lies if it is too
    long.
    """

    kind: OutcomeKind
    error: str = ""
    retry_after_seconds: float | None = None
    note: str = ""
    result: str = ""
    result_file: str = ""


def note_of(result: Any) -> str:
    """The ``note`` in what DONE says came out, if there is one."""
    note = result.get("note") if isinstance(result, dict) else None
    if not isinstance(note, str):
        return ""
    return " ".join("".join(c if c.isprintable() else " " for c in note[:NOTE_CHARS_MAX]).split())


def kept(result: Any, *, of_function: bool = False) -> str:
    """The JSON text that is remembered of what DONE says came out; "" where that is nothing.

    A note alone is no result, but where a function has returned it. What is too long leaves
    ``{"cut": true, "characters": N, "begins": TEXT}``.
    """
    if result is None:
        return ""
    if not of_function and isinstance(result, dict) and result.keys() == {"note"}:
        return ""
    whole = _ENCODER.encode(result)
    if len(whole) <= limits.RESULT_CHARS_MAX:
        return whole
    begins = whole[: limits.RESULT_CHARS_SHOWN]
    return _ENCODER.encode({"cut": True, "characters": len(whole), "begins": begins})


_ENCODER = json.JSONEncoder(separators=(",", ":"))
