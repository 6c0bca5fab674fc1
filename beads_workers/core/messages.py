"""The messages of the worker protocol: bytes in, frozen dataclasses out, and back.

Source: docs/PROTOCOL.md. Version 1 has exactly the fields of the text, in its order; 1.1 adds some
for peers that opted in. ``parse`` is strict about what decides, and liberal about what does not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, assert_never

from beads_workers.core import control_messages, limits
from beads_workers.core.json_fields import (
    ProtocolError,
    as_integer,
    as_number,
    issue_id,
    parse_object,
    sender,
    text,
)
from beads_workers.core.message_types import (
    CANCEL,
    GROUPED,
    RESERVED,
    VERSION,
    Cancel,
    ControlAsked,
    ControlReply,
    Done,
    Failed,
    FromWorker,
    Message,
    Ready,
    Shutdown,
    Task,
    ToWorker,
    Wait,
)
from beads_workers.core.outcomes import OutcomeKind

__all__ = [
    "CANCEL", "GROUPED", "RESERVED", "VERSION", "Cancel", "Done", "Failed", "FromWorker", "Message",
    "ProtocolError", "Ready", "Shutdown", "Task", "ToWorker", "Wait", "encode", "parse",
    "parse_object",
]  # fmt: skip

# --- bytes -> message -------------------------------------------------------------------------


def parse(line: bytes) -> Message:
    """Read one line; raises ``ProtocolError`` with a reason that is fit for the log."""
    fields = parse_object(line)
    kind = fields.get("type")
    if not isinstance(kind, str):
        raise ProtocolError("no message type")
    parser = _PARSERS.get(kind)
    if parser is None:
        reserved = " (reserved for a later version)" if kind in RESERVED else ""
        raise ProtocolError(f"unknown message type {kind[:40]!r}{reserved}")
    return parser(fields)


def _ready(fields: dict[str, Any]) -> Ready:
    worker_id = sender(fields)
    features = fields.get("features")
    known = [f for f in features if isinstance(f, str)] if isinstance(features, list) else []
    version = fields.get("version")
    return Ready(worker_id, version if isinstance(version, str) else "1", frozenset(known))


def _done(fields: dict[str, Any]) -> Done:
    warnings: list[str] = []
    return Done(
        issue_id=issue_id(fields),
        worker_id=_lenient_sender(fields, warnings),
        duration_ms=_duration(fields, warnings),
        result=fields.get("result"),
        result_file=text(fields, "result_file", "")[: limits.ERROR_CHARS_MAX],
        is_stopping=fields.get("is_stopping") is True,
        warnings=tuple(warnings),
    )


def _failed(fields: dict[str, Any]) -> Failed:
    warnings: list[str] = []
    error = fields.get("error")
    if not isinstance(error, str):
        warnings.append("FAILED without an error text")
        error = "the worker gave no reason"
    detail = fields.get("error_detail")
    return Failed(
        issue_id=issue_id(fields),
        worker_id=_lenient_sender(fields, warnings),
        error=error[: limits.ERROR_CHARS_MAX].replace("\0", "\ufffd"),  # notes are arguments
        duration_ms=_duration(fields, warnings),
        outcome=_outcome(fields, warnings),
        retry_after_seconds=_retry_after(fields, warnings),
        error_detail=detail if isinstance(detail, str) else "",
        is_stopping=fields.get("is_stopping") is True,
        warnings=tuple(warnings),
    )


def _task(fields: dict[str, Any]) -> Task:
    sender(fields)
    priority = as_integer(fields.get("priority"))
    if priority is None or not 0 <= priority <= 4:
        raise ProtocolError("TASK without a priority from 0 to 4")
    title = fields.get("title")
    if not isinstance(title, str):
        raise ProtocolError("TASK without a title")
    labels = fields.get("labels")
    payload = fields.get("payload")
    payload_file = fields.get("payload_file")
    timeout = as_number(fields.get("timeout_seconds"))
    return Task(
        issue_id=issue_id(fields),
        priority=priority,
        title=title,
        description=text(fields, "description", ""),
        issue_type=text(fields, "issue_type", "task"),
        labels=tuple(x for x in labels if isinstance(x, str)) if isinstance(labels, list) else (),
        attempt=max(1, as_integer(fields.get("attempt")) or 1),
        timeout_seconds=timeout if timeout is not None and timeout > 0 else None,
        payload=payload if isinstance(payload, dict) else {},
        payload_file=payload_file if isinstance(payload_file, str) else None,
        request_id=text(fields, "request_id", ""),
    )


def _wait(fields: dict[str, Any]) -> Wait:
    sender(fields)
    seconds = as_integer(fields.get("wait_seconds"))
    if seconds is None or seconds < 0:
        raise ProtocolError("WAIT without wait_seconds")
    return Wait(min(max(seconds, limits.WAIT_SECONDS_MIN), limits.WAIT_SECONDS_MAX))


def _shutdown(fields: dict[str, Any]) -> Shutdown:
    # A SHUTDOWN that says nothing sensible is still a SHUTDOWN: obeying is the safe side.
    return Shutdown(text(fields, "reason", "user_requested"))


def _cancel(fields: dict[str, Any]) -> Cancel:
    return Cancel(issue_id(fields), text(fields, "reason", ""))


_PARSERS: dict[str, Callable[[dict[str, Any]], Message]] = {
    "READY": _ready,
    "DONE": _done,
    "FAILED": _failed,
    "TASK": _task,
    "WAIT": _wait,
    "SHUTDOWN": _shutdown,
    "CANCEL": _cancel,
    **control_messages.PARSERS,
}


def _lenient_sender(fields: dict[str, Any], warnings: list[str]) -> str:
    try:
        return sender(fields)
    except ProtocolError as error:
        warnings.append(str(error))
        return ""


def _duration(fields: dict[str, Any], warnings: list[str]) -> int | None:
    duration = as_integer(fields.get("duration_ms"))
    if duration is None and (number := as_number(fields.get("duration_ms"))) is not None:
        warnings.append("duration_ms is not an integer")
        duration = int(number)
    if duration is None or not 0 <= duration <= limits.INTEGER_MAX:
        warnings.append("no sensible duration_ms")
        return None
    return duration


def _outcome(fields: dict[str, Any], warnings: list[str]) -> OutcomeKind:
    name = fields.get("outcome", "error")
    for kind in OutcomeKind:
        # Success is said with DONE; that a worker was lost is not for the worker to say.
        if kind.value == name and kind not in (OutcomeKind.SUCCESS, OutcomeKind.LOST):
            return kind
    warnings.append("outcome that a FAILED cannot have")
    return OutcomeKind.ERROR


def _retry_after(fields: dict[str, Any], warnings: list[str]) -> float | None:
    if fields.get("retry_after_seconds") is None:
        return None
    seconds = as_number(fields["retry_after_seconds"])
    if seconds is None or seconds < 0:
        warnings.append("no sensible retry_after_seconds")
        return None
    return min(seconds, limits.RETRY_AFTER_MAX_SECONDS)


# --- message -> bytes -------------------------------------------------------------------------


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
            return {} if v1 else {"version": VERSION, "features": sorted(message.features)}
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


def _done_additions(message: Done) -> dict[str, Any]:
    extra: dict[str, Any] = {"is_stopping": True} if message.is_stopping else {}
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
