"""The worker protocol: messages as values, read from bytes and written as bytes.

Source: docs/PROTOCOL.md. Version 1 has exactly the fields of the text, in its order; 1.1 adds some
for peers that opted in. ``parse`` is strict about fields that decide, and lenient about the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, TypeVar

from beads_workers.core.base import limits
from beads_workers.core.base.framing import (
    ProtocolError,
    as_integer,
    as_number,
    issue_id,
    parse_object,
    sender,
    text,
)
from beads_workers.core.base.model import IssueId, Job, OutcomeKind, value

VERSION = "1.1"

T = TypeVar("T")


def speaks_additions(version: object) -> bool:
    """Return whether a peer of this ``version`` understands 1.1: a later minor version does."""
    return isinstance(version, str) and _WITH_ADDITIONS.fullmatch(version) is not None


_WITH_ADDITIONS = re.compile(r"1\.[1-9][0-9]{0,3}")

GROUPED = "grouped"
"""Feature: the orchestrator claims and closes for this worker, which never calls the tracker."""

CANCEL = "cancel"
"""Feature: this worker understands CANCEL."""

CANNOT_START = "cannot_start"
"""``error_detail`` of a FAILED: the fleet's command is missing or may not be executed."""

REVOKED = "revoked"
"""``reason`` of a CANCEL that means only a task which has not started."""

CANNOT_PREPARE = "cannot_prepare"
"""``error_detail`` of a FAILED: no worktree could be made, or its work not be committed."""
RETURNED_UNSTARTED = "returned_unstarted"
"""``error_detail`` of a FAILED: the task was queued on the worker, which returns it unstarted."""

HEARTBEAT = "heartbeat"
"""Feature: this worker says something in every ``heartbeat_seconds``, if only HEARTBEAT."""

STATUS = "status"
"""Feature: this worker answers STATUS."""

PAUSE = "pause"
"""Feature: this worker understands PAUSE and RESUME."""

PRIORITY = "priority"
"""Feature: this worker may say PRIORITY."""

BATCH = "batch"
"""Feature: this worker takes a BATCH in place of a TASK; needs ``grouped`` and ``cancel``."""

FEATURES = (GROUPED, CANCEL, HEARTBEAT, STATUS, PAUSE, PRIORITY, BATCH)


# --- worker -> orchestrator -------------------------------------------------------------------


@value
class Ready:
    """Idle: one READY is answered by exactly one TASK, WAIT or SHUTDOWN."""

    worker_id: str
    version: str = "1"
    features: frozenset[str] = frozenset()
    # 1.1; how many more TASKs it accepts while it works on one, and begins in their order without
    # another READY.
    prefetch_count: int = 0
    # With ``heartbeat``; it is never silent for longer.
    heartbeat_seconds: float | None = None
    # With ``batch``; how many tasks one BATCH may have, 0 for none.
    batch_size: int = 0


@value
class Done:
    """The task succeeded."""

    issue_id: IssueId
    worker_id: str = ""
    # None where the peer gave none that makes sense.
    duration_ms: int | None = None
    result: Any = None
    # The path of a file (0600) with the JSON of a result that is too long.
    result_file: str = ""
    # 1.1; what an agent's attempt says for itself (``core.records.receipts``).
    receipt: Mapping[str, Any] | None = None
    # 1.1; the worker takes no more tasks, and its READY is answered with SHUTDOWN.
    is_stopping: bool = False
    # That of the TASK, where this is left as a word and not sent.
    request_id: str = ""
    warnings: tuple[str, ...] = ()


@value
class Failed:
    """The task did not succeed; 1.1 says how (``outcome``), a plain v1 FAILED is an error."""

    issue_id: IssueId
    worker_id: str = ""
    error: str = ""
    duration_ms: int | None = None
    outcome: OutcomeKind = OutcomeKind.ERROR
    retry_after_seconds: float | None = None
    error_detail: str = ""
    # ``receipt`` and ``is_stopping``: as in DONE.
    receipt: Mapping[str, Any] | None = None
    is_stopping: bool = False
    # That of the TASK, where it is returned unstarted.
    request_id: str = ""
    warnings: tuple[str, ...] = ()


@value
class ControlAsked:
    """1.1: the task asks something of the orchestrator, in dispatcherd's words.

    It is no turn of the conversation: at any time, and answered by one ``ControlReply``.
    """

    command: str
    control_data: Mapping[str, Any] = field(default_factory=dict)


