"""Keys of the dashboard and buttons of the page: one table, and what each one does.

Help, the tables in docs/CLI.md and ``press`` are made from the same rows, ``ROWS`` at the end. A
key that is reserved for a later feature stands in ``RESERVED``, so that no other feature takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from beads_workers.core.receipts import SHA_CHARS
from beads_workers.core.text import counted
from beads_workers.ui.viewer import (
    ORDERS,
    STATES,
    Ask,
    Detach,
    Faster,
    Fields,
    Leave,
    Look,
    OtherTheme,
    Pane,
    Part,
    Pressed,
    Question,
    Role,
    SayPage,
    Wish,
    Writing,
    chosen_at,
    chosen_row,
    found_in,
    key_of,
    rows_of,
    shown_attempt,
)

# --- the table -----------------------------------------------------------------------------------

Action = Callable[[Look, Fields, int], Pressed]
"""View, snapshot and rows of a page -> the new view, and a wish or None."""

EVERYWHERE = frozenset(Pane)
LISTS = frozenset({Pane.FLEET, Pane.QUARANTINE, Pane.DECISIONS})
OWN_PARTS = {Pane.QUARANTINE: Part.QUARANTINED, Pane.DECISIONS: Part.DECISIONS}
"""Panes that are one list."""
LIVE = frozenset({Role.START, Role.WATCH})
REPLAY = frozenset({Role.REPLAY})


class Binding(NamedTuple):
    """Keys that do the same.

    ``names``: as ``keys.KeyParser`` names them, with spaces between. ``panes``: the views in which
    they do it. ``asks``: whether the dashboard asks first.
    """

    names: str
    act: Action
    panes: Collection[Pane] = EVERYWHERE
    asks: bool = False


@dataclass(frozen=True, slots=True)
class BindingRow:
    """Keys that belong together: a line of the help, and a row of docs/CLI.md.

    ``shown``: the keys in the help, which may leave out some; "" for no line. ``help``: at most 50
    characters. ``does``: the whole sentence, in Markdown.
    """

    shown: str
    help: str
    does: str
    keys: tuple[Binding, ...]
    roles: frozenset[Role] = frozenset(Role)


CTRL_C = ("Ctrl-C", "stop the fleet that was started here; twice: now")
"""The line of the help for a signal, which is no key: see ``cli.live``."""

RESERVED: Mapping[str, str] = MappingProxyType(
    {
        "5": "all issues",
        "d": "the diff of the attempt",
        "c": "copy to the clipboard of the terminal",
        ":": "palette of commands",
        "mouse": "choose a row with a click, open it with a second one",
    }
)
"""Keys for what is still to come: nothing else may use them. The page has buttons for the same."""


class Button(NamedTuple):
    """A button of the page: its id or class, what is written on it, its place, what it does."""

    name: str
    label: str
    place: str
    does: str
    asks: bool = True


BUTTONS = (
    Button(
        "pause", "Pause", "the top", "pause, and resume; before its hours: begin now", asks=False
    ),
    Button("fewer", "\N{MINUS SIGN}", "the top", "one worker less", asks=False),
    Button("more", "+", "the top", "one worker more", asks=False),
    Button("drain", "Stop after what runs", "the top", "begin nothing new, and stop then"),
    Button("stop", "Stop", "the top", "stop the fleet, requeueing what runs"),
    Button(
        *("notify", "Notify me", "the top"),
        "have the browser say when something needs you, and when the run ends",
        asks=False,
    ),
    Button(
        "nights",
        "Reports",
        "the top",
        "list the reports of this night and earlier ones",
        asks=False,
    ),
    Button("reply", "Answer", "a question", "have its agent go on with your answer", asks=False),
    Button("approve", "Approve", "a branch that awaits approval", "let it land as shown"),
    Button(
        *("reject", "Reject", "a branch that awaits approval"),
        "send it back to its agent, with your remarks",
        asks=False,
    ),
    Button("again", "Try again", "a quarantined issue", "retry this issue", asks=False),
    Button("again-all", "Try these again", "a cause of quarantine", "retry its issues"),
    Button("retry-all", "Try all again", "the quarantined issues", "retry all of them"),
    Button("opens", "its id and title", "each row and each bar", "open the attempt", asks=False),
    Button("release", "Release", "a running attempt", "release the issue"),
    Button(
        *("older", "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}", "an attempt"),
        "go to the attempt before",
        asks=False,
    ),
    Button(
        *("newer", "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}", "an attempt"),
        "go to the next attempt",
        asks=False,
    ),
    Button("tab-log", "Log", "an attempt", "show its log", asks=False),
    Button("tab-diff", "Diff", "an attempt", "show its branch, and what it changed", asks=False),
    Button(
        *("tab-about", "About", "an attempt"),
        "show why the issue stands where it stands, the receipt, and all attempts",
        asks=False,
    ),
    Button("earlier", "Earlier lines", "a log", "read more of a long log", asks=False),
    Button("close", "Close", "an attempt", "close it; Escape does it, too", asks=False),
)
"""All buttons of the page but those of its dialog."""


def help_lines(role: Role) -> list[tuple[str, str]]:
    """Return the lines of the help: keys, and what they do."""
    lines = [(row.shown, row.help) for row in ROWS if row.shown and role in row.roles]
    return lines if role is Role.REPLAY else [*lines, CTRL_C]


def keys_table() -> str:
    """Return the table of keys in docs/CLI.md."""
    lines = ["| key | does | in | asks |", "|---|---|---|---|"]
    for row in ROWS:
        each_once = dict.fromkeys(name for key in row.keys for name in key.names.split())
        names = " ".join(f"`{name}`" for name in each_once)
        panes = frozenset(pane for key in row.keys for pane in key.panes)
        places = ", ".join(pane.value for pane in Pane if pane in panes)
        where = "all views" if panes == EVERYWHERE else places
        asks = " ".join(f"`{each}`" for key in row.keys if key.asks for each in key.names.split())
        lines.append(f"| {names} | {row.does} | {where} | {asks} |")
    return "\n".join(lines) + "\n"


def buttons_table() -> str:
    """Return the table of the page's buttons in docs/CLI.md."""
    lines = ["| button | at | does | asks |", "|---|---|---|---|"]
    for button in BUTTONS:
        asks = "yes" if button.asks else "no"
        lines.append(f"| {button.label} | {button.place} | {button.does} | {asks} |")
    return "\n".join(lines) + "\n"


