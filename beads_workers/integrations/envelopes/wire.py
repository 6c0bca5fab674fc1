"""The job envelope, version 1.0: one shape for every job; its schema; submissions of envelopes.

Source: docs/ENVELOPE.md; ``docs/envelope.schema.json`` says the same for other programs. Fields
without a value are left out, never null; unknown keys are ignored when an envelope is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.framing import ProtocolError, as_integer, parse_object
from beads_workers.core.base.model import value

VERSION = "1.0"

SECONDS_MAX = 253_402_300_799
"""The end of the year 9999: later times cannot be written as the times of an issue."""


ATTEMPT_MAX = 2**53 - 1
"""The largest whole number that every JSON reader reads exactly."""


class JobState(Enum):
    """State of a job. The values are the wire names; the set is closed."""

    ENQUEUED = "enqueued"
    RUNNING = "running"
    DONE = "done"
    ERROR = "error"


@value
class Envelope:
    """One job. Times are whole seconds since 1970."""

    job_id: str
    job_path: str
    state: JobState
    ts_enqueued: int
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    ts_started: int | None = None
    ts_finished: int | None = None
    # Set in state ``error`` only.
    error: str | None = None
    # Number of the attempt that runs, ran or is next. This field and all below are additions of
    # ours.
    attempt: int | None = None
    # Set in state ``enqueued`` after a failure.
    next_retry_at: int | None = None
    # The reason of an error: ``cancelled``, ``timeout``, ``lost`` or ``not_found``.
    reason: str | None = None
    # Result of a function.
    result: Any = None
    # File of a result that is too long.
    result_file: str | None = None
    # Names of fields that are empty because they were too long to be kept.
    omitted: tuple[str, ...] = ()
    # Keys that mean nothing to us.
    extra: Mapping[str, Any] = field(default_factory=dict)


def to_fields(envelope: Envelope) -> dict[str, Any]:
    """Return the JSON object, in the documented order; ``args`` and ``kwargs`` are always there."""
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
    """Return the envelope of an object.

    Raises ``ProtocolError``, which begins with the name of the wrong field.
    """
    state = _state(fields)
    error = fields.get("error")
    if error is not None and not isinstance(error, str):
        raise ProtocolError("error: not a text")
    if (error is None) is (state is JobState.ERROR):
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
"""The keys of an envelope that have a meaning."""


def _state(fields: Mapping[str, Any]) -> JobState:
    value = fields.get("state")
    if not isinstance(value, str) or value not in _STATES:
        raise ProtocolError(f"state: not one of {', '.join(_STATES)}")
    return JobState(value)


_STATES = tuple(state.value for state in JobState)


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


# --- envelope schema -----------------------------------------------------------------------------
# The job envelope as a JSON Schema (2020-12): what ``from_fields`` reads, for other programs.
#
# ``docs/envelope.schema.json`` is this schema, written by ``beads-workers submit --schema``. A test
# checks that file, schema and ``from_fields`` agree.


_SECONDS = {"minimum": 0, "maximum": SECONDS_MAX}


def schema() -> dict[str, Any]:
    """Return the schema as a JSON object. Keys that it does not name may have any value."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:beads-workers:job-envelope:{VERSION}",
        "title": f"Job envelope, version {VERSION}",
        "type": "object",
        "required": ["job_id", "job_path", "args", "kwargs", "state", "ts_enqueued"],
        "properties": {
            "job_id": _text_schema("Unique in its queue or tracker."),
            "job_path": _text_schema("The callable, fully qualified; or what else runs for it."),
            "args": {"type": "array", "description": "Positional arguments."},
            "kwargs": {"type": "object", "description": "Keyword arguments."},
            "state": {"enum": [state.value for state in JobState]},
            "ts_enqueued": {"type": "integer", **_SECONDS, "description": _epoch("put in")},
            "ts_started": _optional("integer", _epoch("begun"), **_SECONDS),
            "ts_finished": _optional("integer", _epoch("at its end"), **_SECONDS),
            "error": _optional("string", "What went wrong: with state error, and only there."),
            "attempt": _optional(
                "integer",
                "Number of the attempt that runs, ran or is next, from 1.",
                minimum=1,
                maximum=ATTEMPT_MAX,
            ),
            "next_retry_at": _optional("integer", _epoch("tried again"), **_SECONDS),
            "reason": _optional(
                "string", "Of an error: cancelled, timeout, lost or not_found.", minLength=1
            ),
            "result": {"description": "The result, any JSON."},
            "result_file": _optional("string", "File of a result that is too long.", minLength=1),
            "omitted": {
                "type": ["array", "null"],
                "items": {"type": "string"},
                "description": "Fields that are empty because they were too long to be kept.",
            },
        },
        "if": {"properties": {"state": {"const": JobState.ERROR.value}}},
        "then": {"required": ["error"], "properties": {"error": {"type": "string"}}},
        "else": {"properties": {"error": {"type": "null"}}},
    }


