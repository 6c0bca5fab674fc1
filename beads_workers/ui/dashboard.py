"""The dashboard: one pure function from a snapshot to what is drawn."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import pairwise
from typing import Any

from rich.console import Group
from rich.text import Text

from beads_workers.core.text import columns, counted, printable
from beads_workers.ui.agents import account, spent, used
from beads_workers.ui.lines import NOT_CHARGED, next_try
from beads_workers.ui.viewer import Look, Pane, Role, chosen_worker

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


# --- rows ----------------------------------------------------------------------------------------
# The rows of the dashboard: each exactly as wide as it is told, whatever stands in it.
#
# Nothing wraps and nothing jumps: a cell has its width, and what is too long ends in an ellipsis.


Fields = Mapping[str, Any]

MARKS = {
    "finish": ("✓", "+", "green"),
    "land": ("✓", "+", "green"),
    "requeue": ("↻", "~", "yellow"),
    "quarantined": ("✗", "x", "red"),
    "hand_back": ("✗", "x", "red"),
    "cancelled": ("↩", "<", "dim"),
}
"""Verdict -> mark, the same in ASCII, style. The words stand beside it: colour is never alone."""

_AMBIGUOUS = dict.fromkeys((0x200D, 0xFE0E, 0xFE0F))
"""What joins emoji, or says how to draw one: terminals differ in how wide the result is."""

WORKER_STYLES = {"busy": "", "idle": "dim", "starting": "cyan", "stopping": "magenta"}


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
        state = "paused" if worker.get("paused") is not None else worker["state"]
        row.add(state, 10, WORKER_STYLES.get(state, ""))
        row.fill("" if worker["own"] else "not started by this fleet", "dim", leave=room)
    else:
        row.add(whole_seconds(worker["elapsed_seconds"] + age), 8, "cyan", right=True).add("  ")
        row.add(worker["issue_id"], _id_width(width), "bold").add(" ")
        if worker["attempt"] > 1:
            row.add(f"try {worker['attempt']}: ", style="yellow")
        if worker["agent"]:
            _agent_cells(row, worker, room, width)
        else:
            if progress := worker["progress"]:
                _progress_cells(row, progress, room)
            row.fill(worker["title"] or "", leave=room)
    words = (" done", " failed") if width >= 100 else (" ok", " bad")
    row.add(f"{worker['done']}{words[0]}", room // 2, "dim", right=True)
    failed = f"{worker['failed']}{words[1]}" if worker["failed"] else ""
    return row.add(failed, room // 2, "dim", right=True).text()


def _progress_cells(row: Row, progress: Fields, leave: int) -> None:
    percent = progress["percent"]
    row.add("" if percent is None else f"{percent}%", 4, "green", right=True).add(" ")
    row.add(progress["activity"], (row.room - leave) * 3 // 5, "dim").add(" ")


TITLE_BESIDE_COLUMNS = 50
"""With so much room the title of an issue stands beside what its agent does."""


def _agent_cells(row: Row, worker: Fields, leave: int, width: int) -> None:
    """Who works, what it does now (before that: the title), and what that has cost."""
    row.add(worker["agent"], 8 if width >= 100 else 7, "magenta")
    cost, cost_columns = used(worker["tokens"], worker["money"]), 19
    if width < 100:
        cost, cost_columns = cost.replace(" tok", ""), 13
    room = row.room - leave - cost_columns
    doing = worker["activity"] or ""
    if doing and room >= TITLE_BESIDE_COLUMNS:
        row.add(doing, room * 3 // 5, "green").add(" ")
        doing = ""
    row.fill(doing or worker["title"] or "", "green" if doing else "", leave=leave + cost_columns)
    row.add(cost, cost_columns, "dim", right=True)


def outcome_row(outcome: Fields, width: int, *, unicode: bool, waits: bool = False) -> Text:
    """One attempt that ended: when, which, by whom, how long, and why it was no success; or that
    its work ``waits`` to land."""
    kind = "cancelled" if outcome["outcome"] == "cancelled" else outcome["verdict"]
    mark, ascii_mark, style = MARKS[kind]
    row = Row(width)
    row.add(" ").add(time.strftime("%H:%M:%S", time.localtime(outcome["at"])), 9, "dim")
    row.add(mark if unicode else ascii_mark, 2, style)
    row.add(outcome["issue_id"], _id_width(width), "bold").add(" ")
    row.add(outcome["worker_id"], 5, "dim")
    row.add(duration(outcome["seconds"]), 8, "cyan", right=True).add("  ")
    if kind in ("finish", "land"):
        row.add("waits to land: " if waits else "", style="cyan")
        return row.fill(outcome["title"]).text()
    return row.fill(f"{_became(outcome)}: {outcome['error'] or outcome['outcome']}", style).text()


def _became(outcome: Fields) -> str:
    if outcome["outcome"] == "cancelled":
        return "requeued"
    if outcome["verdict"] == "quarantined":
        return f"quarantined after {counted(outcome['attempt'], 'try', 'tries')}"
    if outcome["verdict"] == "hand_back":
        return f"{outcome['outcome']}, handed back"
    wait = outcome["retry_in_seconds"]
    then = next_try(duration(wait) if wait else "", charged=outcome["charged"])
    return then if then == NOT_CHARGED else f"{outcome['outcome']}, {then}"


def _id_width(width: int) -> int:
    return 12 if width < 100 else 18


# --- head ----------------------------------------------------------------------------------------
# The four rows at the top: the fleet, how far it is, what waits, and what the tracker does.


ROWS = 4
TALL_ROWS = 30
"""From here on there is room for more than one row of what is seldom news."""
AGENTS_ROWS_MAX = 3
ACCOUNT_STYLES = {
    "available": "dim",
    "limited": "yellow",
    "backing_off": "yellow",
    "needs_person": "bold red",
}
QUEUE_COLUMNS = 120
"""The whole row of the queue needs so many; below that it is said shorter."""

RUN_STYLES = {
    "running": "bold green",
    "paused": "bold yellow",
    "draining": "bold cyan",
    "stopping": "bold magenta",
    "ended": "bold",
}


def head(snapshot: Fields, look: Look, age: float, columns: int) -> Iterator[Text]:
    """``ROWS`` rows."""
    yield _fleet(snapshot, look, age, columns)
    yield _progress(snapshot, look, age, columns)
    yield _queue(snapshot, age, columns)
    yield _tracker(snapshot, age, columns)


def agents_rows(snapshot: Fields, rows: int) -> int:
    """How many rows agents and money take: known from the start of a run."""
    most = 1 if rows < TALL_ROWS else AGENTS_ROWS_MAX
    return min(len(snapshot["accounts"]), most)


def agents(snapshot: Fields, age: float, columns: int, rows: int) -> Iterator[Text]:
    """Accounts, the closed ones first, and what has been spent."""
    room = agents_rows(snapshot, rows)
    age = age if snapshot["running"] else 0.0
    accounts = sorted(snapshot["accounts"], key=lambda each: each["state"] == "available")
    money = snapshot["money"]
    for index in range(room):
        # What has no row of its own stands behind the others.
        here = accounts[index:] if index == room - 1 else accounts[index : index + 1]
        said = "; ".join(account(each, age, advice=len(here) == 1) for each in here)
        row = Row(columns).add(" agents  " if index == 0 else "         ")
        cost = f"  {spent(money)}" if money and index == 0 else ""
        if cost and len(said) + len(cost) > row.room:
            cost = f"  {spent(money, short=True)}"
        row.fill(said, ACCOUNT_STYLES[here[0]["state"]], leave=min(len(cost), columns // 2))
        yield row.add(cost, style="bold").text()


def _fleet(snapshot: Fields, look: Look, age: float, columns: int) -> Text:
    running = snapshot["running"]
    age = age if running else 0.0
    state = snapshot["state"] if running else "ended"
    role = " replay" if look.role is Role.REPLAY else ""
    up = f" up {whole_seconds(snapshot['uptime_seconds'] + age)} "
    row = Row(columns, "on default").add(" beads-workers", style="bold").add(role, style="cyan")
    project = (snapshot["project"] or "").rstrip("/").rpartition("/")[2]
    row.add("  ").fill(
        f"{project}  {snapshot['source'] or ''}  {snapshot['run_id'] or ''}",
        "dim",
        leave=len(state) + 2 + 14,
    )
    row.add(f"  {state}", style=RUN_STYLES.get(state, "bold"))
    return row.fill(up.rjust(row.room)).text()


def _progress(snapshot: Fields, look: Look, age: float, columns: int) -> Text:
    queue, done = snapshot["queue"], snapshot["totals"]["done"]
    left = sum(queue[key] for key in ("ready", "running", "retrying", "blocked", "unclosed"))
    left += queue["unlanded"]
    whole = done + left + queue["quarantined"]
    row = Row(columns).add(" ")
    row.add(bar(done / whole if whole else 0.0, columns // 5, unicode=look.unicode), style="green")
    more = "+" if queue["ready_more"] else ""
    # Room for the numbers of most runs from the start: what is beside them does not move.
    digits = max(3, len(str(whole)))
    row.add(f"  {done}/{whole}{more} closed", 12 + 2 * digits, "bold")
    row.add(f"  {snapshot['rate_per_minute']:.1f}/min", 13)
    eta = snapshot["eta_seconds"]
    eta = None if eta is None or not snapshot["running"] else eta - age
    row.add(f"{whole_seconds(eta)} left" if eta is not None else "", 14)
    done_over_time = snapshot["throughput"]["done"]
    return (
        row.add(" ")
        .fill(sparkline(done_over_time, row.room - 1, unicode=look.unicode), "cyan")
        .text()
    )


def _queue(snapshot: Fields, age: float, columns: int) -> Text:
    queue = snapshot["queue"]
    row = (
        Row(columns)
        .add(" ready ")
        .add(f"{queue['ready']}{'+' if queue['ready_more'] else ''}", 5, "bold")
    )
    if columns >= QUEUE_COLUMNS:
        by_priority = "  ".join(f"P{p} {count}" for p, count in enumerate(queue["by_priority"]))
        row.add(by_priority, 34, "dim")
    else:
        row.add(f"P0-4: {' '.join(map(str, queue['by_priority']))}", 21, "dim")
    row.add(" running ").add(str(queue["running"]), 4, "bold")
    row.add("blocked ").add(str(queue["blocked"]), 4, "bold")
    row.add("retry ").add(str(queue["retrying"]), 3, "bold")
    due = queue["next_retry_seconds"]
    if columns >= QUEUE_COLUMNS:
        row.add(f"in {whole_seconds(due - age)}" if due is not None else "", 12, "dim")
    style = "bold red" if queue["quarantined"] else "bold"
    row.add("quar. " if columns < QUEUE_COLUMNS else "quarantined ").add(
        str(queue["quarantined"]), 4, style
    )
    if columns >= QUEUE_COLUMNS:
        row.add("unclosed ").add(str(queue["unclosed"]), 4, "bold")
        if snapshot["landing"]:
            row.add("to land ").add(str(queue["unlanded"]), 4, "bold")
    return row.text()


def _tracker(snapshot: Fields, age: float, columns: int) -> Text:
    calls, source = snapshot["source_calls"], snapshot["source_state"]
    row = Row(columns).add(" tracker ")
    if source["state"] != "ok":
        since = duration(source["since_seconds"] + age)
        again = whole_seconds(source["retry_in_seconds"] - age)
        row.add(f"{source['state'].replace('_', ' ')} for {since}, again in {again}: ", style="red")
        return row.fill(source["error"] or "", "red").text()
    now = calls["now"]
    doing = f"{now} ({whole_seconds(calls['now_seconds'] + age)})" if now else "waits"
    row.add(doing, 36 if columns < QUEUE_COLUMNS else 46, "cyan" if now else "dim")
    typical = calls["typical_seconds"]
    each = f", {fine(typical)} each" if typical is not None else ""
    per_done = f", {calls['per_done']:.2f} an issue" if calls["per_done"] is not None else ""
    return row.fill(f"{calls['count']} calls{each}{per_done}", "dim").text()


# --- panes ---------------------------------------------------------------------------------------
# What fills the middle: workers, outcomes, what lands, a log, what is quarantined, the keys.


LANDING_ROWS = 7
LANDING_ROWS_MIN = 3
GATES_ROWS = 2
"""What lands has its place from the first look at the branch on, whatever happens there."""

STARTING_SECONDS = 5.0
"""A fleet that has no worker by then has none on purpose."""

KEYS = (
    ("arrows, page keys", "choose a worker; pages of workers"),
    ("l or Enter", "follow the log of the chosen worker"),
    ("p", "pause, and resume"),
    ("+  -", "one worker more, one less (a busy one finishes its task first)"),
    ("r", "what was quarantined, with the reasons; Enter tries one again, a all"),
    ("k", "release the chosen worker's issue (asks first)"),
    ("q", "leave; where the fleet was started: stop, drain, or leave it in the background"),
    ("Escape", "back to the workers"),
    ("Ctrl-C", "where the fleet was started: stop it; twice: now"),
)
KEYS_OF_REPLAY = (
    ("arrows, page keys", "choose a worker; pages of workers"),
    ("space", "hold, and go on"),
    ("+  -", "twice as fast, half as fast"),
    ("q", "leave"),
)


def workers(snapshot: Fields, look: Look, age: float, width: int, count: int) -> Iterator[Text]:
    """A rule, and the page of workers that the chosen one is on."""
    all_workers = snapshot["workers"]
    age = age if snapshot["running"] else 0.0
    chosen = chosen_worker(look, snapshot)
    at = all_workers.index(chosen) if chosen is not None else 0
    first = at // count * count
    page = all_workers[first : first + count]
    pages = -(-len(all_workers) // count)
    title = f"workers {first + 1}-{first + len(page)} of {len(all_workers)}" if page else "workers"
    busy = sum(1 for worker in all_workers if worker["issue_id"] is not None)
    more = f", page {first // count + 1} of {pages}" if pages > 1 else ""
    yield rule(f"{title}{more}, {busy} busy", width, look)
    if not page:
        yield Row(width).add(f" {_nobody(snapshot)}", style="dim").text()
    for worker in page:
        marked = look.chosen is not None and worker is chosen
        yield worker_row(worker, age, width, chosen=marked)


def _nobody(snapshot: Fields) -> str:
    if not snapshot["running"]:
        return "all have left"
    if snapshot["workers_most"] and snapshot["uptime_seconds"] < STARTING_SECONDS:
        return "they are starting"
    return "none: 'scale N' or + starts some"


def outcomes(snapshot: Fields, look: Look, width: int, rows: int) -> Iterator[Text]:
    """A rule, and the last outcomes and warnings, the newest first."""
    yield rule("last outcomes", width, look)
    drawn = [
        (outcome["at"], 0, index, outcome) for index, outcome in enumerate(snapshot["outcomes"])
    ]
    drawn += [(note["at"], 1, index, note) for index, note in enumerate(snapshot["recent"])]
    waiting = _waiting_to_land(snapshot)
    for _, is_note, _, what in nlargest(max(0, rows - 1), drawn, key=lambda row: row[:3]):
        if is_note:
            yield _note(what, width)
        else:
            waits = what["verdict"] == "land" and what["issue_id"] in waiting
            yield outcome_row(what, width, unicode=look.unicode, waits=waits)


def _waiting_to_land(snapshot: Fields) -> set[str]:
    landing = snapshot["landing"]
    return {row["issue_id"] for row in landing["waiting"]} if landing else set()


LANDED_MARKS = {"landed": ("✓", "+", "green"), "mend": ("↻", "~", "yellow")}
"""As ``MARKS``, for what the lander says; all else is a refusal."""


def landing(snapshot: Fields, look: Look, age: float, width: int, rows: int) -> Iterator[Text]:
    """A rule, the gates that run with the issues in them, and the last landings and refusals."""
    shown = snapshot["landing"]
    age = age if snapshot["running"] else 0.0
    waits = len(shown["waiting"])
    said = f"{shown['landed']} landed on {shown['branch'] or 'its branch'}"
    yield rule(f"{said}, {waits} to land" if waits else said, width, look)
    gates = GATES_ROWS if rows >= LANDING_ROWS else 1
    running = shown["running"][:gates]
    for gate in running:
        yield _gate_row(gate, age, width)
    if not running:
        why = _landing_trouble(snapshot)
        text = why or ("they wait for a gate" if waits else "nothing is to land")
        yield Row(width).add(" ").fill(text, "yellow" if why else "dim").text()
    yield from [Row(width).text()] * (gates - max(1, len(running)))
    for said in list(reversed(shown["last"]))[: max(0, rows - 1 - gates)]:
        yield _landed_row(said, width, unicode=look.unicode)


def _landing_trouble(snapshot: Fields) -> str:
    return next((str(c["text"]) for c in snapshot["degraded"] if c["what"] == "landing"), "")


def _gate_row(gate: Fields, age: float, width: int) -> Text:
    row = Row(width).add(f" gate {gate['lane'] + 1}", 9, "dim")
    row.add(whole_seconds(gate["seconds"] + age), 8, "cyan", right=True).add("  ")
    issues = gate["issues"]
    if not issues:
        return row.fill("the branch as it is", "dim").text()
    train = f"  (a train of {len(issues)})" if len(issues) > 1 else ""
    text = " ".join(issues)
    fits = min(columns(text), max(0, row.room - len(train)))
    return row.add(text, fits, "bold").fill(train, "dim").text()


def _landed_row(said: Fields, width: int, *, unicode: bool) -> Text:
    mark, ascii_mark, style = LANDED_MARKS.get(said["verdict"], ("✗", "x", "red"))
    row = Row(width)
    row.add(" ").add(time.strftime("%H:%M:%S", time.localtime(said["at"])), 9, "dim")
    row.add(mark if unicode else ascii_mark, 2, style)
    row.add(said["issue_id"], _id_width(width), "bold").add(" ")
    if said["verdict"] == "landed":
        return row.add(said["commit"][:12], 14, "dim").fill(said["title"]).text()
    then = {"mend": "back to its agent", "quarantined": "quarantined"}
    became = then.get(said["verdict"], "requeued")
    return row.fill(f"{became}: {said['error']}", style).text()


def log(look: Look, width: int, rows: int) -> Iterator[Text]:
    """A rule, and the end of the log that is followed."""
    followed = look.log
    yield rule(followed.title if followed else "no log", width, look)
    for line in followed.lines[-max(1, rows - 1) :] if followed else ():
        yield Row(width).fill(line).text()


def quarantined(snapshot: Fields, look: Look, width: int, rows: int) -> Iterator[Text]:
    """A rule, and every issue that is quarantined with its reason, around the chosen one."""
    issues = snapshot["quarantined"]
    choosing = look.pane is Pane.QUARANTINE
    how = ". Enter tries one again, a all of them" if choosing else ""
    count = snapshot["queue"]["quarantined"]
    first_ones = f", the first {len(issues)} here" if len(issues) < count else ""
    yield rule(f"quarantined: {count}{first_ones}{how}", width, look)
    if not issues:
        yield Row(width).add(" nothing is quarantined", style="dim").text()
    chosen = min(look.row, max(0, len(issues) - 1))
    first = max(0, chosen - (rows - 2)) if choosing else 0
    for index, issue in enumerate(issues[first : first + rows - 1], first):
        row = Row(width, "reverse" if choosing and index == chosen else "")
        row.add(" ").add(issue["issue_id"], 18, "bold").add(" ")
        row.add(counted(issue["attempts"], "try", "tries"), 9, "yellow")
        yield row.fill(issue["error"]).text()


def keys(look: Look, width: int) -> Iterator[Text]:
    """A rule, and what each key does."""
    yield rule("keys", width, look)
    for key, meaning in KEYS_OF_REPLAY if look.role is Role.REPLAY else KEYS:
        yield Row(width).add(" ").add(key, 20, "bold").fill(meaning).text()
    yield Row(width).text()
    yield Row(width).add(" Text can be selected with the mouse as everywhere.", style="dim").text()


def hints(snapshot: Fields, look: Look) -> str:
    """The last row: the keys that are of use here."""
    if look.role is Role.REPLAY:
        return "space hold   + - speed   arrows choose   q leave   ? help"
    if look.pane is Pane.QUARANTINE:
        return "arrows choose   Enter try again   a all   Escape back   q leave   ? help"
    if look.pane is not Pane.FLEET:
        return "arrows choose   Escape back   q leave   ? help"
    pause = "resume" if snapshot["state"] == "paused" else "pause"
    return f"arrows  l log  p {pause}  + - workers  r retry  k release  q leave  ? help"


def rule(title: str, width: int, look: Look) -> Text:
    """A line across with a title in it."""
    line = "─" if look.unicode else "-"
    row = Row(width, "dim").add(line * 2 + " ").add(title, min(len(title), width - 4), "bold")
    return row.add(" ").fill(line * row.room).text()


def _note(note: Fields, width: int) -> Text:
    style = {"warning": "yellow", "error": "red"}.get(note["level"], "dim")
    row = Row(width).add(" ").add(time.strftime("%H:%M:%S", time.localtime(note["at"])), 9, "dim")
    return row.add("  ").add(note["level"], 8, style).fill(note["text"], style).text()


# --- view ----------------------------------------------------------------------------------------
# The dashboard: one pure function from a snapshot to what is drawn.
#
# ``draw`` gives exactly as many rows as there are, each exactly as wide as the terminal. What
# stands where does not depend on what happens: nothing jumps while one looks.


COLUMNS_MIN = 60
ROWS_MIN = 14
SIDE_BY_SIDE_COLUMNS = 150
"""From here on workers and outcomes stand beside each other."""
OUTCOMES_ROWS_MIN = 3
"""With their rule; what lands gets the rest of the room below the workers."""


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

    def landing_rows(self, workers: int) -> int:
        """How many what lands may have, of those that the outcomes would have without it."""
        if self.wide:
            return min(LANDING_ROWS, self.rows // 2)
        left = self.rows - 1 - self.worker_rows(workers) - OUTCOMES_ROWS_MIN
        return 0 if left < LANDING_ROWS_MIN else min(left, LANDING_ROWS)


def draw(snapshot: Fields, look: Look, age: float, columns: int, rows: int) -> Group:
    """The whole screen; ``age``: seconds since the snapshot was as it says."""
    if columns < COLUMNS_MIN or rows < ROWS_MIN:
        return Group(*_too_small(snapshot, columns, rows))
    top = [*head(snapshot, look, age, columns), *agents(snapshot, age, columns, rows)]
    top += _needs(snapshot, columns, rows)
    bottom = [*_caption(look, columns), _foot(snapshot, look, columns)]
    room = Room(columns, rows - len(top) - len(bottom))
    middle = list(_middle(snapshot, look, age, room))[: room.rows]
    middle += [Row(columns).text()] * (room.rows - len(middle))
    return Group(*top, *middle, *bottom)


def page_rows(snapshot: Fields, look: Look, columns: int, rows: int) -> int:
    """How many workers are on a page, for the keys that turn pages."""
    taken = ROWS + agents_rows(snapshot, rows) + _needs_rows(rows) + bool(look.caption) + 1
    return Room(columns, rows - taken).worker_rows(_workers(snapshot))


def _middle(snapshot: Fields, look: Look, age: float, room: Room) -> Iterator[Text]:
    match look.pane:
        case Pane.FLEET:
            yield from _whole_fleet(snapshot, look, age, room)
        case Pane.LOG:
            yield from log(look, room.columns, room.rows)
        case Pane.QUARANTINE:
            yield from quarantined(snapshot, look, room.columns, room.rows)
        case Pane.HELP:
            yield from keys(look, room.columns)


def _whole_fleet(snapshot: Fields, look: Look, age: float, room: Room) -> Iterator[Text]:
    count = room.worker_rows(_workers(snapshot))
    lands = room.landing_rows(_workers(snapshot)) if snapshot["landing"] else 0
    if not room.wide:
        here = list(workers(snapshot, look, age, room.columns, count))
        yield from here
        yield from [Row(room.columns).text()] * (count + 1 - len(here))
        yield from _with_landing(snapshot, look, age, room.columns, room.rows - 1 - count, lands)
        return
    left = room.columns * 11 // 20
    beside = _with_landing(snapshot, look, age, room.columns - left - 1, room.rows, lands)
    here = list(workers(snapshot, look, age, left, count))
    below = room.rows - len(here) - 1
    if snapshot["quarantined"] and below > 2:
        here += [Row(left).text(), *quarantined(snapshot, look, left, below)]
    yield from _side_by_side(here, list(beside), left, room)


def _with_landing(
    snapshot: Fields, look: Look, age: float, width: int, rows: int, lands: int
) -> Iterator[Text]:
    """What lands, in its ``lands`` rows, and the outcomes below it."""
    if lands:
        here = list(landing(snapshot, look, age, width, lands))
        yield from here
        yield from [Row(width).text()] * (lands - len(here))
    yield from outcomes(snapshot, look, width, rows - lands)


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
    return 1 if rows < TALL_ROWS else 3


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
    return row.fill(hints(snapshot, look), "dim").text()


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
