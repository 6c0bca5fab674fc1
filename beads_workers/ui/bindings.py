"""Keys of the dashboard and buttons of the page: one table, and what each one does.

Help, palette, the tables in docs/CLI.md and ``press`` are made from the same rows, ``ROWS`` at the
end.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from beads_workers.core.base.text import counted, printable
from beads_workers.core.records.receipts import SHA_CHARS
from beads_workers.ui.attempt_view import Pin, pin_issue
from beads_workers.ui.backlog import issue_rows
from beads_workers.ui.landing import to_type
from beads_workers.ui.line_comments import line_comment
from beads_workers.ui.viewer import (
    ATTEMPT,
    FOLDED,
    ORDERS,
    OWN_PARTS,
    PANES,
    STATES,
    Ask,
    Copy,
    Detach,
    Faster,
    Fields,
    Leave,
    LookAgain,
    Mouse,
    OtherTheme,
    PageCard,
    Pane,
    Part,
    Pressed,
    Question,
    Role,
    RunOwn,
    Save,
    SayPage,
    Screen,
    ShownLog,
    Wish,
    Writing,
    chosen_at,
    chosen_row,
    found_in,
    key_of,
    needing_you,
    pin_of,
    rows_of,
)
from beads_workers.ui.words import ORDER_NAMES

# --- the table -----------------------------------------------------------------------------------

Action = Callable[[Screen, Fields, int], Pressed]
"""View, snapshot and rows of a page -> the new view, and a wish or None."""

EVERYWHERE = frozenset(Pane)
LISTS = frozenset({Pane.FLEET, *OWN_PARTS})
IN_ATTEMPT = frozenset(ATTEMPT)
LIVE = frozenset({Role.START, Role.WATCH})
DECIDES = LIVE | {Role.MORNING}
REPLAY = frozenset({Role.REPLAY})


class Binding(NamedTuple):
    """Keys that do the same."""

    # As ``keys.KeyParser`` names them, with spaces between.
    names: str
    act: Action
    # The views in which they do it.
    panes: Collection[Pane] = EVERYWHERE
    # The dashboard asks first.
    asks: bool = False
    # Its name in the palette; "" for moves, which nobody types.
    word: str = ""


@dataclass(frozen=True, slots=True)
class BindingRow:
    """Keys that belong together: a line of the help, and a row of docs/CLI.md."""

    # The keys in the help, which may leave out some; "" for no line.
    shown: str
    # At most 50 characters.
    help: str
    # The whole sentence, in Markdown.
    does: str
    keys: tuple[Binding, ...]
    roles: frozenset[Role] = frozenset(Role)


CTRL_C = ("Ctrl-C", "stop the fleet that was started here; twice: now")
"""The line of the help for a signal, which is no key: see ``cli.live``."""


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
    Button("below", "See them all", "what needs you", "go to the quarantined issues", asks=False),
    Button(
        *("reply", "Answer", "a question"),
        "have its agent go on with your answer; each choice of a question is a button, too",
        asks=False,
    ),
    Button("diff", "Diff", "a branch that awaits approval", "open its diff", asks=False),
    Button(
        *("approve", "Approve", "a branch that awaits approval"),
        "let it land as shown, once you have opened its diff",
    ),
    Button(
        *("reject", "Reject", "a branch that awaits approval"),
        "send it back to its agent, with your remarks",
        asks=False,
    ),
    Button("again", "Try again", "a quarantined issue", "retry this issue", asks=False),
    Button(
        *("needless", "Not needed", "a quarantined issue"),
        "close it, if no fleet runs",
    ),
    Button(
        "merge", "Merge", "what needs you", "bring what landed to your branch, if no fleet runs"
    ),
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
    return [*lines, CTRL_C] if role in LIVE else lines


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


def press(screen: Screen, key: str, snapshot: Fields, page_rows: int = 8) -> Pressed:
    """Apply a key: return the new view, and a wish or None."""
    if screen.question is not None:
        wish = screen.question.answers.get(key)
        return replace(screen, question=None, message="" if wish else "left as it is"), wish
    screen = replace(screen, message="")
    if screen.typed is not None and screen.naming:
        return _name(screen, screen.typed, key, snapshot, page_rows)
    if screen.typed is not None and screen.writing is not None:
        return _write(screen, screen.writing, screen.typed, key)
    if screen.typed is not None:
        return _type(screen, screen.typed, key, page_rows), None
    if (act := _ACTIONS.get((screen.role, screen.pane, key))) is not None:
        return act(screen, snapshot, page_rows)
    if (command := screen.own_keys.get(key)) is not None:
        if not (issue_id := _subject(screen, snapshot)):
            return replace(screen, message=f"{key} runs {command}: choose an issue"), None
        return replace(screen, message=f"runs: {command}"), RunOwn(command, issue_id)
    if len(key) == 1 and screen.role is not Role.REPLAY:
        screen = replace(screen, message=f"{key} does nothing here; ? shows the keys")
    return screen, None


def point(screen: Screen, at: tuple[Part, str], snapshot: Fields, rows: int = 8) -> Pressed:
    """Apply a click on a row of a list: choose it; open it if it was chosen already.

    A click answers no question and ends no typing.
    """
    part, key = at
    if screen.question is not None or screen.typed is not None:
        return screen, None
    screen = replace(screen, message="")
    if (screen.part, screen.chosen.get(part)) == (part, key):
        return _attempt(screen, snapshot, rows)
    return replace(screen, part=part, chosen={**screen.chosen, part: key}), None


# --- moving and looking ---

_FAR = 1 << 20
WHEEL_ROWS = 3
"""Rows of one notch of a mouse wheel, as elsewhere."""


def _step(by: int, *, pages: bool = False) -> Action:
    return lambda screen, snapshot, rows: (
        _move(screen, by * (rows if pages else 1), snapshot, rows),
        None,
    )


def _move(screen: Screen, by: int, snapshot: Fields, rows: int) -> Screen:
    match screen.pane:
        case Pane.HELP:
            last = len(help_lines(screen.role)) - rows
            return replace(screen, top=max(0, min(screen.top + by, last)))
        case Pane.PAGE:
            return screen
        case Pane.DIFF:
            return _walk(screen, by, rows)
        case Pane.LOG | Pane.ABOUT:
            return _scroll(screen, by, rows)
    listed = rows_of(screen, snapshot, screen.part)
    if not listed:
        return screen
    at = min(max(0, chosen_at(screen, listed, screen.part) + by), len(listed) - 1)
    return replace(screen, chosen={**screen.chosen, screen.part: key_of(screen.part, listed[at])})


def _scroll(screen: Screen, by: int, rows: int) -> Screen:
    """Scroll a log: away from its end it stands still, at its end it is followed again."""
    if (log := screen.log) is None:
        return screen
    end = max(_end_of(screen, log, rows) + by, min(log.first + rows, log.end))
    return replace(screen, log_end=None if end >= log.end else end, log_found=None)


def _walk(screen: Screen, by: int, rows: int) -> Screen:
    """Move the line that is chosen in a diff, and the text with it if it would leave the screen."""
    if (log := screen.log) is None or not log.lines:
        return screen
    at = min(max(log.first, _line_at(screen, log, rows) + by), log.end - 1)
    end = _end_of(screen, log, rows) + (by if abs(by) > 1 else 0)
    page = min(log.first + rows, log.end)
    return replace(screen, log_end=min(max(end, at + 1, page), at + rows, log.end), log_found=at)


def _line_at(screen: Screen, log: ShownLog, rows: int) -> int:
    """Return the row that is chosen in a diff, else the first one on the screen."""
    if screen.log_found is not None:
        return screen.log_found
    return max(log.first, _end_of(screen, log, rows) - rows)


def _end_of(screen: Screen, log: ShownLog, rows: int) -> int:
    """Return the end of what is on the screen, in rows of the text."""
    page = min(log.first + rows, log.end)
    return log.end if screen.log_end is None else max(screen.log_end, page)


def _pane(pane: Pane) -> Action:
    return lambda screen, _snapshot, _rows: (_open(screen, pane), None)


def _open(screen: Screen, pane: Pane) -> Screen:
    """Open a pane; the key of the open pane leads back."""
    return _close(screen) if screen.pane is pane else _show(screen, pane)


def _show(screen: Screen, pane: Pane) -> Screen:
    part = OWN_PARTS.get(pane, screen.part)
    if pane is Pane.FLEET and part in PANES:
        part = Part.WORKERS
    screen = replace(_unread(screen), part=part, top=0)
    if pane in (Pane.HELP, Pane.PAGE):
        return replace(screen, pane=pane, back={**screen.back, pane: screen.pane})
    return replace(screen, pane=pane, back={}, opened=None, view=None, full=False)


def _unread(screen: Screen) -> Screen:
    """Return the view without a text: the next one is read from its beginning, or followed."""
    return replace(screen, log=None, log_end=None, log_find="", log_found=None)


def _back(screen: Screen, _snapshot: Fields, _rows: int) -> Pressed:
    if screen.pane in ATTEMPT and screen.full:
        return replace(screen, full=False), None
    filtered = screen.find or screen.states.get(screen.part)
    if (screen.role, screen.pane) == (Role.MORNING, Pane.DECISIONS) and not filtered:
        return screen, Leave()
    if screen.pane is Pane.FLEET or (screen.pane in OWN_PARTS and filtered):
        finds = {pane: find for pane, find in screen.finds.items() if pane is not screen.pane}
        states = {
            part: state
            for part, state in screen.states.items()
            if PANES.get(part, Pane.FLEET) is not screen.pane
        }
        return replace(screen, finds=finds, states=states), None
    return _close(screen), None


def _attempt(screen: Screen, snapshot: Fields, _rows: int) -> Pressed:
    """Open the attempt of the chosen row, and keep it open whatever ends or begins."""
    if screen.pane not in LISTS:
        return _close(screen), None
    if "folded" in (chosen_row(screen, snapshot, screen.part) or {}):
        return replace(screen, states={**screen.states, screen.part: "idle"}), None
    return _opened(screen, snapshot, Pane.LOG), None


def _opened(screen: Screen, snapshot: Fields, section: Pane) -> Screen:
    row = chosen_row(screen, snapshot, screen.part)
    if row is None or not row["issue_id"] or (pin := pin_of(screen, snapshot, row)) is None:
        return replace(screen, message="nothing has run there yet")
    chosen = {**screen.chosen, screen.part: key_of(screen.part, row)}
    return _pinned(replace(screen, chosen=chosen), pin, section)


def _pinned(screen: Screen, pin: Pin, section: Pane) -> Screen:
    to = screen.pane if screen.pane in LISTS else Pane.FLEET
    back = screen.back if screen.pane in ATTEMPT else dict.fromkeys(ATTEMPT, to)
    return _at_section(replace(screen, opened=pin, view=None, back=back), section)


def _at_section(screen: Screen, section: Pane) -> Screen:
    """Show a section: a log is followed, the others are read from their beginning."""
    end = None if section is Pane.LOG else 0
    return replace(_unread(screen), pane=section, log_end=end)


def _section(section: Pane) -> Action:
    """In a list, open the chosen attempt there; in an attempt, show the section, or its log."""

    def act(screen: Screen, snapshot: Fields, _rows: int) -> Pressed:
        if screen.pane in LISTS:
            return _opened(screen, snapshot, section), None
        return _at_section(screen, Pane.LOG if screen.pane is section else section), None

    return act


def _next_section(by: int) -> Action:
    return lambda screen, _snapshot, _rows: (
        _at_section(screen, ATTEMPT[(ATTEMPT.index(screen.pane) + by) % len(ATTEMPT)]),
        None,
    )


def _other_attempt(by: int) -> Action:
    """Walk to the attempt of the issue before, or after."""

    def act(screen: Screen, _snapshot: Fields, _rows: int) -> Pressed:
        view = screen.view
        if view is None or view.at is None:
            return replace(screen, message="its attempts are not read yet"), None
        if (pin := view.step(by)) is None:
            which = "last" if by > 0 else "first"
            return replace(
                screen, message=f"this is the {which} attempt of {pin_name(screen)}"
            ), None
        return _pinned(screen, pin, screen.pane), None

    return act


def pin_name(screen: Screen) -> str:
    """Return the issue of the open attempt."""
    return screen.opened.issue_id if screen.opened is not None else ""


def _needs_you(screen: Screen, snapshot: Fields, _rows: int) -> Pressed:
    """Open what needs a person, the most pressing first; again: the next."""
    if not (issues := needing_you(snapshot)):
        return replace(screen, message="no issue needs you"), None
    name = pin_name(screen) if screen.pane in ATTEMPT else ""
    at = issues.index(name) + 1 if name in issues else 0
    return _pinned(screen, pin_issue(issues[at % len(issues)], snapshot), Pane.LOG), None


def _close(screen: Screen) -> Screen:
    """Leave a pane: an attempt leads back to its list, the help to where it was opened."""
    pane = screen.back.get(screen.pane, Pane.FLEET)
    return _at_section(screen, pane) if pane in ATTEMPT else _show(screen, pane)


def _other_list(screen: Screen, _snapshot: Fields, _rows: int) -> Pressed:
    return replace(screen, part=Part.ENDED if screen.part is Part.WORKERS else Part.WORKERS), None


def _filter(screen: Screen, snapshot: Fields, _rows: int) -> Pressed:
    states = ["", *STATES[screen.part]]
    if screen.pane is Pane.ISSUES:
        # Of many states, only those that issues are in.
        rows = issue_rows(screen.backlog, snapshot, "")
        states = [n for n in states if not n or any(map(STATES[screen.part][n], rows))]
        if screen.states.get(screen.part, "") not in states:
            states.insert(0, screen.states[screen.part])
    state = states[(states.index(screen.states.get(screen.part, "")) + 1) % len(states)]
    return replace(screen, states={**screen.states, screen.part: state}), None


def _sort(screen: Screen, _snapshot: Fields, _rows: int) -> Pressed:
    if screen.pane is Pane.ISSUES:
        names = (*ORDER_NAMES[1:], "")
        order = names[(names.index(screen.issue_order) + 1) % len(names)]
        message = f"issues by {order or ORDER_NAMES[0]}"
        return replace(screen, issue_order=order, message=message), None
    orders = ["", *ORDERS]
    order = orders[(orders.index(screen.order) + 1) % len(orders)]
    return replace(screen, order=order, message=f"workers by {order or 'name'}"), None


def _theme(screen: Screen, _snapshot: Fields, _rows: int) -> Pressed:
    return screen, OtherTheme()


def _wrap(screen: Screen, _snapshot: Fields, _rows: int) -> Pressed:
    return replace(screen, wrap=not screen.wrap), None


def _mouse(screen: Screen, _snapshot: Fields, _rows: int) -> Pressed:
    return screen, Mouse()


def _full(screen: Screen, _snapshot: Fields, _rows: int) -> Pressed:
    return replace(screen, full=not screen.full), None


def _times(screen: Screen, _snapshot: Fields, _rows: int) -> Pressed:
    return replace(screen, times=not screen.times), None


ENDINGS = {Pane.LOG: "log", Pane.DIFF: "diff", Pane.ABOUT: "txt"}


def _save(screen: Screen, _snapshot: Fields, _rows: int) -> Pressed:
    """Ask for a file, and propose one in the person's own folder: the project stays clean."""
    if (pin := screen.opened) is None:
        return screen, None
    name = re.sub(r"[^A-Za-z0-9._-]", "_", pin.issue_id)[:80].lstrip(".-") or "attempt"
    proposed = f"~/{name}.{pin.number}.{ENDINGS[screen.pane]}"
    writing = Writing(f"save the {screen.pane.value} of", "", pin.issue_id)
    return replace(screen, typed=proposed, writing=writing), None


