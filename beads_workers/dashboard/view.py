"""The dashboard: one pure function from a snapshot to what is drawn.

``draw`` gives exactly as many rows as there are, each exactly as wide as the terminal. What
stands where does not depend on what happens: nothing jumps while one looks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.text import Text

from beads_workers.dashboard import head, panes
from beads_workers.dashboard.look import Look, Pane
from beads_workers.dashboard.rows import Fields, Row

COLUMNS_MIN = 60
ROWS_MIN = 14
SIDE_BY_SIDE_COLUMNS = 150
"""From here on workers and outcomes stand beside each other."""


@dataclass(frozen=True, slots=True)
class Room:
    """What the middle of the screen has, in columns and rows, between head and foot."""

    columns: int
    rows: int

    @property
    def wide(self) -> bool:
        """Whether there is room for two panes beside each other."""
        return self.columns >= SIDE_BY_SIDE_COLUMNS

    def worker_rows(self, workers: int) -> int:
        """How many workers are on one page; below them stand the outcomes, at least a third."""
        if self.wide:
            return max(1, self.rows - 1)
        left = self.rows - 2
        return max(1, min(max(workers, 1), left - max(3, left // 3)))


def draw(snapshot: Fields, look: Look, age: float, columns: int, rows: int) -> Group:
    """The whole screen; ``age``: seconds since the snapshot was as it says."""
    if columns < COLUMNS_MIN or rows < ROWS_MIN:
        return Group(*_too_small(snapshot, columns, rows))
    top = [*head.head(snapshot, look, age, columns), *_needs(snapshot, columns, rows)]
    bottom = [*_caption(look, columns), _foot(snapshot, look, columns)]
    room = Room(columns, rows - len(top) - len(bottom))
    middle = list(_middle(snapshot, look, age, room))[: room.rows]
    middle += [Row(columns).text()] * (room.rows - len(middle))
    return Group(*top, *middle, *bottom)


def page_rows(snapshot: Fields, look: Look, columns: int, rows: int) -> int:
    """How many workers are on a page, for the keys that turn pages."""
    taken = head.ROWS + _needs_rows(rows) + bool(look.caption) + 1
    return Room(columns, rows - taken).worker_rows(_workers(snapshot))


def _middle(snapshot: Fields, look: Look, age: float, room: Room) -> Iterator[Text]:
    match look.pane:
        case Pane.FLEET:
            yield from _fleet(snapshot, look, age, room)
        case Pane.LOG:
            yield from panes.log(look, room.columns, room.rows)
        case Pane.ASIDE:
            yield from panes.aside(snapshot, look, room.columns, room.rows)
        case Pane.HELP:
            yield from panes.keys(look, room.columns)


def _fleet(snapshot: Fields, look: Look, age: float, room: Room) -> Iterator[Text]:
    count = room.worker_rows(_workers(snapshot))
    if not room.wide:
        here = list(panes.workers(snapshot, look, age, room.columns, count))
        yield from here
        yield from [Row(room.columns).text()] * (count + 1 - len(here))
        yield from panes.outcomes(snapshot, look, room.columns, room.rows - 1 - count)
        return
    left = room.columns * 11 // 20
    beside = panes.outcomes(snapshot, look, room.columns - left - 1, room.rows)
    here = list(panes.workers(snapshot, look, age, left, count))
    below = room.rows - len(here) - 1
    if snapshot["set_aside"] and below > 2:
        here += [Row(left).text(), *panes.aside(snapshot, look, left, below)]
    yield from _side_by_side(here, list(beside), left, room)


def _workers(snapshot: Fields) -> int:
    # When workers leave, what stands below them stays where it is.
    most: int = snapshot["workers_most"]
    return max(len(snapshot["workers"]), most)


def _side_by_side(
    left: Sequence[Text], right: Sequence[Text], width: int, room: Room
) -> Iterator[Text]:
    for index in range(room.rows):
        both = left[index].copy() if index < len(left) else Row(width).text()
        both.append(" ")
        rest = room.columns - width - 1
        both.append_text(right[index] if index < len(right) else Row(rest).text())
        yield both


def _needs_rows(rows: int) -> int:
    return 1 if rows < 30 else 3


def _needs(snapshot: Fields, columns: int, rows: int) -> Iterator[Text]:
    """What waits for a person; the room for it is kept when nothing does."""
    room, needs = _needs_rows(rows), snapshot["needs"]
    for index in range(room):
        row = Row(columns).add(" ")
        if not needs and index == 0:
            row.add("nothing needs you", style="dim")
        elif index < len(needs):
            row.add("! ", style="bold yellow")
            row.add(needs[index]["text"], max(20, row.room // 2), "yellow")
            more = f"  (and {len(needs) - room} more)" if room <= index + 1 < len(needs) else ""
            row.add("  ").fill(f"-> {needs[index]['todo']}", "bold", leave=len(more)).add(more)
        yield row.text()


def _caption(look: Look, columns: int) -> Iterator[Text]:
    if look.caption:
        yield Row(columns, "reverse cyan").add(" ").fill(look.caption).text()


def _foot(snapshot: Fields, look: Look, columns: int) -> Text:
    if look.question is not None:
        return Row(columns, "reverse yellow").add(" ").fill(look.question.text).text()
    row = Row(columns).add(" ")
    if look.message:
        return row.fill(look.message, "bold").text()
    return row.fill(panes.hints(snapshot, look), "dim").text()


def _too_small(snapshot: Fields, columns: int, rows: int) -> Iterator[Text]:
    totals = snapshot["totals"]
    lines = [
        f"{snapshot['state']}: {totals['done']} closed",
        f"{snapshot['queue']['running']} running, {snapshot['queue']['ready']} ready",
        f"{totals['set_aside']} set aside",
        f"(the dashboard needs {COLUMNS_MIN}x{ROWS_MIN})",
    ]
    for index in range(rows):
        yield Row(columns).fill(lines[index] if index < len(lines) else "").text()
