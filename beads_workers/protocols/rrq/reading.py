"""Payloads read: strict about types, because what is guessed here would be run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beads_workers.core.json_fields import ProtocolError, as_integer, as_number, parse_object
from beads_workers.protocols.rrq.envelopes import (
    V1,
    V2,
    Cancel,
    Context,
    Envelope,
    ErrorInfo,
    Outcome,
    Request,
    Status,
    WrongRequest,
)
from beads_workers.protocols.times import read_time

IDS_CHARS_MAX = 1 << 20
"""Of both ids together: one character takes at most six bytes of JSON, so the frame of an answer
has room for them twice."""


def parse(payload: bytes) -> Envelope:
    """One envelope; raises ``ProtocolError``, and ``WrongRequest`` where its sender can be told."""
    fields = parse_object(payload)
    kind, inner = fields.get("type"), fields.get("payload")
    if not isinstance(inner, dict):
        raise ProtocolError("no payload object")
    match kind:
        case "request":
            return _request(inner)
        case "response":
            return _outcome(inner)
        case "cancel":
            return _cancel(inner)
        case _:
            raise ProtocolError(f"unknown envelope type {str(kind)[:40]!r}")


def _request(fields: dict[str, Any]) -> Request:
    request_id, job_id = _text(fields, "request_id"), _text(fields, "job_id")
    if len(request_id) + len(job_id) > IDS_CHARS_MAX:
        raise ProtocolError("ids that no answer could name")
    try:
        return _known_request(fields, request_id, job_id)
    except ProtocolError as error:
        raise WrongRequest(str(error), request_id, job_id) from None


def _known_request(fields: dict[str, Any], request_id: str, job_id: str) -> Request:
    version = _text(fields, "protocol_version")
    # Whatever an unknown version has, it is refused for that.
    args = _array(fields, "args") if version == V1 else ()
    names = {V1: "kwargs", V2: "params"}
    kwargs = _object(fields, names[version]) if version in names else {}
    return Request(
        request_id=request_id,
        job_id=job_id,
        function_name=_text(fields, "function_name"),
        context=_context(_object(fields, "context")),
        args=args,
        kwargs=kwargs,
        protocol_version=version,
    )


def _context(fields: Mapping[str, Any]) -> Context:
    attempt = as_integer(fields.get("attempt"))
    if attempt is None or attempt < 1:
        raise ProtocolError("context.attempt is no number from 1 on")
    enqueued = _time(fields, "enqueue_time")
    if enqueued is None:
        raise ProtocolError("no context.enqueue_time")
    return Context(
        job_id=_text(fields, "job_id", "context."),
        attempt=attempt,
        enqueue_time=enqueued,
        queue_name=_text(fields, "queue_name", "context."),
        deadline=_time(fields, "deadline"),
        trace_context=_headers(fields, "trace_context"),
        correlation_context=_headers(fields, "correlation_context"),
        worker_id=_optional_text(fields, "worker_id", "context."),
    )


def _outcome(fields: dict[str, Any]) -> Outcome:
    try:
        status = Status(fields.get("status"))
    except ValueError:
        raise ProtocolError(f"unknown status {str(fields.get('status'))[:40]!r}") from None
    after = fields.get("retry_after_seconds")
    seconds = as_number(after)
    if after is not None and (seconds is None or seconds < 0):
        raise ProtocolError("retry_after_seconds is no number from 0 on")
    return Outcome(
        status=status,
        request_id=_optional_text(fields, "request_id"),
        job_id=_optional_text(fields, "job_id"),
        result=fields.get("result"),
        error=None if fields.get("error") is None else _error(_object(fields, "error")),
        retry_after_seconds=seconds,
    )


def _error(fields: Mapping[str, Any]) -> ErrorInfo:
    message = fields.get("message")
    if not isinstance(message, str):
        raise ProtocolError("error.message is no text")
    details = fields.get("details")
    return ErrorInfo(
        message=message,
        type=_optional_text(fields, "type", "error."),
        code=_optional_text(fields, "code", "error."),
        details=None if details is None else _object(fields, "details", "error."),
    )


def _cancel(fields: dict[str, Any]) -> Cancel:
    hard_kill = fields.get("hard_kill")
    if hard_kill is not None and not isinstance(hard_kill, bool):
        raise ProtocolError("hard_kill is neither true nor false")
    return Cancel(
        job_id=_text(fields, "job_id"),
        request_id=_optional_text(fields, "request_id"),
        hard_kill=bool(hard_kill),
        protocol_version=_text(fields, "protocol_version"),
    )


# --- fields -----------------------------------------------------------------------------------


def _text(fields: Mapping[str, Any], key: str, within: str = "") -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        raise ProtocolError(f"no {within}{key}")
    return value


def _optional_text(fields: Mapping[str, Any], key: str, within: str = "") -> str | None:
    value = fields.get(key)
    if value is not None and not isinstance(value, str):
        raise ProtocolError(f"{within}{key} is no text")
    return value


def _array(fields: Mapping[str, Any], key: str) -> tuple[Any, ...]:
    value = fields.get(key)
    if value is not None and not isinstance(value, list):
        raise ProtocolError(f"{key} is no array")
    return tuple(value or ())


def _object(fields: Mapping[str, Any], key: str, within: str = "") -> dict[str, Any]:
    value = fields.get(key)
    if value is not None and not isinstance(value, dict):
        raise ProtocolError(f"{within}{key} is no object")
    return value or {}


def _headers(fields: Mapping[str, Any], key: str) -> dict[str, str] | None:
    if fields.get(key) is None:
        return None
    headers = _object(fields, key, "context.")
    if not all(isinstance(value, str) for value in headers.values()):
        raise ProtocolError(f"context.{key} holds more than texts")
    return headers


def _time(fields: Mapping[str, Any], key: str) -> float | None:
    value = fields.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ProtocolError(f"context.{key} is no text")
    try:
        return read_time(value)
    except ValueError as error:
        raise ProtocolError(f"context.{key}: {error}") from None
