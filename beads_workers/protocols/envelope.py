"""The job envelope, version 1.0: one shape for every job, whatever queue or tracker it is in.

Source: docs/ENVELOPE.md; ``docs/envelope.schema.json`` says the same for other programs. Fields
that are not known are left out, never null; keys that nobody knows are ignored when one is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any

from beads_workers.core.json_fields import ProtocolError, as_integer
from beads_workers.core.values import value

VERSION = "1.0"

SECONDS_MAX = 253_402_300_799
"""The end of the year 9999: later ones cannot be written as the times of an issue."""


ATTEMPT_MAX = 2**53 - 1
"""The largest whole number that every reader of JSON takes for what it is."""


class State(Enum):
    """The values are the wire names; the set is closed."""

    ENQUEUED = "enqueued"
    RUNNING = "running"
    DONE = "done"
    ERROR = "error"


@value
class Envelope:
    """Times are whole seconds since 1970. ``error`` is set in state ``error``, and only there.

    From ``attempt`` on: ours, additive. ``attempt`` is the one that runs, ran or is next;
    ``next_retry_at`` goes with ``enqueued`` after a failure; ``reason`` says of an error that it
    was ``cancelled``, ``timeout``, ``lost`` or ``not_found``; ``result``: what a function
    returned, ``result_file``: where that lies if it is too long; ``omitted``: names of fields that
    are empty because they were too long to be kept; ``extra``: keys that mean nothing to us.
    """

    job_id: str
    job_path: str
    state: State
    ts_enqueued: int
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    ts_started: int | None = None
    ts_finished: int | None = None
    error: str | None = None
    attempt: int | None = None
    next_retry_at: int | None = None
    reason: str | None = None
    result: Any = None
    result_file: str | None = None
    omitted: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


def to_fields(envelope: Envelope) -> dict[str, Any]:
    """The JSON object, in the order of the text; ``args`` and ``kwargs`` are always there."""
    fields: dict[str, Any] = {
        "job_id": envelope.job_id,
        "job_path": envelope.job_path,
        "args": list(envelope.args),
        "kwargs": dict(envelope.kwargs),
        "state": envelope.state.value,
        "ts_enqueued": envelope.ts_enqueued,
    }
    for name in _OPTIONAL:
        value = getattr(envelope, name)
        if value is not None:
            fields[name] = value
    if envelope.omitted:
        fields["omitted"] = list(envelope.omitted)
    return {**fields, **{k: v for k, v in envelope.extra.items() if k not in KNOWN}}


def from_fields(fields: Mapping[str, Any]) -> Envelope:
    """Read one; raises ``ProtocolError``, which begins with the name of the field that is wrong."""
    state = _state(fields)
    error = fields.get("error")
    if error is not None and not isinstance(error, str):
        raise ProtocolError("error: not a text")
    if (error is None) is (state is State.ERROR):
        raise ProtocolError("error: goes with state 'error', always and only")
    args, kwargs = fields.get("args"), fields.get("kwargs")
    if not isinstance(args, list):
        raise ProtocolError("args: missing or not an array")
    if not isinstance(kwargs, dict):
        raise ProtocolError("kwargs: missing or not an object")
    enqueued = _seconds(fields, "ts_enqueued")
    if enqueued is None:
        raise ProtocolError("ts_enqueued: missing")
    return Envelope(
        job_id=_text(fields, "job_id"),
        job_path=_text(fields, "job_path"),
        state=state,
        ts_enqueued=enqueued,
        args=tuple(args),
        kwargs=kwargs,
        ts_started=_seconds(fields, "ts_started"),
        ts_finished=_seconds(fields, "ts_finished"),
        error=error,
        attempt=_attempt(fields),
        next_retry_at=_seconds(fields, "next_retry_at"),
        reason=_optional_text(fields, "reason"),
        result=fields.get("result"),
        result_file=_optional_text(fields, "result_file"),
        omitted=_names(fields, "omitted"),
        extra={name: value for name, value in fields.items() if name not in KNOWN},
    )


_OPTIONAL = (
    "ts_started",
    "ts_finished",
    "error",
    "attempt",
    "next_retry_at",
    "reason",
    "result",
    "result_file",
)
_REQUIRED = ("job_id", "job_path", "args", "kwargs", "state", "ts_enqueued")
KNOWN = frozenset({*_REQUIRED, *_OPTIONAL, "omitted"})
"""The keys of an envelope that mean something."""


def _state(fields: Mapping[str, Any]) -> State:
    value = fields.get("state")
    if not isinstance(value, str) or value not in _STATES:
        raise ProtocolError(f"state: not one of {', '.join(_STATES)}")
    return State(value)


_STATES = tuple(state.value for state in State)


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise ProtocolError(f"{name}: missing, empty or not a text")
    return value


def _optional_text(fields: Mapping[str, Any], name: str) -> str | None:
    return None if fields.get(name) is None else _text(fields, name)


def _seconds(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    seconds = as_integer(value)
    if seconds is None or not 0 <= seconds <= SECONDS_MAX:
        raise ProtocolError(f"{name}: not whole seconds since 1970")
    return seconds


def _names(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = fields.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ProtocolError(f"{name}: not an array of names")
    return tuple(value)


def _attempt(fields: Mapping[str, Any]) -> int | None:
    value = fields.get("attempt")
    number = as_integer(value)
    if value is not None and (number is None or not 1 <= number <= ATTEMPT_MAX):
        raise ProtocolError("attempt: not a number from 1 on")
    return number
