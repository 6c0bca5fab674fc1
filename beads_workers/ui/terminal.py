"""The terminal of a dashboard: frames out, keys and signals in, restored at the end."""

from __future__ import annotations

import base64
import enum
import os
import re
import select
import signal
import socket
import sys
import termios
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

from beads_workers.core.base.text import columns as columns_of
from beads_workers.core.base.text import printable
from beads_workers.ui.keys import KeyParser
from beads_workers.ui.theme import ASK

# --- device --------------------------------------------------------------------------------------
# The terminal as a device: our own descriptor, its modes, its size, and its foreground group.
# ``O_NONBLOCK`` belongs to the open file, which a shell shares with its children. So the terminal
# is opened again, and the flag ends with this descriptor.


Modes = list[Any]
"""Modes as ``termios.tcgetattr`` returns them."""
_INPUT, _LOCAL, _CHARACTERS = 0, 3, 6
SIZE_UNKNOWN = (80, 24)
READ_BYTES = 4096
_DRAWS_NOTHING = ("", "dumb", "unknown")


def can_draw(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether there is a terminal to draw on: no pipe, not dumb, in the foreground."""
    if environ.get("TERM", "") in _DRAWS_NOTHING:
        return False
    if not (_is_terminal(sys.__stdin__) and _is_terminal(sys.__stdout__)):
        return False
    try:
        device = Device.open()
    except OSError:
        return False
    try:
        return device.in_front()
    finally:
        device.close()


def _is_terminal(stream: Any) -> bool:
    try:
        return stream is not None and os.isatty(stream.fileno())
    except (OSError, ValueError):
        return False


class Device:
    """An open terminal. Every method raises ``OSError`` once the terminal is gone."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def open(cls) -> Device:
        """Open the terminal behind standard output; raise ``OSError`` without one."""
        output = sys.__stdout__.fileno() if sys.__stdout__ is not None else 1
        flags = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            return cls(os.open(os.ttyname(output), flags))
        except PermissionError:
            # After su the terminal belongs to another user; this name is open to everybody.
            return cls(os.open("/dev/tty", flags))

    def close(self) -> None:
        """Close the descriptor; the modes of the terminal stay."""
        os.close(self.fd)

    def size(self) -> tuple[int, int]:
        """Return columns and rows; 80 and 24 if the terminal does not know."""
        columns, rows = os.get_terminal_size(self.fd)
        return (columns or SIZE_UNKNOWN[0], rows or SIZE_UNKNOWN[1])

    def in_front(self) -> bool:
        """Return whether this process may read and draw; always true without job control."""
        try:
            return os.tcgetpgrp(self.fd) == os.getpgrp()
        except OSError:
            return True

    def read(self) -> bytes | None:
        """Return what was typed; None for nothing. Raise ``OSError`` if the terminal is gone."""
        with _never_stopped():
            try:
                data = os.read(self.fd, READ_BYTES)
            except BlockingIOError:
                return None
        if not data:
            raise OSError("the terminal has gone")
        return data

    def write(self, data: bytes) -> bytes:
        """Write what fits without waiting; return the rest."""
        with _never_stopped():
            try:
                return data[os.write(self.fd, data) :]
            except BlockingIOError:
                return data

    def discard_input(self) -> None:
        """Discard what was typed so far."""
        with _never_stopped():
            termios.tcflush(self.fd, termios.TCIFLUSH)

    def discard_output(self) -> None:
        """Discard what was written but not sent by the terminal."""
        with _never_stopped():
            termios.tcflush(self.fd, termios.TCOFLUSH)

    def modes(self) -> Modes:
        """Return the modes, for ``set_modes``."""
        with _never_stopped():
            return termios.tcgetattr(self.fd)

    def set_modes(self, modes: Modes) -> None:
        """Set the modes at once: waiting for output could take for ever."""
        with _never_stopped():
            termios.tcsetattr(self.fd, termios.TCSANOW, modes)

    def thaw(self) -> None:
        """Undo a Ctrl-S: the kernel resumes output when flow control is switched off."""
        modes = self.modes()
        without = [*modes]
        without[_INPUT] &= ~termios.IXON
        self.set_modes(without)
        self.set_modes(modes)


def keys_at_once(modes: Modes) -> Modes:
    """Return these modes with single, unechoed keys; Ctrl-C, Ctrl-Z and Ctrl-S still work.

    ``NOFLSH``: without it, a Ctrl-C discards half-written output, and the screen differs from what
    is remembered.
    """
    changed = [*modes]
    changed[_LOCAL] = modes[_LOCAL] & ~(termios.ECHO | termios.ICANON) | termios.NOFLSH
    characters = [*modes[_CHARACTERS]]
    characters[termios.VMIN], characters[termios.VTIME] = 1, 0
    changed[_CHARACTERS] = characters
    return changed


@contextmanager
def _never_stopped() -> Iterator[None]:
    """Block the signals that stop a background process when it uses a terminal.

    They are blocked for this moment only: started programs would inherit the mask. Raise
    ``OSError`` for errors of ``termios``.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTTOU, signal.SIGTTIN))
    try:
        yield
    except termios.error as error:
        raise OSError(*error.args) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# --- frames --------------------------------------------------------------------------------------
# Bytes for a terminal: taking it over, restoring it, and frames. Pure: text to bytes. A frame has
# only the rows that differ from the shown ones, each at its absolute place. It is enclosed in the
# marks of synchronized output (DEC mode 2026), so that it appears at once.


ENTER = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[m" + ASK + b"\x1b[H\x1b[2J"
"""Bytes that take the screen: alternate screen, no cursor, no wrapping, empty.

They also ask for the background. The screen is cleared last because some consoles print a question
that they do not know.
"""
MOUSE_ON, MOUSE_OFF = b"\x1b[?1000h\x1b[?1006h", b"\x1b[?1006l\x1b[?1000l"
"""Bytes that have presses and the wheel reported, in the form without limits (SGR), and end it."""
LEAVE = b"\x1b[?2026l" + MOUSE_OFF + b"\x1b[m\x1b[?7h\x1b[?25h\x1b[?1049l"
"""Bytes that undo all of ``ENTER`` and ``MOUSE_ON``, and whatever colours and half a frame left
behind."""
COPY_CHARS_MAX = 8192
"""Most characters for a clipboard: some terminals ignore more than 74 KB in base64."""
CANCEL = b"\x18"
"""Byte that ends an escape sequence of which only the beginning was written."""

_BEGIN = "\x1b[?2026h"
_END = "\x1b[?2026l"
_ERASE_LINE = "\x1b[K"
_ERASE_BELOW = "\x1b[J"
_INVISIBLE = re.compile("\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)")


def copied(text: str) -> bytes:
    """Return the bytes that give a text to the terminal's clipboard (OSC 52).

    The text becomes one safe line: a line end would run it where it is pasted.
    """
    line = printable(text[:COPY_CHARS_MAX]).encode("utf-8", "replace")
    return b"\x1b]52;c;" + base64.b64encode(line) + b"\x1b\\"


class Painter:
    """Memory of the shown rows; all bytes that ``paint`` returns must be written."""

    def __init__(self) -> None:
        self._shown: list[str] | None = None

    def forget(self) -> None:
        """Forget the screen: the next frame writes every row."""
        self._shown = None

    def paint(self, lines: Sequence[str], size: tuple[int, int]) -> bytes:
        """Return the bytes that turn the shown rows into these; empty if nothing has changed."""
        width, height = size
        wanted = list(lines[:height])
        shown = self._shown
        pieces = [
            _row(number, line, width)
            for number, line in enumerate(wanted, 1)
            if shown is None or number > len(shown) or shown[number - 1] != line
        ]
        if len(wanted) < height and (shown is None or len(shown) > len(wanted)):
            pieces.append(f"\x1b[{len(wanted) + 1};1H{_ERASE_BELOW}")
        self._shown = wanted
        text = "".join((_BEGIN, *pieces, _END)) if pieces else ""
        return text.encode("utf-8", "replace")


def _row(number: int, line: str, width: int) -> str:
    place = f"\x1b[{number};1H\x1b[m"
    # After a row that reaches the right edge, the cursor is on its last character, and erasing
    # would remove that. Erasing before would flicker if output is not synchronized.
    if columns_of(_INVISIBLE.sub("", line)) < width:
        return f"{place}{line}\x1b[m{_ERASE_LINE}"
    return f"{place}{_ERASE_LINE}{line}\x1b[m"


# --- output --------------------------------------------------------------------------------------
# Output to the terminal: one frame after the other, never mixed. A terminal that takes no more
# (Ctrl-S, a dead link) blocks nobody: the begun frame is finished when it takes output again, and
# of all later frames only the newest is written.


LEAVE_SECONDS = 0.5
"""Time limit for a blocked terminal, once for the frame and once for leaving."""


class TerminalOutput:
    """Output to a terminal; every method raises ``OSError`` once the terminal is gone."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._painter = Painter()
        self._unwritten = b""
        self._beside = b""
        """Bytes between two frames: modes, and texts for the clipboard."""
        self._mouse = False
        self._frame: list[str] | None = None
        """Newest frame, drawn or not; None if there is none that fits the screen."""

    @property
    def blocked(self) -> bool:
        """Whether bytes wait for the terminal: then call ``flush``."""
        return bool(self._unwritten)

    def enter(self) -> None:
        """Begin, or begin again, on an empty screen; ``flush`` writes the newest frame."""
        self._unwritten = (CANCEL if self._unwritten else b"") + ENTER
        self._unwritten += MOUSE_ON if self._mouse else b""
        self._painter.forget()
        self._push()

    def set_mouse(self, on: bool) -> None:
        """Have the mouse reported, or leave it to the terminal. Call ``flush`` next."""
        if on is not self._mouse:
            self._mouse = on
            self._beside += MOUSE_ON if on else MOUSE_OFF

    def copy(self, text: str) -> None:
        """Give a text to the terminal's clipboard, after the begun frame. Call ``flush`` next."""
        self._beside = (MOUSE_ON if self._mouse else MOUSE_OFF) + copied(text)

    def show(self, lines: Sequence[str], full: bool) -> None:
        """Set the newest frame; ``full``: write all of it again. Call ``flush`` next."""
        self._frame = list(lines)
        if full:
            self._painter.forget()

    def resized(self) -> None:
        """Handle a new size: nothing is drawn until the next frame is shown."""
        self._frame = None
        self._painter.forget()

    def flush(self, size: tuple[int, int]) -> None:
        """Finish the begun frame, then write the newest: one write each, as far as it goes."""
        if self._unwritten:
            self._push()
        if not self._unwritten and self._beside:
            self._unwritten, self._beside = self._beside, b""
            self._push()
        if not self._unwritten and self._frame is not None:
            self._unwritten = self._painter.paint(self._frame, size)
            if self._unwritten:
                self._push()

    def leave(self) -> None:
        """Return to the other screen within a short time; drop what cannot be written."""
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
            # Nobody reads; the remaining output would only delay restoring the terminal.
            self._device.discard_output()


# --- signals -------------------------------------------------------------------------------------
# Signals as data: they wake the waiting loop, which reads them in order. A stuck program can still
# be ended. If the same ending signal comes again and the first has not been read for
# ``PATIENCE_SECONDS``, the handler raises ``KeyboardInterrupt``. Signals that were not read are
# raised again when the box is closed.


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
OURS = (*ENDING, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)
PATIENCE_SECONDS = 2.0


_NAMED = {int(number): number for number in OURS}
"""A table, not a call: in a storm of signals each call is one more place to be interrupted."""


class SignalBox:
    """Handlers for all of ``OURS`` from creation to ``close``; main thread only."""

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        # Handlers interrupt each other and all code below: each of their steps is one operation.
        self._unread: deque[signal.Signals] = deque()
        self._waiting_since: dict[int, float] = {}
        self._closing = False
        self._wakeup_before = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        # Ignored signals stay ignored: nohup, a shell without job control.
        handled = [s for s in OURS if signal.getsignal(s) is not signal.SIG_IGN]
        self._before = {s: signal.signal(s, self._note) for s in handled}

    def fileno(self) -> int:
        """Return a descriptor that is readable when a signal has come."""
        return self._read.fileno()

    def take(self) -> list[signal.Signals]:
        """Return the signals since the last call, in order."""
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
        """Stop this process as an uncaught SIGTSTP would; return when it continues."""
        ours = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, ours)
        # The return shows that the process continues.
        while signal.SIGCONT in (unread := tuple(self._unread)):
            del self._unread[unread.index(signal.SIGCONT)]

    def hold_back(self) -> None:
        """Raise no exception from a handler any more: the terminal is being restored."""
        self._closing = True

    def close(self) -> None:
        """Restore the former handlers, and raise unread ending signals for them."""
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
        self._unread.append(_NAMED[number])
        # The interpreter's byte may be read before this handler runs; this byte is not.
        try:
            self._write.send(b"\0")
        except BlockingIOError:
            pass  # The socket is full: the loop is about to wake anyway.
        if number in ENDING and now - since > PATIENCE_SECONDS:
            self._interrupt()

    def _interrupt(self) -> None:
        if not self._closing:
            raise KeyboardInterrupt


