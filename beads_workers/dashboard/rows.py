"""The rows of the dashboard: each exactly as wide as it is told, whatever stands in it.

Nothing wraps and nothing jumps: a cell has its width, and what is too long ends in an ellipsis.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from beads_workers.core.text import columns, counted, printable
from beads_workers.dashboard.figures import duration, whole_seconds
from beads_workers.dashboard.lines import next_try

Fields = Mapping[str, Any]

MARKS = {
    "finish": ("✓", "+", "green"),
    "requeue": ("↻", "~", "yellow"),
    "set_aside": ("✗", "x", "red"),
    "hand_back": ("✗", "x", "red"),
    "cancelled": ("↩", "<", "dim"),
}
"""Verdict -> mark, the same in ASCII, style. The words stand beside it: colour is never alone."""

_AMBIGUOUS = dict.fromkeys((0x200D, 0xFE0E, 0xFE0F))
"""What joins emoji, or says how to draw one: terminals differ in how wide the result is."""

STATE_STYLES = {"busy": "", "idle": "dim", "starting": "cyan", "stopping": "magenta"}


class Row:
    """Cells from left to right; ``text()`` is exactly ``width`` columns wide."""

    def __init__(self, width: int, style: str = "") -> None:
        self._width = width
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
        self._text.append(gap + shown if right else shown + gap, style)
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


def worker_row(worker: Fields, age: float, width: int, *, chosen: bool) -> Text:
    """One worker: what it does, for how long, and how it has done so far."""
    row = Row(width, "reverse" if chosen else "")
    room = 22 if width >= 100 else 16
    row.add(" ").add(worker["worker_id"], 5, "bold" if worker["issue_id"] else "dim")
    if worker["issue_id"] is None:
        row.add(worker["state"], 10, STATE_STYLES.get(worker["state"], ""))
        row.fill("" if worker["own"] else "not started by this fleet", "dim", leave=room)
    else:
        row.add(whole_seconds(worker["elapsed_seconds"] + age), 8, "cyan", right=True).add("  ")
        row.add(worker["issue_id"], _id_width(width), "bold").add(" ")
        if worker["attempt"] > 1:
            row.add(f"try {worker['attempt']}: ", style="yellow")
        row.fill(worker["title"] or "", leave=room)
    words = (" done", " failed") if width >= 100 else (" ok", " bad")
    row.add(f"{worker['done']}{words[0]}", room // 2, "dim", right=True)
    failed = f"{worker['failed']}{words[1]}" if worker["failed"] else ""
    return row.add(failed, room // 2, "dim", right=True).text()


def outcome_row(outcome: Fields, width: int, *, unicode: bool) -> Text:
    """One attempt that ended: when, which, by whom, how long, and why it was no success."""
    kind = "cancelled" if outcome["outcome"] == "cancelled" else outcome["verdict"]
    mark, ascii_mark, style = MARKS[kind]
    row = Row(width)
    row.add(" ").add(time.strftime("%H:%M:%S", time.localtime(outcome["at"])), 9, "dim")
    row.add(mark if unicode else ascii_mark, 2, style)
    row.add(outcome["issue_id"], _id_width(width), "bold").add(" ")
    row.add(outcome["worker_id"], 5, "dim")
    row.add(duration(outcome["seconds"]), 8, "cyan", right=True).add("  ")
    if kind == "finish":
        return row.fill(outcome["title"]).text()
    return row.fill(f"{_became(outcome)}: {outcome['error'] or outcome['outcome']}", style).text()


def _became(outcome: Fields) -> str:
    if outcome["outcome"] == "cancelled":
        return "given back"
    if outcome["verdict"] == "set_aside":
        return f"set aside after {counted(outcome['attempt'], 'try', 'tries')}"
    if outcome["verdict"] == "hand_back":
        return f"{outcome['outcome']}, handed back"
    wait = outcome["retry_in_seconds"]
    then = next_try(duration(wait) if wait else "", charged=outcome["charged"])
    return f"{outcome['outcome']}, {then}"


def _id_width(width: int) -> int:
    return 12 if width < 100 else 18
