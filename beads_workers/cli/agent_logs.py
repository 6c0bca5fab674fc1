"""Logs of attempts for people: agents' lines of JSON become short lines.

An attempt's log has lines of ours (``[beads-workers] ...``), and output of its agents and of
``--verify``. A line of ours says which output follows.
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

_SAID_AT = re.compile(rb'"timestamp": ?"([0-9T:.Z+-]{10,40})"')
"""Time in a line of JSON of an agent, as claude writes it."""


def said_at(line: bytes) -> str:
    """Return when an agent said this line of its log, as the line has it; "" if it has no time."""
    said = _SAID_AT.search(line) if line.startswith(b"{") else None
    return said[1].decode() if said else ""


class ReadableLog:
    """Filter for the lines of a log, given in order and without line ends."""

    def __init__(self, adapter: Adapter | None = None) -> None:
        self._adapter = adapter
        self._last_words: str | None = None

    def line(self, text: str) -> str | None:
        """Return the line as it is shown; None for a line that only programs need."""
        if text.startswith(OURS):
            if begins := _BEGINS.match(text):
                self._adapter = _load(begins[1])
            elif text.startswith(f"{OURS}verify: "):
                self._adapter = None
            self._last_words = None
            return text
        if self._adapter is None or not text.startswith("{"):
            return text
        shown = self._adapter.readable(text)
        if shown is not None and shown.startswith(_WORDS):
            # The result of an agent run repeats its last words.
            shown, self._last_words = (None if shown == self._last_words else shown), shown
        return shown


def of_tail(log: Path) -> ReadableLog:
    """Return a filter for the end of a log, as if its first agent still ran.

    Raise ``OSError``.
    """
    with log.open("rb") as file:
        head = file.read(HEAD_BYTES).decode("utf-8", "replace")
    begins = _BEGINS.search(head)
    return ReadableLog(_load(begins[1]) if begins else None)


def _load(name: str) -> Adapter | None:
    from beads_workers.agents.adapter import load

    return load(name)


# --- left outputs --------------------------------------------------------------------------------
# Output of attempts that were killed together with their workers. It never became a log: it is in
# the worker's output file until the next worker of that name renames it.


CLOCK_SECONDS = 0.05
"""Tolerance: the kernel stamps files with its last tick, and the journal rounds times."""


def left_outputs(folder: Path, worker_id: str, began: float, ended: float) -> list[Path]:
    """Return output files below the run's ``folder`` of an attempt between these epoch seconds.

    No file names its attempt. But it was last written while the attempt ran, and a worker runs one
    attempt at a time.
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
