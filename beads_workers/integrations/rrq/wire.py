"""The RRQ executor protocol: frames and their content, without any I/O.

Source: docs/RRQ.md, "RRQ executors". Two dialects exist: version 1 has ``args`` and ``kwargs``,
version 2 (rrq 0.10 and later) has ``params`` instead.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any, assert_never

from beads_workers.core.base.framing import ProtocolError, as_integer, as_number, parse_object
from beads_workers.core.base.model import value
from beads_workers.core.base.times import read_time, write_time

SOCKET_VARIABLE = "RRQ_EXECUTOR_SOCKET"
"""Environment variable: path of the Unix socket that an executor listens at."""
TCP_VARIABLE = "RRQ_EXECUTOR_TCP_SOCKET"
"""Environment variable: ``host:port`` that an executor listens at; only this machine."""
TCP_OPTION = "--tcp-socket"
"""Option that rrq 0.11 puts, with its ``host:port``, behind all other arguments."""


# --- envelopes -----------------------------------------------------------------------------------
# Content of the frames: a request, its outcome, a cancel; read from and written as JSON.
#
# One set of dataclasses stands for both dialects: ``params`` of version 2 are ``kwargs`` here, and
# version 2 has no ``args``. Optional fields may be missing or null, and unknown ones are ignored.


V1 = "1"
"""Unix or TCP socket, ``args`` and ``kwargs``: the documented protocol, rrq 0.9.8."""
V2 = "2"
"""TCP socket only, ``params``: rrq 0.11."""
VERSIONS = (V1, V2)

HANDLER_NOT_FOUND = "handler_not_found"
"""``ErrorInfo.type``: the function is unknown here; fatal, the request is not tried again."""
CANCELLED = "cancelled"
"""``ErrorInfo.type``: the request was cancelled."""
UNSUPPORTED_VERSION = "unsupported_version"
"""``ErrorInfo.code``: ours; we do not speak the peer's version."""


class RequestStatus(Enum):
    """Status of a request that has ended; the values are the wire names."""

    SUCCESS = "success"
    RETRY = "retry"
    TIMEOUT = "timeout"
    ERROR = "error"


@value
class RequestContext:
    """``attempt`` from 1; times in seconds since 1970; ``trace_context``: W3C headers by name."""

    job_id: str
    attempt: int
    enqueue_time: float
    queue_name: str
    deadline: float | None = None
    trace_context: Mapping[str, str] | None = None
    correlation_context: Mapping[str, str] | None = None
    worker_id: str | None = None


@value
class Request:
    """A request to execute ``function_name`` once; its outcome has the same ``request_id``."""

    request_id: str
    job_id: str
    function_name: str
    context: RequestContext
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    # It may be one that we do not speak: answer that with an error.
    protocol_version: str = V1


@value
class ErrorInfo:
    """Reason why a request did not succeed. ``type``: ``handler_not_found`` is fatal."""

    message: str
    type: str | None = None
    code: str | None = None
    details: Mapping[str, Any] | None = None


@value
class RequestOutcome:
    """The answer to a request. ``retry_after_seconds`` goes with ``RETRY`` only.

    Real peers may leave the two ids out; answers of ours name both.
    """

    status: RequestStatus
    request_id: str | None
    job_id: str | None
    result: Any = None
    error: ErrorInfo | None = None
    retry_after_seconds: float | None = None


@value
class CancelRequest:
    """A request to end this job's request, or all of its requests if ``request_id`` is None."""

    job_id: str
    request_id: str | None = None
    hard_kill: bool = False
    protocol_version: str = V1


Envelope = Request | RequestOutcome | CancelRequest


class WrongRequest(ProtocolError):
    """A request that cannot be carried out but can be answered: both ids are known."""

    def __init__(self, reason: str, request_id: str, job_id: str) -> None:
        super().__init__(reason)
        self.request_id = request_id
        self.job_id = job_id


