"""Exit codes of the commands. Source: docs/CLI.md, "Exit codes"."""

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
