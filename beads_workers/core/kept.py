"""What the journal keeps of a call: its arguments as JSON text, unless that is too long."""

from __future__ import annotations

import json

from beads_workers.core import limits
from beads_workers.core.jobs import Call

TOO_LONG = "…"
"""Stands for arguments that would be longer than ``limits.ARGUMENTS_CHARS_MAX``; it is no JSON."""

_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def arguments_of(call: Call | None) -> str:
    """The args and kwargs of a call, as ``[[...], {...}]``; "" where there are none."""
    if call is None or not (call.args or call.kwargs):
        return ""
    text = _ENCODER.encode([list(call.args), dict(call.kwargs)])
    return text if len(text) <= limits.ARGUMENTS_CHARS_MAX else TOO_LONG
