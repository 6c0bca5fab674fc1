"""Signals as data: they wake the one who waits, and are read there, in order.

A program that does not listen can still be ended: when a signal that asks for the end comes while
the same one has been waiting for ``PATIENCE_SECONDS``, it raises ``KeyboardInterrupt`` where the
program is stuck; what was not read is raised again when the box is closed.
"""

from __future__ import annotations

import signal
import socket
import time
from collections import deque
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
OURS = (*ENDING, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)
PATIENCE_SECONDS = 2.0


class SignalBox:
    """Handlers for all of ``OURS`` from its making to ``close``; the main thread's alone."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        # Handlers interrupt one another and everything below: each of their steps is one operation.
        self._unread: deque[signal.Signals] = deque()
        self._waiting_since: dict[int, float] = {}
        self._closing = False
        self._wakeup_before = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        # What the caller's caller ignores stays ignored: nohup, a shell without job control.
        heard = [s for s in OURS if signal.getsignal(s) is not signal.SIG_IGN]
        self._before = {s: signal.signal(s, self._note) for s in heard}

    def fileno(self) -> int:
        """Readable when a signal has come."""
        return self._read.fileno()

    def take(self) -> list[signal.Signals]:
        """Those that came since the last time, in order."""
        try:
            self._read.recv(4096)
        except BlockingIOError:
            pass
        taken = []
        while self._unread:
            taken.append(self._unread.popleft())
        self._waiting_since.clear()
        return taken

    def stop_for_real(self) -> None:
        """What SIGTSTP does to a process that does not catch it; returns when it continues."""
        ours = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, ours)
        # That it goes on is known by the return.
        while signal.SIGCONT in (unread := tuple(self._unread)):
            del self._unread[unread.index(signal.SIGCONT)]

    def hold_back(self) -> None:
        """From now on nothing is raised in the midst of what runs: the terminal is given back."""
        self._closing = True

    def close(self) -> None:
        """Put the former handlers back, and let them have what nobody has read."""
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        unread = [number for number in self.take() if number in ENDING]
        self._read.close()
        self._write.close()
        for number in unread:
            signal.raise_signal(number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        since = self._waiting_since.setdefault(number, now)
        self._unread.append(signal.Signals(number))
        # The byte that the interpreter writes may be read before this runs; this one is not.
        try:
            self._write.send(b"\0")
        except BlockingIOError:
            pass  # It is full: whoever waits is about to wake anyway.
        if number in ENDING and now - since > PATIENCE_SECONDS:
            self._interrupt()

    def _interrupt(self) -> None:
        if not self._closing:
            raise KeyboardInterrupt
