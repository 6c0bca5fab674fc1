"""What workers, clients and the orchestrator say to each other."""

from __future__ import annotations

import json
import socket
from random import Random
from typing import Any

from beads_workers.cli.client import ControlClient
from beads_workers.core.base import framing, limits, wire
from beads_workers.core.base.wire import Batch, Done, Failed, Message, Priority, Ready, Task
from beads_workers.core.schedule.events import StopAsked, Ticket
from beads_workers.errors import CommandError
from beads_workers.runtime import control_socket
from tests.fuzz.inputs import any_of, as_json, cuts, hostile, hostile_object, objects, texts
from tests.fuzz.parser import Parser, require, well_typed

REASON_CHARS_MAX = 300

# --- framing ----------------------------------------------------------------------------------

LINE_BYTES_MAX = 40
"""Small, so that most inputs hold lines at it and over it."""


def expected(stream: bytes) -> list[framing.Framed]:
    """What the framing of docs/PROTOCOL.md makes of a whole stream, told the slow way."""
    *lines, rest = stream.split(b"\n")
    found: list[framing.Framed] = []
    for line in lines:
        if len(line) > LINE_BYTES_MAX:
            found.append(framing.TooLong(line[:LINE_BYTES_MAX]))
        elif (text := line.removesuffix(b"\r")).strip(b" \t\r\n\v\f"):
            found.append(framing.Line(text))
    if len(rest) > LINE_BYTES_MAX:
        found.append(framing.TooLong(rest[:LINE_BYTES_MAX]))
    elif rest.strip():
        found.append(framing.Torn(rest))
    return found


def framing_holds(reader: Any, data: bytes) -> None:
    wanted = expected(data)
    for pieces in ([data], *cuts(data)):
        lines = reader(LINE_BYTES_MAX)
        found = [framed for piece in pieces for framed in lines.feed(piece)]
        require(len(lines._buffer) <= LINE_BYTES_MAX, "it holds more than a line")
        require(found + lines.end() == wanted, f"{found} is not {wanted}")
    require(_a_few_at_once(reader, data) == wanted, "other lines when they are asked for by twos")


def _a_few_at_once(reader: Any, data: bytes) -> list[framing.Framed]:
    lines, found = reader(LINE_BYTES_MAX), list[framing.Framed]()
    for piece in cuts(data)[1]:
        found += lines.feed(piece, 2)
        while lines.pending:
            few = lines.feed(b"", 2)
            require(len(few) <= 2, "more than it was asked for")
            found += few
    return found + lines.end()


class Rescanner(framing.LineReader):
    """Planted bug: takes a line's end for seen although it came with this piece."""

    def feed(self, data: bytes, lines_max: int | None = None) -> list[framing.Framed]:
        found = super().feed(data, lines_max)
        self._searched += self._buffer.endswith(b"\r")
        return found


class Hoarder(framing.LineReader):
    """Planted bug: no limit where a line has no end yet."""

    def _overflow(self, found: list[framing.Framed]) -> None:
        pass


# --- messages ---------------------------------------------------------------------------------

HEAD = {"worker_id": "W1", "timestamp": 1700000000.25}
TASK = {
    "type": "TASK", **HEAD, "issue_id": "bw-1", "priority": 1, "title": "a title", "labels": ["x"],
    "description": "do it", "issue_type": "bug", "attempt": 2, "timeout_seconds": 3.5,
    "payload": {"command": ["true", "{id}"], "issue": {"id": "bw-1", "extra": {"a": [1]}}},
}  # fmt: skip
MESSAGES: list[dict[str, Any]] = [
    {"type": "READY", **HEAD},
    {"type": "READY", **HEAD, "version": "1.1", "features": ["grouped", "cancel"]},
    {"type": "DONE", **HEAD, "issue_id": "bw-1", "duration_ms": 12, "result": {"note": "well"}},
    {
        "type": "FAILED", **HEAD, "issue_id": "bw-1", "error": "it broke", "duration_ms": 12,
        "outcome": "retry", "retry_after_seconds": 2.5, "error_detail": "cannot_start",
    },
    TASK,
    {k: v for k, v in TASK.items() if k != "payload"} | {"payload_file": "/tmp/p.json"},
    {"type": "WAIT", **HEAD, "wait_seconds": 5},
    {"type": "SHUTDOWN", **HEAD, "reason": "user_requested"},
    {"type": "CONTROL", **HEAD, "command": "running", "control_data": {"uuid": "u"}},
    {"type": "CONTROL_REPLY", **HEAD, "reply": {"worker-1": {"uuid": "u"}}},
    {"type": "CANCEL", **HEAD, "issue_id": "bw-1", "reason": "timeout"},
    {"type": "PROGRESS", **HEAD, "issue_id": "bw-1", "percent": 40, "activity": "compiles"},
    {"type": "HEARTBEAT", **HEAD},
    {
        "type": "READY", **HEAD, "version": "1.1", "features": ["batch", "heartbeat"],
        "heartbeat_seconds": 20.5, "batch_size": 10,
    },
    {"type": "STATUS", **HEAD},
    {
        "type": "STATUS", **HEAD, "state": "busy", "issue_id": "bw-1", "request_id": "r",
        "activity": "compiles", "resources": {"rss_bytes": 1 << 20, "cpu_seconds": 2.5},
    },
    {"type": "PAUSE", **HEAD, "reason": "a person asked for it"},
    {"type": "RESUME", **HEAD},
    {"type": "PRIORITY", **HEAD, "priorities": [0, 1], "labels": ["x"], "issue_types": ["bug"]},
    {"type": "PRIORITY", **HEAD},
    {"type": "BATCH", **HEAD, "tasks": [
        {k: v for k, v in TASK.items() if k not in ("type", *HEAD)},
        {"issue_id": "bw-2", "priority": 0, "title": "another"},
    ]},
]  # fmt: skip
RECURSION_ROOM = 100
"""Frames between where the loop reads a line and where it writes one down, with room to spare."""