def _text_schema(description: str) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "description": description}


def _optional(kind: str, description: str, **more: int) -> dict[str, Any]:
    return {"type": [kind, "null"], **more, "description": description}


def _epoch(what: str) -> str:
    return f"When it was {what}, in whole seconds since 1970."


# --- submission ----------------------------------------------------------------------------------
# Envelopes that are handed in: JSON Lines, or objects over several lines, one after another.
#
# Source: docs/ENVELOPE.md, "Handing one in".


PROBLEMS_MAX = 20
"""Most problems, after which the rest is not read: a file that is no submission must not fill
the screen."""

_TOKEN = re.compile(rb'"(?:[^"\\\n]|\\.)*+"|["{}\[\]]')
"""A whole string, in which brackets do not count; a quote that begins no whole string; a
bracket."""

_POSITION = re.compile(r": line \d+ column \d+ \(char \d+\)$")
"""Position within one envelope: people only need the line of the file."""


@value
class Submitted:
    """One job.

    ``where``: the line on which it begins, for people: ``line 3``, or ``FILE: line 3``.
    """

    where: str
    envelope: Envelope


@value
class Submission:
    """All jobs of a submission.

    ``problems``: one line each, with number and field; with any problem, no job is taken.
    """

    jobs: tuple[Submitted, ...]
    problems: tuple[str, ...]


def read_submission(data: bytes, name: str = "") -> Submission:
    """Return all envelopes and all problems. ``name``: of the file, if it has one."""
    jobs: list[Submitted] = []
    problems: list[str] = []
    text = data.removeprefix(b"\xef\xbb\xbf")
    at, number = 0, 1
    while at < len(text) and len(problems) < PROBLEMS_MAX:
        end = _line_end(text, at)
        if text[at:end].strip():
            whole = _object_end(text, at)
            end = end if whole is None else _line_end(text, whole)
            where = f"{name}: line {number}" if name else f"line {number}"
            try:
                jobs.append(Submitted(where, _read(text[at:end])))
            except ProtocolError as error:
                problems.append(f"{where}: {_POSITION.sub('', str(error))}")
        number += text.count(b"\n", at, end) + 1
        at = end + 1
    return Submission(tuple(jobs), tuple(problems))


def _read(text: bytes) -> Envelope:
    if len(text) > limits.LINE_BYTES_MAX:
        raise ProtocolError(f"longer than {limits.LINE_BYTES_MAX} bytes")
    fields = parse_object(text, replace_surrogates=False)
    for name, each in fields.items():
        try:
            json.dumps([name, each], ensure_ascii=False).encode()
        except UnicodeEncodeError:
            shown = name.encode("ascii", "backslashreplace").decode()[:80]
            raise ProtocolError(f"{shown}: half of a character (a lone surrogate)") from None
    envelope = from_fields(fields)
    if envelope.state is not JobState.ENQUEUED:
        state = envelope.state.value
        raise ProtocolError(f"state: only 'enqueued' can be handed in, and it is {state!r}")
    return envelope


def _line_end(text: bytes, at: int) -> int:
    end = text.find(b"\n", at)
    return len(text) if end < 0 else end


def _object_end(text: bytes, at: int) -> int | None:
    """Return the position behind the closing bracket; None if there is none within a line's
    limit."""
    depth = 0
    for token in _TOKEN.finditer(text, at, at + limits.LINE_BYTES_MAX):
        match token[0]:
            case b"{" | b"[":
                depth += 1
            case b"}" | b"]":
                depth -= 1
                if depth <= 0:
                    return token.end()
            case b'"':
                return None  # The string does not end on its line: this is no JSON.
            case _:
                if depth == 0:
                    return None
    return None