def encode(envelope: Envelope) -> bytes:
    """Return the payload of a frame, with every documented field; unset fields are null.

    Raises ``ValueError`` if a value is not JSON, most likely a result, and for ``args`` in version
    2.
    """
    match envelope:
        case Request():
            kind, fields = "request", request_fields(envelope)
        case RequestOutcome():
            kind, fields = "response", _outcome_fields(envelope)
        case CancelRequest():
            kind, fields = "cancel", _cancel_fields(envelope)
        case _:
            assert_never(envelope)
    try:
        text = _ENCODER.encode({"type": kind, "payload": fields})
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    return text.encode()


def encode_success(request_id: str, job_id: str, result: str) -> bytes:
    """Return what ``encode`` makes of a success; ``result`` is JSON already, "" for null."""
    ids = f'"job_id": {_ENCODER.encode(job_id)}, "request_id": {_ENCODER.encode(request_id)}'
    rest = f'"result": {result or "null"}, "error": null, "retry_after_seconds": null'
    return f'{{"type": "response", "payload": {{{ids}, "status": "success", {rest}}}}}'.encode()


_ENCODER = json.JSONEncoder(allow_nan=False)
"""Encoder made once: ``json.dumps`` with ``allow_nan`` makes a new one for every payload."""


def request_fields(request: Request) -> dict[str, Any]:
    """Return a request as the JSON object that is sent."""
    if request.protocol_version == V2:
        if request.args:
            raise ValueError("version 2 has no positional arguments")
        arguments: dict[str, Any] = {"params": dict(request.kwargs)}
    else:
        arguments = {"args": list(request.args), "kwargs": dict(request.kwargs)}
    return {
        "protocol_version": request.protocol_version,
        "request_id": request.request_id,
        "job_id": request.job_id,
        "function_name": request.function_name,
        **arguments,
        "context": _context_fields(request.context, request.protocol_version),
    }


def _context_fields(context: RequestContext, version: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "job_id": context.job_id,
        "attempt": context.attempt,
        "enqueue_time": write_time(context.enqueue_time),
        "queue_name": context.queue_name,
        "deadline": None if context.deadline is None else write_time(context.deadline),
        "trace_context": _plain(context.trace_context),
        "worker_id": context.worker_id,
    }
    if version == V2 or context.correlation_context is not None:
        fields["correlation_context"] = _plain(context.correlation_context)
    return fields


def _outcome_fields(outcome: RequestOutcome) -> dict[str, Any]:
    error = outcome.error
    return {
        "job_id": outcome.job_id,
        "request_id": outcome.request_id,
        "status": outcome.status.value,
        "result": outcome.result,
        "error": error
        and {
            "message": error.message,
            "type": error.type,
            "code": error.code,
            "details": _plain(error.details),
        },
        "retry_after_seconds": outcome.retry_after_seconds,
    }


def _cancel_fields(cancel: CancelRequest) -> dict[str, Any]:
    return {
        "protocol_version": cancel.protocol_version,
        "job_id": cancel.job_id,
        "request_id": cancel.request_id,
        "hard_kill": cancel.hard_kill,
    }


