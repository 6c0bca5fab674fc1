"""The middle of the dashboard: workers, attempts, landing, one attempt, the keys.

Each panel is a rule and rows below it, in the given width. Pure.
"""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest

from rich.cells import chop_cells
from rich.text import Text

from beads_workers.core.base.text import columns, counted, printable
from beads_workers.core.records.landing import AWAITS, REVIEW
from beads_workers.core.records.receipts import SHA_CHARS
from beads_workers.core.views.history import CUT_OFF
from beads_workers.ui import bindings, viewer
from beads_workers.ui.agents import used
from beads_workers.ui.attempt_view import actions, now
from beads_workers.ui.lines import ended_text, where
from beads_workers.ui.rows import CHOSEN, Row, named, rule
from beads_workers.ui.time_text import clock, duration, elapsed, wall_clock
from beads_workers.ui.words import DID_NOT_LAND, OUTCOME_WORDS

# --- rows ----------------------------------------------------------------------------------------

MARKS = {
    "finish": ("✓", "+", "good"),
    "land": ("✓", "+", "good"),
    "requeue": ("↻", "~", "attention"),
    "quarantined": ("✗", "x", "bad"),
    "asked": ("?", "?", "attention"),
    "hand_back": ("✗", "x", "bad"),
    "cancelled": ("↩", "<", "muted"),
    CUT_OFF: ("✗", "x", "muted"),
}
"""Verdict -> mark, ASCII mark, style. Words accompany them: colour is never alone."""

WORKER_STYLES = {"busy": "", "idle": "muted", "starting": "time", "stopping": "agent"}


NARROW_COLUMNS = 72
"""Width below which rows have the essentials only: no counts, no seconds of a clock."""
TOOK_COLUMNS, TOOK_NARROW = 11, 6
"""Width of the longest usual duration: ``23 h 59 min``; of its first unit in a narrow row."""


def worker_row(
    worker: viewer.Fields,
    age: float,
    width: int,
    id_room: int,
    *,
    chosen: bool,
    paused: bool = False,
    places: Sequence[viewer.Fields] = (),
) -> Text:
    """Return the row of a worker: its work, the duration, and its counts so far.

    ``paused``: the fleet is, which its head says for all workers. ``places``: other machines.
    """
    row = Row(width, CHOSEN if chosen else "")
    room = 22 if width >= 100 else 16 if width >= NARROW_COLUMNS else 0
    if "folded" in worker:
        row.fill(f" {worker['folded']} idle; f lists them", "muted", leave=room)
        return _counts(row, worker, room, width)
    row.add(" ").add(worker["worker_id"], 5, "strong" if worker["issue_id"] else "muted")
    if worker["issue_id"] is None:
        state = "paused" if worker.get("paused") is not None and not paused else worker["state"]
        row.add(state, 10, WORKER_STYLES.get(state, ""))
        row.fill("" if worker["own"] else "not started by this fleet", "muted", leave=room)
    else:
        _add_time(row, worker["elapsed_seconds"] + age, width, runs=True)
        row.add(short_id(worker["issue_id"], id_room), id_room, "strong").add(" ")
        if there := where(worker, places, time.time()).removeprefix("on "):
            row.add(f"{there} ", style="attention" if "(" in there else "muted")
        if worker["agent"]:
            _agent_cells(row, worker, room, width)
        else:
            if progress := worker["progress"]:
                _progress_cells(row, progress, room)
            _titled(row, worker, worker["title"] or "", room)
    return _counts(row, worker, room, width)