def deeper(levels: int, call: Any) -> Any:
    """Call it this many frames further down, as a loop that has much to do would."""
    return call() if levels == 0 else deeper(levels - 1, call)


def messages_hold(parse: Any, data: bytes) -> None:
    try:
        message: Message = parse(data)
    except framing.ProtocolError as error:
        require(len(str(error)) <= REASON_CHARS_MAX, "the reason is as long as the line")
        return
    well_typed(message)
    _within_limits(message)
    line = deeper(RECURSION_ROOM, lambda: wire.encode(message, "W1", 1.0, v1=False))
    again = parse(line)
    require(wire.encode(again, "W1", 1.0, v1=False) == line, "it is not read as it is written")
    parse(wire.encode(message, "W1", 1.0, v1=True))
    if isinstance(message, Done | Failed) and (message.warnings or message.duration_ms is None):
        return
    if not isinstance(message, Ready | Done | Failed) or type(message) is not type(again):
        require(message == again or isinstance(message, Task | Batch), f"{again} is not {message}")


def _within_limits(message: Message) -> None:
    if isinstance(message, Failed):
        require(len(message.error) <= limits.ERROR_CHARS_MAX, "an error without end")
        after = message.retry_after_seconds
        require(after is None or 0 <= after <= limits.RETRY_AFTER_MAX_SECONDS, "parked for ever")
    if isinstance(message, Task):
        require(0 <= message.priority <= 4 and message.attempt >= 1, "no such task")
    if isinstance(message, Batch):
        require(0 < len(message.tasks) <= limits.BATCH_MAX, "no such batch")
        for task in message.tasks:
            _within_limits(task)
    if isinstance(message, Ready):
        beat = message.heartbeat_seconds
        require(beat is None or 1 <= beat <= 300, "silent for ever")
        require(message.batch_size == 0 or 2 <= message.batch_size <= 100, "no such size")
    if isinstance(message, Priority):
        require((message.priorities or set()) <= set(range(5)), "no such priority")
    if isinstance(message, Done | Failed | Task):
        require(message.issue_id, "about no issue")


def _trusting(line: bytes) -> Message:
    """Planted bug: takes the type of a field for granted."""
    fields = json.loads(line)
    if isinstance(fields, dict) and fields.get("type") == "SHUTDOWN":
        return wire.Shutdown(fields.get("reason", ""))
    return wire.parse(line)


def _lenient(line: bytes) -> Message:
    """Planted bug: lets infinity through where a number is asked for."""
    message = wire.parse(line.replace(b"2.5", b"1e308"))
    if isinstance(message, Failed) and message.retry_after_seconds:
        return wire.Failed(message.issue_id, retry_after_seconds=1e308)
    return message


def _any_size(line: bytes) -> Message:
    """Planted bug: a batch may be as large as its worker likes."""
    message = wire.parse(line)
    if isinstance(message, Ready) and message.batch_size:
        return wire.Ready(message.worker_id, batch_size=message.batch_size * 50)
    return message


# --- the control socket -----------------------------------------------------------------------

