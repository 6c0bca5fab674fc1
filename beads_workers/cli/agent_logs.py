"""What attempts printed, as people read it: agents' lines of JSON become short ones.

An attempt's log has lines of ours (``[beads-workers] ...``), what its agents printed, and what
``--verify`` printed. A line of ours says whose turn it is.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from beads_workers.executors.files import output_file

if TYPE_CHECKING:
    from beads_workers.agents.adapter import Adapter

OURS = "[beads-workers] "
HEAD_BYTES = 1 << 14
_WORDS = ("> ", "failed: ")
_BEGINS = re.compile(r"\[beads-workers\] agent .{1,200}, adapter (\w{1,60})(?:,|$)")


class ReadableLog:
    """Feed it the lines of a log in order, without their ends."""

    def __init__(self, adapter: Adapter | None = None) -> None:
        self._adapter = adapter
        self._said: str | None = None

    def line(self, text: str) -> str | None:
        """As it is shown; None for what only programs need."""
        if text.startswith(OURS):
            if begins := _BEGINS.match(text):
                self._adapter = _load(begins[1])
            elif text.startswith(f"{OURS}verify: "):
                self._adapter = None
            self._said = None
            return text
        if self._adapter is None or not text.startswith("{"):
            return text
        shown = self._adapter.readable(text)
        if shown is not None and shown.startswith(_WORDS):
            # The result of a run repeats its last words.
            shown, self._said = (None if shown == self._said else shown), shown
        return shown


def of_tail(log: Path) -> ReadableLog:
    """For the end of a log: the agent that began it is taken to go on. Raises ``OSError``."""
    with log.open("rb") as file:
        head = file.read(HEAD_BYTES).decode("utf-8", "replace")
    begins = _BEGINS.search(head)
    return ReadableLog(_load(begins[1]) if begins else None)


def _load(name: str) -> Adapter | None:
    from beads_workers.agents.adapter import load

    return load(name)


# --- left outputs --------------------------------------------------------------------------------
# What attempts had printed that were killed together with their workers. It never became a log: it
# lies in the file of the worker until the next one of that name keeps it under another name.


CLOCK_SECONDS = 0.05
"""The kernel stamps files with the time of its last tick, and the journal rounds its own."""


def left_outputs(folder: Path, worker_id: str, began: float, ended: float) -> list[Path]:
    """Files below the run's ``folder``, for an attempt between these times (epoch seconds).

    No file says whose it is, but it was last written while its attempt was under way, and a worker
    has one at a time.
    """
    output = Path(output_file(str(folder), worker_id))
    found = []
    for path in (*sorted(output.parent.glob(f"lost{output.name}.*.log")), output):
        try:
            status = path.lstat()
        except OSError:
            continue
        if status.st_size and began - CLOCK_SECONDS <= status.st_mtime <= ended + CLOCK_SECONDS:
            found.append(path)
    return found