def _page(screen: Screen, _snapshot: Fields, _rows: int) -> Pressed:
    return (_close(screen), None) if screen.pane is Pane.PAGE else (screen, SayPage())


def show_page(screen: Screen, card: PageCard) -> Screen:
    """Show how to open the live page; the answer to the wish ``SayPage``."""
    return replace(_show(screen, Pane.PAGE), card=card)


# --- the palette ---


def matching(screen: Screen) -> list[str]:
    """Return the words of the palette here that fit what is typed, the best first."""
    typed = (screen.typed or "").strip().lower()
    words = [word for role, pane, word in _WORDS if (role, pane) == (screen.role, screen.pane)]
    begin = [word for word in words if word.startswith(typed)]
    return begin + [word for word in words if typed in word and word not in begin]


def _palette(screen: Screen, _snapshot: Fields, _rows: int) -> Pressed:
    return replace(screen, typed="", naming=True), None


def _name(screen: Screen, typed: str, key: str, snapshot: Fields, rows: int) -> Pressed:
    """Apply a key to the palette: Enter does the first word that fits, Tab writes it out."""
    found = matching(screen)
    if key == "tab":
        return replace(screen, typed=found[0] if found else typed), None
    if key not in ("enter", "escape") and (key != "backspace" or typed):
        return replace(screen, typed=_with(typed, key)), None
    screen = replace(screen, typed=None, naming=False)
    if key != "enter" or not typed.strip():
        return screen, None
    if not found:
        return replace(screen, message=f"no command {typed.strip()!r} here; ? shows the keys"), None
    return _WORDS[screen.role, screen.pane, found[0]](screen, snapshot, rows)


