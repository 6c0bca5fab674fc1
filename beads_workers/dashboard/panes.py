"""What fills the middle: workers, outcomes, a log, what is set aside, the keys."""

from __future__ import annotations

import time
from collections.abc import Iterator
from heapq import nlargest

from rich.text import Text

from beads_workers.core.text import counted
from beads_workers.dashboard.look import Look, Pane, Role, chosen_worker
from beads_workers.dashboard.rows import Fields, Row, outcome_row, worker_row

STARTING_SECONDS = 5.0
"""A fleet that has no worker by then has none on purpose."""

KEYS = (
    ("arrows, page keys", "choose a worker; pages of workers"),
    ("l or Enter", "follow the log of the chosen worker"),
    ("p", "pause, and resume"),
    ("+  -", "one worker more, one less (a busy one finishes its task first)"),
    ("r", "what was set aside, with the reasons; Enter tries one again, a all"),
    ("k", "take the chosen worker's issue away (asks first)"),
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
    for _, is_note, _, what in nlargest(max(0, rows - 1), drawn, key=lambda row: row[:3]):
        if is_note:
            yield _note(what, width)
        else:
            yield outcome_row(what, width, unicode=look.unicode)


def log(look: Look, width: int, rows: int) -> Iterator[Text]:
    """A rule, and the end of the log that is followed."""
    followed = look.log
    yield rule(followed.title if followed else "no log", width, look)
    for line in followed.lines[-max(1, rows - 1) :] if followed else ():
        yield Row(width).fill(line).text()


def aside(snapshot: Fields, look: Look, width: int, rows: int) -> Iterator[Text]:
    """A rule, and every issue that is set aside with its reason, around the chosen one."""
    issues = snapshot["set_aside"]
    choosing = look.pane is Pane.ASIDE
    how = ". Enter tries one again, a all of them" if choosing else ""
    count = snapshot["queue"]["set_aside"]
    first_ones = f", the first {len(issues)} here" if len(issues) < count else ""
    yield rule(f"set aside: {count}{first_ones}{how}", width, look)
    if not issues:
        yield Row(width).add(" nothing is set aside", style="dim").text()
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
    if look.pane is Pane.ASIDE:
        return "arrows choose   Enter try again   a all   Escape back   q leave   ? help"
    if look.pane is not Pane.FLEET:
        return "arrows choose   Escape back   q leave   ? help"
    pause = "resume" if snapshot["state"] == "paused" else "pause"
    return f"arrows  l log  p {pause}  + - workers  r retry  k take away  q leave  ? help"


def rule(title: str, width: int, look: Look) -> Text:
    """A line across with a title in it."""
    line = "─" if look.unicode else "-"
    row = Row(width, "dim").add(line * 2 + " ").add(title, min(len(title), width - 4), "bold")
    return row.add(" ").fill(line * row.room).text()


def _note(note: Fields, width: int) -> Text:
    style = {"warning": "yellow", "error": "red"}.get(note["level"], "dim")
    row = Row(width).add(" ").add(time.strftime("%H:%M:%S", time.localtime(note["at"])), 9, "dim")
    return row.add("  ").add(note["level"], 8, style).fill(note["text"], style).text()
