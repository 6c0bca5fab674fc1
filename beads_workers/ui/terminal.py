"""The terminal while a dashboard has it: frames out, keys and signals in, restored at the end."""

from __future__ import annotations

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

from beads_workers.core.text import columns as columns_of
from beads_workers.ui.keys import KeyParser
from beads_workers.ui.theme import ASK

# --- device --------------------------------------------------------------------------------------
# The terminal as a device: a descriptor of our own, its modes, its size, and who is in front.
#
# ``O_NONBLOCK`` belongs to the open file, which a shell shares with all that it starts; so the
# terminal is opened anew, and the flag goes when we do.


Modes = list[Any]
"""As ``termios.tcgetattr`` gives them."""
_INPUT, _LOCAL, _CHARACTERS = 0, 3, 6
SIZE_UNKNOWN = (80, 24)
READ_BYTES = 4096
_DRAWS_NOTHING = ("", "dumb", "unknown")


def can_draw(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether there is a terminal to draw on: not a pipe, not dumb, and not in the background."""
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
    """One open terminal. Every method raises ``OSError`` once it has gone."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def open(cls) -> Device:
        """The terminal behind standard output; raises ``OSError`` where there is none."""
        output = sys.__stdout__.fileno() if sys.__stdout__ is not None else 1
        flags = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            return cls(os.open(f"/proc/self/fd/{output}", flags))
        except PermissionError:
            # After su it belongs to somebody else; this name is open to everybody.
            return cls(os.open("/dev/tty", flags))

    def close(self) -> None:
        """Let go of it; its modes stay as they are."""
        os.close(self.fd)

    def size(self) -> tuple[int, int]:
        """Columns and rows; 80 and 24 where the terminal does not know."""
        columns, rows = os.get_terminal_size(self.fd)
        return (columns or SIZE_UNKNOWN[0], rows or SIZE_UNKNOWN[1])

    def in_front(self) -> bool:
        """Whether we may read and draw; without job control everybody may."""
        try:
            return os.tcgetpgrp(self.fd) == os.getpgrp()
        except OSError:
            return True

    def read(self) -> bytes | None:
        """What was typed; None for nothing. Raises ``OSError`` at the end of the terminal."""
        with _never_stopped():
            try:
                data = os.read(self.fd, READ_BYTES)
            except BlockingIOError:
                return None
        if not data:
            raise OSError("the terminal has gone")
        return data

    def write(self, data: bytes) -> bytes:
        """Write what fits without waiting; the rest comes back."""
        with _never_stopped():
            try:
                return data[os.write(self.fd, data) :]
            except BlockingIOError:
                return data

    def discard_input(self) -> None:
        """Forget what was typed so far."""
        with _never_stopped():
            termios.tcflush(self.fd, termios.TCIFLUSH)

    def discard_output(self) -> None:
        """Forget what was written and not yet taken by the terminal."""
        with _never_stopped():
            termios.tcflush(self.fd, termios.TCOFLUSH)

    def modes(self) -> Modes:
        """Its modes, for ``set_modes``."""
        with _never_stopped():
            return termios.tcgetattr(self.fd)

    def set_modes(self, modes: Modes) -> None:
        """Set them at once: waiting for output could take for ever."""
        with _never_stopped():
            termios.tcsetattr(self.fd, termios.TCSANOW, modes)

    def thaw(self) -> None:
        """Undo a Ctrl-S: the kernel lets output go on when flow control is taken away."""
        modes = self.modes()
        without = [*modes]
        without[_INPUT] &= ~termios.IXON
        self.set_modes(without)
        self.set_modes(modes)


def keys_at_once(modes: Modes) -> Modes:
    """These modes, but keys come one by one and unseen; Ctrl-C, Ctrl-Z and Ctrl-S go on working.

    ``NOFLSH``: without it a Ctrl-C throws away what is half written, and the screen is not what we
    remember.
    """
    changed = [*modes]
    changed[_LOCAL] = modes[_LOCAL] & ~(termios.ECHO | termios.ICANON) | termios.NOFLSH
    characters = [*modes[_CHARACTERS]]
    characters[termios.VMIN], characters[termios.VTIME] = 1, 0
    changed[_CHARACTERS] = characters
    return changed


@contextmanager
def _never_stopped() -> Iterator[None]:
    """Touching a terminal from the background stops a process, unless it blocks these.

    Only for the moment: programs that are started would inherit it.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTTOU, signal.SIGTTIN))
    try:
        yield
    except termios.error as error:
        raise OSError(*error.args) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# --- frames --------------------------------------------------------------------------------------
# What is written to a terminal: taking it over, restoring it, and frames. Pure: text to bytes.
#
# A frame is written as the rows that differ from what is shown, each at its absolute place, all of
# it between the marks of synchronized output (DEC mode 2026), so that it appears at once.


ENTER = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[m" + ASK + b"\x1b[H\x1b[2J"
"""Alternate screen, no cursor, no wrapping at the right edge; asked for its background; empty, for
a console that shows a question which it does not know."""
LEAVE = b"\x1b[?2026l\x1b[m\x1b[?7h\x1b[?25h\x1b[?1049l"
"""All of it undone, and whatever colour and half a frame left behind."""
CANCEL = b"\x18"
"""Ends an escape sequence of which only the beginning was written."""

_BEGIN = "\x1b[?2026h"
_END = "\x1b[?2026l"
_ERASE_LINE = "\x1b[K"
_ERASE_BELOW = "\x1b[J"
_INVISIBLE = re.compile("\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)")


class Painter:
    """Remembers what is shown; every ``paint`` that gives bytes must be written whole."""

    def __init__(self) -> None:
        self._shown: list[str] | None = None

    def forget(self) -> None:
        """Nothing is known of the screen any more: the next frame writes every row."""
        self._shown = None

    def paint(self, lines: Sequence[str], size: tuple[int, int]) -> bytes:
        """The bytes that turn what is shown into these lines; none where nothing has changed."""
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
    # After a row that reaches the right edge the cursor stands on its last character, and erasing
    # would take that away. Erasing before would flicker where output is not synchronized.
    if columns_of(_INVISIBLE.sub("", line)) < width:
        return f"{place}{line}\x1b[m{_ERASE_LINE}"
    return f"{place}{_ERASE_LINE}{line}\x1b[m"


# --- output --------------------------------------------------------------------------------------
# What goes out to the terminal: one frame after the other, never half of one before another.
#
# A terminal that takes no more (Ctrl-S, a dead link) blocks nobody: the bytes of the frame that was
# begun are finished when it does again, and of the frames since then only the newest is written.


LEAVE_SECONDS = 0.5
"""So long may a terminal that takes no more keep us, once for the frame and once for leaving."""


class TerminalOutput:
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
            # Nobody reads; what lies there would only stand in the way of restoring it.
            self._device.discard_output()


# --- signals -------------------------------------------------------------------------------------
# Signals as data: they wake the one who waits, and are read there, in order.
#
# A program that does not listen can still be ended: when a signal that asks for the end comes while
# the same one has been waiting for ``PATIENCE_SECONDS``, it raises ``KeyboardInterrupt`` where the
# program is stuck; what was not read is raised again when the box is closed.


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
OURS = (*ENDING, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)
PATIENCE_SECONDS = 2.0


_NAMED = {int(number): number for number in OURS}
"""Looked up, not called: in a storm of signals each call is one more place to be interrupted."""


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
        """From now on nothing is raised in the midst of what runs: the terminal is restored."""
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
        self._unread.append(_NAMED[number])
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


# --- screen --------------------------------------------------------------------------------------
# The terminal while a dashboard has it: frames out, keys and signals in, restored at the end.
#
#     with Terminal.open() as terminal:
#         while True:
#             terminal.draw(lines)
#             events = terminal.wait([socket], seconds=0.25)
#
# Nothing blocks but ``wait``. A terminal that takes no more (Ctrl-S, a dead link) costs frames, not
# turns. Signals are data (``Events.signals``); only suspension is dealt with here: Ctrl-Z gives the
# terminal back and stops, and going on takes it again. In the background nothing is drawn and
# nothing is read until the program is brought to the front.


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
    """Names of ``ui.keys``."""
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
    """Requeued: not yet entered, suspended, in the background, or left."""
    GONE = enum.auto()


class Terminal:
    """Made by ``open``; a context manager that gives the terminal back as it was."""

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
        except BaseException:  # Whatever it is, the terminal must be restored.
            self._close()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
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

    # --- taking it and restoring it ---------------------------------------------------------

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
