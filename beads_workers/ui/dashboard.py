"""The dashboard: one pure function from a snapshot to a screen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from rich.console import Group
from rich.text import Text

from beads_workers.core.base.text import columns as width_of
from beads_workers.core.base.text import printable
from beads_workers.core.views.status import END_REASONS
from beads_workers.ui import bindings
from beads_workers.ui.agents import account, hours, spent
from beads_workers.ui.issues import issues, quarantined
from beads_workers.ui.lines import FOLDED_MIN
from beads_workers.ui.page_card import page_card
from beads_workers.ui.panels import (
    LANDING_ROWS,
    LANDING_ROWS_MIN,
    attempt,
    decisions,
    hints,
    keys,
    landing,
    landing_pane,
    opened,
    opened_rows,
    outcomes,
    workers,
)
from beads_workers.ui.rows import Row, RowText, bar, sparkline
from beads_workers.ui.time_text import clock, done_about, duration, elapsed, wall_clock
from beads_workers.ui.viewer import (
    ATTEMPT,
    Fields,
    Pane,
    Part,
    Role,
    Screen,
    needing_you,
    rows_of,
)

# --- head ----------------------------------------------------------------------------------------
# The four rows at the top: the fleet, its progress, its queue, and the tracker.


ROWS, ROWS_FOLDED = 4, 2
FULL_ROWS = 24
"""Height of the terminal from which the head is not folded."""
TALL_ROWS = 30
"""Height of the terminal from which rare events get more than one row."""
AGENTS_ROWS_MAX = 3
ACCOUNT_STYLES = {
    "available": "muted",
    "limited": "attention",
    "backing_off": "attention",
    "needs_person": "bad.strong",
}
QUEUE_COLUMNS = 120
"""Width from which the row of the queue is complete; a narrower row is shorter."""
QUEUE_COLUMNS_SHORT = 78
"""Width from which the short row of the queue has priorities."""

CLOCK_COLUMNS = 88
"""Width from which the time of day stands beside the name of the run."""

RUN_STYLES = {
    "waiting": "time.strong",
    "running": "good.strong",
    "paused": "attention.strong",
    "draining": "time.strong",
    "stopping": "agent.strong",
    "ended": "strong",
}


def head_rows(rows: int) -> int:
    """Return the number of rows of the head."""
    return ROWS if rows >= FULL_ROWS else ROWS_FOLDED


def head(snapshot: Fields, screen: Screen, age: float, columns: int, rows: int) -> Iterator[Text]:
    """Yield the rows of the head; folded, the tracker has a place only if there is trouble."""
    if head_rows(rows) == ROWS_FOLDED:
        yield brief(snapshot, screen, age, columns, needs=False)
        well = snapshot["source_state"]["state"] == "ok"
        yield _queue(snapshot, age, columns) if well else _tracker(snapshot, age, columns)
        return
    yield _fleet(snapshot, screen, age, columns)
    yield _progress(snapshot, screen, age, columns)
    yield _queue(snapshot, age, columns)
    yield _tracker(snapshot, age, columns)


ONE_ROW = (*ATTEMPT, Pane.HELP, Pane.PAGE)
"""Panes that have one row of the fleet above them: the rest of the screen is theirs."""


def brief(
    snapshot: Fields, screen: Screen, age: float, columns: int, *, needs: bool = True
) -> Text:
    """Return the head in one row. ``needs``: say what the rows below it would say, too."""
    queue = snapshot["queue"]
    state = snapshot["state"] if snapshot["running"] else "ended"
    done, whole = queue["closed"], queue["total"]
    replay, narrow = screen.role is Role.REPLAY, columns < QUEUE_COLUMNS_SHORT
    row = Row(columns).add("" if narrow else " beads-workers", style="strong")
    row.add(" replay" if replay else "", style="time").add(" " if narrow else "  ")
    row.add(state, style=RUN_STYLES.get(state, "strong"))
    row.add(f"  {done}/{whole} closed", style="strong")
    if needs:
        row.add(f"  {queue['running']} running", style="muted")
        need, quarantined = len(needing_you(snapshot)), queue["quarantined"]
        row.add(f"  {need} need you (!)" if need else "", style="attention")
        of_these = f", {quarantined} {'quar.' if narrow else 'quarantined'}"
        row.add(of_these if quarantined else "", style="bad.strong")
    end = done_about(snapshot, age)
    row.add(f"  {end}" if width_of(end) + 2 <= row.room else "")
    up = elapsed(snapshot["uptime_seconds"] + (age if snapshot["running"] else 0.0))
    return row.fill(f"up {up} ".rjust(row.room) if row.room > len(up) + 5 else "").text()


def agents_rows(snapshot: Fields, rows: int) -> int:
    """Return the number of rows for agents and money: constant for a run."""
    most = 1 if rows < TALL_ROWS else AGENTS_ROWS_MAX
    return min(len(snapshot["accounts"]), most)


def agents(snapshot: Fields, age: float, columns: int, rows: int) -> Iterator[Text]:
    """Yield the rows of accounts, the closed ones first, and of the money spent."""
    room = agents_rows(snapshot, rows)
    age = age if snapshot["running"] else 0.0
    accounts = sorted(snapshot["accounts"], key=lambda each: each["state"] == "available")
    money = snapshot["money"]
    for index in range(room):
        # Accounts without a row of their own follow in the last row.
        here = accounts[index:] if index == room - 1 else accounts[index : index + 1]
        text = "; ".join(account(each, age, advice=len(here) == 1) for each in here)
        row = Row(columns).add(" agents  " if index == 0 else "         ")
        cost = f"  {spent(money)}" if money and index == 0 else ""
        if cost and len(text) + len(cost) > row.room:
            cost = f"  {spent(money, short=True)}"
        row.fill(
            text,
            ACCOUNT_STYLES[here[0]["state"]],
            leave=min(len(cost), max(columns // 2, row.room - len(text))),
        )
        yield row.add(cost, style="strong").text()


def _fleet(snapshot: Fields, screen: Screen, age: float, columns: int) -> Text:
    running = snapshot["running"]
    age = age if running else 0.0
    state = snapshot["state"] if running else "ended"
    shown = f"{state}{hours(snapshot, age)}" if state in ("waiting", "running") else state
    if state == "draining":
        reason = snapshot["state_reason"] or ""
        shown = f"draining ({printable(END_REASONS.get(reason, reason), max(12, columns // 3))})"
    role = " replay" if screen.role is Role.REPLAY else ""
    here = wall_clock(snapshot, age) if columns >= CLOCK_COLUMNS else None
    time_of_day = f"{clock(here, seconds=False)}  " if here is not None else ""
    up = f" {time_of_day}up {elapsed(snapshot['uptime_seconds'] + age)} "
    row = Row(columns).add(" beads-workers", style="strong").add(role, style="time")
    project = (snapshot["project"] or "").rstrip("/").rpartition("/")[2]
    leave = len(shown) + 2 + 14 + len(time_of_day)
    names = [project, snapshot["source"] or "", snapshot["run_id"] or ""]
    while len(names) > 1 and width_of("  ".join(names)) > row.room - 2 - leave:
        names.pop()
    row.add("  ").fill("  ".join(names), "muted", leave=leave)
    row.add(f"  {shown}", style=RUN_STYLES.get(state, "strong"))
    return row.fill(up.rjust(row.room)).text()


def _progress(snapshot: Fields, screen: Screen, age: float, columns: int) -> Text:
    queue = snapshot["queue"]
    done, whole = queue["closed"], queue["total"]
    row = Row(columns).add(" ")
    row.add(bar(done / whole if whole else 0.0, columns // 5, unicode=screen.unicode), style="good")
    more = "+" if queue["ready_more"] else ""
    # Space for the numbers of most runs, so that the columns beside do not move.
    digits = max(3, len(str(whole)))
    unknown = not whole and _is_unasked(snapshot)
    text = "not listed yet" if unknown else f"{done}/{whole}{more} closed"
    row.add(f"  {text}", 12 + 2 * digits, "strong")
    row.add(f"  {snapshot['rate_per_minute']:.1f}/min", 13)
    row.add(done_about(snapshot, age), END_COLUMNS)
    done_over_time = snapshot["throughput"]["done"]
    return (
        row.add(" ")
        .fill(sparkline(done_over_time, row.room - 1, unicode=screen.unicode), "time")
        .text()
    )


END_COLUMNS = 18
"""Columns of ``done about 03:40``, and of the least gap behind it."""


def _is_unasked(snapshot: Fields) -> bool:
    """Return whether the tracker has not answered yet, so that the work is unknown."""
    calls = snapshot["source_calls"]
    return bool(snapshot["running"] and calls["now"] and not calls["count"])


def _queue(snapshot: Fields, age: float, columns: int) -> Text:
    queue = snapshot["queue"]
    row = (
        Row(columns)
        .add(" ready ")
        .add(f"{queue['ready']}{'+' if queue['ready_more'] else ''}", 5, "strong")
    )
    if columns >= QUEUE_COLUMNS:
        by_priority = "  ".join(f"P{p} {count}" for p, count in enumerate(queue["by_priority"]))
        row.add(by_priority, 34, "muted")
    elif columns >= QUEUE_COLUMNS_SHORT:
        row.add(f"P0-4: {' '.join(map(str, queue['by_priority']))}", 21, "muted")
    row.add(" running ").add(str(queue["running"]), 4, "strong")
    row.add("blocked ").add(str(queue["blocked"]), 4, "strong")
    row.add("retry ").add(str(queue["retrying"]), 3, "strong")
    due = queue["next_retry_seconds"]
    if columns >= QUEUE_COLUMNS:
        row.add(f"in {elapsed(due - age)}" if due is not None else "", 12, "muted")
    style = "bad.strong" if queue["quarantined"] else "strong"
    row.add("quar. " if columns < QUEUE_COLUMNS else "quarantined ").add(
        str(queue["quarantined"]), 4, style
    )
    if columns >= QUEUE_COLUMNS:
        row.add("unclosed ").add(str(queue["unclosed"]), 4, "strong")
        if snapshot["landing"]:
            to_land, in_review = queue["waiting_to_land"], queue["in_review"]
            reviewed = in_review and not to_land
            row.add("review " if reviewed else "to land ")
            row.add(str(in_review if reviewed else to_land), 4, "strong")
    return row.text()


TRACKER_FIGURES = 44
"""Columns for the tracker's name and "100 calls, 12 ms each, 2.00 an issue"."""


