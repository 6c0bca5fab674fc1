"""Results of attempts, for sources whose peers are sent them whole."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace

from beads_workers.core.outcomes import Outcome, OutcomeKind

RESULT_BYTES_MAX = 16 << 20
"""Of a result that lies in a file: the largest frame of RRQ, and more than any script's output."""


def whole(outcome: Outcome | None) -> Outcome | None:
    """With the result itself, where that lies in a file; any worker may have said where."""
    if outcome is None or not outcome.result_file:
        return outcome
    try:
        return replace(outcome, result=_read(outcome.result_file), result_file="")
    except (OSError, ValueError, RecursionError) as error:
        return Outcome(OutcomeKind.ERROR, f"its result cannot be read: {error}"[:500])


def _read(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, encoding="utf-8") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > RESULT_BYTES_MAX:
            raise ValueError(f"no file, or longer than {RESULT_BYTES_MAX} bytes")
        text = file.read()
    json.dumps(json.loads(text), allow_nan=False)  # Python alone reads NaN, and 1e999 as infinity.
    return text