@value
class Aside:
    """1.1: base of what a worker says of its running task beside the conversation.

    It changes no state and is answered by nothing; it may be lost, and the newest wins
    (``core.base.throttled_messages``). A step says it without ``issue_id``, which the worker's half
    puts in.
    """

    issue_id: IssueId = IssueId("")


@value
class Progress(Aside):
    """How far a task is, and what it does now."""

    # 0 to 100; None where nobody knows.
    percent: int | None = None
    activity: str = ""
    # What an agent has used so far is in ``tokens`` and, where it is known, in ``money`` (dollars).
    tokens: int | None = None
    money: float | None = None
    # How full the fullest window of an agent's account is, 0 to 1.
    utilization: float | None = None

    @property
    def reached(self) -> str:
        """Progress for people: ``40 %, building``; "" if there is neither."""
        percent = "" if self.percent is None else f"{self.percent} %"
        if self.percent is not None and f"{self.percent}%" in self.activity.replace(" %", "%"):
            percent = ""
        return ", ".join(part for part in (percent, self.activity) if part)

    @staticmethod
    def read(line: str) -> Progress:
        """Read progress from a line that a program has printed.
        It is a percentage in the line, and the text; of a line that begins with one, all that
        follows it."""
        found = _PERCENT.search(line)
        if found is None:
            return Progress(activity=_activity(line))
        begins = not line[: found.start()].strip()
        activity = line[found.end() :].strip() if begins else ""
        return Progress(percent=int(found[1]), activity=_activity(activity or line))

    @staticmethod
    def of_attempt(printed: Mapping[str, Any]) -> Progress:
        """Read progress from what an attempt of an agent prints for its worker."""
        return _progress({"issue_id": "-", **printed})


@value
class Heartbeat:
    """1.1: a sign of life, for an orchestrator that it was announced to."""


@value
class Resources:
    """Resource usage of a worker and its task: resident memory in bytes, CPU time in seconds."""

    rss_bytes: int | None = None
    cpu_seconds: float | None = None


@value
class Status:
    """1.1: what a worker does. It changes no state, and the newest wins."""

    # One of ``STATUS_STATES``.
    state: str
    # ``issue_id`` and ``request_id``: of its task; "" without one.
    issue_id: IssueId = IssueId("")
    request_id: str = ""
    activity: str = ""
    resources: Resources | None = None


STATUS_STATES = ("idle", "waiting", "busy", "paused")
"""Asked and not answered; told to wait; with a task; paused, with a task or without."""


@value
class Priority:
    """1.1: which tasks this worker takes from now on; a field that is None leaves all.

    ``labels``: any of them.
    """

    priorities: frozenset[int] | None = None
    labels: frozenset[str] | None = None
    issue_types: frozenset[str] | None = None

    def accepts(self, job: Job | Task) -> bool:
        """Return whether a job fits every field that is set."""
        return (
            (self.priorities is None or job.priority in self.priorities)
            and (self.labels is None or not self.labels.isdisjoint(job.labels))
            and (self.issue_types is None or job.issue_type in self.issue_types)
        )


# --- both ways --------------------------------------------------------------------------------


@value
class Pause:
    """1.1: the other side is to begin, or to send, nothing new until ``Resume``."""

    reason: str = ""


@value
class Resume:
    """1.1: the end of a ``Pause``."""


# --- orchestrator -> worker -------------------------------------------------------------------


@value
class Task:
    """Work on this issue."""

    issue_id: IssueId
    priority: int
    title: str
    # Version 1.1 only, like all fields below.
    description: str = ""
    issue_type: str = "task"
    labels: tuple[str, ...] = ()
    attempt: int = 1
    timeout_seconds: float | None = None
    # It may hold ``command`` (list of str: the issue's own), ``issue`` (the tracker's object) or,
    # when it is large, be replaced by ``payload_file`` (path to the same JSON, 0600).
    payload: Mapping[str, Any] = field(default_factory=dict)
    payload_file: str | None = None
    # The id of this attempt alone, so that a TASK that comes once more is known again.
    request_id: str = ""
    # Who claims and closes, ``Claims``; "" where the worker's features say it.
    claims: str = ""
    # Its orchestrator has not said that it speaks 1.1.
    v1: bool = False


CLAIMS_WORKER, CLAIMS_ORCHESTRATOR = "worker", "orchestrator"
"""``claims`` of a TASK: the worker calls the tracker, or the orchestrator does."""


