"""Rows of text: each exactly as wide as it is told, whatever stands in it; and figures in them.

Nothing wraps and nothing jumps: a cell has its width, and what is too long ends in an ellipsis.
Styles are meanings, of ``theme``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rich.text import Text

from beads_workers.core.text import columns, printable

_AMBIGUOUS = dict.fromkeys((0x200D, 0xFE0E, 0xFE0F))
"""What joins emoji, or says how to draw one: terminals differ in how wide the result is."""

CHOSEN = "chosen"


class Row:
    """Cells from left to right; ``text()`` is exactly ``width`` columns wide."""

    def __init__(self, width: int, style: str = "") -> None:
        """A row that is ``chosen`` has one style only: cells of several would be patches."""
        self._width = width
        self._plain = style == CHOSEN
        self._text = Text(style=style, no_wrap=True, overflow="crop")
        self._used = 0

    def add(
        self, content: str, width: int | None = None, style: str = "", *, right: bool = False
    ) -> Row:
        """One more cell; without a width as wide as it needs to be, and as there is room for."""
        content = content.translate(_AMBIGUOUS)
        room = self._width - self._used
        asked = min(room, columns(content) if width is None else width)
        if asked <= 0:
            return self
        shown = printable(content, asked)
        gap = " " * (asked - columns(shown))
        self._text.append(gap + shown if right else shown + gap, "" if self._plain else style)
        self._used += asked
        return self

    def fill(self, content: str, style: str = "", leave: int = 0) -> Row:
        """All the room there is, but for ``leave`` columns."""
        return self.add(content, max(0, self._width - self._used - leave), style)

    @property
    def room(self) -> int:
        """How many columns are left."""
        return self._width - self._used

    def text(self) -> Text:
        """The finished row."""
        return self.fill("")._text


def rule(title: str, width: int, *, unicode: bool, focused: bool = True) -> Text:
    """A line across with a title in it; ``focused``: the arrows are in what is below it."""
    line = "─" if unicode else "-"
    row = (
        Row(width, "muted")
        .add(line * 2 + " ")
        .add(title, min(columns(title), width - 4), "strong" if focused else "")
    )
    return row.add(" ").fill(line * row.room).text()


# --- figures -------------------------------------------------------------------------------------
# Numbers as people read them at a glance: durations, bars, sparklines. Pure text, fixed width.


EIGHTHS = " ▏▎▍▌▋▊▉█"
HEIGHTS = "▁▂▃▄▅▆▇█"
HEIGHTS_ASCII = "_.:-=+*#"


def duration(seconds: float) -> str:
    """At most eight columns: ``0.4 s``, ``12 s``, ``1:23``, ``1:02:03``, ``3d 4h``."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d}"
    hours, minutes = divmod(minutes, 60)
    if hours < 100:
        return f"{hours}:{minutes:02d}:{rest:02d}"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours}h" if days < 100 else f"{days} d"


def fine(seconds: float) -> str:
    """For what is often far below a second: ``4 ms``, ``0.41 s``, then as ``duration``."""
    if seconds >= 10:
        return duration(seconds)
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1000:.0f} ms"


def whole_seconds(seconds: float) -> str:
    """The same for what counts while one looks: no tenths, which would flicker."""
    return duration(seconds) if seconds >= 10 else f"{int(max(0.0, seconds))} s"


def bar(share: float, width: int, *, unicode: bool = True) -> str:
    """A bar of ``width`` columns, filled for ``share`` of 0 to 1."""
    share = min(max(share, 0.0), 1.0)
    if not unicode:
        full = int(share * width)
        return "#" * full + "-" * (width - full)
    full, part = divmod(int(share * width * 8), 8)
    return ("█" * full + (EIGHTHS[part].strip() if full < width else "")).ljust(width, "░")


def sparkline(values: Sequence[int], width: int, *, unicode: bool = True) -> str:
    """The course of ``values`` in at most ``width`` columns; empty for none."""
    if not values or width <= 0:
        return ""
    drawn = _squeezed(values, width)
    top = max(drawn) or 1.0
    heights = HEIGHTS if unicode else HEIGHTS_ASCII
    return "".join(heights[min(7, int(value / top * 7.999))] for value in drawn)


def _squeezed(values: Sequence[int], width: int) -> list[float]:
    """The mean of neighbours where there are more values than columns."""
    if len(values) <= width:
        return [float(value) for value in values]
    edges = [len(values) * column // width for column in range(width + 1)]
    spans = pairwise(edges)
    return [sum(values[begin:end]) / (end - begin) for begin, end in spans]
