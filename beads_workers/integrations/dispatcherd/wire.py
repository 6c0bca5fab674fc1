"""The messages of dispatcherd, without any I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any, assert_never

from beads_workers.core.base.framing import ProtocolError, as_number, parse_object
from beads_workers.core.base.model import value

# --- dispatcherd ---------------------------------------------------------------------------------
# ``messages`` turns a publisher's messages into dataclasses and back. ``chunks`` cuts messages that
# are too long for a broker, and joins them again. ``workers`` has the messages of a worker to its
# main process.
#
# Source: docs/DISPATCHERD.md, "The messages".


SOCKET_BYTES_MAX = 1024
"""Longest message on a Unix socket that is not sent in chunks, without the end of the line."""
POSTGRES_BYTES_MAX = 7999
"""Longest message in a notification of PostgreSQL, which refuses 8000 bytes."""
CHANNEL_BYTES_MAX = 63
"""Longest name of a channel: PostgreSQL would truncate a longer one."""
MESSAGE_TIMEOUT_SECONDS = 30 * 60.0
"""Time after its first chunk until an incomplete message is dropped; the real service's default."""


# --- messages ------------------------------------------------------------------------------------
# Messages of a publisher: a task to run, or a control request; read from and written as JSON.
#
# Reading is tolerant if nothing has to be guessed: missing, null and unknown fields are no errors.
# Fields that change what is run, or when, must have their type.


NAME_CHARS_MAX = 500
"""Longest task path, id or channel: they are in every record, and real ones are short."""


class OnDuplicate(Enum):
    """Rule for a task if one with the same path and arguments is active."""

    PARALLEL = "parallel"
    """Both run."""
    DISCARD = "discard"
    """The new task is dropped."""
    SERIAL = "serial"
    """The new task waits for its turn."""
    QUEUE_ONE = "queue_one"
    """The new task waits, unless another waits already: then it is dropped."""


@value
class TaskCall:
    """A call of ``task`` (``package.module.name``) with these arguments, which are JSON values."""

    task: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    uuid: str = ""
    # Epoch seconds.
    time_pub: float | None = None
    # It is only passed on.
    guid: str = ""
    # In seconds, 0 for none; a negative one is over at once.
    timeout: float = 0.0
    # In seconds, 0 for none.
    delay: float = 0.0
    # As written, see ``duplicates``.
    on_duplicate: str = ""
    # The first argument is dispatcherd's own.
    bind: bool = False
    reply_to: str = ""
    # Further keys as they came (``callbacks``, ``errbacks``).
    extra: Mapping[str, Any] = field(default_factory=dict)
    # Which of ``args`` and ``kwargs`` came empty instead of not at all: for ``on_duplicate`` that
    # is another task.
    empty: tuple[str, ...] = ()

    @property
    def duplicates(self) -> OnDuplicate:
        """Meaning of ``on_duplicate``; unknown values mean ``parallel``, as in the real service."""
        try:
            return OnDuplicate(self.on_duplicate)
        except ValueError:
            return OnDuplicate.PARALLEL


@value
class ControlRequest:
    """A question or a command to the orchestrator itself; ``reply_to`` is "" for no answer."""

    control: str
    control_data: Mapping[str, Any] = field(default_factory=dict)
    reply_to: str = ""


Message = TaskCall | ControlRequest


def parse(payload: bytes) -> Message:
    """Return the message in a payload that is no chunk; raise ``ProtocolError``.

    A bare ``package.module.name`` without any JSON is a task, too.
    """
    return bare_task(payload) or from_fields(parse_object(payload))


def bare_task(payload: bytes) -> TaskCall | None:
    """Return the task that a payload without JSON names, or None."""
    bare = payload.strip()
    # Only short payloads, so that a megabyte of JSON is not decoded twice.
    if bare[:1] == b"{" or len(bare) > NAME_CHARS_MAX:
        return None
    text = bare.decode("utf-8", "replace")
    parts = text.split(".")
    is_path = len(parts) > 1 and all(part.isidentifier() for part in parts)
    return TaskCall(text) if is_path else None


def from_fields(fields: Mapping[str, Any]) -> Message:
    """Return the message that an object holds; raise ``ProtocolError``."""
    if fields.get("control") is not None:
        # An invalid name counts as an unknown command, so that its sender gets an answer.
        name = str(fields["control"])[:NAME_CHARS_MAX]
        return ControlRequest(name, _object(fields, "control_data"), _reply_to(fields))
    name = _name(fields, "task")
    _refuse_code(fields)
    return TaskCall(
        task=name,
        args=_array(fields, "args"),
        kwargs=_object(fields, "kwargs"),
        uuid=_id(fields, "uuid"),
        time_pub=as_number(fields.get("time_pub")),
        guid=_id(fields, "guid"),
        timeout=_seconds(fields, "timeout"),
        delay=max(0.0, _seconds(fields, "delay")),
        on_duplicate=_id(fields, "on_duplicate"),
        bind=fields.get("bind") is True,
        reply_to=_reply_to(fields),
        extra={name: value for name, value in fields.items() if name not in _TASK_FIELDS},
        empty=tuple(key for key in ("args", "kwargs") if fields.get(key) in ([], {})),
    )


def to_fields(message: Message) -> dict[str, Any]:
    """Return the message as the JSON object that is sent, without empty fields."""
    match message:
        case TaskCall():
            return _task_fields(message)
        case ControlRequest():
            made: dict[str, Any] = {"control": message.control}
            if message.reply_to:
                made["reply_to"] = message.reply_to
            if message.control_data:
                made["control_data"] = dict(message.control_data)
            return made
        case _:
            assert_never(message)


