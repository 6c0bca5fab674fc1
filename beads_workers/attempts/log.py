"""The attempt's log as its agent fills it: line by line, with the fleet's secrets masked.

Agents print what they read, and some read their environment. The lines go to stderr, which the
worker has opened as the attempt's log and keeps short.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from beads_workers.core.base.redaction import masked, secret_parts

SECRET_CHARS_MIN = 8
LINE_BYTES_MAX = 64 << 10
"""Bytes of a line; a longer line is written in pieces."""

_PLACES = ("PWD", "OLDPWD")
"""Variables that are named like secrets, but are none."""


class MaskedLog:
    """Log of an attempt: ``write`` takes pieces of any size; ``say`` adds a line of ours."""

    def __init__(self, environment: Mapping[str, str], fd: int = 2) -> None:
        self._fd = fd
        self._line = bytearray()
        self._secrets = secrets_in(environment)

    def write(self, data: bytes) -> None:
        """Add printed data; whole lines are written."""
        self._line += data
        end = self._line.rfind(b"\n") + 1
        if not end and len(self._line) > LINE_BYTES_MAX:
            # First mask secrets across the cut; the rest may be the beginning of another secret.
            self._line[:] = masked(bytes(self._line), self._secrets)
            end = len(self._line) - max(map(len, self._secrets), default=0)
        if end > 0:
            self._out(bytes(self._line[:end]))
            del self._line[:end]

    def flush(self) -> None:
        """Write the last line, which has no end."""
        if self._line:
            self._out(bytes(self._line) + b"\n")
            self._line.clear()

    def say(self, text: str) -> None:
        """Write a line of ours, which ``logs`` shows as such."""
        self.flush()
        shown = " ".join(text.split())
        self._out(f"[beads-workers] {shown}\n".encode("utf-8", "replace"))

    def _out(self, data: bytes) -> None:
        try:
            os.write(self._fd, masked(data, self._secrets))
        except OSError:
            pass  # A full disk loses the log, not the work.


def secrets_in(environment: Mapping[str, str]) -> list[bytes]:
    """Return the values in an environment that must not be read in a log, the longest first."""
    found = {
        part.encode("utf-8", "surrogateescape")
        for name, text in environment.items()
        if name not in _PLACES and not text.startswith("/")
        for part in secret_parts(name, text)
        if len(part) >= SECRET_CHARS_MIN
    }
    return sorted(found, key=lambda secret: (-len(secret), secret))
