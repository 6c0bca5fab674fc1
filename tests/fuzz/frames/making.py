"""Frames, most of them bad, the same again by seed."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from random import Random

from beads_workers.core.base.framing import ProtocolError
from beads_workers.integrations.rrq import wire
from beads_workers.integrations.rrq.wire import FRAME_BYTES_MAX, frame, parse
from tests.fuzz.table import PARSERS

FRAMES_MAX = 40
"""On one connection: more than one that is read to its end would be sent at once."""

FATAL = (
    struct.pack(">I", 0),
    struct.pack(">I", FRAME_BYTES_MAX + 1),
    b"\xff\xff\xff\xff",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
)
"""No frames at all: nothing behind them can be read."""

_STREAMS = PARSERS["rrq frames"].make
_PAYLOADS = PARSERS["rrq envelopes"].make


def payload(rng: Random) -> bytes:
    """What a frame may hold: an envelope that was changed, or nonsense."""
    return _PAYLOADS(rng)[: FRAME_BYTES_MAX - 1] or b" "


def is_fatal(data: bytes, *, for_executor: bool) -> bool:
    """Whether whoever reads this payload hangs up. Only to know how many frames are ever read."""
    try:
        envelope = parse(data)
    except wire.WrongRequest:
        return not for_executor
    except ProtocolError:
        return True
    return isinstance(envelope, wire.RequestOutcome) is for_executor


@dataclass(frozen=True, slots=True)
class Stream:
    """What is sent on one connection. ``frames``: how many of it are read; ``ends``: with the last
    one whoever reads it hangs up, and otherwise it waits for more."""

    data: bytes
    frames: int
    ends: bool = True


def connection(rng: Random, *, for_executor: bool) -> Stream:
    """One connection: good frames at first, if any."""
    sent, count = b"", 0
    while count < FRAMES_MAX - 1:
        count += 1
        kind = rng.random()
        if kind < 0.04:
            return Stream(sent + rng.choice(FATAL), count)
        if kind < 0.08:
            return Stream(sent + _STREAMS(rng)[:1_000_000], count, ends=False)
        data = payload(rng)
        sent += frame(data)
        if is_fatal(data, for_executor=for_executor):
            return Stream(sent, count)
    return Stream(sent + FATAL[0], count + 1)