# --- keys ----------------------------------------------------------------------------------------


def press(look: Look, key: str, snapshot: Fields, page_rows: int = 8) -> Pressed:
    """Apply a key: return the new view, and a wish or None."""
    if look.question is not None:
        wish = look.question.answers.get(key)
        return replace(look, question=None, message="" if wish else "left as it is"), wish
    look = replace(look, message="")
    if look.typed is not None and look.writing is not None:
        return _write(look, look.writing, look.typed, key)
    if look.typed is not None:
        return _type(look, look.typed, key, page_rows), None
    if (act := _ACTIONS.get((look.role, look.pane, key))) is not None:
        return act(look, snapshot, page_rows)
    if len(key) == 1 and look.role is not Role.REPLAY:
        look = replace(look, message=f"{key} does nothing here; ? shows the keys")
    return look, None


# --- moving and looking ---

_FAR = 1 << 20


def _step(by: int, *, pages: bool = False) -> Action:
    return lambda look, snapshot, rows: (
        _move(look, by * (rows if pages else 1), snapshot, rows),
        None,
    )


def _move(look: Look, by: int, snapshot: Fields, rows: int) -> Look:
    match look.pane:
        case Pane.HELP:
            return look
        case Pane.LANDING:
            landing = snapshot["landing"] or {"waiting_to_land": (), "last": (), "refused": ()}
            most = sum(len(landing[name]) for name in ("waiting_to_land", "last", "refused"))
            return replace(look, top=min(max(0, look.top + by), most))
        case Pane.LOG:
            return _scroll(look, by, rows)
    listed = rows_of(look, snapshot, look.part)
    if not listed:
        return look
    at = min(max(0, chosen_at(look, listed, look.part) + by), len(listed) - 1)
    return replace(look, chosen={**look.chosen, look.part: key_of(look.part, listed[at])})


def _scroll(look: Look, by: int, rows: int) -> Look:
    """Scroll a log: away from its end it stands still, at its end it is followed again."""
    if (log := look.log) is None:
        return look
    end = (log.end if look.log_end is None else look.log_end) + by
    end = max(end, min(log.first + rows, log.end))
    return replace(look, log_end=None if end >= log.end else end, log_found=None)


def _pane(pane: Pane) -> Action:
    return lambda look, _snapshot, _rows: (_open(look, pane), None)


