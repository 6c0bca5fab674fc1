"""The rule of the counts: between two answers of the tracker the total stays as it is."""

from __future__ import annotations

from collections.abc import Iterable
from math import floor

from beads_workers.core.records.issues import Place, Transition
from beads_workers.core.records.journal import (
    Checkpointed,
    Claimed,
    Entry,
    Inherited,
    Listed,
    SettledRecord,
)
from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import FRAME_SECONDS, status

ANSWERS = (Checkpointed, Claimed, Inherited, Listed, SettledRecord)
"""Records of what the tracker has answered: the first and third to the recovery of earlier runs."""


class SteadyTotal:
    """Show it the entries of a run; ``look`` whenever somebody could see the counts."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.changes = 0
        """How often the total changed, each time with an answer."""
        self._before: tuple[int, dict[str, int]] | None = None
        self._answered = False
        self._since: list[Entry] = []

    def show(self, entry: Entry, change: Transition | None) -> None:
        """The next entry, as ``Board.show`` takes it in."""
        self.board.show(entry, change)
        self._answered |= isinstance(entry.record, ANSWERS)
        self._since.append(entry)

    def look(self, elapsed: float) -> None:
        """Raise ``AssertionError`` if the total changed without an answer, or an issue is in two
        places or none."""
        queue = status(self.board, elapsed)["queue"]
        names = ("blocked", "closed", *(place.value for place in Place))
        counts = {name: queue[name] for name in names}
        assert min(counts.values()) >= 0, counts
        assert sum(counts.values()) == queue["total"], "an issue is in no place, or in two"
        if self._before is not None and self._before[0] != queue["total"]:
            said = [entry.record for entry in self._since[-20:]]
            assert self._answered, (self._before, queue["total"], counts, said)
            self.changes += 1
        self._before = queue["total"], counts
        self._answered = False
        self._since.clear()


def is_steady(entries: Iterable[Entry]) -> int:
    """Show the entries of a journal, and look at the end of each frame, as people do.
    Return how often the total changed."""
    board = Board()
    totals, frame = SteadyTotal(board), 0
    for entry in entries:
        now = floor(entry.elapsed / FRAME_SECONDS)
        if now > frame and board.run is not None:
            totals.look(board.elapsed)
            frame = now
        totals.show(entry, board.issues.apply(entry))
    totals.look(board.elapsed)
    return totals.changes
