"""The wires of other systems: RRQ frames and envelopes, and job envelopes that are handed in."""

from __future__ import annotations

import json
import struct
from random import Random
from typing import Any

from beads_workers.core.base import times
from beads_workers.core.base.framing import ProtocolError, parse_object
from beads_workers.integrations.envelopes import wire
from beads_workers.integrations.envelopes.fold import to_envelope, to_issue
from beads_workers.integrations.envelopes.wire import JobState, from_fields, to_fields
from beads_workers.integrations.rrq import wire as envelopes
from beads_workers.integrations.rrq import wire as reading
from beads_workers.integrations.rrq.wire import FrameReader
from beads_workers.trackers.issue import BadIssue
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
    if isinstance(envelope, envelopes.RequestOutcome):
        after = envelope.retry_after_seconds
        require(after is None or after >= 0, "a retry in the past")
    again = parse(envelopes.encode(envelope))
    require(again == envelope, f"{again} is not {envelope}")


def _trusting(payload: bytes) -> Any:
    """Planted bug: takes what a cancel names for a text."""
    fields = json.loads(payload)
    if isinstance(fields, dict) and fields.get("type") == "cancel":
        inner = fields["payload"]
        return envelopes.CancelRequest(inner["job_id"], inner.get("request_id"))
    return reading.parse(payload)


# --- job envelopes ----------------------------------------------------------------------------

JOB = {
    "job_id": "job-1", "job_path": "pkg.mod.fn", "args": [1, "a"], "kwargs": {"b": None},
    "state": "enqueued", "ts_enqueued": 1672531200, "ts_started": None, "error": None,
    "attempt": 2, "next_retry_at": 1672531300, "reason": None, "result": {"any": [1]},
    "result_file": None, "omitted": [], "title": "t", "priority": 1, "labels": ["l"],
    "timeout_seconds": 1.5, "description": "d", "command": ["rm"], "envelope": 1,
}  # fmt: skip


def _submission(rng: Random) -> bytes:
    made = []
    for _ in range(rng.randrange(1, 4)):
        state = "done" if rng.random() < 0.05 else "enqueued"
        job = JOB | {"job_id": f"job-{rng.randrange(3)}", "state": state}
        fields = hostile_object(rng, job) if rng.random() < 0.6 else job
        made.append(as_json(rng, fields).replace(b", ", any_of(rng, [b", ", b",\n", b",\r\n"])))
    return any_of(rng, [b"\n", b"\n\n", b"\r\n"]).join(made)


def submissions_hold(read: Any, data: bytes) -> None:
    found = read(data)
    for problem in found.problems:
        require(problem.startswith("line ") and len(problem) <= REASON_CHARS_MAX, problem)
    lines = [int(job.where.removeprefix("line ")) for job in found.jobs]
    require(lines == sorted(set(lines)), f"lines {lines}")
    require(not lines or lines[-1] <= data.count(b"\n") + 1, f"line {lines[-1:]}")
    for job in found.jobs:
        well_typed(job.envelope)
        require(job.envelope.state is JobState.ENQUEUED, "not enqueued")
        again = from_fields(json.loads(json.dumps(to_fields(job.envelope))))
        require(again == job.envelope, f"{again} is not {job.envelope}")
        try:
            issue, _ = to_issue(job.envelope, 1)
        except BadIssue as error:
            require(str(error).startswith("job_"), f"{error} names no field")
            continue
        require(issue.command is None and issue.status == "open", "it brought more than a call")
        waits = to_envelope(issue)
        require((waits.job_id, waits.extra) == (again.job_id, again.extra), f"{waits}")
        require(waits.ts_enqueued == again.ts_enqueued, f"{waits.ts_enqueued}")


def _any_state(data: bytes) -> wire.Submission:
    """Planted bug: what is done is done once more."""
    jobs = []
    for number, line in enumerate(data.split(b"\n"), 1):
        try:
            job = from_fields(parse_object(line))
        except ProtocolError:
            continue
        jobs.append(wire.Submitted(f"line {number}", job))
    return wire.Submission(tuple(jobs), ())


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
    Parser("rrq frames", ("integrations/rrq/wire.py",), FrameReader,
           hostile(_stream, (b"\0", b"\0\0\0", b"\xff", b"\0\0\0\x28", b"\0\0\0\x29")), frames_hold,
           {"believes any length": Greedy, "forgets half a length": Forgetful}),
    Parser("rrq envelopes", ("integrations/rrq/wire.py", "integrations/rrq/wire.py"), reading.parse,
           hostile(_envelope), envelopes_hold, {"trusts types": _trusting}),
    Parser("submissions", ("integrations/envelopes/wire.py",), wire.read_submission,
           hostile(_submission), submissions_hold, {"any state": _any_state}),
    Parser("rrq times", ("core/base/times.py",), times.read_time, hostile(texts(TIME_PIECES, 5)),
           times_hold, {"any range": _lenient}),
]  # fmt: skip