@value
class Batch:
    """1.1: several tasks at once: a TASK, and others that are queued behind it."""

    tasks: tuple[Task, ...]


@value
class StatusAsked:
    """1.1: to be answered by ``Status``, whatever the worker does."""


@value
class Wait:
    """Nothing to do now: send READY again after ``wait_seconds`` (1 to 3600)."""

    wait_seconds: int


@value
class Shutdown:
    """End: requeue what runs, exit 0. ``user_requested``, ``idle_timeout`` or ``error``."""

    reason: str


@value
class Cancel:
    """1.1: end this one task, answer FAILED with outcome ``cancelled``, then READY."""

    issue_id: IssueId
    reason: str


@value
class ControlReply:
    """1.1: what a ``ControlAsked`` is answered, in their order."""

    reply: Mapping[str, Any]


Turn = Ready | Done | Failed
"""Messages that move the conversation."""
SideMessage = Aside | Heartbeat | Status | Priority | Pause | Resume
"""Messages of a worker beside the conversation: no turn, answered by nothing."""
FromWorker = Turn | SideMessage
ToWorker = Task | Batch | Wait | Shutdown | Cancel | Pause | Resume | StatusAsked
Message = FromWorker | ToWorker | ControlAsked | ControlReply


# --- messages ------------------------------------------------------------------------------------
# The messages of the worker protocol: bytes in, values out; and ``encode``, the way back.
#
# Source: docs/PROTOCOL.md.


def parse(line: bytes) -> Message:
    """Read one line; raise ``ProtocolError`` with a reason that is fit for the log.
    For an unknown type it is the subclass ``UnknownType``."""
    fields = parse_object(line)
    kind = fields.get("type")
    if not isinstance(kind, str) or not kind:
        raise ProtocolError("no message type")
    parser = _BY_TYPE.get(kind)
    if parser is None:
        raise UnknownType(kind)
    return parser(fields)


