"""Logs of agents as people read them: their lines of JSON become short ones.

An attempt's log has lines of ours (``[beads-workers] ...``), what its agents printed, and what
``--verify`` printed. A line of ours says whose turn it is.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

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
