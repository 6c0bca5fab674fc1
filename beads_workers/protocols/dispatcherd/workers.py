"""What a worker says to its main process, and what that is in our own words.

With dispatcherd this travels as pickles between processes of one pool, so it is a vocabulary more
than a wire; here it is JSON. ``error`` in ``Done`` is ours: with dispatcherd a task that failed
looks like one that returned nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any, assert_never

from beads_workers.core.json_fields import ProtocolError, as_number
from beads_workers.core.outcomes import Outcome, OutcomeKind
from beads_workers.core.values import value

CANCELLED_RESULT = "<cancel>"
"""The result of a task that was cancelled, or whose time was over."""
EXIT_RESULT = "<exit>"
"""The result of a task that has asked its worker to exit."""


@value
class Ready:
    """The worker takes tasks from now on."""

    worker: int


@value
class Done:
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
class Shutdown:
    """The worker's last word: its process can be joined."""

    worker: int


FromWorker = Ready | Done | ControlAction | Shutdown


def from_fields(fields: Mapping[str, Any]) -> FromWorker:
    """One message of a worker; raises ``ProtocolError``."""
    worker = fields.get("worker")
    if type(worker) is not int or worker < 0:
        raise ProtocolError("no worker")
    match fields.get("event"):
        case "ready":
            return Ready(worker)
        case "done":
            return _done(worker, fields)
        case "control":
            data = fields.get("control_data")
            if data is not None and not isinstance(data, dict):
                raise ProtocolError("control_data is no object")
            return ControlAction(worker, _text(fields, "command"), data or {})
        case "shutdown":
            return Shutdown(worker)
        case event:
            raise ProtocolError(f"unknown event {str(event)[:40]!r}")


def to_fields(message: FromWorker) -> dict[str, Any]:
    """The message as the object that it is, in the order of the text."""
    match message:
        case Ready():
            return {"worker": message.worker, "event": "ready"}
        case Done():
            return _done_fields(message)
        case ControlAction():
            made: dict[str, Any] = {"worker": message.worker, "event": "control"}
            made |= {"command": message.command, "control_data": dict(message.control_data)}
            return made
        case Shutdown():
            return {"worker": message.worker, "event": "shutdown"}
        case _:
            assert_never(message)


def outcome_of(done: Done) -> Outcome:
    """How the attempt went that this ends.

    ``cancelled`` also where its time was over: that, only the orchestrator knows.
    """
    if done.error:
        return Outcome(OutcomeKind.ERROR, done.error)
    if done.result == CANCELLED_RESULT:
        return Outcome(OutcomeKind.CANCELLED, "cancelled")
    return Outcome(OutcomeKind.SUCCESS, result="" if done.result is None else _json(done.result))


def result_of(outcome: Outcome) -> Any:
    """What ``Done.result`` says of an attempt that ended so; its ``error`` is the outcome's."""
    match outcome.kind:
        case OutcomeKind.SUCCESS:
            return json.loads(outcome.result) if outcome.result else None
        case OutcomeKind.CANCELLED | OutcomeKind.TIMEOUT:
            return CANCELLED_RESULT
        case OutcomeKind.ERROR | OutcomeKind.RETRY | OutcomeKind.LOST | OutcomeKind.NOT_FOUND:
            return None
        case _:
            assert_never(outcome.kind)


def _done(worker: int, fields: Mapping[str, Any]) -> Done:
    started, finished = (as_number(fields.get(name)) for name in ("time_started", "time_finish"))
    if started is None or finished is None:
        raise ProtocolError("no time_started or time_finish")
    error = fields.get("error")
    return Done(
        worker,
        _text(fields, "uuid"),
        started,
        finished,
        fields.get("result"),
        fields.get("is_stopping") is True,
        error if isinstance(error, str) else "",
    )


def _done_fields(done: Done) -> dict[str, Any]:
    made: dict[str, Any] = {
        "worker": done.worker,
        "event": "done",
        "result": done.result,
        "uuid": done.uuid,
        "time_started": done.time_started,
        "time_finish": done.time_finish,
    }
    if done.is_stopping:
        made["is_stopping"] = True
    if done.error:
        made["error"] = done.error
    return made


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        raise ProtocolError(f"no {key}")
    return value


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
