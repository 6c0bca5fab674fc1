"""What a task asks of the orchestrator over its worker's connection, and what it is answered.

Source: docs/PROTOCOL.md, "CONTROL".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beads_workers.core.json_fields import ProtocolError, sender
from beads_workers.core.message_types import ControlAsked, ControlReply


def _asked(fields: dict[str, Any]) -> ControlAsked:
    command, data = fields.get("command"), fields.get("control_data")
    if not isinstance(command, str) or not command:
        raise ProtocolError("CONTROL without a command")
    sender(fields)
    return ControlAsked(command, data if isinstance(data, dict) else {})


def _reply(fields: dict[str, Any]) -> ControlReply:
    reply = fields.get("reply")
    if not isinstance(reply, dict):
        raise ProtocolError("CONTROL_REPLY without a reply")
    return ControlReply(reply)


TYPES = {ControlAsked: "CONTROL", ControlReply: "CONTROL_REPLY"}
PARSERS: dict[str, Callable[[dict[str, Any]], ControlAsked | ControlReply]] = {
    "CONTROL": _asked,
    "CONTROL_REPLY": _reply,
}


def fields_of(message: ControlAsked | ControlReply) -> dict[str, Any]:
    """Its own fields, as they are written."""
    if isinstance(message, ControlAsked):
        return {"command": message.command, "control_data": dict(message.control_data)}
    return {"reply": dict(message.reply)}
