"""A text that grows, in rows for one width: only new lines are wrapped."""

from __future__ import annotations

from dataclasses import replace

from beads_workers.ui.rows import wrapped
from beads_workers.ui.viewer import ShownLog


class Wrapping:
    """The rows of one text for one width. Only new lines are wrapped."""

    def __init__(self) -> None:
        self._of: tuple[int, int] = (0, 0)
        """Number of lines before the text, and the width."""
        self._lines: list[str] = []
        """The lines that were wrapped: all but the last one, which may be incomplete."""
        self._rows: list[str] = []
        self._cuts: list[int] = []
        self._times: list[str] = []

    def of(self, log: ShownLog, width: int) -> ShownLog:
        """Return the same text in rows of at most ``width`` columns."""
        self._forget(log.first, width)
        known, of = len(self._lines), (log.first, width)
        shrank = known >= len(log.lines)
        if shrank or self._of != of or list(log.lines[:known]) != self._lines:
            self._of, known = of, 0
            self._lines, self._rows, self._cuts, self._times = [], [], [], []
        for number in range(known, len(log.lines) - 1):
            self._add(log, number, self._rows, self._cuts, self._times)
        self._lines += log.lines[known:-1]
        rows, cuts, times = self._rows[:], self._cuts[:], self._times[:]
        if log.lines:
            self._add(log, len(log.lines) - 1, rows, cuts, times)
        return replace(log, lines=rows, cuts=cuts, times=times)

    def _forget(self, first: int, width: int) -> None:
        """Drop the rows of lines that a long text has lost at its beginning."""
        before, same_width = self._of[0], self._of[1] == width
        if not same_width or not before < first <= before + len(self._lines):
            return
        rows = ShownLog("", self._rows, before, cuts=self._cuts).row_of(first + 1) - 1 - before
        self._cuts = [cut - rows for cut in self._cuts if cut >= rows]
        del self._rows[:rows], self._times[:rows], self._lines[: first - before]
        self._of = (first, width)

    def _add(
        self, log: ShownLog, number: int, rows: list[str], cuts: list[int], times: list[str]
    ) -> None:
        new = wrapped(log.lines[number], self._of[1])
        cuts += range(len(rows) + 1, len(rows) + len(new))
        rows += new
        times += [log.times[number] if number < len(log.times) else "", *[""] * (len(new) - 1)]