def _open(look: Look, pane: Pane) -> Look:
    """Open a pane; the key of the open pane leads back to the fleet."""
    if look.pane is pane:
        pane = Pane.FLEET
    part = OWN_PARTS.get(pane, look.part)
    if pane is Pane.FLEET and part in OWN_PARTS.values():
        part = Part.WORKERS
    return replace(look, pane=pane, part=part, top=0, log_end=None, log_found=None)


def _back(look: Look, _snapshot: Fields, _rows: int) -> Pressed:
    if look.pane is Pane.FLEET or (look.pane in OWN_PARTS and look.find):
        return replace(look, find="", states={}), None
    return _close(look), None


def _attempt(look: Look, snapshot: Fields, _rows: int) -> Pressed:
    if look.pane not in LISTS:
        return _close(look), None
    if shown_attempt(look, snapshot) is None:
        return replace(look, message="nothing has run there yet"), None
    return replace(look, pane=Pane.LOG, log_end=None, log=None), None


def _close(look: Look) -> Look:
    """Leave a pane: a log leads back to the pane of its list."""
    of_log = next((pane for pane, part in OWN_PARTS.items() if part is look.part), Pane.FLEET)
    return _open(look, of_log if look.pane is Pane.LOG else Pane.FLEET)


def _other_list(look: Look, _snapshot: Fields, _rows: int) -> Pressed:
    return replace(look, part=Part.ENDED if look.part is Part.WORKERS else Part.WORKERS), None


def _filter(look: Look, _snapshot: Fields, _rows: int) -> Pressed:
    states = ["", *STATES[look.part]]
    state = states[(states.index(look.states.get(look.part, "")) + 1) % len(states)]
    return replace(look, states={**look.states, look.part: state}), None


def _sort(look: Look, _snapshot: Fields, _rows: int) -> Pressed:
    orders = ["", *ORDERS]
    order = orders[(orders.index(look.order) + 1) % len(orders)]
    return replace(look, order=order, message=f"workers by {order or 'name'}"), None


def _theme(look: Look, _snapshot: Fields, _rows: int) -> Pressed:
    return look, OtherTheme()


def _page(look: Look, _snapshot: Fields, _rows: int) -> Pressed:
    return look, SayPage()


# --- searching ---


def _search(look: Look, _snapshot: Fields, _rows: int) -> Pressed:
    return replace(look, typed=""), None


def _type(look: Look, typed: str, key: str, rows: int) -> Look:
    """Apply a key to the search text: every letter searches at once, Escape ends the search."""
    in_log = look.pane is Pane.LOG
    if key == "enter":
        return replace(look, typed=None)
    if key == "escape":
        typed, closed = "", True
    else:
        closed = key == "backspace" and not typed
        if typed == (typed := _with(typed, key)) and not closed:
            return look
    shown = None if closed else typed
    if not in_log:
        return replace(look, typed=shown, find=typed)
    look = replace(look, typed=shown, log_find=typed)
    return _next_found(look, rows, 0) if typed else look


def _next(by: int) -> Action:
    return lambda look, _snapshot, rows: (_next_found(look, rows, by), None)


