"""What is written to a terminal: taking it over, giving it back, and frames. Pure: text to bytes.

A frame is written as the rows that differ from what is shown, each at its absolute place, all of it
between the marks of synchronized output (DEC mode 2026), so that it appears at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from beads_workers.core.text import columns as columns_of

ENTER = b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[m\x1b[H\x1b[2J"
"""Alternate screen, no cursor, no wrapping at the right edge, empty."""
LEAVE = b"\x1b[?2026l\x1b[m\x1b[?7h\x1b[?25h\x1b[?1049l"
"""All of it undone, and whatever colour and half a frame left behind."""
CANCEL = b"\x18"
"""Ends an escape sequence of which only the beginning was written."""

_BEGIN = "\x1b[?2026h"
_END = "\x1b[?2026l"
_ERASE_LINE = "\x1b[K"
_ERASE_BELOW = "\x1b[J"
_INVISIBLE = re.compile("\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)")


class Painter:
    """Remembers what is shown; every ``paint`` that gives bytes must be written whole."""

    def __init__(self) -> None:
        self._shown: list[str] | None = None

    def forget(self) -> None:
        """Nothing is known of the screen any more: the next frame writes every row."""
        self._shown = None

    def paint(self, lines: Sequence[str], size: tuple[int, int]) -> bytes:
        """The bytes that turn what is shown into these lines; none where nothing has changed."""
        width, height = size
        wanted = list(lines[:height])
        shown = self._shown
        pieces = [
            _row(number, line, width)
            for number, line in enumerate(wanted, 1)
            if shown is None or number > len(shown) or shown[number - 1] != line
        ]
        if len(wanted) < height and (shown is None or len(shown) > len(wanted)):
            pieces.append(f"\x1b[{len(wanted) + 1};1H{_ERASE_BELOW}")
        self._shown = wanted
        text = "".join((_BEGIN, *pieces, _END)) if pieces else ""
        return text.encode("utf-8", "replace")


def _row(number: int, line: str, width: int) -> str:
    place = f"\x1b[{number};1H\x1b[m"
    # After a row that reaches the right edge the cursor stands on its last character, and erasing
    # would take that away. Erasing before would flicker where output is not synchronized.
    if columns_of(_INVISIBLE.sub("", line)) < width:
        return f"{place}{line}\x1b[m{_ERASE_LINE}"
    return f"{place}{_ERASE_LINE}{line}\x1b[m"
