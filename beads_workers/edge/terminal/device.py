"""The terminal as a device: a descriptor of our own, its modes, its size, and who is in front.

``O_NONBLOCK`` belongs to the open file, which a shell shares with all that it starts; so the
terminal is opened anew, and the flag goes when we do.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

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
