"""One slot's connection to an executor: frames out, frames in, and never more than one of each."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable

from beads_workers.core.json_fields import ProtocolError
from beads_workers.edge.frame_stream import FrameStream
from beads_workers.edge.rrq_driver.places import Address, begin, reach
from beads_workers.protocols.rrq import envelopes as wire
from beads_workers.protocols.rrq.frames import frame
from beads_workers.protocols.rrq.reading import parse


class NoAnswer(Exception):
    """What came is none, and nothing more can; ``str()`` says why."""


class HungUp(Exception):
    """The executor has closed the connection, maybe because it died."""


class Line:
    """It connects at once, and is watched by the selector that it is given."""

    def __init__(
        self, address: Address, selector: selectors.BaseSelector, ready: Callable[[int], None]
    ) -> None:
        self._selector, self._ready = selector, ready
        self._waits_to_write = False
        self._stream = FrameStream(begin(address))
        selector.register(self._stream.socket, selectors.EVENT_READ, ready)

    def send(self, payload: bytes) -> None:
        """Send what fits; ``flush`` sends the rest. Raises ``HungUp``."""
        assert not self._stream.unsent, "one request at a time"
        self._stream.queue(frame(payload))
        self.flush()

    def flush(self) -> None:
        """Call when it can be written to. Raises ``HungUp``."""
        stream = self._stream
        stream.flush()
        if stream.closed:
            raise HungUp
        if bool(stream.unsent) is not self._waits_to_write:
            self._waits_to_write = bool(stream.unsent)
            writing = selectors.EVENT_WRITE if stream.unsent else 0
            self._selector.modify(stream.socket, selectors.EVENT_READ | writing, self._ready)

    def read(self) -> list[wire.Outcome]:
        """Call when it can be read. Raises ``NoAnswer`` for what is none, and ``HungUp``."""
        payloads = self._stream.read(time.monotonic())
        if self._stream.closed:
            raise HungUp
        answers = [_answer(payload) for payload in payloads]
        if self._stream.broken:
            raise NoAnswer(self._stream.broken)
        return answers

    def close(self) -> None:
        """It is over, for us at least."""
        self._selector.unregister(self._stream.socket)
        self._stream.socket.close()


def send_once(address: Address, payload: bytes) -> None:
    """On a connection of its own, which is closed again; raises ``OSError``."""
    with reach(address) as connection:
        connection.sendall(frame(payload))


def _answer(payload: bytes) -> wire.Outcome:
    try:
        envelope = parse(payload)
    except ProtocolError as error:
        raise NoAnswer(f"it sent what is no answer: {error}") from None
    if not isinstance(envelope, wire.Outcome):
        raise NoAnswer("it sent what only we send")
    return envelope
