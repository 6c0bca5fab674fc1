"""What a call may change around it, and the next one must not find changed.

Taken after the function's module was imported: what a module sets up once, for good, stays.
Source: docs/PROTOCOL.md, "Functions".
"""

from __future__ import annotations

import os
import signal
import sys
from _signal import getsignal  # type: ignore[import-not-found]  # C's own: no enum to make
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

SIGNALS = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGALRM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCHLD,
    signal.SIGPIPE,
)
"""What functions set handlers for."""


@dataclass(slots=True)
class Surroundings:
    """Of one process. ``folder``: where every call begins."""

    folder: str
    _umask: int = 0
    _handlers: list[Any] = field(default_factory=list)
    _environment: dict[bytes, bytes] = field(default_factory=dict)
    _stdout: TextIO = field(default_factory=lambda: _printing(1))
    _stderr: TextIO = field(default_factory=lambda: _printing(2))

    def enter(self, variables: Mapping[str, str | None]) -> None:
        """A call is due: be in its folder, with these variables, without those that are None.
        Raises ``OSError``."""
        for name, text in variables.items():
            if text is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = text
        sys.stdout, sys.stderr = self._streams()
        self.remember()
        os.chdir(self.folder)

    def settle(self) -> None:
        """A module was imported: what it has set up is how things are from now on."""
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._handlers = _handlers()

    def remember(self) -> None:
        """The function is called next: from here on, what changes is changed back."""
        self._environment = dict(_variables())

    def restore(self) -> None:
        """The call is over."""
        _flush(self._stdout)
        _flush(self._stderr)
        if sys.stdout is not self._stdout or sys.stderr is not self._stderr:
            _flush(sys.stdout)
            _flush(sys.stderr)
        os.umask(self._umask)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        if (now := _handlers()) != self._handlers:
            for number, before, after in zip(SIGNALS, self._handlers, now, strict=True):
                if after != before and before is not None:
                    signal.signal(number, before)
        if _variables() != self._environment:
            for name in _variables().keys() - self._environment.keys():
                del os.environb[name]
            os.environb.update(self._environment)

    def _streams(self) -> tuple[TextIO, TextIO]:
        if self._stdout.closed:
            self._stdout = _printing(1)
        if self._stderr.closed:
            self._stderr = _printing(2)
        return self._stdout, self._stderr


def _handlers() -> list[Any]:
    return [getsignal(number) for number in SIGNALS]


def _printing(descriptor: int) -> TextIO:
    """A line at a time, so that whoever follows a log sees it; whatever it is asked to print."""
    return open(
        descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except (OSError, ValueError, AttributeError):
        pass  # The disk is full, or the function closed it: its own output is its own loss.


def _variables() -> dict[bytes, bytes]:
    # Behind both ``environ`` and ``environb``: a look through either costs as much as a call.
    found: dict[bytes, bytes] = vars(os.environ)["_data"]
    return found