class UnknownType(ProtocolError):
    """A message of an unknown type: no mistake, and to be ignored.

    ``kind``: the type, capped; a peer of a later version says such things.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind[:40]
        super().__init__(f"unknown message type {self.kind!r}")


def _ready(fields: dict[str, Any]) -> Ready:
    worker_id = sender(fields)
    features = fields.get("features")
    known = [f for f in features if isinstance(f, str)] if isinstance(features, list) else []
    version = fields.get("version")
    prefetch_count = min(max(as_integer(fields.get("prefetch_count")) or 0, 0), limits.PREFETCH_MAX)
    beat = as_number(fields.get("heartbeat_seconds"))
    if (
        beat is not None
        and not limits.HEARTBEAT_SECONDS_MIN <= beat <= limits.HEARTBEAT_SECONDS_MAX
    ):
        beat = None
    batch_size = min(as_integer(fields.get("batch_size")) or 0, limits.BATCH_MAX)
    return Ready(
        worker_id,
        version if isinstance(version, str) else "1",
        frozenset(known),
        prefetch_count,
        beat,
        batch_size if batch_size > 1 else 0,
    )


def _done(fields: dict[str, Any]) -> Done:
    warnings: list[str] = []
    return Done(
        issue_id=issue_id(fields),
        worker_id=_lenient_sender(fields, warnings),
        duration_ms=_duration(fields, warnings),
        result=fields.get("result"),
        result_file=text(fields, "result_file", "")[: limits.ERROR_CHARS_MAX],
        receipt=_receipt(fields),
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
        receipt=_receipt(fields),
        is_stopping=fields.get("is_stopping") is True,
        request_id=text(fields, "request_id", ""),
        warnings=tuple(warnings),
    )


def _progress(fields: dict[str, Any]) -> Progress:
    percent = as_number(fields.get("percent"))
    if percent is not None and not 0 <= percent <= 100:
        percent = None
    activity = _activity(text(fields, "activity", ""))
    tokens, money = as_integer(fields.get("tokens")), as_number(fields.get("money"))
    utilization = as_number(fields.get("utilization"))
    return Progress(
        issue_id(fields),
        None if percent is None else int(percent),
        activity,
        min(tokens, limits.INTEGER_MAX) if tokens is not None and tokens >= 0 else None,
        money if money is not None and money >= 0 else None,
        utilization if utilization is not None and 0 <= utilization <= 1 else None,
    )


_PERCENT = re.compile(r"(?<![\d.])(100|\d?\d)(?:\.\d+)?\s?%")


ACTIVITY_CHARS_MAX = 200
"""Maximum of an activity: a row of the dashboard has no room for more."""


def _activity(line: str) -> str:
    return line[:ACTIVITY_CHARS_MAX]


def _heartbeat(fields: dict[str, Any]) -> Heartbeat:
    return Heartbeat()


def _status(fields: dict[str, Any]) -> Status | StatusAsked:
    if "state" not in fields:
        return StatusAsked()
    if (state := fields["state"]) not in STATUS_STATES:
        raise ProtocolError(f"STATUS with a state that is none of {', '.join(STATUS_STATES)}")
    return Status(
        state,
        IssueId(text(fields, "issue_id", "")),
        text(fields, "request_id", ""),
        _activity(text(fields, "activity", "")),
        _resources(fields.get("resources")),
    )


def _resources(reported: object) -> Resources | None:
    if not isinstance(reported, dict):
        return None
    rss, cpu = as_integer(reported.get("rss_bytes")), as_number(reported.get("cpu_seconds"))
    rss = min(rss, limits.INTEGER_MAX) if rss is not None and rss >= 0 else None
    return Resources(rss, cpu if cpu is not None and cpu >= 0 else None)


def _priority(fields: dict[str, Any]) -> Priority:
    priorities = _choices(fields, "priorities", as_integer)
    if priorities is not None and not priorities <= frozenset(range(5)):
        raise ProtocolError("priorities must be from 0 to 4")
    labels, types = (_choices(fields, key, _as_text) for key in ("labels", "issue_types"))
    return Priority(priorities, labels, types)


def _choices(
    fields: dict[str, Any], key: str, read: Callable[[Any], T | None]
) -> frozenset[T] | None:
    """Read a choice that decides what the worker is given.
    Raise ``ProtocolError`` if any entry cannot be understood."""
    chosen = fields.get(key)
    if chosen is None:
        return None
    if not isinstance(chosen, list) or len(chosen) > limits.CHOICES_MAX:
        raise ProtocolError(f"{key} must be a list, of {limits.CHOICES_MAX} entries at most")
    found = [each for one in chosen if (each := read(one)) is not None]
    if len(found) < len(chosen):
        raise ProtocolError(f"{key} has an entry of another type")
    return frozenset(found)


def _as_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _pause(fields: dict[str, Any]) -> Pause:
    return Pause(text(fields, "reason", "")[: limits.ERROR_CHARS_MAX])


def _resume(fields: dict[str, Any]) -> Resume:
    return Resume()


def _batch(fields: dict[str, Any]) -> Batch:
    sender(fields)
    tasks = fields.get("tasks")
    if not isinstance(tasks, list) or not tasks or not all(isinstance(t, dict) for t in tasks):
        raise ProtocolError("BATCH without a list of tasks")
    if len(tasks) > limits.BATCH_MAX:
        raise ProtocolError(f"BATCH of more than {limits.BATCH_MAX} tasks")
    return Batch(tuple(_task_of({**task, "version": VERSION}) for task in tasks))


def _task(fields: dict[str, Any]) -> Task:
    sender(fields)
    return _task_of(fields)


def _task_of(fields: dict[str, Any]) -> Task:
    priority = as_integer(fields.get("priority"))
    if priority is None or not 0 <= priority <= 4:
        raise ProtocolError("TASK without a priority from 0 to 4")
    title = fields.get("title")
    if not isinstance(title, str):
        raise ProtocolError("TASK without a title")
    title = text(fields, "full_title", title)
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
        claims=text(fields, "claims", ""),
        v1=not speaks_additions(fields.get("version")),
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


_PARSERS: dict[type[Message], Callable[[dict[str, Any]], Message]] = {
    Ready: _ready,
    Done: _done,
    Failed: _failed,
    ControlAsked: _asked,
    Progress: _progress,
    Heartbeat: _heartbeat,
    Status: _status,
    Priority: _priority,
    Pause: _pause,
    Resume: _resume,
    Task: _task,
    Batch: _batch,
    StatusAsked: _status,
    Wait: _wait,
    Shutdown: _shutdown,
    Cancel: _cancel,
    ControlReply: _reply,
}
_TYPES = {kind: kind.__name__.upper() for kind in _PARSERS} | {
    ControlAsked: "CONTROL",
    ControlReply: "CONTROL_REPLY",
    StatusAsked: "STATUS",
}
NAMES = dict(_TYPES)
"""Every kind of message, with its name on the wire."""
_BY_TYPE = {_TYPES[kind]: parser for kind, parser in _PARSERS.items()}


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


def _receipt(fields: dict[str, Any]) -> dict[str, Any] | None:
    receipt = fields.get("receipt")
    return receipt if isinstance(receipt, dict) else None


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


# --- writers -------------------------------------------------------------------------------------
# The messages of the worker protocol as bytes. Source: docs/PROTOCOL.md, "Messages".


def encode(message: Message, worker_id: str, timestamp: float, *, v1: bool) -> bytes:
    """Write one line with its end.
    ``timestamp``: epoch seconds, written with three decimals at least (12.500, and not 12.5);
    ``v1``: no additions."""
    line = f'{_HEADS[type(message)]}{quoted(worker_id)},"timestamp":{timestamp:.6f}'
    line += "," + _ENCODER.encode(fields)[1:] if (fields := _fields(message, v1)) else "}"
    return line.encode("ascii") + b"\n"


_ENCODER = json.JSONEncoder(separators=(",", ":"))
"""Shared encoder: ``json.dumps`` with separators makes a new one for every call."""

_HEADS = {kind: f'{{"type":"{name}","worker_id":' for kind, name in _TYPES.items()}


def _fields(message: Message, v1: bool) -> dict[str, Any]:
    match message:
        case Ready():
            return {} if v1 else {"version": VERSION} | _ready_additions(message)
        case Done():
            core: dict[str, Any] = {
                "issue_id": message.issue_id,
                "duration_ms": message.duration_ms or 0,
            }
            return core if v1 else core | {"version": VERSION} | _done_additions(message)
        case Failed():
            core = {
                "issue_id": message.issue_id,
                "error": message.error,
                "duration_ms": message.duration_ms or 0,
            }
            return core if v1 else core | {"version": VERSION} | _failed_additions(message)
        case Task():
            core = _task_core(message)
            return core if v1 else core | {"version": VERSION} | _task_additions(message)
        case Batch():
            return {"version": VERSION, "tasks": [_task_fields(task) for task in message.tasks]}
        case Status() | Priority() | Pause():
            return {"version": VERSION} | _set_fields(message)
        case _:
            values = {f.name: getattr(message, f.name) for f in fields(message)}
            values = {n: x for n, x in values.items() if x is not None or n not in _LEFT_OUT}
            if v1:
                return values
            in_v1, version = isinstance(message, Wait | Shutdown), {"version": VERSION}
            return values | version if in_v1 else version | values


_LEFT_OUT = ("tokens", "money", "utilization")
"""Fields of PROGRESS that are left out if None: most tasks do not report them."""


def _set_fields(message: Status | Priority | Pause | Resources) -> dict[str, Any]:
    """Return each field that has a value; an empty choice of PRIORITY says that nothing fits."""
    found: dict[str, Any] = {}
    for each in fields(message):
        match getattr(message, each.name):
            case None | "":
                pass
            case frozenset() as choices:
                found[each.name] = sorted(choices)
            case Resources() as resources:
                found[each.name] = _set_fields(resources)
            case other:
                found[each.name] = other
    return found


def _ready_additions(message: Ready) -> dict[str, Any]:
    extra: dict[str, Any] = {"features": sorted(message.features)}
    if message.prefetch_count:
        extra["prefetch_count"] = message.prefetch_count
    if message.heartbeat_seconds is not None:
        extra["heartbeat_seconds"] = message.heartbeat_seconds
    if message.batch_size:
        extra["batch_size"] = message.batch_size
    return extra


def _done_additions(message: Done) -> dict[str, Any]:
    extra: dict[str, Any] = {"is_stopping": True} if message.is_stopping else {}
    if message.request_id:
        extra["request_id"] = message.request_id
    if message.receipt is not None:
        extra["receipt"] = dict(message.receipt)
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
    if message.receipt is not None:
        extra["receipt"] = dict(message.receipt)
    return extra


def _task_core(message: Task) -> dict[str, Any]:
    return {
        "issue_id": message.issue_id,
        "priority": message.priority,
        "title": message.title[: limits.TITLE_CHARS_SHORT],
    }


def _task_fields(message: Task) -> dict[str, Any]:
    return _task_core(message) | _task_additions(message)


def _task_additions(message: Task) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    if len(message.title) > limits.TITLE_CHARS_SHORT:
        extra["full_title"] = message.title
    if message.claims:
        extra["claims"] = message.claims
    extra |= {
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