def _next_found(look: Look, rows: int, by: int) -> Look:
    """Find the next place below (1) or above (-1) the current one; 0: the last in the log."""
    if (log := look.log) is None or not look.log_find:
        return replace(look, message="/ looks for a text")
    end = log.end if look.log_end is None else look.log_end
    here = (end if by < 0 else max(0, end - rows) - 1) if look.log_found is None else look.log_found
    places = [
        log.first + at for at, line in enumerate(log.lines) if found_in(look.log_find, line) >= 0
    ]
    if by > 0:
        place = next((each for each in places if each > here), None)
    else:
        place = next((each for each in reversed(places) if each < here or not by), None)
    if place is None:
        return replace(look, message=f"{look.log_find!r} is not {_WHERE[by]}")
    shown = _scroll(replace(look, log_end=place + 1 + rows // 2), 0, rows)
    return replace(shown, log_found=place)


_WHERE = {1: "further down", -1: "further up", 0: "in this log"}


# --- what the fleet is asked for ---


RESUMED = ("paused", "waiting")
"""States of a run that a person ends with 'resume'."""


def _pause(look: Look, snapshot: Fields, _rows: int) -> Pressed:
    return look, Ask("bw.resume" if snapshot["state"] in RESUMED else "bw.pause")


def _scale(by: int) -> Action:
    def act(look: Look, snapshot: Fields, _rows: int) -> Pressed:
        own = sum(1 for worker in snapshot["workers"] if worker["own"])
        return look, Ask("bw.scale", {"workers": max(0, own + by)})

    return act


def _release(look: Look, snapshot: Fields, _rows: int) -> Pressed:
    shown = shown_attempt(look, snapshot) if look.part is Part.WORKERS else None
    if shown is None or not shown.running:
        return replace(look, message="choose a busy worker first"), None
    text = (
        f"release {shown.issue_id}? Its task on {shown.worker_id} is ended, and the issue is"
        " left alone until you retry it. y yes, n no"
    )
    question = Question(text, {"y": Ask("bw.release", {"issue_ids": [shown.issue_id]})})
    return replace(look, question=question), None


def _retry(look: Look, snapshot: Fields, _rows: int) -> Pressed:
    """Retry the chosen issue if it is quarantined."""
    row = chosen_row(look, snapshot, look.part)
    quarantined = {each["issue_id"] for each in snapshot["quarantined"]}
    if not quarantined:
        return replace(look, message="nothing is quarantined"), None
    if row is None or row["issue_id"] not in quarantined:
        return replace(look, message="r tries a quarantined issue again; 3 shows them"), None
    return look, Ask("bw.retry", {"issue_ids": [row["issue_id"]]})


def _retry_all(look: Look, snapshot: Fields, _rows: int) -> Pressed:
    ids = [row["issue_id"] for row in rows_of(look, snapshot, Part.QUARANTINED)]
    if look.pane is not Pane.QUARANTINE:
        return replace(look, message="a tries all that is quarantined again; 3 shows it"), None
    if not ids:
        return replace(look, message="nothing is quarantined"), None
    text = f"try {counted(len(ids), 'issue')} again? y yes, n no"
    return replace(look, question=Question(text, {"y": Ask("bw.retry", {"issue_ids": ids})})), None


# --- what a person decides ---


def _answer(look: Look, snapshot: Fields, _rows: int) -> Pressed:
    row = chosen_row(look, snapshot, Part.DECISIONS)
    if row is None or "question" not in row:
        return replace(look, message="i answers a question: choose one"), None
    issue_id = row["issue_id"]
    return replace(look, typed="", writing=Writing("answer to", "bw.answer", issue_id)), None


def _approve(look: Look, snapshot: Fields, _rows: int) -> Pressed:
    row = chosen_row(look, snapshot, Part.DECISIONS)
    if row is None or "commit" not in row:
        return replace(look, message="v approves a branch: choose one"), None
    issue_id, commit = row["issue_id"], row["commit"]
    text = f"land {issue_id} at {commit[:SHA_CHARS]}? y yes, n no"
    wish = Ask("bw.approve", {"commits": {issue_id: commit}})
    return replace(look, question=Question(text, {"y": wish})), None


def _reject(look: Look, snapshot: Fields, _rows: int) -> Pressed:
    row = chosen_row(look, snapshot, Part.DECISIONS)
    if row is None or "commit" not in row:
        return replace(look, message="V rejects a branch: choose one"), None
    writing = Writing("what is wrong with", "bw.reject", row["issue_id"])
    return replace(look, typed="", writing=writing), None


def _write(look: Look, writing: Writing, typed: str, key: str) -> Pressed:
    """Apply a key to what a person writes: Enter sends it, Escape gives it up."""
    if key == "enter" and typed.strip():
        fields = {"issue_ids": [writing.issue_id], "text": typed.strip()}
        look = replace(look, typed=None, writing=None)
        return look, Ask(writing.control, fields)
    if key in ("enter", "escape"):
        return replace(look, typed=None, writing=None, message="left as it is"), None
    return replace(look, typed=_with(typed, key)), None


def _with(typed: str, key: str) -> str:
    """Return a typed text after one more key."""
    if key == "backspace":
        return typed[:-1]
    return typed + {"space": " "}.get(key, key if len(key) == 1 else "")


def _leave(look: Look, snapshot: Fields, _rows: int) -> Pressed:
    if look.role is not Role.START or not snapshot["running"]:
        return look, Leave()
    answers: dict[str, Wish] = {
        "s": Ask("bw.stop"),
        "d": Ask("bw.stop", {"drain": True}),
        "b": Detach(),
    }
    text = "leave? n stay; b let it run in the background; d drain; s stop, requeueing what runs"
    return replace(look, question=Question(text, answers)), None


def _faster(factor: float) -> Action:
    return lambda look, _snapshot, _rows: (look, Faster(factor))


# --- the rows ------------------------------------------------------------------------------------

ROWS = (
    BindingRow(
        "j k g G", "choose a row; go to the ends; or arrows, page keys",
        "choose a row; turn pages; go to the ends",
        (
            Binding("j down", _step(1)), Binding("k up", _step(-1)),
            Binding("page_down right", _step(1, pages=True)),
            Binding("page_up left", _step(-1, pages=True)),
            Binding("g home", _step(-_FAR)), Binding("G end", _step(_FAR)),
        ),
    ),
    BindingRow(
        "Tab", "workers, or attempts that ended",
        "go from the workers to the attempts that ended, and back",
        (Binding("tab shift+tab", _other_list, {Pane.FLEET}),),
    ),
    BindingRow(
        "Enter", "open the attempt of the row, and its log",
        "open the attempt of the chosen row, running or ended, with its log; again: go back",
        (Binding("enter l", _attempt),),
    ),
    BindingRow(
        "1 2 3 4", "fleet; landing; quarantined; what you decide",
        "the fleet; the landing queue; quarantined issues, with the reasons; questions and branches"
        " that await your approval",
        (
            Binding("1", _pane(Pane.FLEET)), Binding("2", _pane(Pane.LANDING)),
            Binding("3", _pane(Pane.QUARANTINE)), Binding("4", _pane(Pane.DECISIONS)),
        ),
    ),
    BindingRow("", "", "help", (Binding("?", _pane(Pane.HELP)),)),
    BindingRow(
        "/ n N", "only rows with a text; in a log: find it, next",
        "show only the rows with a text; in a log: find it, then the next and the previous one",
        (
            Binding("/", _search, {*LISTS, Pane.LOG}),
            Binding("n", _next(1), {Pane.LOG}), Binding("N", _next(-1), {Pane.LOG}),
        ),
    ),
    BindingRow(
        "f s", "only some states; sort workers: time, cost, name",
        "show only some states: busy or idle workers, failed or done attempts; sort the workers by"
        " time, by cost, by name",
        (Binding("f", _filter, {Pane.FLEET}), Binding("s", _sort, {Pane.FLEET})),
    ),
    BindingRow(
        "r a x", "retry; in 3 all; release a worker's issue (asks)",
        "retry the chosen quarantined issue; in `3` all that are shown; release the chosen worker's"
        " issue",
        (
            Binding("r", _retry), Binding("a", _retry_all, asks=True),
            Binding("x", _release, asks=True),
        ), LIVE,
    ),
    BindingRow(
        "i v V", "in 4: answer; approve (asks first); reject",
        "in `4`: answer the question; approve the branch at the commit that is shown; reject it"
        " with remarks",
        (
            Binding("i", _answer, {Pane.DECISIONS}),
            Binding("v", _approve, {Pane.DECISIONS}, asks=True),
            Binding("V", _reject, {Pane.DECISIONS}),
        ), LIVE,
    ),
    BindingRow(
        "p + -", "pause, and resume; one worker more, or one less",
        "pause, and resume; one worker more, one less",
        (Binding("p", _pause), Binding("+ =", _scale(1)), Binding("-", _scale(-1))), LIVE,
    ),
    BindingRow(
        "space", "hold, and go on", "in a replay: hold, and go on",
        (Binding("space p", _faster(0.0)),), REPLAY,
    ),
    BindingRow(
        "+ -", "twice as fast, half as fast", "in a replay: twice as fast, half as fast",
        (Binding("+ =", _faster(2.0)), Binding("-", _faster(0.5))), REPLAY,
    ),
    BindingRow(
        "t w", "other colours (BW_THEME); the URL of the live page",
        "other colours; show the address of the live page",
        (Binding("t", _theme), Binding("w", _page)),
    ),
    BindingRow(
        "q", "back, and leave: your own fleet stops or goes on",
        "go back. From the fleet, Escape shows all rows again, and `q` leaves; in the terminal that"
        " started the fleet, it asks whether to stop, drain, or leave the fleet in the background",
        (
            Binding("q", _leave, {Pane.FLEET}, asks=True),
            Binding("q", _back, EVERYWHERE - {Pane.FLEET}), Binding("escape", _back),
        ),
    ),
)  # fmt: skip
_ACTIONS = {
    (role, pane, name): key.act
    for row in ROWS
    for key in row.keys
    for role in row.roles
    for pane in key.panes
    for name in key.names.split()
}