# --- screen --------------------------------------------------------------------------------------
# The terminal of a dashboard: frames out, keys and signals in, restored at the end.
#
#     with Terminal.open() as terminal:
#         while True:
#             terminal.draw(lines)
#             events = terminal.wait([socket], seconds=0.25)
#
# Only ``wait`` blocks. A terminal that takes no more (Ctrl-S, a dead link) costs frames, not turns.
# Signals are data (``Events.signals``); only suspension is handled here: Ctrl-Z restores the
# terminal and stops, continuing takes it again. In the background nothing is drawn or read.


FRONT_SECONDS = 0.5
"""Interval of checks in the background: no signal tells that a shell has foregrounded us."""


class HasFileno(Protocol):
    """A socket, or anything else to wait for."""

    def fileno(self) -> int:
        """Return the descriptor."""


@dataclass(frozen=True)
class Events:
    """Result of ``Terminal.wait``; false if only the time has passed."""

    keys: tuple[str, ...] = ()
    """Names of ``ui.keys``."""
    signals: tuple[signal.Signals, ...] = ()
    """SIGINT, SIGTERM, SIGHUP, SIGQUIT: the caller should leave."""
    ready: tuple[HasFileno | int, ...] = ()
    """The other objects that can be read, or have ended."""
    resized: bool = False
    """Whether ``size`` has changed: draw again."""
    resumed: bool = False
    """Whether the terminal was taken again; the last frame is written, with its old times."""
    gone: bool = False
    """Whether the terminal is gone: leave. Set in every result from then on."""

    def __bool__(self) -> bool:
        return self != Events()