def _tracker(snapshot: Fields, age: float, columns: int) -> Text:
    calls, source = snapshot["source_calls"], snapshot["source_state"]
    row = Row(columns).add(" tracker ")
    if source["state"] != "ok":
        since = duration(source["since_seconds"] + age)
        again = elapsed(source["retry_in_seconds"] - age)
        row.add(f"{source['state'].replace('_', ' ')} for {since}, again in {again}: ", style="bad")
        return row.fill(source["error"] or "", "bad").text()
    now = calls["now"]
    doing = f"{now} ({elapsed(calls['now_seconds'] + age)})" if now else "idle"
    # In a narrow terminal the figures keep their width.
    least = min(36, max(17, columns - TRACKER_FIGURES))
    row.add(doing, least if columns < QUEUE_COLUMNS else 46, "time" if now else "muted")
    typical = calls["typical_seconds"]
    figures = [f"{calls['count']} calls"]
    figures += [f"{duration(typical)} each"] if typical is not None else []
    figures += [f"{calls['per_done']:.2f} an issue"] if calls["per_done"] is not None else []
    while len(figures) > 1 and width_of(", ".join(figures)) > row.room:
        figures.pop()
    return row.fill(", ".join(figures), "muted").text()


# --- view ----------------------------------------------------------------------------------------
# ``draw`` returns exactly as many rows as the terminal has, each exactly as wide. Places do not
# depend on what happens: nothing jumps while a person looks.


