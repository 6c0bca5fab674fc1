"""Bad frames to our driver: to its lines by the million, and to a whole one by the hundred.

A driver kills an executor at its first bad frame, so a whole one reads as many as processes can be
started; everything that reads them is the same.
"""

from __future__ import annotations

import multiprocessing
import selectors
import socket
import tempfile
from collections.abc import Iterator
from random import Random
from typing import Any

from beads_workers.integrations.rrq.executor import (
    ConnectionClosed,
    ExecutorConnection,
    InvalidReply,
)
from beads_workers.integrations.rrq.wire import frame
from tests.fuzz.frames.executor_end import LOOK_FRAMES, PATIENCE_SECONDS, Told
from tests.fuzz.frames.making import connection
from tests.fuzz.frames.watching import descriptors, peak

GROWTH_BYTES_MAX = 100 << 20
GOOD = (
    b'{"type":"response","payload":{"request_id":"r","job_id":"j","status":"success","result":42}}'
)


def try_lines(frames: int, seed: int, told: Told) -> list[str]:
    """Answer lines of a driver with so many; returns what did not hold."""
    # In a process of its own: its memory is that of the lines, and of nothing else.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_in_process, args=(theirs, frames, seed))
    process.start()
    theirs.close()
    try:
        while True:
            said = ours.recv()
            if isinstance(said, list):
                return said
            told(said)
    except EOFError:
        return ["the process that reads frames died"]
    finally:
        process.join(PATIENCE_SECONDS)


def _in_process(pipe: Any, frames: int, seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="beads-workers-frames-") as folder:
        trial = _Trial(f"{folder}/s", Random(f"{seed} driver"), pipe.send)
        pipe.send(list(trial.run(frames)))


class _Trial:
    def __init__(self, place: str, rng: Random, told: Told) -> None:
        self._place, self._rng, self._told = place, rng, told
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(place)
        self._listener.listen()
        self._selector = selectors.DefaultSelector()
        self._listened()
        # After some have passed: what is made once is made.
        for _ in range(2000):
            self._ended(connection(self._rng, for_executor=False).data)
        self._before, self._opened = peak(_ME), descriptors(_ME)

    def run(self, frames: int) -> Iterator[str]:
        sent = looked = 0
        while sent < frames:
            stream = connection(self._rng, for_executor=False)
            if not self._ended(stream.data) and stream.ends:
                yield f"a line was left open after {stream.data[-80:]!r}"
            sent += stream.frames
            if sent - looked >= LOOK_FRAMES or sent >= frames:
                looked = sent
                self._told(sent)
                if not self._listened():
                    yield "a good answer was not read"
                if (grown := peak(_ME) - self._before) > GROWTH_BYTES_MAX:
                    yield f"its memory grew by {grown >> 20} MB"
        if descriptors(_ME) > self._opened:
            yield f"{descriptors(_ME)} descriptors, and {self._opened} at first"
        self._listener.close()

    def _listened(self) -> bool:
        """A good answer is read as what it is."""
        line, peer = self._connect()
        with peer:
            peer.sendall(frame(GOOD))
            self._selector.select(PATIENCE_SECONDS)
            found = line.read()
            line.close()
        return [answer.result for answer in found] == [42]

    def _ended(self, data: bytes) -> bool:
        """Answer with this: whether the line says that it is over."""
        line, peer = self._connect()
        peer.setblocking(False)
        try:
            while data or self._selector.select(0):
                if data:
                    data = data[self._send(peer, data) :]
                line.read()
        except (InvalidReply, ConnectionClosed):
            return True
        finally:
            peer.close()
            line.close()
        return False

    @staticmethod
    def _send(peer: socket.socket, data: bytes) -> int:
        try:
            return peer.send(data)
        except BlockingIOError:
            return 0

    def _connect(self) -> tuple[ExecutorConnection, socket.socket]:
        line = ExecutorConnection(self._place, self._selector, lambda mask: None)
        peer, _ = self._listener.accept()
        return line, peer


_ME = "self"
