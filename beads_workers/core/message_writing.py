"""The messages of the worker protocol as bytes; ``core.messages`` reads them.

Source: docs/PROTOCOL.md, "Messages". Version 1 has exactly the fields of the text, in its order;
1.1 adds some for peers that opted in.
"""

from __future__ import annotations

import json
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, assert_never

from beads_workers.core import control_messages
from beads_workers.core.message_types import (
    VERSION,
    Cancel,
    ControlAsked,
    ControlReply,
    Done,
    Failed,
    Message,
    Ready,
    Shutdown,
    Task,
    Wait,
)


def encode(message: Message, worker_id: str, timestamp: float, *, v1: bool) -> bytes:
    """One line with its end. ``timestamp``: epoch seconds, written with three decimals at least
    (12.500, and not 12.5); ``v1``: no additions."""
    line = f'{_HEADS[type(message)]}{quoted(worker_id)},"timestamp":{timestamp:.6f}'
    line += "," + _ENCODER.encode(fields)[1:] if (fields := _fields(message, v1)) else "}"
    return line.encode("ascii") + b"\n"


_ENCODER = json.JSONEncoder(separators=(",", ":"))
"""Made once: ``json.dumps`` with separators makes one for every call."""

_TYPES: dict[type[Message], str] = {
    Ready: "READY",
    Done: "DONE",
    Failed: "FAILED",
    Task: "TASK",
    Wait: "WAIT",
    Shutdown: "SHUTDOWN",
    Cancel: "CANCEL",
    **control_messages.TYPES,
}

_HEADS = {kind: f'{{"type":"{name}","worker_id":' for kind, name in _TYPES.items()}


def _fields(message: Message, v1: bool) -> dict[str, Any]:
    match message:
        case Ready():
            return {} if v1 else _ready_additions(message)
        case Done():
            core: dict[str, Any] = {
                "issue_id": message.issue_id,
                "duration_ms": message.duration_ms or 0,
            }
            return core if v1 else core | _done_additions(message)
        case Failed():
            core = {
                "issue_id": message.issue_id,
                "error": message.error,
                "duration_ms": message.duration_ms or 0,
            }
            return core if v1 else core | _failed_additions(message)
        case Task():
            core = {
                "issue_id": message.issue_id,
                "priority": message.priority,
                "title": message.title,
            }
            return core if v1 else core | _task_additions(message)
        case Wait():
            return {"wait_seconds": message.wait_seconds}
        case Shutdown():
            return {"reason": message.reason}
        case Cancel():
            return {"issue_id": message.issue_id, "reason": message.reason}
        case ControlAsked() | ControlReply():
            return control_messages.fields_of(message)
        case _:
            assert_never(message)


def _ready_additions(message: Ready) -> dict[str, Any]:
    extra: dict[str, Any] = {"ahead": message.ahead} if message.ahead else {}
    return {"version": VERSION, "features": sorted(message.features), **extra}


def _done_additions(message: Done) -> dict[str, Any]:
    extra: dict[str, Any] = {"is_stopping": True} if message.is_stopping else {}
    if message.request_id:
        extra["request_id"] = message.request_id
    if message.result_file:
        return {"result_file": message.result_file, **extra}
    return extra if message.result is None else {"result": message.result, **extra}


def _failed_additions(message: Failed) -> dict[str, Any]:
    extra: dict[str, Any] = {"outcome": message.outcome.value}
    if message.retry_after_seconds is not None:
        extra["retry_after_seconds"] = message.retry_after_seconds
    if message.error_detail:
        extra["error_detail"] = message.error_detail
    if message.is_stopping:
        extra["is_stopping"] = True
    if message.request_id:
        extra["request_id"] = message.request_id
    return extra


def _task_additions(message: Task) -> dict[str, Any]:
    extra: dict[str, Any] = {
        "description": message.description,
        "issue_type": message.issue_type,
        "labels": list(message.labels),
        "attempt": message.attempt,
    }
    if message.request_id:
        extra["request_id"] = message.request_id
    if message.timeout_seconds is not None:
        extra["timeout_seconds"] = message.timeout_seconds
    if message.payload_file is not None:
        extra["payload_file"] = message.payload_file
    elif message.payload:
        extra["payload"] = dict(message.payload)
    return extra
