"""Which moments of a run are shown: the end of each quarter second in which something changed.

The same for those who watch a run and for those who replay it: a snapshot is then a function of
the journal alone, its clocks included.
"""

from __future__ import annotations

from math import floor, inf
from typing import Any

from beads_workers.core.board import Board
from beads_workers.core.journal_lines import Entry
from beads_workers.core.records import CallEnded, CallStarted
from beads_workers.core.status import status

FRAME_SECONDS = 0.25
"""At most four frames a second: to people it is at once. A power of two, so that ends are exact."""


class Frames:
    """Feeds a board, and says what it showed at the end of each frame.

    ``watched``: nothing is worked out while nobody looks. ``ends``: elapsed seconds of the run at
    which the frame is over in which something has changed; infinite while nothing has.
    """

    def __init__(self, board: Board, *, watched: bool) -> None:
        self.board = board
        self.watched = watched
        self.ends = inf

    def add(self, entry: Entry) -> dict[str, Any] | None:
        """Take in the next entry; returns the snapshot of the frame that was over before it."""
        if isinstance(entry.record, CallStarted | CallEnded):
            return None  # The lane writes them beside the loop, and people are not shown them.
        shown = self.due(entry.elapsed)
        self.board.apply(entry)
        if self.watched and self.ends == inf:
            self.ends = (floor(entry.elapsed / FRAME_SECONDS) + 1) * FRAME_SECONDS
        return shown

    def due(self, elapsed: float) -> dict[str, Any] | None:
        """The snapshot of the frame that is over by now, if something changed in it."""
        if elapsed < self.ends:
            return None
        return self.rest()

    def rest(self) -> dict[str, Any] | None:
        """The snapshot of the frame that has begun, as at its end: nothing more will change."""
        if self.ends == inf:
            return None
        ends, self.ends = self.ends, inf
        return status(self.board, ends)
