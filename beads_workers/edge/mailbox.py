"""Where events from other threads and from signal handlers wait for the loop."""

from __future__ import annotations

import selectors
import signal
import socket
from collections import deque

from beads_workers.core.events import Event


class Mailbox:
    """Events from other threads and signal handlers; wakes the loop's selector."""

    def __init__(self, selector: selectors.BaseSelector, *, of_signals: bool = True) -> None:
        """``of_signals``: a signal wakes the loop as well; there is one such in a process."""
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._posted: deque[Event | BaseException] = deque()
        selector.register(self._read, selectors.EVENT_READ, lambda mask: self._drain())
        if of_signals:
            signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)

    def post(self, event: Event | BaseException) -> None:
        """Hand an event to the loop, from any thread."""
        self._posted.append(event)
        try:
            self._write.send(b"\0")
        except BlockingIOError:
            pass  # It is full: the loop is about to wake anyway.

    def collect(self) -> list[Event]:
        """What has been posted; a bug in another thread surfaces here."""
        events: list[Event] = []
        while self._posted:
            event = self._posted.popleft()
            if isinstance(event, BaseException):
                raise event
            events.append(event)
        return events

    def _drain(self) -> None:
        try:
            self._read.recv(4096)
        except BlockingIOError:
            pass