CONTROLS: list[dict[str, Any]] = [
    {"control": "bw.status"},
    {"control": "bw.stop", "control_data": {"drain": True, "seconds": 5, "exit_code": 1}},
    {"control": "bw.scale", "control_data": {"workers": 3}},
    {"control": "bw.retry", "control_data": {"issue_ids": ["bw-1", "bw-2"]}},
    {"control": "bw.release", "control_data": {"issue_ids": ["bw-1"]}},
    {"control": "bw.why", "control_data": {"issue_ids": []}},
    {"control": "bw.pause", "control_data": {}},
    {"control": "bw.resume", "control_data": {"worker_ids": ["W1", "W2"]}},
    {"control": "bw.watch", "control_data": None},
]
CONTROL_NAMES = ("control", "control_data", "workers", "seconds", "exit_code", "issue_ids")


def _control(rng: Random) -> bytes:
    valid = any_of(rng, CONTROLS)
    inner = valid.get("control_data")
    if inner and rng.random() < 0.7:
        return as_json(rng, valid | {"control_data": hostile_object(rng, inner)})
    return as_json(rng, hostile_object(rng, valid, CONTROL_NAMES))


def requests_hold(event_of: Any, data: bytes) -> None:
    try:
        event = event_of(data)
    except framing.ProtocolError as error:
        require(len(str(error)) <= REASON_CHARS_MAX, "the reason is as long as the line")
        return
    well_typed(event)
    if isinstance(event, StopAsked):
        require(0 <= event.exit_code <= 255, "no exit code of a process")
        require(event.seconds is None or event.seconds >= 0, "a stop in the past")


def _event_of(line: bytes) -> Any:
    name, fields = control_socket.parse_request(framing.parse_object(line))
    return control_socket.event_for(name, fields, Ticket(1))


def _unchecked_scale(line: bytes) -> Any:
    """Planted bug: any number of workers will do."""
    name, fields = control_socket.parse_request(framing.parse_object(line))
    if name == "bw.scale":
        return int(fields["workers"])
    return control_socket.event_for(name, fields, Ticket(1))


# --- the client's end of it -------------------------------------------------------------------


UNKNOWN = object()


def client_holds(client_of: Any, data: bytes) -> None:
    """Whatever a fleet says: objects, in order, and at most a ``CommandError``."""
    data = data[:60_000]
    wanted: Any = UNKNOWN
    for pieces in ([data], cuts(data)[1]):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            client, told, over = client_of(ours), list[Any](), False
            try:
                for piece in pieces:
                    theirs.sendall(piece)
                    told += client.receive()[0]
                theirs.close()
                told += client.follow()
            except CommandError:
                over = True
        require(all(isinstance(each, dict) for each in told), "not an object")
        # What came before the first nonsense may have been told already, or not.
        found = None if over else told
        require(wanted is UNKNOWN or found == wanted, "other words when they come in pieces")
        wanted = found


class Impatient(ControlClient):
    """Planted bug: takes the half of a line for all of it."""

    def receive(self) -> tuple[list[dict[str, Any]], bool]:
        found, over = super().receive()
        self._rest = b""
        return found, over


ANSWERS: list[dict[str, Any]] = [
    {"text": "paused"},
    {"error": "no such issue", "not_found": ["bw-1"]},
    {"snapshot": {"state": "running", "workers": [{"id": "W1", "state": "busy"}]}},
    {"ended": {"exit_code": 0, "how": "done"}},
    {"e": "noted", "t": 1.5, "m": 0.5, "level": "info", "text": "x"},
]


def _several(rng: Random) -> bytes:
    return b"\n".join(as_json(rng, any_of(rng, ANSWERS)) for _ in range(3)) + b"\n"


PARSERS = [
    Parser(
        "framing",
        ("core/base/framing.py",),
        framing.LineReader,
        texts([b"\n", b"\r\n", b"{}", b"a", b" ", b"x" * 39, b"x" * 40, b"x" * 41, b"y" * 17], 16),
        framing_holds,
        {"forgets a line's end": Rescanner, "no limit": Hoarder},
    ),
    Parser("messages", ("core/base/wire.py", "core/base/framing.py"), wire.parse, objects(MESSAGES),
           messages_hold,
           {"trusts a type": _trusting, "no limit to a wait": _lenient, "any size": _any_size}),
    Parser("requests", ("runtime/control_socket.py",), _event_of, hostile(_control), requests_hold,
           {"any number": _unchecked_scale}),
    Parser("client", ("cli/client.py",), ControlClient, hostile(_several), client_holds,
           {"half a line": Impatient}),
]  # fmt: skip
