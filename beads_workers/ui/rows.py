"""Rows of text, each exactly as wide as given, and figures in them.

Nothing wraps and nothing jumps: a cell has its width, and a longer text ends in an ellipsis. Styles
are meanings of ``theme``.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from unicodedata import bidirectional

from rich.cells import chop_cells
from rich.text import Text

from beads_workers.core.base.text import columns, printable

_AMBIGUOUS = dict.fromkeys((0x200D, 0xFE0E, 0xFE0F))
"""Characters that join emoji, or select their form: terminals differ in the resulting width."""

CHOSEN = "chosen"


LINE_CHARS_MAX = 20_000
"""Characters of one line that are wrapped: some programs print megabytes without a line end."""


def wrapped(line: str, width: int) -> list[str]:
    """Return a line as rows of at most ``width`` columns, safe to show; at least one."""
    cut = len(line) > LINE_CHARS_MAX
    text = printable(line[:LINE_CHARS_MAX]) + ("…" if cut else "")
    if len(text) <= width and text.isascii():
        return [text]
    if text.isascii():
        return [text[at : at + width] for at in range(0, len(text), width)]
    return chop_cells(text.translate(_AMBIGUOUS), width) or [""]


def isolated(text: str) -> str:
    """Return text with its own direction if a part of it is written from right to left.

    Otherwise a terminal that reorders such text also moves the cells beside it. The marks have no
    width.
    """
    if text.isascii() or not any(bidirectional(each) in ("R", "AL") for each in text):
        return text
    return f"\N{FIRST STRONG ISOLATE}{text}\N{POP DIRECTIONAL ISOLATE}"


class RowText(Text):
    """A row of the screen that knows which row of which list it shows, to be pointed at.

    ``name``: its list and its key there; None for all other rows. ``columns``: how many columns
    from the left belong to it.
    """

    name: tuple[Hashable, str] | None = None
    columns: int = 0


class Row:
    """Cells from left to right; ``text()`` is exactly ``width`` columns wide."""

    def __init__(self, width: int, style: str = "") -> None:
        """Make an empty row; a ``chosen`` row has one style only, to avoid patches."""
        self._width = width
        self._plain = style == CHOSEN
        self._text = RowText(style=style, no_wrap=True, overflow="crop")
        self._used = 0

    def add(
        self, content: str, width: int | None = None, style: str = "", *, right: bool = False
    ) -> Row:
        """Add a cell; without a width, it is as wide as its content and the free space."""
        content = content.translate(_AMBIGUOUS)
        room = self._width - self._used
        asked = min(room, columns(content) if width is None else width)
        if asked <= 0:
            return self
        shown = printable(content, asked)
        gap = " " * (asked - columns(shown))
        shown = isolated(shown)
        self._text.append(gap + shown if right else shown + gap, "" if self._plain else style)
        self._used += asked
        return self

    def fill(self, content: str, style: str = "", leave: int = 0) -> Row:
        """Add a cell that takes all free space except ``leave`` columns."""
        return self.add(content, max(0, self._width - self._used - leave), style)

    @property
    def room(self) -> int:
        """Number of free columns."""
        return self._width - self._used

    def text(self) -> Text:
        """Return the finished row."""
        return self.fill("")._text


def named(row: Text, part: Hashable, key: str) -> Text:
    """Return a row that shows the row ``key`` of the list ``part``."""
    if isinstance(row, RowText):
        row.name, row.columns = (part, key), row.cell_len
    return row


def rule(title: str, width: int, *, unicode: bool, focused: bool = True) -> Text:
    """Return a line across with a title; ``focused``: the arrows are in the list below it."""
    line = "─" if unicode else "-"
    row = (
        Row(width, "muted")
        .add(line * 2 + " ")
        .add(title, min(columns(title), width - 4), "strong" if focused else "")
    )
    return row.add(" ").fill(line * row.room).text()


# --- figures -------------------------------------------------------------------------------------
# Numbers that are readable at a glance: durations, bars, sparklines. Pure, fixed width.


EIGHTHS = " ▏▎▍▌▋▊▉█"
HEIGHTS = "▁▂▃▄▅▆▇█"
HEIGHTS_ASCII = "_.:-=+*#"


def bar(share: float, width: int, *, unicode: bool = True) -> str:
    """Return a bar of ``width`` columns, filled for ``share`` of 0 to 1."""
    share = min(max(share, 0.0), 1.0)
    if not unicode:
        full = int(share * width)
        return "#" * full + "-" * (width - full)
    full, part = divmod(int(share * width * 8), 8)
    return ("█" * full + (EIGHTHS[part].strip() if full < width else "")).ljust(width, "░")


def sparkline(values: Sequence[int], width: int, *, unicode: bool = True) -> str:
    """Return the course of ``values`` in at most ``width`` columns; empty for none."""
    if not values or width <= 0:
        return ""
    drawn = _squeezed(values, width)
    top = max(drawn) or 1.0
    heights = HEIGHTS if unicode else HEIGHTS_ASCII
    return "".join(heights[min(7, int(value / top * 7.999))] for value in drawn)


def _squeezed(values: Sequence[int], width: int) -> list[float]:
    """Return means of neighbours if there are more values than columns."""
    if len(values) <= width:
        return [float(value) for value in values]
    edges = [len(values) * column // width for column in range(width + 1)]
    spans = pairwise(edges)
    return [sum(values[begin:end]) / (end - begin) for begin, end in spans]
