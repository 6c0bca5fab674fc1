"""The messages of dispatcherd, without any I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any, assert_never

from beads_workers.core.framing import ProtocolError, as_number, parse_object
from beads_workers.core.model import value

# --- dispatcherd ---------------------------------------------------------------------------------
# ``messages`` makes dataclasses of what a publisher sends and back, ``chunks`` cuts what is too
# long for a broker and joins it again, ``workers`` has what a worker says to its main process.
#
# Source: docs/DISPATCHERD.md, "The messages".


SOCKET_BYTES_MAX = 1024
"""A longer message goes over a Unix socket in chunks; the end of the line is not counted."""
POSTGRES_BYTES_MAX = 7999
"""The same for a notification of PostgreSQL, which refuses 8000."""
CHANNEL_BYTES_MAX = 63
"""The name of a channel: PostgreSQL would cut a longer one."""
MESSAGE_TIMEOUT_SECONDS = 30 * 60.0
"""A message that is not whole so long after its first piece is dropped; the real one's default."""


# --- messages ------------------------------------------------------------------------------------
# What a publisher sends: a task to run, or a control request; read from JSON, and written as it.
#
# Reading is tolerant where nothing is guessed by it: fields that are missing, null or unknown are
# no mistakes. Whatever would change what is run, or when, has to be of its type.


NAME_CHARS_MAX = 500
"""Of a task's path, an id or a channel: they stand in every record, and real ones are short."""


class OnDuplicate(Enum):
    """What becomes of a task while one with the same path and arguments is there already."""

    PARALLEL = "parallel"
    """Both run."""
    DISCARD = "discard"
    """This one is dropped."""
    SERIAL = "serial"
    """This one waits for its turn."""
    QUEUE_ONE = "queue_one"
    """This one waits, unless another waits already: then it is dropped."""


@value
class TaskCall:
    """Call ``task`` (``package.module.name``) with these arguments, which are JSON values.

    ``time_pub``: epoch seconds; ``timeout`` and ``delay`` in seconds, 0 for none, and a negative
    ``timeout`` is over at once; ``guid`` is only passed on; ``bind``: the first argument is to be
    dispatcherd's own. ``on_duplicate`` as it was written, see ``duplicates``. ``extra``: further
    keys as they came (``callbacks``, ``errbacks``). ``empty``: which of ``args`` and ``kwargs``
    came empty instead of not at all, which to ``on_duplicate`` is another task.
    """

    task: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    uuid: str = ""
    time_pub: float | None = None
    guid: str = ""
    timeout: float = 0.0
    delay: float = 0.0
    on_duplicate: str = ""
    bind: bool = False
    reply_to: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    empty: tuple[str, ...] = ()

    @property
    def duplicates(self) -> OnDuplicate:
        """What ``on_duplicate`` means; what nobody knows means ``parallel``, as to the real one."""
        try:
            return OnDuplicate(self.on_duplicate)
        except ValueError:
            return OnDuplicate.PARALLEL


@value
class ControlRequest:
    """A question or an order to the orchestrator itself; ``reply_to`` is "" for no answer."""

    control: str
    control_data: Mapping[str, Any] = field(default_factory=dict)
    reply_to: str = ""


Message = TaskCall | ControlRequest


def parse(payload: bytes) -> Message:
    """One whole message that is no chunk; raises ``ProtocolError``. A bare ``package.module.name``
    without any JSON is a task, too."""
    return bare_task(payload) or from_fields(parse_object(payload))


def bare_task(payload: bytes) -> TaskCall | None:
    """The task that a payload names which is no JSON at all, if it does."""
    bare = payload.strip()
    # A short one, so that a megabyte of JSON is not decoded twice.
    if bare[:1] == b"{" or len(bare) > NAME_CHARS_MAX:
        return None
    text = bare.decode("utf-8", "replace")
    parts = text.split(".")
    is_path = len(parts) > 1 and all(part.isidentifier() for part in parts)
    return TaskCall(text) if is_path else None


def from_fields(fields: Mapping[str, Any]) -> Message:
    """The message that an object holds; raises ``ProtocolError``."""
    if fields.get("control") is not None:
        # What is no name is the name of no command: whoever asked is answered so.
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
    """The message as the JSON object that it is on the wire; what is empty is left out."""
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
    """Its JSON, in ASCII; raises ``ValueError`` for what is no JSON, or nothing that can be run."""
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
    """The real one evaluates what begins with ``lambda``, in callbacks, too."""
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
    """A text, or what a careless publisher has made a number; anything else counts as missing."""
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
# What a worker says to its main process, and what that is in our own words.
#
# With dispatcherd this travels as pickles between processes of one pool, so it is a vocabulary more
# than a wire; here it is JSON. ``error`` in ``TaskDone`` is ours: with dispatcherd a task that
# failed looks like one that returned nothing.


CANCELLED_RESULT = "<cancel>"
"""The result of a task that was cancelled, or whose time was over."""


@value
class WorkerReady:
    """The worker takes tasks from now on."""

    worker: int


@value
class TaskDone:
    """A task is over. Times in epoch seconds. ``is_stopping``: it takes no more, and will exit.

    ``error``: why it failed, in one line; "" where it did not.
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
    """A task asks something of the orchestrator; it waits for the answer."""

    worker: int
    command: str
    control_data: Mapping[str, Any] = field(default_factory=dict)


@value
class WorkerShutdown:
    """The worker's last word: its process can be joined."""

    worker: int


FromWorker = WorkerReady | TaskDone | ControlAction | WorkerShutdown


def from_worker_fields(fields: Mapping[str, Any]) -> FromWorker:
    """One message of a worker; raises ``ProtocolError``."""
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
