"""The terminal while a dashboard has it: frames out, keys and signals in, given back at the end.

    with Terminal.open() as terminal:
        while True:
            terminal.draw(lines)
            events = terminal.wait([socket], seconds=0.25)

Nothing blocks but ``wait``. A terminal that takes no more (Ctrl-S, a dead link) costs frames, not
turns. Signals are data (``Events.signals``); only suspension is dealt with here: Ctrl-Z gives the
terminal back and stops, and going on takes it again. In the background nothing is drawn and nothing
is read until the program is brought to the front.
"""

from __future__ import annotations

import enum
import select
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from beads_workers.edge.terminal.device import Device, Modes, keys_at_once
from beads_workers.edge.terminal.keys import KeyParser
from beads_workers.edge.terminal.output import Output
from beads_workers.edge.terminal.signals import ENDING, SignalBox

FRONT_SECONDS = 0.5
"""In the background this often: no signal tells that a shell has brought us to the front."""


class HasFileno(Protocol):
    """A socket, or anything else to wait for."""

    def fileno(self) -> int:
        """Its descriptor."""


@dataclass(frozen=True)
class Events:
    """What ``Terminal.wait`` has to tell; false where it is nothing but the time."""

    keys: tuple[str, ...] = ()
    """Names of ``edge.terminal.keys``."""
    signals: tuple[signal.Signals, ...] = ()
    """SIGINT, SIGTERM, SIGHUP, SIGQUIT: the caller leaves, sooner or later."""
    ready: tuple[HasFileno | int, ...] = ()
    """Those of the others that can be read, or have ended."""
    resized: bool = False
    """``size`` is another one: draw anew."""
    resumed: bool = False
    """The terminal was taken again; the last frame is on its way, with the times of long ago."""
    gone: bool = False
    """There is no terminal any more: leave. Told every time."""

    def __bool__(self) -> bool:
        return self != Events()


class _Hold(enum.Enum):
    OURS = enum.auto()
    SHELLS = enum.auto()
    """Given back: not yet entered, suspended, in the background, or left."""
    GONE = enum.auto()


