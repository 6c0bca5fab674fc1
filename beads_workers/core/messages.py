"""The messages of the worker protocol: bytes in, frozen dataclasses out, and back.

Source: docs/PROTOCOL.md. Version 1 has exactly the fields of the text, in its order; what 1.1
adds is written only to peers that opted in. ``parse`` is strict about what decides and liberal
about what does not: see "What is a wrong message".
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, assert_never

from beads_workers.core import limits
from beads_workers.core.jobs import IssueId
from beads_workers.core.outcomes import OutcomeKind

VERSION = "1.1"

GROUPED = "grouped"
"""Feature: the orchestrator claims and closes for this worker, which never calls the tracker."""

CANCEL = "cancel"
"""Feature: this worker understands CANCEL."""


class ProtocolError(Exception):
    """The peer's mistake. Log it with the raw line, count it, and go on to the next line."""


# --- worker -> orchestrator -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ready:
    """Idle: one READY is owed exactly one TASK, WAIT or SHUTDOWN."""

    worker_id: str
    version: str = "1"
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Done:
    """The task succeeded. ``duration_ms`` is None where the peer gave none that makes sense."""

    issue_id: IssueId
    worker_id: str = ""
    duration_ms: int | None = None
    result: Any = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The task did not succeed; 1.1 says how (``outcome``), a plain v1 FAILED is an error."""

    issue_id: IssueId
    worker_id: str = ""
    error: str = ""
    duration_ms: int | None = None
    outcome: OutcomeKind = OutcomeKind.ERROR
    retry_after_seconds: float | None = None
    error_detail: str = ""
    warnings: tuple[str, ...] = ()


# --- orchestrator -> worker -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Task:
    """Work on this issue. From ``description`` on: version 1.1 only.

    ``payload`` may hold ``command`` (list of str: the issue's own), ``issue`` (the tracker's
    object) or, when it is large, be replaced by ``payload_file`` (path to the same JSON, 0600).
    """

    issue_id: IssueId
    priority: int
    title: str
    description: str = ""
    issue_type: str = "task"
    labels: tuple[str, ...] = ()
    attempt: int = 1
    timeout_seconds: float | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    payload_file: str | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do now: send READY again after ``wait_seconds`` (1 to 3600)."""

    wait_seconds: int


@dataclass(frozen=True, slots=True)
class Shutdown:
    """End: give back what runs, exit 0. ``user_requested``, ``idle_timeout`` or ``error``."""

    reason: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """1.1: end this one task, answer FAILED with outcome ``cancelled``, then READY."""

    issue_id: IssueId
    reason: str


FromWorker = Ready | Done | Failed
ToWorker = Task | Wait | Shutdown | Cancel
Message = FromWorker | ToWorker

RESERVED = frozenset({"HEARTBEAT", "STATUS", "PAUSE", "RESUME", "PRIORITY", "BATCH", "PROGRESS"})
"""Named by the text for later versions; today unknown to both halves like any other type."""


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


def parse_object(line: bytes) -> dict[str, Any]:
    """One strict JSON object: UTF-8, no NaN or infinity; raises ``ProtocolError``."""
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except (UnicodeDecodeError, ValueError) as error:
        raise ProtocolError(f"not JSON: {str(error)[:80]}") from None
    except RecursionError:
        raise ProtocolError("not JSON: nested too deeply") from None
    if not isinstance(value, dict):
        raise ProtocolError("not a JSON object")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _ready(fields: dict[str, Any]) -> Ready:
    worker_id = _sender(fields)
    features = fields.get("features")
    known = [f for f in features if isinstance(f, str)] if isinstance(features, list) else []
    version = fields.get("version")
    return Ready(worker_id, version if isinstance(version, str) else "1", frozenset(known))


def _done(fields: dict[str, Any]) -> Done:
    warnings: list[str] = []
    return Done(
        issue_id=_issue_id(fields),
        worker_id=_lenient_sender(fields, warnings),
        duration_ms=_duration(fields, warnings),
        result=fields.get("result"),
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
        issue_id=_issue_id(fields),
        worker_id=_lenient_sender(fields, warnings),
        error=error[: limits.ERROR_CHARS_MAX],
        duration_ms=_duration(fields, warnings),
        outcome=_outcome(fields, warnings),
        retry_after_seconds=_retry_after(fields, warnings),
        error_detail=detail if isinstance(detail, str) else "",
        warnings=tuple(warnings),
    )


def _task(fields: dict[str, Any]) -> Task:
    _sender(fields)
    priority = _integer(fields.get("priority"))
    if priority is None or not 0 <= priority <= 4:
        raise ProtocolError("TASK without a priority from 0 to 4")
    title = fields.get("title")
    if not isinstance(title, str):
        raise ProtocolError("TASK without a title")
    labels = fields.get("labels")
    payload = fields.get("payload")
    payload_file = fields.get("payload_file")
    return Task(
        issue_id=_issue_id(fields),
        priority=priority,
        title=title,
        description=_text(fields, "description", ""),
        issue_type=_text(fields, "issue_type", "task"),
        labels=tuple(x for x in labels if isinstance(x, str)) if isinstance(labels, list) else (),
        attempt=_integer(fields.get("attempt")) or 1,
        timeout_seconds=_number(fields.get("timeout_seconds")),
        payload=payload if isinstance(payload, dict) else {},
        payload_file=payload_file if isinstance(payload_file, str) else None,
    )