# --- copying ---


def _copy(screen: Screen, snapshot: Fields, _rows: int) -> Pressed:
    """Ask what to copy: an id, a command about the issue, a line of the text."""
    if not (issue_id := _subject(screen, snapshot)):
        return replace(screen, message="nothing to copy: choose an issue"), None
    command = f"beads-workers {_verb(issue_id, snapshot)} {shlex.quote(issue_id)}"
    answers: dict[str, Wish] = {"i": Copy("the id", issue_id), "c": Copy("the command", command)}
    line = ""
    if screen.in_attempt and (log := screen.log) is not None and log.lines:
        answers["l"] = Copy("the line", _seen_line(screen, log))
        line = "; l the line that was found, or the last one seen"
    text = f"copy: i {issue_id}; c {command}{line}"
    return replace(screen, question=Question(text, answers)), None


def _verb(issue_id: str, snapshot: Fields) -> str:
    """Return the command that an issue needs now, or else the one that shows it."""
    by_verb = (
        ("answer", snapshot["questions"]),
        ("diff", snapshot["approvals"]),
        ("retry", snapshot["quarantined"]),
    )
    here = (verb for verb, rows in by_verb if any(row["issue_id"] == issue_id for row in rows))
    return next(here, "logs")


def _seen_line(screen: Screen, log: ShownLog) -> str:
    """Return the whole line in which a text was found, or else the last one on the screen."""
    end = log.end if screen.log_end is None else min(screen.log_end, log.end)
    row = end - 1 if screen.log_found is None else screen.log_found
    lines = [line for begin, line in log.whole_lines() if log.first + begin <= row]
    return lines[-1].strip() if lines else ""


