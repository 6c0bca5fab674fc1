"""What stands in the frames: a request, its outcome, a cancel; read from JSON and written as it.

Both dialects are behind one set of dataclasses: ``params`` of version 2 are ``kwargs`` here, and
version 2 has no ``args``. Optional fields may be missing or null, and unknown ones are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any, assert_never

from beads_workers.core.json_fields import ProtocolError
from beads_workers.core.values import value
from beads_workers.protocols.times import write_time

V1 = "1"
"""Unix or TCP socket, ``args`` and ``kwargs``: the protocol of the text, rrq 0.9.8."""
V2 = "2"
"""TCP socket only, ``params``: rrq 0.11."""
VERSIONS = (V1, V2)

HANDLER_NOT_FOUND = "handler_not_found"
"""``ErrorInfo.type``: nobody here knows that function; fatal, it is not tried again."""
CANCELLED = "cancelled"
"""``ErrorInfo.type``: ended because somebody asked for it."""
UNSUPPORTED_VERSION = "unsupported_version"
"""``ErrorInfo.code``: ours; the peer speaks a version that we do not."""


class Status(Enum):
    """How a request ended; the values are the wire names."""

    SUCCESS = "success"
    RETRY = "retry"
    TIMEOUT = "timeout"
    ERROR = "error"


@value
class Context:
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
    """Execute ``function_name`` once. One request, one outcome with its ``request_id``.

    ``protocol_version`` may be one that we do not speak: answer that with an error.
    """

    request_id: str
    job_id: str
    function_name: str
    context: Context
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    protocol_version: str = V1


@value
class ErrorInfo:
    """Why it did not succeed. ``type``: ``handler_not_found`` is fatal."""

    message: str
    type: str | None = None
    code: str | None = None
    details: Mapping[str, Any] | None = None


@value
class Outcome:
    """The answer to a request. ``retry_after_seconds`` goes with ``RETRY`` only.

    Real peers may leave the two ids out; who sends one names both.
    """

    status: Status
    request_id: str | None
    job_id: str | None
    result: Any = None
    error: ErrorInfo | None = None
    retry_after_seconds: float | None = None


@value
class Cancel:
    """End this job's request, or all of its requests where ``request_id`` is None."""

    job_id: str
    request_id: str | None = None
    hard_kill: bool = False
    protocol_version: str = V1


Envelope = Request | Outcome | Cancel


class WrongRequest(ProtocolError):
    """A request that cannot be carried out, but whose sender can be told: both ids are known."""

    def __init__(self, reason: str, request_id: str, job_id: str) -> None:
        super().__init__(reason)
        self.request_id = request_id
        self.job_id = job_id


def encode(envelope: Envelope) -> bytes:
    """The payload of a frame, with every field of the text, null where it is not set.

    Raises ``ValueError`` for what is no JSON, most likely a result, and for ``args`` in version 2.
    """
    match envelope:
        case Request():
            kind, fields = "request", request_fields(envelope)
        case Outcome():
            kind, fields = "response", _outcome_fields(envelope)
        case Cancel():
            kind, fields = "cancel", _cancel_fields(envelope)
        case _:
            assert_never(envelope)
    try:
        text = _ENCODER.encode({"type": kind, "payload": fields})
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    return text.encode()


def encode_success(request_id: str, job_id: str, result: str) -> bytes:
    """What ``encode`` makes of a success; ``result`` is JSON already ("" for null), and stays."""
    ids = f'"job_id": {_ENCODER.encode(job_id)}, "request_id": {_ENCODER.encode(request_id)}'
    rest = f'"result": {result or "null"}, "error": null, "retry_after_seconds": null'
    return f'{{"type": "response", "payload": {{{ids}, "status": "success", {rest}}}}}'.encode()


_ENCODER = json.JSONEncoder(allow_nan=False)
"""Made once: ``json.dumps`` with that makes one for every payload."""


def request_fields(request: Request) -> dict[str, Any]:
    """A request as the JSON object that it is on the wire."""
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


def _context_fields(context: Context, version: str) -> dict[str, Any]:
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


def _outcome_fields(outcome: Outcome) -> dict[str, Any]:
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


def _cancel_fields(cancel: Cancel) -> dict[str, Any]:
    return {
        "protocol_version": cancel.protocol_version,
        "job_id": cancel.job_id,
        "request_id": cancel.request_id,
        "hard_kill": cancel.hard_kill,
    }


def _plain(mapping: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if mapping is None else dict(mapping)
