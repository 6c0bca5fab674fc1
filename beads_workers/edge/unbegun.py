"""Word that workers leave of tasks which they had for later, when nobody is there to be told.

A file of a run's directory, a line for each attempt: its request id. Whoever was killed leaves
none, and then an attempt that was sent may have begun.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from beads_workers.core import limits

if TYPE_CHECKING:
    from pathlib import Path  # Every worker has this module, and none has use for that one.

FILE = "not_begun"

_READ_BYTES_MAX = 1 << 20
_LINE_CHARS_MAX = limits.LOGGED_BYTES_MAX


def leave_unbegun(run_directory: str, request_id: str) -> None:
    """This attempt never began; where that cannot be written, it is taken for begun."""
    try:
        fd = os.open(f"{run_directory}/{FILE}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError:
        return
    try:
        # In one write: other workers leave word at the same moment.
        os.write(fd, f"{request_id[:_LINE_CHARS_MAX]}\n".encode("ascii", "replace"))
    except OSError:
        pass
    finally:
        os.close(fd)


def unbegun_of(run_directory: Path) -> frozenset[str]:
    """The request ids that workers have left there."""
    try:
        with (run_directory / FILE).open("rb") as file:
            left = file.read(_READ_BYTES_MAX)
    except OSError:
        return frozenset()
    return frozenset(left.decode("ascii", "replace").split())