def _wait(fields: dict[str, Any]) -> Wait:
    _sender(fields)
    seconds = _integer(fields.get("wait_seconds"))
    if seconds is None or seconds < 0:
        raise ProtocolError("WAIT without wait_seconds")
    return Wait(min(max(seconds, limits.WAIT_SECONDS_MIN), limits.WAIT_SECONDS_MAX))


def _shutdown(fields: dict[str, Any]) -> Shutdown:
    # A SHUTDOWN that says nothing sensible is still a SHUTDOWN: obeying is the safe side.
    return Shutdown(_text(fields, "reason", "user_requested"))


def _cancel(fields: dict[str, Any]) -> Cancel:
    return Cancel(_issue_id(fields), _text(fields, "reason", ""))


_PARSERS: dict[str, Callable[[dict[str, Any]], Message]] = {
    "READY": _ready,
    "DONE": _done,
    "FAILED": _failed,
    "TASK": _task,
    "WAIT": _wait,
    "SHUTDOWN": _shutdown,
    "CANCEL": _cancel,
}


def _sender(fields: dict[str, Any]) -> str:
    worker_id = fields.get("worker_id")
    if not isinstance(worker_id, str) or not worker_id:
        raise ProtocolError("no worker_id")
    if _number(fields.get("timestamp")) is None:
        raise ProtocolError("no timestamp")
    return worker_id


def _lenient_sender(fields: dict[str, Any], warnings: list[str]) -> str:
    try:
        return _sender(fields)
    except ProtocolError as error:
        warnings.append(str(error))
        return ""


def _issue_id(fields: dict[str, Any]) -> IssueId:
    value = fields.get("issue_id")
    if not isinstance(value, str) or not value:
        raise ProtocolError("no issue_id")
    return IssueId(value)


def _duration(fields: dict[str, Any], warnings: list[str]) -> int | None:
    duration = _integer(fields.get("duration_ms"))
    if duration is None and (number := _number(fields.get("duration_ms"))) is not None:
        warnings.append("duration_ms is not an integer")
        duration = int(number)
    if duration is None or duration < 0:
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
    seconds = _number(fields["retry_after_seconds"])
    if seconds is None or seconds < 0:
        warnings.append("no sensible retry_after_seconds")
        return None
    return min(seconds, limits.RETRY_AFTER_MAX_SECONDS)


def _text(fields: dict[str, Any], key: str, default: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else default


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _integer(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number.is_integer() else None


# --- message -> bytes -------------------------------------------------------------------------


def encode(message: Message, worker_id: str, timestamp: float, *, v1: bool) -> bytes:
    """One line with its end. ``timestamp`` in seconds since the epoch; ``v1``: no additions."""
    head = {"type": _TYPES[type(message)], "worker_id": worker_id}
    base = json.dumps(head, separators=_COMPACT)[:-1]
    # json.dumps would write 12.5 for 12.500: the text asks for milliseconds.
    line = f'{base},"timestamp":{timestamp:.6f}'
    fields = _fields(message, v1)
    if fields:
        line += "," + json.dumps(fields, separators=_COMPACT)[1:]
    else:
        line += "}"
    return line.encode("ascii") + b"\n"


_COMPACT = (",", ":")

_TYPES: dict[type[Message], str] = {
    Ready: "READY",
    Done: "DONE",
    Failed: "FAILED",
    Task: "TASK",
    Wait: "WAIT",
    Shutdown: "SHUTDOWN",
    Cancel: "CANCEL",
}


def _fields(message: Message, v1: bool) -> dict[str, Any]:
    match message:
        case Ready():
            return {} if v1 else {"version": VERSION, "features": sorted(message.features)}
        case Done():
            core: dict[str, Any] = {
                "issue_id": message.issue_id,
                "duration_ms": message.duration_ms or 0,
            }
            return core if v1 or message.result is None else core | {"result": message.result}
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
        case _:
            assert_never(message)


def _failed_additions(message: Failed) -> dict[str, Any]:
    extra: dict[str, Any] = {"outcome": message.outcome.value}
    if message.retry_after_seconds is not None:
        extra["retry_after_seconds"] = message.retry_after_seconds
    if message.error_detail:
        extra["error_detail"] = message.error_detail
    return extra


def _task_additions(message: Task) -> dict[str, Any]:
    extra: dict[str, Any] = {
        "description": message.description,
        "issue_type": message.issue_type,
        "labels": list(message.labels),
        "attempt": message.attempt,
    }
    if message.timeout_seconds is not None:
        extra["timeout_seconds"] = message.timeout_seconds
    if message.payload_file is not None:
        extra["payload_file"] = message.payload_file
    elif message.payload:
        extra["payload"] = dict(message.payload)
    return extra
