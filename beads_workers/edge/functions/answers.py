"""What is said between a worker and its process for functions: a line each way for every call.

The process runs other people's code: what comes from it is read as strictly as what comes from a
stranger. Source: docs/PROTOCOL.md, "Functions".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from json.encoder import encode_basestring_ascii as quoted
from typing import Any

from beads_workers.core import limits
from beads_workers.core.jobs import Call
from beads_workers.core.json_fields import ProtocolError, as_integer, as_number, parse_object, text
from beads_workers.core.outcomes import Outcome, OutcomeKind
from beads_workers.core.values import value
from beads_workers.executors.functions.calling import NOTHING, Answer

WORKER_FD = 3
"""Where a process for functions finds its worker, at its start."""

CALL_BYTES_MAX = 64 << 20
"""Arguments of 16 MiB, as escaped as JSON can be."""

CONTROL_BYTES_MAX = 64 << 10
"""Of what a task asks; a filter with its arguments is the longest."""

ANSWER_BYTES_MAX = limits.RESULT_CHARS_MAX + 8 * limits.ERROR_CHARS_MAX + 1000
"""What is longer goes through a file."""

_KINDS = {
    kind.value: kind
    for kind in (
        OutcomeKind.SUCCESS,
        OutcomeKind.ERROR,
        OutcomeKind.RETRY,
        OutcomeKind.TIMEOUT,
        OutcomeKind.NOT_FOUND,
    )
}
_ENCODER = json.JSONEncoder(separators=(",", ":"))


@value
class Said:
    """An answer. ``in_file``: the result lies where the call said. ``spent``: the process cannot
    be used again. ``is_stopping``: the call wants the worker to end."""

    outcome: Outcome
    in_file: bool = False
    spent: bool = False
    is_stopping: bool = False


@value
class Asked:
    """A call asks something of the orchestrator, and waits for the reply."""

    command: str
    control_data: Mapping[str, Any]


def call_line(
    number: int, call: Call, variables: Mapping[str, str | None], result_file: str
) -> bytes:
    """One call. ``variables``: of its environment, those that the last call had not, and None for
    those that only that had; ``number`` comes back with the answer. Raises ``ValueError`` where it
    is too long."""
    fields = {
        "n": number,
        "path": call.path,
        "args": call.args,
        "kwargs": call.kwargs,
        "variables": variables,
        "result_file": result_file,
    }
    if call.message is not None:
        fields["message"] = call.message
    line = _ENCODER.encode(fields).encode("ascii") + b"\n"
    if len(line) > CALL_BYTES_MAX:
        raise ValueError(f"arguments of {len(line)} bytes; {CALL_BYTES_MAX} are allowed")
    return line


def answer_line(number: int, answer: Answer, *, in_file: bool, spent: bool) -> bytes:
    """One answer, as ``parse_answer`` reads it."""
    line = f'{{"n":{number},"kind":"{answer.kind.value}"'
    if in_file:
        line += ',"in_file":true'
    elif answer is not NOTHING and answer.kind is OutcomeKind.SUCCESS:
        line += f',"result":{answer.result}'
    if spent:
        line += ',"spent":true'
    if answer.is_stopping:
        line += ',"is_stopping":true'
    if answer.error:
        line += f',"error":{quoted(answer.error)}'
    if answer.retry_after_seconds is not None:
        line += f',"retry_after_seconds":{answer.retry_after_seconds!r}'
    return f"{line}}}\n".encode("ascii")


def parse_answer(line: bytes, number: int) -> Said | Asked:
    """Read the answer to call ``number``, or what it asks; raises ``ProtocolError`` for anything
    else."""
    if line == b'{"n":%d,"kind":"success"}' % number:
        return _WELL  # What most functions return is nothing.
    fields = parse_object(line)
    if as_integer(fields.get("n")) != number:
        raise ProtocolError("an answer to another call")
    if "control" in fields:
        return _asked(fields)
    kind = _KINDS.get(text(fields, "kind", ""))
    if kind is None:
        raise ProtocolError("no such kind of answer")
    spent, stopping = fields.get("spent") is True, fields.get("is_stopping") is True
    if kind is not OutcomeKind.SUCCESS:
        error = text(fields, "error", "")[: limits.ERROR_CHARS_MAX]
        after = _after(fields) if kind is OutcomeKind.RETRY else None
        outcome = Outcome(kind, error or "it gave no reason", after)
        return Said(outcome, spent=spent, is_stopping=stopping)
    if fields.get("in_file") is True:
        return Said(Outcome(kind), in_file=True, spent=spent, is_stopping=stopping)
    result: Any = fields.get("result")
    outcome = Outcome(kind, result="" if result is None else _encode(result))
    return Said(outcome, spent=spent, is_stopping=stopping)


def asking_line(number: int, command: str, data: Mapping[str, Any]) -> bytes:
    """What call ``number`` asks of the orchestrator. Raises ``ValueError`` for what is no JSON, or
    too long."""
    try:
        text = _ENCODER.encode({"n": number, "control": command, "control_data": data})
    except TypeError as error:
        raise ValueError(f"not JSON: {error}") from None
    if len(text) > CONTROL_BYTES_MAX:
        raise ValueError(f"{len(text)} bytes of JSON; {CONTROL_BYTES_MAX} are allowed")
    return text.encode("ascii") + b"\n"


def reply_line(reply: Mapping[str, Any]) -> bytes:
    """The orchestrator's reply, as the process for functions reads it."""
    return _ENCODER.encode({"reply": reply}).encode("ascii") + b"\n"


def _asked(fields: dict[str, Any]) -> Asked:
    command, data = text(fields, "control", ""), fields.get("control_data")
    if not command or not isinstance(data, dict):
        raise ProtocolError("a question without a command or its data")
    return Asked(command, data)


_WELL = Said(Outcome(OutcomeKind.SUCCESS))


def _encode(result: Any) -> str:
    encoded = _ENCODER.encode(result)
    if len(encoded) > limits.RESULT_CHARS_MAX:
        raise ProtocolError("a result that is too long for a line")
    return encoded


def _after(fields: Mapping[str, Any]) -> float | None:
    seconds = as_number(fields.get("retry_after_seconds"))
    if seconds is None or seconds < 0:
        return None
    return min(seconds, limits.RETRY_AFTER_MAX_SECONDS)