def _counts(row: Row, worker: viewer.Fields, room: int, width: int) -> Text:
    if not room:
        return row.text()
    words = (" done", " failed") if width >= 100 else (" ok", " bad")
    row.add(f"{worker['done']}{words[0]}", room // 2, "muted", right=True)
    failed = f"{worker['failed']}{words[1]}" if worker["failed"] else ""
    return row.add(failed, room // 2, "muted", right=True).text()


def _titled(row: Row, worker: viewer.Fields, text: str, leave: int, style: str = "") -> None:
    """Add a text, and behind it the number of the attempt unless it is the first: so texts line
    up."""
    again = f"  attempt {worker['attempt']}" if worker["attempt"] > 1 else ""
    row.fill(text, style, leave=leave + len(again)).add(again, style="attention")


def _progress_cells(row: Row, progress: viewer.Fields, leave: int) -> None:
    percent, room = progress["percent"], (row.room - leave) * 3 // 5
    if percent is not None:
        row.add(f"{percent}%", 4, "good", right=True).add(" ")
        room -= 5
    row.add(progress["activity"], room, "muted").add(" ")


TITLE_BESIDE_COLUMNS = 50
"""Width from which an issue's title is shown beside its agent's activity."""


def _agent_cells(row: Row, worker: viewer.Fields, leave: int, width: int) -> None:
    """Add the agent, its activity or else the title, and the cost."""
    row.add(worker["agent"], 8 if width >= 100 else 7, "agent")
    cost, cost_columns = used(worker["tokens"], worker["money_usd"]), 19
    if width < 100:
        cost, cost_columns = cost.replace(" tok", ""), 13
    if not leave:
        cost, cost_columns = cost.rpartition(" ")[2], 7
    room = row.room - leave - cost_columns
    doing = worker["activity"] or ""
    if doing and room >= TITLE_BESIDE_COLUMNS:
        row.add(doing, room * 3 // 5, "good").add(" ")
        doing = ""
    text = doing or worker["title"] or ""
    _titled(row, worker, text, leave + cost_columns, "good" if doing else "")
    row.add(cost, cost_columns, "muted", right=True)


def outcome_row(
    outcome: viewer.Fields,
    width: int,
    id_room: int,
    *,
    unicode: bool,
    waits: str = "",
    chosen: bool = False,
) -> Text:
    """Return the row of an ended attempt: time, issue, worker, duration, and error.

    ``waits``: what its work waits for.
    """
    mark, style, kind = _mark(outcome, unicode=unicode)
    row = Row(width, CHOSEN if chosen else "").add(" ")
    narrow = width < NARROW_COLUMNS
    row.add(*_clock(outcome["at"], width), "muted")
    row.add(mark, 2, f"{style}.strong")
    row.add(short_id(outcome["issue_id"], id_room), id_room, "strong").add(" ")
    if not narrow:
        row.add(outcome["worker_id"], 5, "muted")
    _add_time(row, outcome["seconds"], width)
    if kind in ("finish", "land"):
        then = f"  {waits}" if waits else ""
        return row.fill(outcome["title"], leave=len(then)).add(then, style="time").text()
    text = ended_text(outcome)
    # The reason matters more than the number of attempts.
    return row.fill(
        text if columns(text) <= row.room else ended_text(outcome, short=True), style
    ).text()


def _add_time(row: Row, seconds: float, width: int, *, runs: bool = False) -> None:
    """Add a duration, in a column, to a row; ``runs``: it goes on."""
    narrow = width < NARROW_COLUMNS
    text = (elapsed if runs else duration)(seconds, units=1 if narrow else 2)
    row.add(text, TOOK_NARROW if narrow else TOOK_COLUMNS, "time", right=True).add("  ")


def _clock(at: float, width: int) -> tuple[str, int]:
    """Return a time of day, and its columns with the gap behind it."""
    narrow = width < NARROW_COLUMNS
    return clock(at, seconds=not narrow), 6 if narrow else 9


def _mark(outcome: viewer.Fields, *, unicode: bool) -> tuple[str, str, str]:
    """Return the mark of an outcome, its style, and its key in ``MARKS``."""
    kind = "cancelled" if outcome["outcome"] == "cancelled" else outcome["decision"]
    mark, ascii_mark, style = MARKS.get(kind, MARKS["cancelled"])
    return mark if unicode else ascii_mark, style, kind


def id_columns(snapshot: viewer.Fields, width: int) -> int:
    """Return the columns of an issue's id.

    They fit the longest id shown, in steps, so that lists do not jump.
    """
    names = ("workers", "outcomes", "quarantined", "questions", "approvals")
    lists = [snapshot[name] for name in names]
    if (shown := snapshot["landing"]) is not None:
        lists += [shown[name] for name in ("waiting_to_land", "refused", "last")]
    return id_room_of((row["issue_id"] or "" for rows in lists for row in rows), width)


def id_room_of(issue_ids: Iterable[str], width: int) -> int:
    """Return the columns for these ids."""
    longest = max(map(len, issue_ids), default=0)
    return min(12 if width < 100 else 18, max(8, -(-longest // 4) * 4))


def short_id(issue_id: str, room: int) -> str:
    """Return an id that fits; a long one keeps its end, as all begin alike."""
    return issue_id if len(issue_id) <= room else f"…{issue_id[1 - room :]}"


# --- panes ---

LANDING_ROWS = 7
LANDING_ROWS_MIN = 3
GATES_ROWS = 2
"""Rows kept for running gates, even while none runs, so that the panel does not change its
height."""

STARTING_SECONDS = 5.0
"""For this long after its start, a fleet without workers is said to be starting them; after that,
to have none."""


def workers(
    snapshot: viewer.Fields,
    screen: viewer.Screen,
    age: float,
    width: int,
    count: int,
    *,
    marked: bool,
) -> Iterator[Text]:
    """Yield a rule, and the page of workers with the chosen one.

    ``marked``: mark the chosen row even if nobody has chosen one yet.
    """
    listed, part = viewer.rows_of(screen, snapshot, viewer.Part.WORKERS), viewer.Part.WORKERS
    age = age if snapshot["running"] else 0.0
    at = viewer.chosen_at(screen, listed, part)
    first = at // count * count
    page = listed[first : first + count]
    pages = -(-len(listed) // count)
    everybody = snapshot["workers"]
    number = sum(row.get("folded", 1) for row in listed)
    here = f"{first + 1}-{first + len(page)} of " if number == len(listed) else ""
    title = f"workers {here}{number}" if page else "workers"
    busy = sum(1 for worker in everybody if worker["issue_id"] is not None)
    busy_phrase = f", {busy} busy" if number == len(everybody) else ""
    more = f", page {first // count + 1} of {pages}" if pages > 1 else ""
    order = f", by {screen.order}" if screen.order else ""
    yield _rule(f"{title}{more}{busy_phrase}{order}{left_out(screen, part)}", width, screen, part)
    if not page:
        none = "none of them" if everybody else _nobody(snapshot)
        yield Row(width).add(f" {none}", style="muted").text()
    marked = screen.part is part and (marked or part in screen.chosen)
    id_room = id_columns(snapshot, width)
    paused = snapshot["state"] == "paused"
    for number, worker in enumerate(page, first):
        is_chosen, places = marked and number == at, snapshot.get("places", ())
        row = worker_row(
            worker, age, width, id_room, chosen=is_chosen, paused=paused, places=places
        )
        yield named(row, part, viewer.key_of(part, worker))


def left_out(screen: viewer.Screen, part: viewer.Part) -> str:
    """Return a phrase about the rows that the list leaves out."""
    state = f", {screen.states[part]} only" if screen.states.get(part) else ""
    find = screen.finds.get(viewer.PANES.get(part, viewer.Pane.FLEET), "")
    return f"{state}, with {find!r}" if find else state


def _rule(title: str, width: int, screen: viewer.Screen, part: viewer.Part | None = None) -> Text:
    focused = screen.pane is not viewer.Pane.FLEET or screen.part is part
    return rule(title, width, unicode=screen.unicode, focused=focused)


def _nobody(snapshot: viewer.Fields) -> str:
    if not snapshot["running"]:
        return "all have left"
    if snapshot["workers_peak"] and snapshot["uptime_seconds"] < STARTING_SECONDS:
        return "they are starting"
    return "none: 'scale N' or + starts some"


def outcomes(
    snapshot: viewer.Fields, screen: viewer.Screen, width: int, rows: int
) -> Iterator[Text]:
    """Yield a rule, and the last outcomes and warnings, the newest first.

    While the selection is in this list, or the list is filtered, it shows outcomes only, around
    the chosen one.
    """
    part, unicode = viewer.Part.ENDED, screen.unicode
    yield _rule(f"last outcomes{left_out(screen, part)}", width, screen, part)
    listed, waiting = viewer.rows_of(screen, snapshot, part), _waiting(snapshot)
    id_room = id_columns(snapshot, width)

    def row(outcome: viewer.Fields, *, chosen: bool = False) -> Text:
        waits = waiting.get(outcome["issue_id"], "") if outcome["decision"] == "land" else ""
        text = outcome_row(outcome, width, id_room, unicode=unicode, waits=waits, chosen=chosen)
        return named(text, part, viewer.key_of(part, outcome))

    rows = max(0, rows - 1)
    if screen.part is part or screen.finds.get(viewer.Pane.FLEET) or screen.states.get(part):
        at = viewer.chosen_at(screen, listed, part)
        first = max(0, at - rows + 1)
        for number, outcome in enumerate(listed[first : first + rows], first):
            yield row(outcome, chosen=screen.part is part and number == at)
        return
    drawn = [(each["at"], 0, -index, each) for index, each in enumerate(listed)]
    drawn += [(note["at"], 1, index, note) for index, note in enumerate(snapshot["notes"])]
    for _, is_note, _, what in nlargest(rows, drawn, key=lambda each: each[:3]):
        yield _note(what, width) if is_note else row(what)


def _waiting(snapshot: viewer.Fields) -> dict[str, str]:
    """Return what finished issues wait for, in words."""
    landing = snapshot["landing"]
    found = (
        {row["issue_id"]: "waits to land" for row in landing["waiting_to_land"]} if landing else {}
    )
    found |= {row["issue_id"]: REVIEW for row in landing["in_review"]} if landing else {}
    return found | {row["issue_id"]: AWAITS for row in snapshot["approvals"]}


LANDED_MARKS = {"landed": ("✓", "+", "good"), "mend": ("↻", "~", "attention")}
"""Marks as in ``MARKS``, for the lander's verdicts; all others are refusals."""


def landing(
    snapshot: viewer.Fields,
    screen: viewer.Screen,
    age: float,
    width: int,
    rows: int,
    only: str = "",
) -> Iterator[Text]:
    """Yield a rule, the running gates with their issues, and the last landings and refusals.

    ``only``: which of them are shown, in words.
    """
    shown = snapshot["landing"]
    age = age if snapshot["running"] else 0.0
    waits, refused = len(shown["waiting_to_land"]), len(shown["refused"])
    title = f"{shown['landed']} landed on {shown['branch'] or 'its branch'}"
    title += f", {waits} to land" if waits else ""
    reviews = viewer.reviews(shown)
    title += f", {len(reviews)} {REVIEW}" if reviews else ""
    title += f", {refused} {DID_NOT_LAND}" if refused else ""
    yield _rule(title + only, width, screen)
    gates = GATES_ROWS if rows >= LANDING_ROWS else 1
    running = shown["running"][:gates]
    for gate in running:
        yield _gate_row(gate, age, width)
    if not running:
        why = next(
            (str(c["text"]) for c in snapshot["degraded"] if c["condition"] == "landing"), ""
        )
        quiet = "nothing else to land" if refused or reviews else "nothing to land"
        text = why or ("they wait for a gate" if waits else quiet)
        yield Row(width).add(" ").fill(text, "attention" if why else "muted").text()
    yield from [Row(width).text()] * (gates - max(1, len(running)))
    room, rest = id_columns(snapshot, width), max(0, rows - 1 - gates)
    for row in [*reviews, *reversed(shown["last"])][:rest]:
        yield _landing_row(row, width, room, unicode=screen.unicode, chosen=False)


def _gate_row(gate: viewer.Fields, age: float, width: int) -> Text:
    row = Row(width).add(f" gate {gate['lane'] + 1}", 9, "muted")
    _add_time(row, gate["seconds"] + age, width, runs=True)
    issues = gate["issues"]
    if not issues:
        return row.fill("the branch as it is", "muted").text()
    train = f"  (a train of {len(issues)})" if len(issues) > 1 else ""
    text = " ".join(issues)
    fits = min(columns(text), max(0, row.room - len(train)))
    return row.add(text, fits, "strong").fill(train, "muted").text()


def _landed_row(
    landed: viewer.Fields, width: int, id_room: int, *, unicode: bool, chosen: bool = False
) -> Text:
    mark, ascii_mark, style = LANDED_MARKS.get(landed["verdict"], ("✗", "x", "bad"))
    row = Row(width, CHOSEN if chosen else "")
    row.add(" ").add(*_clock(landed["at"], width), "muted")
    row.add(mark if unicode else ascii_mark, 2, f"{style}.strong")
    row.add(short_id(landed["issue_id"], id_room), id_room, "strong").add(" ")
    if landed["verdict"] == "landed":
        return row.add(landed["commit"][:12], 14, "muted").fill(landed["title"]).text()
    then = {"mend": "back to its agent", "quarantined": "quarantined"}
    became = then.get(landed["verdict"], "requeued")
    return row.fill(f"{became}: {landed['error']}", style).text()


def landing_pane(
    snapshot: viewer.Fields, screen: viewer.Screen, age: float, width: int, rows: int
) -> Iterator[Text]:
    """Yield the running gates, then waiting, refused and landed issues around the chosen one."""
    if (shown := snapshot["landing"]) is None:
        yield _rule("landing", width, screen)
        yield Row(width).add(" nothing lands here: start --land", style="muted").text()
        return
    part, id_room = viewer.Part.LANDING, id_columns(snapshot, width)
    gates = max(1, min(len(shown["running"]), rows // 3))
    nothing_last = {**snapshot, "landing": {**shown, "last": []}}
    yield from landing(nothing_last, screen, age, width, gates + 1, only=left_out(screen, part))
    listed = viewer.rows_of(screen, snapshot, part)
    if not listed and screen.find + screen.states.get(part, ""):
        yield Row(width).add(" none of them", style="muted").text()
    at, room = viewer.chosen_at(screen, listed, part), max(0, rows - 1 - gates)
    first = max(0, at - room + 1)
    for number, each in enumerate(listed[first : first + room], first):
        row = _landing_row(each, width, id_room, unicode=screen.unicode, chosen=number == at)
        yield named(row, part, viewer.key_of(part, each))


def _landing_row(
    each: viewer.Fields, width: int, id_room: int, *, unicode: bool, chosen: bool
) -> Text:
    """Return a row of a branch: of one that waits, a word instead of time and mark."""
    if each["verdict"] not in (viewer.WAITS, viewer.REFUSED, viewer.IN_REVIEW):
        return _landed_row(each, width, id_room, unicode=unicode, chosen=chosen)
    waits, room = each["verdict"] != viewer.REFUSED, _clock(0.0, width)[1]
    row = Row(width, CHOSEN if chosen else "").add(" ")
    if waits:
        row.add(each["verdict"], room + 2, "time")
    else:
        row.add(_clock(each["at"], width)[0] if each["at"] else "", room, "muted").add(
            "✗" if unicode else "x", 2, "bad.strong"
        )
    row.add(short_id(each["issue_id"], id_room), id_room, "strong").add(" ")
    if waits:
        return row.fill(each["title"]).text()
    return row.fill(f"quarantined: {each['error']} ({each['branch']})", "bad").text()


DOING_COLUMNS_MIN = 12
ATTEMPT_ROWS = 3
"""Rows above the log of an attempt: its name, its title, and its progress."""


def attempt(
    snapshot: viewer.Fields, screen: viewer.Screen, age: float, width: int, rows: int
) -> Iterator[Text]:
    """Yield a rule, the activity and cost of the chosen attempt, and the end of its log."""
    shown, log = viewer.shown_attempt(screen, snapshot), screen.log
    if shown is None:
        yield _rule(log.title if log else "no attempt", width, screen)
        return
    yield _rule(shown.title, width, screen)
    title = shown.row["error"] if shown.worker_id == "" else shown.row["title"]
    yield Row(width).add(" ").fill(title or "", "strong").text()
    yield _facts(shown, snapshot, screen, age if snapshot["running"] else 0.0, width)
    yield from _text(screen, width, rows - ATTEMPT_ROWS)


# --- one attempt ---

OPENED_ROWS = 3
"""Rows above the text of an open attempt: its name, its facts, and what happens now."""
SECTIONS = ((viewer.Pane.LOG, "log"), (viewer.Pane.DIFF, "d diff"), (viewer.Pane.ABOUT, "y why"))
PLACE_COLUMNS = 30
TIMES_COLUMNS = 9


def opened(
    snapshot: viewer.Fields, screen: viewer.Screen, age: float, width: int, rows: int
) -> Iterator[Text]:
    """Yield the open attempt: its name and sections, its facts, what happens now, and a text.

    On the full screen there is one row above the text.
    """
    shown = viewer.shown_attempt(screen, snapshot)
    if shown is None:
        yield _rule("no attempt is open", width, screen)
        return
    room = rows - opened_rows(screen)
    place = _place(shown, screen, room)
    yield _name_row(shown, screen, width, place)
    if not screen.full:
        yield _facts(shown, snapshot, screen, age if snapshot["running"] else 0.0, width)
        yield _now_row(shown, snapshot, screen, width, place)
    yield from _text(screen, width, room)


def opened_rows(screen: viewer.Screen) -> int:
    """Return the number of rows above the text of an open attempt."""
    return 1 if screen.full else OPENED_ROWS


def text_columns(screen: viewer.Screen, width: int) -> int:
    """Return the columns of a row of the text of an open attempt."""
    return max(1, width - 1 - (TIMES_COLUMNS if _shows_times(screen) else 0))


def _shows_times(screen: viewer.Screen) -> bool:
    return screen.times and screen.pane is viewer.Pane.LOG


def _name_row(shown: viewer.ShownAttempt, screen: viewer.Screen, width: int, seen: str) -> Text:
    """Return the rule with the attempt's name and title; at its right, what else there is."""
    line = "─" if screen.unicode else "-"
    place = screen.view.place if screen.view is not None else ""
    if place:
        count = f"{shown.attempt} of "  # Those of one run have the same number and place.
        place = f" {place[len(count) - 3 :]}" if place.startswith(count) else f" ({place})"
    title = (screen.view.title if screen.view is not None else "") or shown.row.get("title") or ""
    about = shown.title + place
    if screen.full:
        ends = [(seen, _place_style(seen)), ("f back", "muted")]
    else:
        ends = [(text, "strong" if pane is screen.pane else "muted") for pane, text in SECTIONS]
    taken = sum(columns(text) + 2 for text, _ in ends) + 2
    row = Row(width).add(f"{line * 2} ")
    row.add(about, min(columns(about), max(0, row.room - taken)), "strong")
    row.add(f": {title}" if title else "", max(0, min(columns(title) + 2, row.room - taken - 2)))
    row.add(" ").add(line * max(0, row.room - taken + 2))
    for text, style in ends:
        row.add("  ").add(text, style=style)
    return row.text()


def _now_row(
    shown: viewer.ShownAttempt,
    snapshot: viewer.Fields,
    screen: viewer.Screen,
    width: int,
    place: str,
) -> Text:
    """Return what became of the issue, what a person can do, and which part of the text is seen."""
    pin, morning = screen.opened, screen.role is viewer.Role.MORNING
    keyed = morning or (screen.role in bindings.LIVE and snapshot["running"])
    landing = screen.view.landing if screen.view is not None else None
    landed = landing.commit if landing is not None else ""
    can = actions(shown.issue_id, snapshot) if keyed else ()
    keys = ", ".join(f"{each.key} {each.label}" for each in can)
    over = pin is not None and not shown.running
    said = now(pin, snapshot, landed, keys) if pin is not None and over else keys
    row = Row(width).add(" ")
    row.fill(said, "attention" if can and over else "muted", leave=columns(place) + 3)
    return row.add("  ").add(place, style=_place_style(place)).text()


FOLLOWED = "following"


def _place_style(place: str) -> str:
    return "time" if place.endswith(FOLLOWED) else "muted"


def _place(shown: viewer.ShownAttempt, screen: viewer.Screen, room: int) -> str:
    """Return whether the end of the text is followed, or which line is seen; and the search."""
    if (log := screen.log) is None or not log.lines:
        return ""
    most = log.line_of(log.end)
    if screen.log_end is None and screen.pane is viewer.Pane.LOG and shown.running:
        at = FOLLOWED
    elif screen.log_end is None or len(log.lines) <= room:
        at = counted(most, "line")
    else:
        at = f"line {log.line_of(max(screen.log_end, log.first + room))} of {most}"
    return f"/ {printable(screen.log_find, PLACE_COLUMNS)}, {at}" if screen.log_find else at


DIFF_STYLES = {"+": "good", "-": "bad", "@": "time", "d": "strong"}
"""First character of a line of a diff -> its style; ``d`` of ``diff --git``."""

LOG_STYLES = {"  ! ": "bad", "failed: ": "bad", "  | ": "muted"}
"""Beginning of a line of a log -> its style: what failed, and what tools printed."""

_FILE_NAME = re.compile(r"(---|\+\+\+) ([ab]/|/dev/null)")


def _text(screen: viewer.Screen, width: int, room: int) -> Iterator[Text]:
    """Yield the rows of a log or another text: its end, or the place to which it is scrolled."""
    if (log := screen.log) is None or room <= 0:
        return
    end = len(log.lines) if screen.log_end is None else max(0, screen.log_end - log.first)
    end = min(max(end, room), len(log.lines))
    times = log.times if _shows_times(screen) else ()
    about = screen.opened.issue_id if screen.opened is not None else ""
    commented = {log.row_of(each.line + 1) - 1 for each in screen.comments.get(about, ())}
    commented = commented if screen.pane is viewer.Pane.DIFF else set()
    for number in range(max(0, end - room), end):
        line = log.lines[number]
        row = Row(width, CHOSEN if screen.log_found == log.first + number else "")
        row.add(*(("*", None, "attention") if log.first + number in commented else (" ",)))
        if times:
            row.add(times[number], TIMES_COLUMNS, "muted")
        text = row.fill(line, _line_style(screen, line)).text()
        if screen.log_find and viewer.found_in(screen.log_find, line) >= 0:
            text.highlight_words(
                [screen.log_find], "found", case_sensitive=not screen.log_find.islower()
            )
        yield text
    if not log.lines:
        yield Row(width).add(" ").fill(log.title, "muted").text()


def sentences(sections: Iterable[tuple[str, list[str]]], width: int) -> Iterator[str]:
    """Yield headings and the lines below each, as rows of about ``width`` columns."""
    for number, (heading, lines) in enumerate(sections):
        yield from ["", heading] if number else [heading]
        for line in lines:
            text = line.lstrip()
            indent = " " * (2 + len(line) - len(text))
            yield from textwrap.wrap(
                text, max(20, width), initial_indent=indent, subsequent_indent=f"{indent}  "
            ) or [""]


def _line_style(screen: viewer.Screen, line: str) -> str:
    if screen.pane is viewer.Pane.DIFF:
        return "muted" if _FILE_NAME.match(line) else DIFF_STYLES.get(line[:1], "")
    if screen.pane is viewer.Pane.LOG:
        return next((style for mark, style in LOG_STYLES.items() if line.startswith(mark)), "")
    return "strong" if screen.pane is viewer.Pane.ABOUT and line[:1].strip() else ""


_DIFFSTAT = (
    (r" changed\b", ""),
    (r", (\d+) insertions?\(\+\)", r" +\1"),
    (r",? (\d+) deletions?\(-\)", r" -\1"),
)


def short_diffstat(diffstat: str) -> str:
    """Return ``3 files +41 -7`` for git's longer text; all other parts are kept."""
    for long, short in _DIFFSTAT:
        diffstat = re.sub(long, short, diffstat)
    return diffstat


def _facts(
    shown: viewer.ShownAttempt,
    snapshot: viewer.Fields,
    screen: viewer.Screen,
    age: float,
    width: int,
) -> Text:
    """Return a row with duration, wall clock, agent, activity, cost and changes."""
    fields, row = shown.row, Row(width)
    if shown.running:
        row.add(elapsed(fields["elapsed_seconds"] + age), TOOK_COLUMNS, "time", right=True)
        if (now := wall_clock(snapshot, 0.0)) is not None and width >= NARROW_COLUMNS:
            row.add(
                f" since {clock(now - fields['elapsed_seconds'], now, seconds=False)}",
                style="muted",
            )
        row.add("  ")
    elif shown.worker_id:
        mark, style, kind = _mark(fields, unicode=screen.unicode)
        row.add(" ").add(mark, 2, f"{style}.strong").add(duration(fields["seconds"]), style="time")
        if width >= NARROW_COLUMNS:
            row.add(f" to {clock(fields['at'], seconds=False)}", style="muted")
        row.add("  ")
        if kind not in ("finish", "land"):
            again = (
                screen.in_attempt and screen.view is not None and screen.view.step(1) is not None
            )
            word = OUTCOME_WORDS.get(fields["outcome"], fields["outcome"])
            then = "asked, and went on" if kind == "asked" else f"{word}, tried again"
            text = ": ".join(filter(None, [then, fields["error"]])) if again else ended_text(fields)
            if not again and columns(text) > row.room:
                text = ended_text(fields, short=True)
            row.add(f"{text}  ", style=style)
    agent = fields.get("escalated") or fields.get("agent")
    if agent is not None and columns(agent) <= row.room:
        row.add(agent, style="agent").add("  ")
    progress = fields.get("progress")
    doing = fields.get("activity") or (progress["activity"] if progress else "")
    percent = f"{progress['percent']}% " if progress and progress["percent"] is not None else ""
    cost = used(fields.get("tokens"), fields.get("money_usd"))
    changes = short_diffstat(fields.get("diffstat") or (screen.log.changes if screen.log else ""))
    parts = [each for each in (cost, changes) if each]
    while parts and columns("  ".join(parts)) > row.room - 2:
        parts.pop()
    spent = "  ".join(parts)
    does = percent + doing
    row.add(does, min(columns(does), max(DOING_COLUMNS_MIN, row.room - columns(spent) - 2)), "good")
    return row.add("  ").fill(spent, "muted").text()


def decisions(
    snapshot: viewer.Fields, screen: viewer.Screen, width: int, rows: int
) -> Iterator[Text]:
    """Yield a rule, what waits for a person's decision, and below it all about the chosen one."""
    part = viewer.Part.DECISIONS
    listed = viewer.rows_of(screen, snapshot, part)
    yield _rule(f"to decide: {len(listed)}{left_out(screen, part)}", width, screen, part)
    if not listed:
        text = (
            "none of them"
            if screen.find
            else "nothing waits for you"
            if screen.role is viewer.Role.MORNING
            else "no question is open, and no branch awaits approval"
        )
        yield Row(width).add(f" {text}", style="muted").text()
        return
    at, id_room = viewer.chosen_at(screen, listed, part), id_columns(snapshot, width)
    room = max(1, min(len(listed), rows // 2 - 1))
    first = max(0, at - room + 1)
    for index, each in enumerate(listed[first : first + room], first):
        row = Row(width, CHOSEN if index == at else "").add(" ")
        row.add(short_id(each["issue_id"], id_room), id_room, "strong").add(" ")
        row.add(_to_do(each), 12, "attention")
        if "issue_ids" in each:
            text = f"{len(each['issue_ids'])} x {each['error']}"
        else:
            text = ": ".join(filter(None, (each["title"], each.get("error"))))
        yield named(row.fill(text).text(), part, viewer.key_of(part, each))
    chosen = listed[at]
    many = f"{len(chosen['issue_ids'])} issues of one cause" if "issue_ids" in chosen else ""
    yield _rule(many or chosen["title"] or chosen["issue_id"], width, screen, part)
    for text, style in _about(chosen):
        for line in text.splitlines():
            for words in textwrap.wrap(printable(line), width - 2) or [""]:
                for chunk in chop_cells(words, width - 2):
                    yield Row(width).add(" ").fill(chunk, style).text()


def _to_do(row: viewer.Fields) -> str:
    if "merge" in row:
        return "to merge"
    if "commit" in row:
        return "to approve"
    return "asks" if "question" in row else "quarantined"


def _about(row: viewer.Fields) -> Iterator[tuple[str, str]]:
    """Yield texts about what waits for a person, each with its style."""
    if "merge" in row:
        yield "what has landed is not in your branch yet", ""
        yield "M merges it", "muted"
        return
    if "error" in row:
        yield row["error"], "bad"
        yield " ".join(row.get("issue_ids", ())), "muted"
        keys = "e its issues, r tries them again" if "issue_ids" in row else "r tries it again"
        yield f"{keys}, C closes as not needed, Enter shows the log", "muted"
        return
    if "question" in row:
        by = f"{row['agent']} asks" if row["agent"] else "the agent asks"
        yield f"{by}; i answers, Enter shows its log", "muted"
        yield row["question"], ""
        return
    verified = "verified" if row["verified"] else "not verified"
    verified = row["gate"]["text"] if row["gate"] else verified
    by = f" by {row['agent']}" if row["agent"] else ""
    yield f"{row['commit'][:SHA_CHARS]} on {row['branch']}{by}, {verified}", "strong"
    yield row["diffstat"], ""
    yield row["message"], ""
    yield "v approves, V rejects, d shows the change", "muted"


def keys(screen: viewer.Screen, width: int) -> Iterator[Text]:
    """Yield a rule, and the meaning of each key."""
    yield _rule("keys", width, screen)
    own = [(key, f"runs: {printable(text)}") for key, text in screen.own_keys.items()]
    for key, meaning in [*own, *bindings.help_lines(screen.role)][screen.top :]:
        yield Row(width).add(" ").add(key, 9, "strong").fill(meaning).text()


def hints(snapshot: viewer.Fields, screen: viewer.Screen, width: int) -> str:
    """Return the last row: the keys that are useful here, as many as fit."""
    pause = "resume" if snapshot["state"] in bindings.RESUMED else "pause"
    # What waits for a person comes first: a narrow row has no room for all.
    fleet = "Enter open   2 landing   5 issues   Tab other list"
    if snapshot["queue"]["quarantined"]:
        fleet = f"3 quarantined   {fleet}"
    if viewer.rows_of(viewer.Screen(), snapshot, viewer.Part.DECISIONS):
        fleet = f"4 to decide   {fleet}"
    match screen.pane:
        case viewer.Pane.LOG:
            hint = "[ ] attempts   / find   w wrap   f full   g G ends   T times   S save"
        case viewer.Pane.DIFF:
            shown = [row["issue_id"] for row in snapshot["approvals"]]
            keyed = "c comment   " if bindings.pin_name(screen) in shown else ""
            hint = f"{keyed}[ ] attempts   / find   w wrap   f full   g G ends   S save"
        case viewer.Pane.ABOUT:
            hint = "[ ] attempts   / find   f full   g G ends   S save"
        case viewer.Pane.QUARANTINE:
            hint = "Enter open   r try again   e its issues   a all   d diff   / filter"
        case viewer.Pane.ISSUES:
            hint = "Enter open   f states   s sort   r try again   e its issues   u ask   / filter"
        case viewer.Pane.DECISIONS:
            keyed = "i answer   v approve   V reject   " if screen.role in bindings.DECIDES else ""
            more = "r retry   C close   M merge   " if screen.role is viewer.Role.MORNING else ""
            hint = f"{keyed}{more}Enter open   d diff"
        case viewer.Pane.LANDING:
            hint = "Enter open   d diff   f landed, not, waiting   / filter"
        case viewer.Pane.HELP | viewer.Pane.PAGE:
            hint = ""
        case _ if screen.role is viewer.Role.REPLAY:
            hint = f"space hold   + - speed   {fleet}   / filter"
        case _:
            hint = f"{fleet}   p {pause}   + - workers   x release   / filter   f states   s sort"
    last = "   ? help   q leave" if screen.pane is viewer.Pane.FLEET else "   ? help   q back"
    while hint and columns(hint + last) > width - 2:
        hint = hint.rpartition("   ")[0]
    return (hint + last).strip()


def _note(note: viewer.Fields, width: int) -> Text:
    style = {"warning": "attention", "error": "bad"}.get(note["level"], "muted")
    row = Row(width).add(" ").add(*_clock(note["at"], width), "muted")
    return row.add("  ").add(note["level"], 8, style).fill(note["text"], style).text()
