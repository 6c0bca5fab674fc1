"""What the journal keeps of a call: its arguments as JSON text, unless that is too long."""

from __future__ import annotations

import json
from typing import Any

from beads_workers.core import limits
from beads_workers.core.jobs import Call
from beads_workers.core.json_fields import is_deep, strict_loads

ISSUE_PATH = "beads.issue"
"""What an issue is called that names no function: whatever the fleet runs is run for it."""

TOO_LONG = "…"
"""Stands for arguments that would be longer than ``limits.ARGUMENTS_CHARS_MAX``; it is no JSON."""

_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def arguments_of(call: Call | None) -> str:
    """The args and kwargs of a call, as ``[[...], {...}]``; "" where there are none."""
    if call is None or not (call.args or call.kwargs):
        return ""
    text = _ENCODER.encode([list(call.args), dict(call.kwargs)])
    return text if len(text) <= limits.ARGUMENTS_CHARS_MAX else TOO_LONG


def arguments(text: str) -> tuple[tuple[Any, ...], dict[str, Any], tuple[str, ...]]:
    """What ``arguments_of`` has kept, and the names of what it has not."""
    if not text:
        return (), {}, ()
    match stored_value(text):
        case [list() as args, dict() as kwargs]:
            return tuple(args), kwargs, ()
        case _:  # Too long to be kept, or damaged.
            return (), {}, ("args", "kwargs")


def stored_value(text: str) -> Any:
    """A value that was kept as a text, and can be written again; None for a damaged one."""
    try:
        value = strict_loads(text.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return None if is_deep(value) else value
