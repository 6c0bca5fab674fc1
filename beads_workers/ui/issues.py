"""The issues in the dashboard: all by state, or the quarantined ones by cause. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich.text import Text

from beads_workers.core.base.text import columns, counted
from beads_workers.ui import viewer
from beads_workers.ui.backlog import note_of
from beads_workers.ui.panels import id_room_of, left_out, short_id
from beads_workers.ui.rows import CHOSEN, Row, named, rule
from beads_workers.ui.time_text import duration
from beads_workers.ui.words import DID_NOT_LAND, NO_ERROR, STATE_TITLES, State

STYLES = {
    State.NEEDS_YOU: "attention",
    State.QUARANTINED: "bad",
    State.RUNNING: "good",
    State.LANDING: "time",
    State.RETRYING: "attention",
    State.READY: "",
    State.BLOCKED: "muted",
    State.LEFT_ALONE: "muted",
    State.CLOSED: "muted",
}
"""Styles of notes; each state has its heading as well: colour is never alone."""

FOLDS = {False: ("▸", "+"), True: ("▾", "-")}
"""Marks of a cause: whether its issues are shown, with and without Unicode."""

PRIORITY_COLUMNS_MIN = 72
"""Width from which a row has the priority of its issue."""


def issues(
    snapshot: viewer.Fields, screen: viewer.Screen, age: float, width: int, rows: int
) -> Iterator[Text]:
    """Yield a rule, and all issues below the names of their states, around the chosen one."""
    part = viewer.Part.ISSUES
    listed = viewer.rows_of(screen, snapshot, part)
    counts = _counts(listed)
    total = counts.total() - counts[State.CLOSED.value]
    more = " of more" if screen.backlog is not None and screen.backlog.cut else ""
    order = f", by {screen.issue_order}" if screen.issue_order else ""
    title = f"issues: {total} not closed{more}{_asked(screen)}{order}{left_out(screen, part)}"
    yield rule(title, width, unicode=screen.unicode)
    if not listed:
        yield Row(width).add(" none of them", style="muted").text()
    yield from _window(listed, screen, part, width, rows - 1)


def _asked(screen: viewer.Screen) -> str:
    """Return what is to be said about the tracker's answer."""
    known = screen.backlog
    if screen.role is viewer.Role.REPLAY:
        return " that the run had, without the tracker"
    if known is None:
        return ", the tracker is asked"
    if known.unseen:
        return f", without the tracker: {known.unseen}"
    if known.listed_at is None:
        return ""
    return f", asked {duration(round(max(0.0, screen.now - known.listed_at)))} ago"


def quarantined(
    snapshot: viewer.Fields, screen: viewer.Screen, width: int, rows: int
) -> Iterator[Text]:
    """Yield a rule, and the causes of quarantined issues with these, around the chosen one."""
    part = viewer.Part.QUARANTINED
    listed = viewer.rows_of(screen, snapshot, part)
    count, known = snapshot["queue"]["quarantined"], len(snapshot["quarantined"])
    newest = f", the newest {known} here" if known < count else ""
    title = f"quarantined: {count}{newest}{left_out(screen, part)}"
    yield rule(title, width, unicode=screen.unicode)
    if not listed:
        text = "none of them" if known else "nothing is quarantined"
        yield Row(width).add(f" {text}", style="muted").text()
    yield from _window(listed, screen, part, width, rows - 1)


def _window(
    listed: Sequence[viewer.Fields],
    screen: viewer.Screen,
    part: viewer.Part,
    width: int,
    rows: int,
) -> Iterator[Text]:
    """Yield the part of a list that has the chosen row, with a heading above each state."""
    at, drawn, chosen_line = viewer.chosen_at(screen, listed, part), [], 0
    for index, row in enumerate(listed):
        state = row.get("state")
        if state and (not index or listed[index - 1]["state"] != state):
            drawn.append((-1, state))
        if index == at:
            chosen_line = len(drawn)
        drawn.append((index, state))
    first = max(0, chosen_line - rows + 1)
    counts = _counts(listed)
    id_room = id_room_of((row["issue_id"] for row in listed), width)
    for index, state in drawn[first : first + rows]:
        if index < 0:
            yield _heading(State(state), counts[state], width)
            continue
        text = _row(listed[index], width, id_room, screen, chosen=index == at)
        yield named(text, part, viewer.key_of(part, listed[index]))


def _counts(listed: Sequence[viewer.Fields]) -> Counter[str]:
    """Return the number of issues of each state; those below their cause count once."""
    counts: Counter[str] = Counter()
    for row in listed:
        if "below" not in row:
            counts[row.get("state", "")] += len(row.get("issue_ids", "1"))
    return counts


def _heading(state: State, many: int, width: int) -> Text:
    count = f"{many}{', the last ones' if state is State.CLOSED else ''}"
    style = STYLES[state] if STYLES[state] in ("attention", "bad") else ""
    row = Row(width).add(f" {STATE_TITLES[state]}", style=f"{style}.strong" if style else "strong")
    return row.fill(f"  {count}", "muted").text()


def _row(
    shown: viewer.Fields, width: int, id_room: int, screen: viewer.Screen, *, chosen: bool
) -> Text:
    row = Row(width, CHOSEN if chosen else "")
    if "issue_ids" in shown:
        mark = FOLDS[shown["key"] in screen.unfolded][0 if screen.unicode else 1]
        many = f" {mark} {len(shown['issue_ids'])} x "
        row.add(many, max(columns(many), 9), "bad.strong")
        return row.fill(shown["error"] or NO_ERROR, "bad").text()
    indent = "    " if "below" in shown else "  "
    row.add(indent).add(short_id(shown["issue_id"], id_room), id_room, "strong").add(" ")
    urgent = shown.get("priority")
    beside = 3 if width >= PRIORITY_COLUMNS_MIN and "priority" in shown else 0
    row.add("" if urgent is None else f"P{urgent}", beside, "muted")
    # Titles and notes stand below each other.
    left = width - 3 - id_room - beside
    row.add(shown["title"], max(0, left // 2 - (len(indent) - 2))).add("  ")
    if "state" not in shown:
        many = counted(shown["attempts"], "attempt") if shown["attempts"] else DID_NOT_LAND
        return row.fill(many if "below" in shown else f"{many}: {shown['error']}", "bad").text()
    note = note_of(shown, screen.now, beside_cause="below" in shown)
    return row.fill(note, STYLES[State(shown["state"])]).text()
