"""How a command fails: one line of what happened, one of what to do, and an exit code."""

from __future__ import annotations

EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_NOT_RUNNING = 3
EXIT_UNKNOWN = 4
"""No such worker or issue."""
EXIT_RUNNING = 5
"""Already running here."""
EXIT_TRACKER = 6
"""The tracker is unavailable or too old."""
EXIT_UNFINISHED = 7
"""Finished, but something failed or was quarantined."""


class CommandError(Exception):
    """Ends a command: ``error: message`` and ``hint: hint`` on stderr, then ``exit_code``."""

    def __init__(self, message: str, hint: str = "", exit_code: int = EXIT_ERROR) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