class Terminal:
    """Made by ``open``; a context manager that gives the terminal back as it was."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._hold = _Hold.SHELLS
        self._modes: Modes = []
        self._size = device.size()
        self._output = Output(device)
        self._parser = KeyParser()
        self._signals: SignalBox

    @classmethod
    def open(cls) -> Terminal:
        """The terminal behind standard output; raises ``OSError`` where ``can_draw`` says no."""
        return cls(Device.open())

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows, as of the last ``wait``."""
        return self._size

    def __enter__(self) -> Terminal:
        self._signals = SignalBox()
        try:
            self._try(self._start)
        except BaseException:  # Whatever it is, the terminal must be given back.
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _start(self) -> None:
        if self._device.in_front():
            # What was typed before there was anything to see was not meant for us.
            self._device.discard_input()
        self._take()

    def draw(self, lines: Sequence[str], full: bool = False) -> None:
        """Show these rows, each at most as wide as the screen; rows that are the same cost nothing.

        Never blocks: while the terminal takes no more, only the newest frame is kept. ``full``
        writes every row again (for a key that repairs what others wrote over the screen).
        """
        self._output.show(lines, full)
        self._flush()

    def _flush(self) -> None:
        if self._hold is _Hold.OURS:
            self._try(lambda: self._output.flush(self._size))

    def _try(self, action: Callable[[], None]) -> None:
        """Whatever goes wrong with a terminal, it means that there is none any more."""
        try:
            action()
        except OSError:
            self._hold = _Hold.GONE

    # --- waiting ------------------------------------------------------------------------------

    def wait(self, others: Iterable[HasFileno | int] = (), seconds: float | None = None) -> Events:
        """Until there is something to tell, or ``seconds`` are over (None: for ever)."""
        ready = list(others)
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            events = self._once(ready, deadline)
            if events or (deadline is not None and time.monotonic() >= deadline):
                return events

    def _once(self, others: list[HasFileno | int], deadline: float | None) -> Events:
        ready = self._poll(others, deadline)
        taken = self._signals.take()
        size = self._size
        resumed = self._mind(taken)
        keys = self._keys(readable=self._device.fd in ready)
        self._flush()
        return Events(
            keys=tuple(keys),
            signals=tuple(s for s in taken if s in ENDING),
            ready=tuple(o for o in others if _number(o) in ready),
            resized=size != self._size,
            resumed=resumed,
            gone=self._hold is _Hold.GONE,
        )

    def _poll(self, others: list[HasFileno | int], deadline: float | None) -> set[int]:
        poll = select.poll()
        poll.register(self._signals.fileno(), select.POLLIN)
        if self._hold is _Hold.OURS:
            # A hang-up is reported whatever is asked for, so this must not be left out.
            mask = select.POLLIN | (select.POLLOUT if self._output.blocked else 0)
            poll.register(self._device.fd, mask)
        for other in others:
            poll.register(_number(other), select.POLLIN)
        patience = self._patience(deadline)
        # Rounded up: a millisecond too early would only be another turn.
        milliseconds = None if patience is None else int(patience * 1000 + 0.999)
        return {fd for fd, mask in poll.poll(milliseconds) if mask & ~select.POLLOUT}

    def _patience(self, deadline: float | None) -> float | None:
        now = time.monotonic()
        due = [at for at in (deadline, self._parser.deadline()) if at is not None]
        if self._hold is _Hold.SHELLS:
            due.append(now + FRONT_SECONDS)
        if self._hold is _Hold.GONE:
            due.append(now)
        return max(0.0, min(due) - now) if due else None

    def _keys(self, readable: bool) -> list[str]:
        keys = self._parser.on_deadline(time.monotonic())
        if not readable or self._hold is not _Hold.OURS:
            return keys
        try:
            data = self._device.read()
        except OSError:
            # In the background reading is an error, too.
            if self._device.in_front():
                self._hold = _Hold.GONE
            else:
                self._leave_screen()
            return keys
        return keys + self._parser.feed(data or b"", time.monotonic())

    # --- taking it and giving it back ---------------------------------------------------------

    def _mind(self, taken: list[signal.Signals]) -> bool:
        """Suspension, going on, resizing; whether the terminal was taken again."""
        if self._hold is _Hold.GONE:
            return False
        if signal.SIGTSTP in taken:
            self._give_back()
            self._signals.stop_for_real()
        resumed = False
        if signal.SIGCONT in taken or self._hold is _Hold.SHELLS:
            self._try(self._take)
            resumed = self._hold is _Hold.OURS
        if signal.SIGWINCH in taken or resumed:
            self._try(self._measure)
        return resumed

    def _take(self) -> None:
        """Make it ours, again where it was already: after a SIGSTOP a shell has written on it.

        In the background it is left, or stays, to those in front.
        """
        if not self._device.in_front():
            self._leave_screen()
            return
        if self._hold is _Hold.SHELLS:
            self._modes = self._device.modes()
        self._hold = _Hold.OURS
        self._device.set_modes(keys_at_once(self._modes))
        self._output.enter()

    def _measure(self) -> None:
        size = self._device.size()
        if size != self._size:
            self._size = size
            self._output.resized()

    def _leave_screen(self) -> None:
        if self._hold is _Hold.OURS:
            self._hold = _Hold.SHELLS
            self._try(self._output.leave)

    def _give_back(self) -> None:
        """Screen and modes as they were; takes a moment at most, however stuck the terminal is."""
        if self._hold is not _Hold.SHELLS:
            # Even where a write has failed: a terminal that has gone takes no harm.
            self._hold = _Hold.OURS
            self._leave_screen()
            self._try(lambda: self._device.set_modes(self._modes))

    def _close(self) -> None:
        self._signals.hold_back()
        self._give_back()
        self._device.close()
        self._signals.close()


def _number(other: HasFileno | int) -> int:
    return other if isinstance(other, int) else other.fileno()