def encode(message: Message) -> str:
    """Return the JSON of a message, in ASCII.

    Raises ``ValueError`` if the message has no name, or values that are not JSON.
    """
    name = message.task if isinstance(message, TaskCall) else message.control
    if not name:
        raise ValueError("a message without a name")
    try:
        return json.dumps(to_fields(message), allow_nan=False)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None


def _task_fields(task: TaskCall) -> dict[str, Any]:
    made: dict[str, Any] = {
        "uuid": task.uuid,
        "args": list(task.args),
        "kwargs": dict(task.kwargs),
        "guid": task.guid,
        "timeout": task.timeout,
        "delay": task.delay,
        "on_duplicate": task.on_duplicate,
        "bind": task.bind,
        "reply_to": task.reply_to,
    }
    made = {name: value for name, value in made.items() if value or name in task.empty}
    made["task"] = task.task
    if task.time_pub is not None:
        made["time_pub"] = task.time_pub
    return made | dict(task.extra)


_TASK_FIELDS = frozenset(
    {
        "uuid", "args", "kwargs", "task", "time_pub", "guid", "timeout", "delay", "on_duplicate",
        "bind", "reply_to", "control", "control_data",
    }
)  # fmt: skip


# --- fields -----------------------------------------------------------------------------------


def _refuse_code(fields: Any) -> None:
    """Raise ``ProtocolError`` for code: the real service evaluates ``lambda``, in callbacks,
    too."""
    inside = [fields]
    while inside:
        each = inside.pop()
        if not isinstance(each, Mapping):
            continue
        task = each.get("task")
        if isinstance(task, str) and task.startswith("lambda"):
            raise ProtocolError("a lambda is code and no name: nothing is evaluated here")
        for key in ("callbacks", "errbacks"):
            further = each.get(key)
            inside += further if isinstance(further, list) else ()


def _name(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        raise ProtocolError(f"no {key}")
    if len(value) > NAME_CHARS_MAX:
        raise ProtocolError(f"{key} is longer than {NAME_CHARS_MAX} characters")
    return value


def _id(fields: Mapping[str, Any], key: str) -> str:
    """Return a text, or a number as text; "" if the field is missing or anything else."""
    value = fields.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63:
        value = str(value)
    if not isinstance(value, str):
        return ""
    if len(value) > NAME_CHARS_MAX:
        raise ProtocolError(f"{key} is longer than {NAME_CHARS_MAX} characters")
    return value


def _reply_to(fields: Mapping[str, Any]) -> str:
    return _id(fields, "reply_to")


def _seconds(fields: Mapping[str, Any], key: str) -> float:
    value = fields.get(key)
    if value is None:
        return 0.0
    seconds = as_number(value)
    if seconds is None:
        raise ProtocolError(f"{key} is no number of seconds")
    return seconds


def _array(fields: Mapping[str, Any], key: str) -> tuple[Any, ...]:
    value = fields.get(key)
    if value is not None and not isinstance(value, list):
        raise ProtocolError(f"{key} is no array")
    return tuple(value or ())


def _object(fields: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = fields.get(key)
    if value is not None and not isinstance(value, dict):
        raise ProtocolError(f"{key} is no object")
    return value or {}


# --- workers -------------------------------------------------------------------------------------
# Messages of a worker to its main process, as dataclasses.
#
# In dispatcherd these are pickles between processes of one pool; here they are JSON. ``error`` in
# ``TaskDone`` is ours: in dispatcherd a failed task looks like one that returned nothing.


CANCELLED_RESULT = "<cancel>"
"""Result of a task that was cancelled or timed out."""


@value
class WorkerReady:
    """Message: the worker takes tasks from now on."""

    worker: int


@value
class TaskDone:
    """Message: a task is over. Times are epoch seconds. ``is_stopping``: the worker will exit.

    ``error``: reason for a failure, in one line; "" for a success.
    """

    worker: int
    uuid: str
    time_started: float
    time_finish: float
    result: Any = None
    is_stopping: bool = False
    error: str = ""


@value
class ControlAction:
    """Message: a running task asks the orchestrator, and waits for the answer."""

    worker: int
    command: str
    control_data: Mapping[str, Any] = field(default_factory=dict)


@value
class WorkerShutdown:
    """The last message of a worker: its process can be joined."""

    worker: int


FromWorker = WorkerReady | TaskDone | ControlAction | WorkerShutdown


def from_worker_fields(fields: Mapping[str, Any]) -> FromWorker:
    """Return one message of a worker; raise ``ProtocolError``."""
    worker = fields.get("worker")
    if type(worker) is not int or worker < 0:
        raise ProtocolError("no worker")
    match fields.get("event"):
        case "ready":
            return WorkerReady(worker)
        case "done":
            return _done(worker, fields)
        case "control":
            data = fields.get("control_data")
            if data is not None and not isinstance(data, dict):
                raise ProtocolError("control_data is no object")
            return ControlAction(worker, _text(fields, "command"), data or {})
        case "shutdown":
            return WorkerShutdown(worker)
        case event:
            raise ProtocolError(f"unknown event {str(event)[:40]!r}")


def _done(worker: int, fields: Mapping[str, Any]) -> TaskDone:
    started, finished = (as_number(fields.get(name)) for name in ("time_started", "time_finish"))
    if started is None or finished is None:
        raise ProtocolError("no time_started or time_finish")
    error = fields.get("error")
    return TaskDone(
        worker,
        _text(fields, "uuid"),
        started,
        finished,
        fields.get("result"),
        fields.get("is_stopping") is True,
        error if isinstance(error, str) else "",
    )


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        raise ProtocolError(f"no {key}")
    return value