class _Hold(enum.Enum):
    OURS = enum.auto()
    SHELLS = enum.auto()
    """The shell has it: not yet entered, suspended, in the background, or left."""
    GONE = enum.auto()


class Terminal:
    """The terminal of a dashboard, made by ``open``; as a context manager, it is restored."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._hold = _Hold.SHELLS
        self._modes: Modes = []
        self._size = device.size()
        self._output = TerminalOutput(device)
        self._parser = KeyParser()
        self._signals: SignalBox

    @classmethod
    def open(cls) -> Terminal:
        """Open the terminal behind standard output; raise ``OSError`` if it cannot be used."""
        return cls(Device.open())

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows, as of the last ``wait``."""
        return self._size

    def take_text(self, takes: bool) -> None:
        """Say whether a person writes, so that a paste is text and not ignored."""
        self._parser.takes_text = takes

    def set_mouse(self, on: bool) -> None:
        """Have the mouse reported as keys, or leave it to the terminal, which selects text then."""
        self._output.set_mouse(on)
        self._flush()

    def copy(self, text: str) -> None:
        """Give a text to the terminal's clipboard; many terminals ask or ignore it."""
        self._output.copy(text)
        self._flush()

    def __enter__(self) -> Terminal:
        self._signals = SignalBox()
        try:
            self._try(self._start)
        except BaseException:  # Whatever the exception, the terminal must be restored.
            self._close()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self._close()

    def _start(self) -> None:
        if self._device.in_front():
            # Earlier input was not meant for the dashboard.
            self._device.discard_input()
        self._take()

    def draw(self, lines: Sequence[str], full: bool = False) -> None:
        """Show these rows, each at most as wide as the screen; equal rows cost nothing.

        Never blocks: while the terminal takes no more, only the newest frame is kept. ``full``:
        write every row again (for a key that repairs what others wrote over the screen).
        """
        self._output.show(lines, full)
        self._flush()

    def _flush(self) -> None:
        if self._hold is _Hold.OURS:
            self._try(lambda: self._output.flush(self._size))

    def _try(self, action: Callable[[], None]) -> None:
        """Run an action; any error of the terminal means that it is gone."""
        try:
            action()
        except OSError:
            self._hold = _Hold.GONE

    # --- waiting ------------------------------------------------------------------------------

    def wait(self, others: Iterable[HasFileno | int] = (), seconds: float | None = None) -> Events:
        """Wait for an event, at most ``seconds`` (None: for ever)."""
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
            # A hang-up is always reported, so the descriptor must stay registered.
            mask = select.POLLIN | (select.POLLOUT if self._output.blocked else 0)
            poll.register(self._device.fd, mask)
        for other in others:
            poll.register(_number(other), select.POLLIN)
        patience = self._patience(deadline)
        # Rounded up: waking a millisecond early would only cost another turn.
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

    # --- taking it and restoring it ---------------------------------------------------------

    def _mind(self, taken: list[signal.Signals]) -> bool:
        """Handle suspending, continuing, resizing; return whether the terminal was taken again."""
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
        """Take the terminal, also if we have it: after a SIGSTOP a shell has written on it.

        In the background it is left to the foreground process.
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
        """Restore screen and modes within a short time, however stuck the terminal is."""
        if self._hold is not _Hold.SHELLS:
            # Even after a failed write: a terminal that is gone takes no harm.
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
