"""The wires of other systems: RRQ frames and envelopes."""

from __future__ import annotations

import json
import struct
from random import Random
from typing import Any

from beads_workers.core.json_fields import ProtocolError
from beads_workers.protocols import times
from beads_workers.protocols.rrq import envelopes, reading
from beads_workers.protocols.rrq.frames import FrameReader
from tests.fuzz.inputs import any_of, as_json, as_text, cuts, hostile, hostile_object, texts
from tests.fuzz.parser import Parser, require, well_typed

FRAME_BYTES_MAX = 40
"""Small, so that most inputs hold frames at it and over it."""
REASON_CHARS_MAX = 300

# --- frames -----------------------------------------------------------------------------------


def expected(stream: bytes) -> tuple[list[bytes], bool]:
    """The payloads of a whole stream, and whether it came to a good end; told the slow way."""
    found: list[bytes] = []
    while len(stream) >= 4:
        (length,) = struct.unpack(">I", stream[:4])
        if not 0 < length <= FRAME_BYTES_MAX:
            return found, False
        if len(stream) < 4 + length:
            break
        found.append(stream[4 : 4 + length])
        stream = stream[4 + length :]
    return found, not stream


def frames_hold(reader: Any, data: bytes) -> None:
    for pieces in ([data], *cuts(data)):
        frames = reader(FRAME_BYTES_MAX)
        found = []
        for piece in pieces:
            found += frames.feed(piece)
            require(len(frames._buffer) < FRAME_BYTES_MAX + 4, "it holds more than a frame")
        frames.end()
        require((found, not frames.broken) == expected(data), f"{found} {frames.broken}")


class Greedy(FrameReader):
    """Planted bug: believes any length."""

    def __init__(self, frame_bytes_max: int) -> None:
        super().__init__(frame_bytes_max * 1000)


class Forgetful(FrameReader):
    """Planted bug: throws away a length that has come in part."""

    def feed(self, data: bytes) -> list[bytes]:
        found = super().feed(data)
        if len(self._buffer) < 4:
            self._buffer.clear()
        return found


def _stream(rng: Random) -> bytes:
    made = b""
    for _ in range(rng.randrange(1, 5)):
        length = any_of(rng, [1, 2, 7, FRAME_BYTES_MAX - 1, FRAME_BYTES_MAX])
        made += struct.pack(">I", length) + bytes(rng.randrange(256) for _ in range(length))
    return made


# --- envelopes --------------------------------------------------------------------------------

CONTEXT = {
    "job_id": "j", "attempt": 1, "enqueue_time": "2025-01-01T12:00:00Z", "queue_name": "default",
    "deadline": "2025-01-01T12:05:00.123456789Z", "trace_context": {"traceparent": "00-a-b-01"},
    "correlation_context": None, "worker_id": "w",
}  # fmt: skip
HEAD = {"request_id": "r", "job_id": "j", "function_name": "f", "context": CONTEXT}
ERROR = {"message": "m", "type": "handler_not_found", "code": "c", "details": {"any": [1]}}
PAYLOADS: list[tuple[str, dict[str, Any]]] = [
    ("request", {"protocol_version": "1", **HEAD, "args": [1, "two"], "kwargs": {"flag": True}}),
    ("request", {"protocol_version": "2", **HEAD, "params": {"flag": True}}),
    ("response", {"job_id": "j", "request_id": "r", "status": "success", "result": [1.5]}),
    (
        "response",
        {"job_id": "j", "request_id": "r", "status": "retry", "result": None, "error": ERROR,
         "retry_after_seconds": 2.5},
    ),
    ("cancel", {"protocol_version": "1", "job_id": "j", "request_id": "r", "hard_kill": False}),
]  # fmt: skip


def _envelope(rng: Random) -> bytes:
    kind, payload = any_of(rng, PAYLOADS)
    which = rng.random()
    if which < 0.4 and "context" in payload:
        payload = payload | {"context": hostile_object(rng, CONTEXT)}
    elif which < 0.9:
        payload = hostile_object(rng, payload)
    else:
        return as_json(rng, hostile_object(rng, {"type": kind, "payload": payload}))
    return as_json(rng, {"type": kind, "payload": payload})


def envelopes_hold(parse: Any, data: bytes) -> None:
    try:
        envelope = parse(data)
    except ProtocolError as error:
        require(len(str(error)) <= REASON_CHARS_MAX, "the reason is as long as the frame")
        if isinstance(error, envelopes.WrongRequest):
            require(error.request_id and error.job_id, "nobody to tell")
        return
    well_typed(envelope)
    if isinstance(envelope, envelopes.Request):
        require(envelope.context.attempt >= 1, "an attempt before the first")
        if envelope.protocol_version not in envelopes.VERSIONS:
            return
    if isinstance(envelope, envelopes.Outcome):
        after = envelope.retry_after_seconds
        require(after is None or after >= 0, "a retry in the past")
    again = parse(envelopes.encode(envelope))
    require(again == envelope, f"{again} is not {envelope}")


def _trusting(payload: bytes) -> Any:
    """Planted bug: takes what a cancel names for a text."""
    fields = json.loads(payload)
    if isinstance(fields, dict) and fields.get("type") == "cancel":
        inner = fields["payload"]
        return envelopes.Cancel(inner["job_id"], inner.get("request_id"))
    return reading.parse(payload)


# --- times ------------------------------------------------------------------------------------

TIME_PIECES = (
    b"2025-01-01", b"T", b"t", b" ", b"12:00:00", b"23:59:60", b".5", b".123456789", b"Z", b"z",
    b"+02:30", b"-00:00", b"0001-01-01", b"9999-12-31", b"+23:59", b"24:00:00", b"2025-02-30",
)  # fmt: skip


def times_hold(read: Any, data: bytes) -> None:
    try:
        seconds = read(as_text(data))
    except ValueError:
        return
    require(type(seconds) is float, "no float")
    try:
        written = times.write_time(seconds)
    except ValueError:
        # The last microseconds of the year 9999 have no float of their own.
        require(253402300799 < seconds <= 253402300800, f"{seconds} cannot be written")
        return
    require(abs(times.read_time(written) - seconds) < 1e-4, f"{written} is not {seconds}")


def _lenient(text: str) -> float:
    """Planted bug: a time without any check of its range."""
    if text.startswith("9999"):
        return 1e12
    return times.read_time(text)


PARSERS = [
    Parser(
        "rrq frames",
        ("protocols/rrq/frames.py",),
        FrameReader,
        hostile(_stream, (b"\0", b"\0\0\0", b"\xff", b"\0\0\0\x28", b"\0\0\0\x29")),
        frames_hold,
        {"believes any length": Greedy, "forgets half a length": Forgetful},
    ),
    Parser(
        "rrq envelopes",
        ("protocols/rrq/reading.py", "protocols/rrq/envelopes.py"),
        reading.parse,
        hostile(_envelope),
        envelopes_hold,
        {"trusts types": _trusting},
    ),
    Parser(
        "rrq times",
        ("protocols/times.py",),
        times.read_time,
        hostile(texts(TIME_PIECES, 5)),
        times_hold,
        {"any range": _lenient},
    ),
]
