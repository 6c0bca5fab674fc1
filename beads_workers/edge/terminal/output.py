"""What goes out to the terminal: one frame after the other, never half of one before another.

A terminal that takes no more (Ctrl-S, a dead link) blocks nobody: the bytes of the frame that was
begun are finished when it does again, and of the frames since then only the newest is written.
"""

from __future__ import annotations

import select
import time
from collections.abc import Sequence

from beads_workers.edge.terminal.device import Device
from beads_workers.edge.terminal.frames import CANCEL, ENTER, LEAVE, Painter

LEAVE_SECONDS = 0.5
"""So long may a terminal that takes no more keep us, once for the frame and once for leaving."""


class Output:
    """Every method raises ``OSError`` once the terminal has gone."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._painter = Painter()
        self._unwritten = b""
        self._frame: list[str] | None = None
        """The newest, drawn or not; None where there is none that fits the screen."""

    @property
    def blocked(self) -> bool:
        """Whether something waits for the terminal to take more: then call ``flush``."""
        return bool(self._unwritten)

    def enter(self) -> None:
        """Begin, or begin again, on an empty screen; the newest frame follows with ``flush``."""
        self._unwritten = (CANCEL if self._unwritten else b"") + ENTER
        self._painter.forget()
        self._push()

    def show(self, lines: Sequence[str], full: bool) -> None:
        """This is the newest frame, ``full`` of it anew; call ``flush`` next."""
        self._frame = list(lines)
        if full:
            self._painter.forget()

    def resized(self) -> None:
        """No frame fits any more: nothing is drawn until the next one is shown."""
        self._frame = None
        self._painter.forget()

    def flush(self, size: tuple[int, int]) -> None:
        """Finish what was begun, then write what is new: one write each, as far as it goes."""
        if self._unwritten:
            self._push()
        if not self._unwritten and self._frame is not None:
            self._unwritten = self._painter.paint(self._frame, size)
            if self._unwritten:
                self._push()

    def leave(self) -> None:
        """Back to the other screen, in a moment at most; what cannot be written is dropped."""
        self._finish()
        self._unwritten = (CANCEL if self._unwritten else b"") + LEAVE
        self._finish()
        self._unwritten = b""

    def _push(self) -> None:
        self._unwritten = self._device.write(self._unwritten)

    def _finish(self) -> None:
        self._push()
        if not self._unwritten:
            return
        self._device.thaw()
        poll = select.poll()
        poll.register(self._device.fd, select.POLLOUT)
        deadline = time.monotonic() + LEAVE_SECONDS
        while self._unwritten and (left := deadline - time.monotonic()) > 0:
            poll.poll(int(left * 1000) + 1)
            self._push()
        if self._unwritten:
            # Nobody reads; what lies there would only stand in the way of giving it back.
            self._device.discard_output()
