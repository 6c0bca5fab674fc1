"""The messages of the worker protocol: bytes in, values out; and ``encode``, the way back.

Source: docs/PROTOCOL.md. Version 1 has exactly the fields of the text, in its order; 1.1 adds some
for peers that opted in. ``parse`` is strict about what decides, and liberal about what does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
from beads_workers.core.message_writing import encode
from beads_workers.core.outcomes import OutcomeKind

__all__ = [
    "CANCEL", "GROUPED", "RESERVED", "VERSION", "Cancel", "Done", "Failed", "FromWorker", "Message",
    "ProtocolError", "Ready", "Shutdown", "Task", "ToWorker", "Wait", "encode", "parse",
    "parse_object",
]  # fmt: skip


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
    ahead = min(max(as_integer(fields.get("ahead")) or 0, 0), limits.TASKS_AHEAD_MAX)
    return Ready(worker_id, version if isinstance(version, str) else "1", frozenset(known), ahead)


def _done(fields: dict[str, Any]) -> Done:
    warnings: list[str] = []
    return Done(
        issue_id=issue_id(fields),
        worker_id=_lenient_sender(fields, warnings),
        duration_ms=_duration(fields, warnings),
        result=fields.get("result"),
        result_file=text(fields, "result_file", "")[: limits.ERROR_CHARS_MAX],
        is_stopping=fields.get("is_stopping") is True,
        request_id=text(fields, "request_id", ""),
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
        request_id=text(fields, "request_id", ""),
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