def _plain(mapping: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if mapping is None else dict(mapping)


# --- frames --------------------------------------------------------------------------------------
# Frames: four bytes of length, big-endian, then that many bytes of JSON.
#
# A wrong length ends the connection: the start of the next frame is unknown.


FRAME_BYTES_MAX = 16 * 1024 * 1024
"""Limit of the real peers for both directions, without the four bytes of the length."""

_LENGTH = struct.Struct(">I")


class FrameReader:
    """Splits a stream into payloads. It keeps at most one incomplete frame."""

    __slots__ = ("_buffer", "_frame_bytes_max", "broken")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self.broken = ""
        """Reason why nothing more can be read: handle the returned payloads, then close the
        connection."""

    @property
    def unread(self) -> int:
        """Number of bytes of an incomplete frame that are held."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes; return the complete payloads. Look at ``broken`` afterwards."""
        if self.broken:
            return []
        if not self._buffer and self._is_one_frame(data):
            return [data[_LENGTH.size :]]  # The usual case: nothing has to be buffered.
        self._buffer += data
        found: list[bytes] = []
        start = 0
        while (end := self._end(start)) is not None and end <= len(self._buffer):
            found.append(bytes(self._buffer[start + _LENGTH.size : end]))
            start = end
        del self._buffer[:start]
        if self.broken:
            self._buffer.clear()
        return found

    def end(self) -> None:
        """Note the end of the stream; ``broken`` is set if that was inside a frame."""
        if self._buffer and not self.broken:
            self.broken = f"the stream ended {len(self._buffer)} bytes into a frame"

    def _is_one_frame(self, data: bytes) -> bool:
        length = len(data) - _LENGTH.size
        whole = 0 < length <= self._frame_bytes_max
        return whole and _LENGTH.unpack_from(data)[0] == length

    def _end(self, start: int) -> int | None:
        """Return the end of the frame at ``start``; None if it is not known yet or is invalid."""
        if len(self._buffer) < start + _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, start)
        if length == 0:
            self.broken = "an empty frame"
        elif length > self._frame_bytes_max:
            self.broken = f"a frame of {length} bytes, over {self._frame_bytes_max}"
        return None if self.broken else start + _LENGTH.size + int(length)


def frame(payload: bytes, frame_bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """Return the payload behind its length; raise ``ValueError`` if it is empty or too long."""
    if not 0 < len(payload) <= frame_bytes_max:
        raise ValueError(f"a frame of {len(payload)} bytes; 1 to {frame_bytes_max} are allowed")
    return _LENGTH.pack(len(payload)) + payload


# --- readers -------------------------------------------------------------------------------------
# Readers of payloads: strict about types, because a wrong guess would be executed.


IDS_CHARS_MAX = 1 << 20
"""Most characters of both ids together. One character takes at most six bytes of JSON, so the
frame of an answer has room for them twice."""


def parse(payload: bytes) -> Envelope:
    """Return one envelope; raise ``ProtocolError`` if it is invalid.

    ``WrongRequest``: its sender can be told.
    """
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
    # A request of an unknown version is refused for its version, whatever else is in it.
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


def _context(fields: Mapping[str, Any]) -> RequestContext:
    attempt = as_integer(fields.get("attempt"))
    if attempt is None or attempt < 1:
        raise ProtocolError("context.attempt is no number from 1 on")
    enqueued = _time(fields, "enqueue_time")
    if enqueued is None:
        raise ProtocolError("no context.enqueue_time")
    return RequestContext(
        job_id=_text(fields, "job_id", "context."),
        attempt=attempt,
        enqueue_time=enqueued,
        queue_name=_text(fields, "queue_name", "context."),
        deadline=_time(fields, "deadline"),
        trace_context=_headers(fields, "trace_context"),
        correlation_context=_headers(fields, "correlation_context"),
        worker_id=_optional_text(fields, "worker_id", "context."),
    )


def _outcome(fields: dict[str, Any]) -> RequestOutcome:
    try:
        status = RequestStatus(fields.get("status"))
    except ValueError:
        raise ProtocolError(f"unknown status {str(fields.get('status'))[:40]!r}") from None
    after = fields.get("retry_after_seconds")
    seconds = as_number(after)
    if after is not None and (seconds is None or seconds < 0):
        raise ProtocolError("retry_after_seconds is no number from 0 on")
    return RequestOutcome(
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


def _cancel(fields: dict[str, Any]) -> CancelRequest:
    hard_kill = fields.get("hard_kill")
    if hard_kill is not None and not isinstance(hard_kill, bool):
        raise ProtocolError("hard_kill is neither true nor false")
    return CancelRequest(
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
