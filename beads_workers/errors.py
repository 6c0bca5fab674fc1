"""Failures of commands: a line that says what happened, a hint, and an exit code."""

from __future__ import annotations

from beads_workers.exits import EXIT_ERROR, EXIT_USAGE


class CommandError(Exception):
    """End of a command: prints ``error: message`` and ``hint: hint``, sets the exit code."""

    def __init__(self, message: str, hint: str = "", exit_code: int = EXIT_ERROR) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code


def unreadable(file: str, error: OSError, command: str) -> CommandError:
    """Return the error for a file that cannot be read; ``command -`` reads stdin."""
    from pathlib import Path

    from beads_workers.core.base.text import printable

    place = printable(str(Path(file).absolute()))
    if isinstance(error, FileNotFoundError):
        hint = f"'beads-workers {command} -' reads what is piped in"
        return CommandError(f"file not found: {place}", hint, EXIT_USAGE)
    return CommandError(f"{place}: {error.strerror}", exit_code=EXIT_USAGE)