# --- searching ---


def _search(screen: Screen, _snapshot: Fields, _rows: int) -> Pressed:
    return replace(screen, typed=""), None


def _type(screen: Screen, typed: str, key: str, rows: int) -> Screen:
    """Apply a key to the search text: every letter searches at once, Escape ends the search."""
    in_log = screen.pane in ATTEMPT
    if key == "enter":
        return replace(screen, typed=None)
    if key == "escape":
        typed, closed = "", True
    else:
        closed = key == "backspace" and not typed
        if typed == (typed := _with(typed, key)) and not closed:
            return screen
    shown = None if closed else typed
    if not in_log:
        return replace(screen, typed=shown, finds={**screen.finds, screen.pane: typed})
    screen = replace(screen, typed=shown, log_find=typed)
    return _next_found(screen, rows, 0) if typed else screen


def _next(by: int) -> Action:
    return lambda screen, _snapshot, rows: (_next_found(screen, rows, by), None)


def _next_found(screen: Screen, rows: int, by: int) -> Screen:
    """Find the next place below (1) or above (-1) the current one.

    0: the last one in a log, or the first one in another text.
    """
    if (log := screen.log) is None or not screen.log_find:
        return replace(screen, message="/ looks for a text")
    end = log.end if screen.log_end is None else screen.log_end
    here = (
        (end if by < 0 else max(0, end - rows) - 1)
        if screen.log_found is None
        else screen.log_found
    )
    places = _places(log, screen.log_find)
    if by > 0:
        place = next((each for each in places if each > here), None)
    elif by < 0:
        place = next((each for each in reversed(places) if each < here), None)
    else:
        place = places[-1 if screen.pane is Pane.LOG else 0] if places else None
    if place is None:
        return replace(screen, message=f"{screen.log_find!r} is not {_WHERE[by]}")
    shown = _scroll(replace(screen, log_end=place + 1 + rows // 2), 0, rows)
    return replace(shown, log_found=place)


def _places(log: ShownLog, text: str) -> list[int]:
    """Return the rows in which a text begins, in lines that may go on over several rows."""
    found = []
    for begin, line in log.whole_lines():
        if (at := found_in(text, line)) < 0:
            continue
        row = begin
        while at >= len(log.lines[row]) > 0:
            at -= len(log.lines[row])
            row += 1
        found.append(log.first + row)
    return found


_WHERE = {1: "further down", -1: "further up", 0: "in this text"}


# --- what the fleet is asked for ---


RESUMED = ("paused", "waiting")
"""States of a run that a person ends with 'resume'."""


UNDONE_BY: Mapping[str, str] = MappingProxyType(
    {"bw.pause": "p", "bw.resume": "p", "bw.scale": "+ -", "bw.retry": "x"}
)
"""Requests that a key takes back, and the key: they are made at once. All others ask first: a
killed task is lost, and what landed or was sent back stays so. A text that a person types
(``Writing``) is its own question: Enter sends it, Escape does not."""


def can_be_undone(ask: Ask) -> bool:
    """Return whether one key takes a request back; for several issues at once, none does."""
    return ask.control in UNDONE_BY and len(ask.fields.get("issue_ids", ())) <= 1


def _surely(screen: Screen, ask: Ask, text: str) -> Pressed:
    """Make a request, or first ask whether to, if it cannot be undone."""
    if can_be_undone(ask):
        return screen, ask
    return replace(screen, question=Question(f"{text} y yes, n no", {"y": ask})), None


def _pause(screen: Screen, snapshot: Fields, _rows: int) -> Pressed:
    return screen, Ask("bw.resume" if snapshot["state"] in RESUMED else "bw.pause")


def _stop(*, drain: bool = False) -> Action:
    text = "stop after what runs?" if drain else "stop the fleet, requeueing what runs?"
    ask = Ask("bw.stop", {"drain": True} if drain else {})
    return lambda screen, _snapshot, _rows: _surely(screen, ask, text)


def _scale(by: int) -> Action:
    def act(screen: Screen, snapshot: Fields, _rows: int) -> Pressed:
        own = sum(1 for worker in snapshot["workers"] if worker["own"])
        return screen, Ask("bw.scale", {"workers": max(0, own + by)})

    return act


def _subject(screen: Screen, snapshot: Fields, part: Part | None = None) -> str | None:
    """Return the issue that keys are about: of the open attempt, or of the chosen row."""
    if screen.in_attempt:
        return pin_name(screen)
    row = chosen_row(screen, snapshot, part or screen.part)
    return row["issue_id"] if row is not None else None


def _release(screen: Screen, snapshot: Fields, _rows: int) -> Pressed:
    issue_id = (
        _subject(screen, snapshot) if screen.in_attempt or screen.part is Part.WORKERS else None
    )
    busy = (row for row in snapshot["workers"] if issue_id and row["issue_id"] == issue_id)
    if (row := next(busy, None)) is None:
        return replace(screen, message="choose a busy worker first"), None
    text = f"release {_titled(row)}? Its task is ended until you retry it."
    return _surely(screen, Ask("bw.release", {"issue_ids": [issue_id]}), text)


def _unfold(screen: Screen, snapshot: Fields, _rows: int) -> Pressed:
    """List the issues of the chosen cause, or hide them again."""
    row = chosen_row(screen, snapshot, screen.part) or {}
    if not (key := row.get("key") or row.get("below")):
        return replace(screen, message="e shows the issues of one cause: choose one"), None
    chosen = {**screen.chosen, screen.part: key}
    return replace(screen, unfolded=screen.unfolded ^ {key}, chosen=chosen), None


def _look_again(screen: Screen, _snapshot: Fields, _rows: int) -> Pressed:
    return replace(screen, message="the tracker is asked"), LookAgain()


def _retry(screen: Screen, snapshot: Fields, _rows: int) -> Pressed:
    """Retry the chosen issue if it is quarantined, or all of the chosen cause."""
    row = chosen_row(screen, snapshot, screen.part) if screen.part in FOLDED else None
    if row is not None and "issue_ids" in row and not screen.in_attempt:
        return _again(screen, row["issue_ids"])
    issue_id = _subject(screen, snapshot)
    quarantined = {each["issue_id"] for each in snapshot["quarantined"]}
    if not quarantined:
        return replace(screen, message="nothing is quarantined"), None
    if issue_id is None or issue_id not in quarantined:
        return replace(screen, message="r tries a quarantined issue again; 3 shows them"), None
    return _again(screen, [issue_id])


def _retry_all(screen: Screen, snapshot: Fields, _rows: int) -> Pressed:
    rows = rows_of(replace(screen, unfolded=frozenset()), snapshot, Part.QUARANTINED)
    ids = [each for row in rows for each in row.get("issue_ids", [row["issue_id"]])]
    if screen.pane is not Pane.QUARANTINE:
        return replace(screen, message="a tries all that is quarantined again; 3 shows it"), None
    if not ids:
        return replace(screen, message="nothing is quarantined"), None
    return _again(screen, ids)


def _again(screen: Screen, ids: list[str]) -> Pressed:
    return _surely(screen, Ask("bw.retry", {"issue_ids": ids}), f"try {len(ids)} issues again?")


# --- what a person decides ---


def _decided(screen: Screen, snapshot: Fields, field: str) -> Fields | None:
    """Return the row that a person decides on, if it has this field."""
    issue_id = _subject(screen, snapshot, Part.DECISIONS)
    rows = rows_of(Screen(), snapshot, Part.DECISIONS)
    return next((row for row in rows if row["issue_id"] == issue_id and field in row), None)


def _answer(screen: Screen, snapshot: Fields, _rows: int) -> Pressed:
    if (row := _decided(screen, snapshot, "question")) is None:
        return replace(screen, message="i answers a question: choose one"), None
    issue_id = row["issue_id"]
    return replace(screen, typed="", writing=Writing("answer to", "bw.answer", issue_id)), None


def _approve(screen: Screen, snapshot: Fields, _rows: int) -> Pressed:
    if (row := _decided(screen, snapshot, "commit")) is None:
        return replace(screen, message="v approves a branch: choose one"), None
    issue_id, commit = row["issue_id"], row["commit"]
    wish = Ask("bw.approve", {"commits": {issue_id: commit}})
    return _surely(screen, wish, f"land {_titled(row)} at {commit[:SHA_CHARS]}?")


TITLE_CHARS = 20
"""Maximum of a title in a question, which has one row of a narrow terminal."""


def _titled(row: Fields) -> str:
    """Return an issue with its title: two ids may look alike."""
    return f"{row['issue_id']} ({printable(row['title'] or 'no title', TITLE_CHARS)})"


def _reject(screen: Screen, snapshot: Fields, _rows: int) -> Pressed:
    if (row := _decided(screen, snapshot, "commit")) is None:
        return replace(screen, message="V rejects a branch: choose one"), None
    count = len(screen.comments.get(row["issue_id"], ()))
    more = f" beside {counted(count, 'comment')}" if count else ""
    writing = Writing(f"what is wrong{more} with", "bw.reject", row["issue_id"])
    return replace(screen, typed="", writing=writing), None


def _comment(screen: Screen, snapshot: Fields, rows: int) -> Pressed:
    """Comment on the chosen line of a diff that awaits approval; elsewhere, copy."""
    row = None if screen.role is Role.REPLAY else _decided(screen, snapshot, "commit")
    if row is None:
        return _copy(screen, snapshot, rows)
    if (log := screen.log) is None or not log.lines:
        return screen, None
    lines = [line for _, line in log.whole_lines()]
    found = line_comment(lines, log.line_of(_line_at(screen, log, rows) + 1) - 1, "")
    if found is None:
        return replace(screen, message="c comments on a line of a file: j and k choose one"), None
    writing = Writing(f"on {found.place} of", "bw.reject", row["issue_id"], found)
    return replace(screen, typed="", writing=writing), None


def _close_issue(screen: Screen, snapshot: Fields, _rows: int) -> Pressed:
    """Close the chosen issue, or all of the chosen cause: nobody is to do them."""
    row = None if screen.in_attempt else chosen_row(screen, snapshot, screen.part)
    issue_id = _subject(screen, snapshot)
    ids = row["issue_ids"] if row is not None and "issue_ids" in row else [issue_id]
    if not issue_id:
        return replace(screen, message="C closes an issue: choose one"), None
    named = _titled(row) if row is not None and len(ids) == 1 else counted(len(ids), "issue")
    named = issue_id if screen.in_attempt else named
    return _surely(screen, Ask("bw.close", {"issue_ids": ids}), f"close {named} as not needed?")


def _merge(screen: Screen, snapshot: Fields, _rows: int) -> Pressed:
    if not (command := to_type(snapshot["landing"])):
        return replace(screen, message="nothing is left to merge"), None
    return _surely(screen, Ask("bw.merge"), f"{command}?")


def _write(screen: Screen, writing: Writing, typed: str, key: str) -> Pressed:
    """Apply a key to what a person writes: Enter sends it, Escape gives it up."""
    known = screen.comments.get(writing.issue_id, ()) if writing.control == "bw.reject" else ()
    if key == "enter" and writing.comment is not None and typed.strip():
        now = (*known, replace(writing.comment, text=typed.strip()))
        said = f"{counted(len(now), 'comment')}: V sends the branch back with them"
        comments = {**screen.comments, writing.issue_id: now}
        return replace(screen, typed=None, writing=None, comments=comments, message=said), None
    if key == "enter" and writing.comment is None and (typed.strip() or known):
        fields: dict[str, object] = {"issue_ids": [writing.issue_id], "text": typed.strip()}
        screen = replace(screen, typed=None, writing=None)
        if not writing.control:
            return screen, Save(typed.strip())
        if known:
            fields["comments"] = [asdict(each) for each in known]
            screen = replace(screen, comments={**screen.comments, writing.issue_id: ()})
        return screen, Ask(writing.control, fields)
    if key in ("enter", "escape"):
        return replace(screen, typed=None, writing=None, message="left as it is"), None
    return replace(screen, typed=_with(typed, key)), None


def _with(typed: str, key: str) -> str:
    """Return a typed text after one more key."""
    if key == "ctrl+u":
        return ""
    if key == "backspace":
        return typed[:-1]
    return typed + {"space": " "}.get(key, key if len(key) == 1 else "")


def _leave(screen: Screen, snapshot: Fields, _rows: int) -> Pressed:
    if screen.role is not Role.START or not snapshot["running"]:
        return screen, Leave()
    answers: dict[str, Wish] = {
        "s": Ask("bw.stop"),
        "d": Ask("bw.stop", {"drain": True}),
        "b": Detach(),
    }
    text = "leave? n stay; b let it run in the background; d drain; s stop, requeueing what runs"
    return replace(screen, question=Question(text, answers)), None


def _faster(factor: float) -> Action:
    return lambda screen, _snapshot, _rows: (screen, Faster(factor))


# --- the rows ------------------------------------------------------------------------------------

ROWS = (
    BindingRow(
        "j k g G", "choose a row; go to the ends; or arrows, page keys",
        "choose a row; turn pages; go to the ends",
        (
            Binding("j down", _step(1)), Binding("k up", _step(-1)),
            Binding("wheel_down", _step(WHEEL_ROWS)), Binding("wheel_up", _step(-WHEEL_ROWS)),
            Binding("page_down right", _step(1, pages=True)),
            Binding("page_up left", _step(-1, pages=True)),
            Binding("g home", _step(-_FAR)), Binding("G end", _step(_FAR)),
        ),
    ),
    BindingRow(
        "Tab", "the other list; in an attempt: log, diff, why",
        "go from the workers to the attempts that ended, and back; in an attempt from its log to"
        " its diff and to why",
        (
            Binding("tab shift+tab", _other_list, {Pane.FLEET}, word="other list"),
            Binding("tab", _next_section(1), ATTEMPT),
            Binding("shift+tab", _next_section(-1), ATTEMPT),
        ),
    ),
    BindingRow(
        "Enter", "open the attempt of the row, and its log",
        "open the attempt of the chosen row, with its log: it stays open when it ends and others"
        " begin; again: go back",
        (Binding("enter l", _attempt, word="open"),),
    ),
    BindingRow(
        "d y [ ]", "its diff; why, receipt; the attempt before, next",
        "the diff of the attempt; why its issue stands where it does, with receipt, branch and all"
        " attempts; in an attempt: the attempt of the issue before, and the next",
        (
            Binding("d", _section(Pane.DIFF), {*LISTS, *ATTEMPT}, word="diff"),
            Binding("y", _section(Pane.ABOUT), {*LISTS, *ATTEMPT}, word="why"),
            Binding("[", _other_attempt(-1), ATTEMPT, word="attempt before"),
            Binding("]", _other_attempt(1), ATTEMPT, word="attempt after"),
        ),
    ),
    BindingRow(
        "1-5 !", "fleet; landing; quarantined; to decide; all issues",
        "the fleet; what lands; quarantined issues by cause; questions and branches that await your"
        " approval; all issues by state. `!`: the attempt of the issue that needs you most, and"
        " again of the next one",
        (
            Binding("1", _pane(Pane.FLEET), word="fleet"),
            Binding("2", _pane(Pane.LANDING), word="landing"),
            Binding("3", _pane(Pane.QUARANTINE), word="quarantined"),
            Binding("4", _pane(Pane.DECISIONS), word="to decide"),
            Binding("5", _pane(Pane.ISSUES), word="issues"),
            Binding("!", _needs_you, word="needs you"),
        ),
    ),
    BindingRow(
        ": c", "commands by name; copy, in a diff: comment",
        "all commands by name: Tab writes the first one that fits, Enter does it. `c` copies the"
        " id of the issue, a command about it, or a line of the text to the clipboard (OSC 52)",
        (
            Binding(":", _palette),
            Binding("c", _copy, {*LISTS, Pane.LOG, Pane.ABOUT}, asks=True, word="copy"),
        ),
    ),
    BindingRow(
        "", "",
        "comment on the chosen line of a branch that awaits approval: reject sends all comments; of"
        " another diff, copy",
        (Binding("c", _comment, {Pane.DIFF}, asks=True, word="comment"),),
    ),
    BindingRow("", "", "help", (Binding("?", _pane(Pane.HELP), word="help"),)),
    BindingRow(
        "/ n N", "only rows with a text; in a text: find it, next",
        "show only the rows with a text, in this view; in an attempt: find the text, then the next"
        " and the previous one",
        (
            Binding("/", _search, {*LISTS, *ATTEMPT}, word="find"),
            Binding("n", _next(1), ATTEMPT), Binding("N", _next(-1), ATTEMPT),
        ),
    ),
    BindingRow(
        "w f T S", "in an attempt: wrap, full screen, times, save",
        "in an attempt: long lines go on in the next row; nothing else on the screen; when each"
        " line of the log came; save the text to a file",
        (
            Binding("w", _wrap, {Pane.LOG, Pane.DIFF}, word="wrap"),
            Binding("f", _full, ATTEMPT, word="full screen"),
            Binding("T", _times, {Pane.LOG}, word="times"),
            Binding("S", _save, ATTEMPT, word="save"),
        ),
    ),
    BindingRow(
        "f s", "only some states; sort: time, cost, name, ...",
        "show only some states: busy or idle workers, failed or done attempts, branches that landed"
        " or did not or wait, issues of one state. Sort the workers by time, cost or name, the"
        " issues by priority, time, id or title",
        (
            Binding("f", _filter, {Pane.FLEET, Pane.LANDING, Pane.ISSUES}, word="filter"),
            Binding("s", _sort, {Pane.FLEET, Pane.ISSUES}, word="sort"),
        ),
    ),
    BindingRow(
        "e u", "in 3 and 5: the issues of a cause; in 5: ask anew",
        "in `3` and `5`: show the issues of the chosen cause, or hide them; in `5`: ask the tracker"
        " now",
        (
            Binding("e", _unfold, {Pane.QUARANTINE, Pane.ISSUES}, word="unfold"),
            Binding("u", _look_again, {Pane.ISSUES}, word="update"),
        ),
    ),
    BindingRow(
        "r a", "retry what is quarantined; in 3 all of it (asks)",
        "retry the quarantined issue that is chosen or open, or all of the chosen cause (asks); in"
        " `3` all that are shown",
        (
            Binding("r", _retry, word="retry"),
            Binding("a", _retry_all, asks=True, word="retry all"),
        ), DECIDES,
    ),
    BindingRow(
        "i v V", "answer; approve (asks first); reject",
        "in `4` and in an attempt: answer the question; approve the branch at the commit that is"
        " shown; reject it with remarks",
        (
            Binding("i", _answer, {Pane.DECISIONS, *ATTEMPT}, word="answer"),
            Binding("v", _approve, {Pane.DECISIONS, *ATTEMPT}, asks=True, word="approve"),
            Binding("V", _reject, {Pane.DECISIONS, *ATTEMPT}, word="reject"),
        ), DECIDES,
    ),
    BindingRow(
        "C M", "close as not needed; merge what landed (ask)",
        "in the morning: close the chosen issue, or all of the chosen cause, as not needed; bring"
        " what has landed to your branch",
        (
            Binding("C", _close_issue, {*OWN_PARTS, *ATTEMPT}, asks=True, word="close"),
            Binding("M", _merge, asks=True, word="merge"),
        ), frozenset({Role.MORNING}),
    ),
    BindingRow(
        "p + - x", "pause; one worker more, less; release (asks)",
        "pause, and resume; one worker more, one less; release the issue of the chosen worker, or"
        " the open one. Only in the palette: `drain`, `stop`",
        (
            Binding("x", _release, asks=True, word="release"),
            Binding("p", _pause, word="pause or resume"),
            Binding("+ =", _scale(1), word="more workers"),
            Binding("-", _scale(-1), word="fewer workers"),
            Binding("", _stop(drain=True), asks=True, word="drain"),
            Binding("", _stop(), asks=True, word="stop"),
        ), LIVE,
    ),
    BindingRow(
        "space", "hold, and go on", "in a replay: hold, and go on",
        (Binding("space p", _faster(0.0), word="hold or go on"),), REPLAY,
    ),
    BindingRow(
        "+ -", "twice as fast, half as fast", "in a replay: twice as fast, half as fast",
        (
            Binding("+ =", _faster(2.0), word="faster"),
            Binding("-", _faster(0.5), word="slower"),
        ), REPLAY,
    ),
    BindingRow(
        "m t w", "mouse on, off; other colours; the live page",
        "leave the mouse to the terminal, which then selects text, or take it again; other colours."
        " `w`: how to open the live page: its address, a tunnel for a phone, and if"
        " `segno` is installed a QR code",
        (
            Binding("m", _mouse, word="mouse"),
            Binding("t", _theme, word="colours"),
            Binding("w", _page, EVERYWHERE - IN_ATTEMPT, word="page"),
        ),
    ),
    BindingRow(
        "q", "back, and leave: your own fleet stops or goes on",
        "go back. From the fleet, Escape shows all rows again, and `q` leaves; in the terminal that"
        " started the fleet, it asks whether to stop, drain, or leave the fleet in the background",
        (
            Binding("q", _leave, {Pane.FLEET}, asks=True, word="leave"),
            Binding("q", _back, EVERYWHERE - {Pane.FLEET}, word="back"), Binding("escape", _back),
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
_WORDS = {
    (role, pane, key.word): key.act
    for row in ROWS
    for key in row.keys
    for role in row.roles
    for pane in key.panes
    if key.word
}
KEYS_TAKEN = frozenset(name for _, _, name in _ACTIONS)
"""Keys that have a meaning anywhere."""