COLUMNS_MIN = 60
ROWS_MIN = 14
SIDE_BY_SIDE_COLUMNS = 150
"""Width from which the chosen attempt and its log are beside the lists, not below them."""
OUTCOMES_ROWS_MIN = 3
"""Least rows of outcomes, with their rule; landing gets the rest below the workers."""
ATTEMPT_ROWS_MIN = 5
"""Least rows of an attempt: at least two rows of its log."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Number of rows of each part of the middle, with its rule."""

    workers: int
    outcomes: int
    landing: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Room:
    """Size of the middle of the screen, between head and foot."""

    columns: int
    rows: int

    @property
    def wide(self) -> bool:
        """Whether there are two columns: the lists, and the chosen attempt."""
        return self.columns >= SIDE_BY_SIDE_COLUMNS

    def layout(self, workers: int, *, lands: bool) -> Layout:
        """Return the layout, constant for a run: landing takes no row from the workers."""
        rows = max(2, 1 + min(max(workers, 1), self.rows - 2 - max(3, (self.rows - 2) // 3)))
        left = self.rows - rows
        if self.wide:
            landing = min(LANDING_ROWS, self.rows // 2) if lands else 0
            return Layout(rows, left, landing, self.rows - landing)
        landing = min(left - OUTCOMES_ROWS_MIN, LANDING_ROWS, left // 2) if lands else 0
        landing = landing if landing >= LANDING_ROWS_MIN else 0
        left -= landing
        attempt = left // 2 if left // 2 >= ATTEMPT_ROWS_MIN else 0
        return Layout(rows, left - attempt, landing, attempt)


def draw(snapshot: Fields, screen: Screen, age: float, columns: int, rows: int) -> Group:
    """Return the whole screen; ``age``: seconds since the snapshot was made."""
    if columns < COLUMNS_MIN or rows < ROWS_MIN:
        return Group(*_too_small(snapshot, columns, rows))
    bottom = [*_caption(screen, columns), _foot(snapshot, screen, columns)]
    if screen.pane in ONE_ROW:
        top = [] if _is_full(screen) else [brief(snapshot, screen, age, columns)]
        if _is_full(screen):
            bottom = bottom[-1:] if _says(screen) else []
    else:
        top = [*head(snapshot, screen, age, columns, rows), *agents(snapshot, age, columns, rows)]
        top += _needs(snapshot, columns, rows)
    room = Room(columns, rows - len(top) - len(bottom))
    middle = _padded(_middle(snapshot, screen, age, room), columns, room.rows)
    return Group(*top, *middle, *bottom)


def pointed_at(picture: Group, column: int, row: int) -> tuple[Part, str] | None:
    """Return the list, and the key of its row, at a place of the screen; None for any other place.

    ``picture``: of ``draw``; columns and rows count from 1.
    """
    drawn = picture.renderables[row - 1] if 0 < row <= len(picture.renderables) else None
    if not isinstance(drawn, RowText) or drawn.name is None or column > drawn.columns:
        return None
    part, key = drawn.name
    return (part, key) if isinstance(part, Part) else None


def _is_full(screen: Screen) -> bool:
    return screen.full and screen.pane in ATTEMPT


def _says(screen: Screen) -> bool:
    """Return whether the last row has something to say that is more than hints."""
    return screen.question is not None or screen.typed is not None or bool(screen.message)


def page_rows(snapshot: Fields, screen: Screen, columns: int, rows: int) -> int:
    """Return the number of rows on a page of the list that the arrows move in."""
    if screen.pane in ONE_ROW:
        return _one_row_page(screen, rows)
    taken = (
        head_rows(rows) + agents_rows(snapshot, rows) + _needs_rows(rows) + bool(screen.caption) + 1
    )
    room = Room(columns, rows - taken)
    if screen.pane is not Pane.FLEET:
        return max(1, room.rows - 1)
    layout = room.layout(_workers(snapshot, screen), lands=bool(snapshot["landing"]))
    return max(1, (layout.workers if screen.part is Part.WORKERS else layout.outcomes) - 1)


def _one_row_page(screen: Screen, rows: int) -> int:
    if _is_full(screen):
        return max(1, rows - opened_rows(screen) - _says(screen))
    above = opened_rows(screen) if screen.pane in ATTEMPT else 1
    return max(1, rows - 1 - above - bool(screen.caption) - 1)


def shows_log(screen: Screen, columns: int, rows: int) -> bool:
    """Return whether ``draw`` needs the log of the chosen attempt."""
    if screen.pane is not Pane.FLEET:
        return screen.pane in ATTEMPT
    return columns >= SIDE_BY_SIDE_COLUMNS or rows >= TALL_ROWS


def _middle(snapshot: Fields, screen: Screen, age: float, room: Room) -> Iterator[Text]:
    match screen.pane:
        case Pane.FLEET:
            yield from _whole_fleet(snapshot, screen, age, room)
        case Pane.LOG | Pane.DIFF | Pane.ABOUT:
            yield from opened(snapshot, screen, age, room.columns, room.rows)
        case Pane.QUARANTINE:
            yield from quarantined(snapshot, screen, room.columns, room.rows)
        case Pane.DECISIONS:
            yield from decisions(snapshot, screen, room.columns, room.rows)
        case Pane.LANDING:
            yield from landing_pane(snapshot, screen, age, room.columns, room.rows)
        case Pane.ISSUES:
            yield from issues(snapshot, screen, age, room.columns, room.rows)
        case Pane.HELP:
            yield from keys(screen, room.columns)
        case Pane.PAGE:
            yield from page_card(screen, room.columns, room.rows)


def _whole_fleet(snapshot: Fields, screen: Screen, age: float, room: Room) -> Iterator[Text]:
    layout = room.layout(_workers(snapshot, screen), lands=bool(snapshot["landing"]))
    width = room.columns * 11 // 20 if room.wide else room.columns
    lists = _padded(
        workers(snapshot, screen, age, width, layout.workers - 1, marked=layout.attempt > 0),
        width,
        layout.workers,
    )
    ended = _padded(outcomes(snapshot, screen, width, layout.outcomes), width, layout.outcomes)
    beside = room.columns - width - 1 if room.wide else width
    lands = (
        _padded(landing(snapshot, screen, age, beside, layout.landing), beside, layout.landing)
        if layout.landing
        else []
    )
    chosen = (
        _padded(attempt(snapshot, screen, age, beside, layout.attempt), beside, layout.attempt)
        if layout.attempt
        else []
    )
    if not room.wide:
        yield from (*lists, *lands, *ended, *chosen)
        return
    for left, right in zip((*lists, *ended), (*chosen, *lands), strict=True):
        # The style of the left row must not extend to the right one.
        row = RowText(no_wrap=True).append_text(left).append(" ").append_text(right)
        if isinstance(left, RowText) and isinstance(row, RowText):
            row.name, row.columns = left.name, left.columns
        yield row


def _padded(drawn: Iterator[Text], width: int, rows: int) -> list[Text]:
    """Return exactly so many rows."""
    here = list(islice(drawn, rows))
    return here + [Row(width).text() for _ in range(rows - len(here))]


def _workers(snapshot: Fields, screen: Screen) -> int:
    # If workers leave or fall idle, everything below them keeps its place.
    most = max(len(snapshot["workers"]), snapshot["workers_peak"])
    listed = len(rows_of(screen, snapshot, Part.WORKERS))
    return most if most < FOLDED_MIN else max(screen.tallest, listed)


def worker_rows(snapshot: Fields) -> int:
    """Return the rows of the whole list of workers."""
    return len(rows_of(Screen(), snapshot, Part.WORKERS))


def _needs_rows(rows: int) -> int:
    return 1 if rows < TALL_ROWS else 3


PAUSED, NOTHING_NEW = "paused: ", "nothing new is handed out"


def _needs(snapshot: Fields, columns: int, rows: int) -> Iterator[Text]:
    """Yield what waits for a person; its rows stay reserved if nothing does."""
    room, needs = _needs_rows(rows), snapshot["needs"]
    for index in range(room):
        row = Row(columns).add(" ")
        if not needs and index == 0:
            row.add("" if _is_unasked(snapshot) else "nothing needs you", style="muted")
        elif index < len(needs):
            row.add("! ", style="attention.strong")
            text, todo = needs[index]["text"], f"-> {needs[index]['remedy']}"
            if columns < QUEUE_COLUMNS_SHORT:
                todo = todo.partition(";")[0]  # A command that can be read, of several.
            if text.startswith(PAUSED):  # The head says so.
                reason = text.removeprefix(PAUSED)
                text = NOTHING_NEW if reason == NOTHING_NEW else f"{NOTHING_NEW}: {reason}"
            more = f"  (and {len(needs) - room} more)" if room <= index + 1 < len(needs) else ""
            # Commands are aligned, unless a longer text leaves enough space for its command, or the
            # command needs it.
            half, rest = max(20, row.room // 2), row.room - 2 - width_of(todo) - len(more)
            least = min(half, max(20, rest))
            row.add(text, max(least, min(rest, width_of(text))), "attention")
            row.add("  ").fill(todo, "strong", leave=len(more)).add(more)
        yield row.text()


def _caption(screen: Screen, columns: int) -> Iterator[Text]:
    if screen.caption:
        yield Row(columns, "caption").add(" ").fill(screen.caption).text()


def _foot(snapshot: Fields, screen: Screen, columns: int) -> Text:
    if screen.question is not None:
        return Row(columns, "question").add(" ").fill(screen.question.text).text()
    row = Row(columns).add(" ")
    if screen.typed is not None and screen.writing is not None:
        row.add(f"{screen.writing.label} {screen.writing.issue_id}: ", style="muted")
        # Of a long text, the end is seen: there the person types.
        return row.add(_end_of(f"{screen.typed}_", row.room), style="strong").text()
    if screen.typed is not None and screen.naming:
        best, *others = bindings.matching(screen) or ["no command"]
        row.add(f":{screen.typed}_", style="strong").add("   ").add(best, style="good.strong")
        return row.add("   ").fill("   ".join(others), "muted").text()
    if screen.typed is not None:
        row.add(f"/{screen.typed}", style="strong")
        return row.add("_").fill("   Enter keeps it, Escape gives it up", "muted").text()
    if screen.message:
        return row.fill(screen.message, "strong").text()
    between = ""
    for hint in hints(snapshot, screen, columns).split("   "):
        keys = len(found.group()) if (found := _KEYS.match(hint)) else 0
        row.add(f"{between}{hint[:keys]}", style="strong").add(hint[keys:], style="muted")
        between = "   "
    return row.fill("").text()


_KEYS = re.compile(r"(\S )+|\S+ ")
"""In ``[ ] attempts`` and ``Enter open``: ``[ ] `` and ``Enter ``."""


def _end_of(text: str, width: int) -> str:
    while width_of(text) > width:
        text = text[1:]
    return text


def _too_small(snapshot: Fields, columns: int, rows: int) -> Iterator[Text]:
    totals = snapshot["totals"]
    lines = [
        f"{snapshot['state']}: {totals['done']} closed",
        f"{snapshot['queue']['running']} running, {snapshot['queue']['ready']} ready",
        f"{totals['quarantined']} quarantined",
        f"(the dashboard needs {COLUMNS_MIN}x{ROWS_MIN})",
    ]
    for index in range(rows):
        yield Row(columns).fill(lines[index] if index < len(lines) else "").text()
