"""What the zygote tells the orchestrator, and the workers that wait until it has been told."""

from __future__ import annotations

import json
import os
import selectors
import socket
from typing import Any


class Reports:
    """Never waits: a zygote that waits for a busy orchestrator would stop reading from it."""

    def __init__(self, connection: socket.socket, selector: selectors.BaseSelector) -> None:
        self._connection = connection
        self._selector = selector
        self._outbox = bytearray()
        self._waiting: list[tuple[int, int]] = []
        self._is_over = False

    def say(self, fields: dict[str, Any]) -> None:
        """Gather a report; ``flush`` sends it."""
        if not self._is_over:
            self._outbox += json.dumps(fields).encode("ascii") + b"\n"

    def hold(self, report_end: int, workers: int) -> None:
        """So many workers read from the pipe with this end: a byte each once all has been sent that
        was said so far, and its end when that never happens."""
        self._waiting.append((report_end, workers))

    def forget(self) -> None:
        """In a worker: it has no part in this."""
        for report_end, _ in self._waiting:
            os.close(report_end)

    def end(self) -> None:
        """Nobody listens any more."""
        self._is_over = True
        self._outbox.clear()
        self._let_go(reported=False)

    def flush(self) -> None:
        """Send what can be sent."""
        if self._is_over:
            self._let_go(reported=False)
            return
        if self._outbox:
            try:
                sent = self._connection.send(self._outbox)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._outbox.clear()
                self._let_go(reported=False)
                return
            del self._outbox[:sent]
        if not self._outbox:
            self._let_go(reported=True)
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outbox else 0)
        self._selector.modify(self._connection, wanted)

    def _let_go(self, *, reported: bool) -> None:
        for report_end, workers in self._waiting:
            if reported:
                _say_reported(report_end, workers)
            os.close(report_end)
        self._waiting.clear()


def _say_reported(report_end: int, workers: int) -> None:
    try:
        os.write(report_end, b"1" * workers)
    except BrokenPipeError:
        pass  # They were killed while they waited; their end is seen like any other.
