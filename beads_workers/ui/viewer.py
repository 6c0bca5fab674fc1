"""What one viewer has before the eyes: the choices that keys change, and rows of coloured text."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from rich.color import ColorSystem
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style

from beads_workers.core.text import counted
from beads_workers.ui import theme


class Role(Enum):
    """Whose dashboard this is; it decides what leaving means."""

    START = "start"
    WATCH = "watch"
    REPLAY = "replay"


class Pane(Enum):
    """What fills the middle."""

    FLEET = "fleet"
    LANDING = "landing"
    QUARANTINE = "quarantined"
    LOG = "log"
    HELP = "help"


class Part(Enum):
    """A list that the arrows move in: the first two are in ``Pane.FLEET``."""

    WORKERS = "workers"
    ENDED = "ended"
    QUARANTINED = "quarantined"


Fields = Mapping[str, Any]

STATES: dict[Part, dict[str, Callable[[Fields], bool]]] = {
    Part.WORKERS: {
        "busy": lambda row: row["issue_id"] is not None,
        "idle": lambda row: row["issue_id"] is None,
    },
    Part.ENDED: {
        "failed": lambda row: row["verdict"] not in ("finish", "land"),
        "done": lambda row: row["verdict"] in ("finish", "land"),
    },
    Part.QUARANTINED: {},
}
"""What ``f`` shows of a list, after all of it."""

ORDERS: dict[str, Callable[[Fields], float]] = {
    "time": lambda row: row["elapsed_seconds"] or -1.0,
    "cost": lambda row: row["money"] or (row["tokens"] or 0) / 1e9,
}
"""What ``s`` puts first among the workers, the most of it first, after their names."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A control request."""

    control: str
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Leave:
    """End this view; the fleet goes on, or ends, by itself."""


@dataclass(frozen=True, slots=True)
class Detach:
    """End this view, and let the fleet live on without its owner."""


@dataclass(frozen=True, slots=True)
class Faster:
    """Replay so many times as fast as now; 0 holds it, and lets it go on."""

    factor: float


@dataclass(frozen=True, slots=True)
class OtherTheme:
    """Draw in the colours of the next theme."""


@dataclass(frozen=True, slots=True)
class SayPage:
    """Say where the live page is."""


Wish = Ask | Leave | Detach | Faster | OtherTheme | SayPage


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked before something is done; each key with what it means."""

    text: str
    answers: Mapping[str, Wish]


@dataclass(frozen=True, slots=True)
class ShownLog:
    """A log, or the end of a long one. ``first``: how many lines stood before these. ``changes``:
    what its attempt has changed in its worktree so far, in git's words."""

    title: str
    lines: Sequence[str] = ()
    first: int = 0
    changes: str = ""

    @property
    def end(self) -> int:
        """How many lines there were in all."""
        return self.first + len(self.lines)


@dataclass(frozen=True, slots=True)
class ShownAttempt:
    """The attempt that is looked at. ``row``: of the snapshot, where it says more of it.

    ``worker_id``: whose, "" where that is not known any more."""

    issue_id: str
    attempt: int
    worker_id: str
    running: bool
    row: Fields

    @property
    def title(self) -> str:
        """``W1 runs app-1, attempt 2``."""
        does = "runs" if self.running else "ran"
        who = f"{self.worker_id} {does} " if self.worker_id else ""
        return f"{who}{self.issue_id}, attempt {self.attempt}"


@dataclass(frozen=True, slots=True)
class Look:
    """``part``: the list that the arrows are in; ``chosen``: the key of each one's chosen row.

    ``states``: which rows of a list are shown, all where it has none; ``find``: only those with
    this text; ``order``: of ``ORDERS``, "" for names. ``log_end``: which line stands last, None
    while the log is followed; ``log_find``: the text that is looked for in it; ``log_found``: the
    line where it was found last. ``top``: how far the pane of what lands is scrolled. ``typed``:
    what has been typed after ``/``, None while nobody types. ``message``: what the fleet answered
    last. ``caption``: what a demo says about the moment. ``unicode``: whether the terminal can show
    more than ASCII.
    """

    role: Role = Role.WATCH
    pane: Pane = Pane.FLEET
    part: Part = Part.WORKERS
    chosen: Mapping[Part, str] = field(default_factory=dict)
    states: Mapping[Part, str] = field(default_factory=dict)
    find: str = ""
    order: str = ""
    log_end: int | None = None
    log_find: str = ""
    log_found: int | None = None
    top: int = 0
    typed: str | None = None
    question: Question | None = None
    message: str = ""
    caption: str = ""
    log: ShownLog | None = None
    unicode: bool = True


Pressed = tuple[Look, Wish | None]

# --- lists ---------------------------------------------------------------------------------------


def rows_of(look: Look, snapshot: Fields, part: Part) -> list[Fields]:
    """What a list shows, in its order: attempts that ended with the newest first."""
    match part:
        case Part.WORKERS:
            rows = list(snapshot["workers"])
            if look.order:
                rows.sort(key=ORDERS[look.order], reverse=True)
        case Part.ENDED:
            rows = list(reversed(snapshot["outcomes"]))
        case Part.QUARANTINED:
            rows = list(snapshot["quarantined"])
    if shown := STATES[part].get(look.states.get(part, "")):
        rows = [row for row in rows if shown(row)]
    if look.find:
        rows = [row for row in rows if _says(row, look.find)]
    return rows


def key_of(part: Part, row: Fields) -> str:
    """What a row is known by, wherever it stands."""
    if part is Part.WORKERS:
        return str(row["worker_id"])
    return f"{row['issue_id']} {row['at']}" if part is Part.ENDED else str(row["issue_id"])


def chosen_at(look: Look, rows: Sequence[Fields], part: Part) -> int:
    """Where in its list the chosen row stands; the first one's place where it is gone."""
    key = look.chosen.get(part)
    return next((at for at, row in enumerate(rows) if key_of(part, row) == key), 0)


def chosen_row(look: Look, snapshot: Fields, part: Part) -> Fields | None:
    """The row that the arrows are on; None in an empty list."""
    rows = rows_of(look, snapshot, part)
    return rows[chosen_at(look, rows, part)] if rows else None


def shown_attempt(look: Look, snapshot: Fields) -> ShownAttempt | None:
    """The attempt of the chosen row: what a worker runs or ran last, or one that has ended."""
    row = chosen_row(look, snapshot, look.part)
    if row is None:
        return None
    if look.part is Part.WORKERS and (issue_id := row["issue_id"]) is not None:
        return ShownAttempt(issue_id, row["attempt"], row["worker_id"], running=True, row=row)
    if look.part is Part.ENDED:
        return _ended(row)
    name = "worker_id" if look.part is Part.WORKERS else "issue_id"
    last = (each for each in reversed(snapshot["outcomes"]) if each[name] == row[name])
    if (found := next(last, None)) is not None:
        return _ended(found)
    if look.part is Part.WORKERS:
        return None
    return ShownAttempt(row["issue_id"], row["attempts"], "", running=False, row=row)


def _ended(row: Fields) -> ShownAttempt:
    return ShownAttempt(row["issue_id"], row["attempt"], row["worker_id"], running=False, row=row)


def _says(row: Fields, text: str) -> bool:
    """Small letters find large ones too."""
    whole = " ".join(value for value in row.values() if isinstance(value, str))
    return text in (whole.lower() if text.islower() else whole)


def found_in(text: str, line: str) -> int:
    """Where a line of a log has this text; -1 for nowhere."""
    return (line.lower() if text.islower() else line).find(text)


# --- keys ----------------------------------------------------------------------------------------


def press(look: Look, key: str, snapshot: Fields, page_rows: int = 8) -> Pressed:
    """What a key does: how the view is then, and what is asked of the fleet."""
    if look.question is not None:
        wish = look.question.answers.get(key)
        return replace(look, question=None, message="" if wish else "left as it is"), wish
    look = replace(look, message="")
    if look.typed is not None:
        return _type(look, look.typed, key, page_rows), None
    if key in _STEPS:
        return _move(look, _STEPS[key], snapshot, page_rows), None
    if key in _PANES:
        return _open(look, _PANES[key]), None
    if look.pane is Pane.LOG and key in ("n", "N"):
        return _next_found(look, page_rows, 1 if key == "n" else -1), None
    if key == "q" and look.pane is Pane.FLEET:
        return _leave(look, snapshot)
    if key in ("t", "w"):
        return look, OtherTheme() if key == "t" else SayPage()
    viewed = _view(look, key, snapshot)
    if viewed is not None:
        return viewed, None
    return _of_replay(look, key) if look.role is Role.REPLAY else _of_fleet(look, key, snapshot)


_STEPS: dict[str, tuple[int, bool]] = {
    "up": (-1, False),
    "k": (-1, False),
    "down": (1, False),
    "j": (1, False),
    "page_up": (-1, True),
    "page_down": (1, True),
    "left": (-1, True),
    "right": (1, True),
    "home": (-(1 << 20), False),
    "g": (-(1 << 20), False),
    "end": (1 << 20, False),
    "G": (1 << 20, False),
}
"""Key -> how far it goes, and whether in pages."""

_PANES = {"1": Pane.FLEET, "2": Pane.LANDING, "3": Pane.QUARANTINE, "?": Pane.HELP}


def _open(look: Look, pane: Pane) -> Look:
    """A pane; the same key once more leads back to the fleet."""
    if look.pane is pane:
        pane = Pane.FLEET
    part = Part.QUARANTINED if pane is Pane.QUARANTINE else look.part
    if pane is Pane.FLEET and part is Part.QUARANTINED:
        part = Part.WORKERS
    return replace(look, pane=pane, part=part, top=0, log_end=None, log_found=None)


def _view(look: Look, key: str, snapshot: Fields) -> Look | None:
    """What changes the view only; None for a key that asks something of the fleet, or nothing."""
    match key:
        case "escape" | "q":
            if look.pane is Pane.FLEET or (look.pane is Pane.QUARANTINE and look.find):
                return replace(look, find="", states={})
            in_quarantine = look.pane is Pane.LOG and look.part is Part.QUARANTINED
            return _open(look, Pane.QUARANTINE if in_quarantine else Pane.FLEET)
        case "enter" | "l":
            if look.pane is Pane.LOG:
                return _open(look, Pane.QUARANTINE if look.part is Part.QUARANTINED else Pane.FLEET)
            if look.pane in (Pane.LANDING, Pane.HELP):
                return _open(look, Pane.FLEET)
            if shown_attempt(look, snapshot) is None:
                return replace(look, message="nothing has run there yet")
            return replace(look, pane=Pane.LOG, log_end=None, log=None)
        case "tab" | "shift+tab" if look.pane is Pane.FLEET:
            other = Part.ENDED if look.part is Part.WORKERS else Part.WORKERS
            return replace(look, part=other)
        case "/" if look.pane in (Pane.FLEET, Pane.QUARANTINE, Pane.LOG):
            return replace(look, typed="")
        case "f" if look.pane is Pane.FLEET:
            return replace(look, states={**look.states, look.part: _next_state(look)})
        case "s" if look.pane is Pane.FLEET:
            orders = ["", *ORDERS]
            order = orders[(orders.index(look.order) + 1) % len(orders)]
            return replace(look, order=order, message=f"workers by {order or 'name'}")
    return None


def _next_state(look: Look) -> str:
    states = ["", *STATES[look.part]]
    return states[(states.index(look.states.get(look.part, "")) + 1) % len(states)]


def _move(look: Look, step: tuple[int, bool], snapshot: Fields, rows: int) -> Look:
    by = step[0] * (rows if step[1] else 1)
    match look.pane:
        case Pane.HELP:
            return look
        case Pane.LANDING:
            landing = snapshot["landing"] or {"waiting": (), "last": (), "refused": ()}
            most = sum(len(landing[name]) for name in ("waiting", "last", "refused"))
            return replace(look, top=min(max(0, look.top + by), most))
        case Pane.LOG:
            return _scroll(look, by, rows)
    listed = rows_of(look, snapshot, look.part)
    if not listed:
        return look
    at = min(max(0, chosen_at(look, listed, look.part) + by), len(listed) - 1)
    return replace(look, chosen={**look.chosen, look.part: key_of(look.part, listed[at])})


def _scroll(look: Look, by: int, rows: int) -> Look:
    """Away from the end it stands still; at the end it is followed again."""
    if (log := look.log) is None:
        return look
    end = (log.end if look.log_end is None else look.log_end) + by
    end = max(end, min(log.first + rows, log.end))
    return replace(look, log_end=None if end >= log.end else end, log_found=None)


def _type(look: Look, typed: str, key: str, rows: int) -> Look:
    """What is looked for is found with every letter; Escape gives it up."""
    in_log = look.pane is Pane.LOG
    if key == "enter":
        return replace(look, typed=None)
    if key == "escape":
        typed, closed = "", True
    else:
        closed = key == "backspace" and not typed
        typed = typed[:-1] if key == "backspace" else typed + {"space": " "}.get(key, key)
        if len(key) > 1 and key not in ("backspace", "space"):
            return look
    shown = None if closed else typed
    if not in_log:
        return replace(look, typed=shown, find=typed)
    look = replace(look, typed=shown, log_find=typed)
    return _next_found(look, rows, 0) if typed else look


def _next_found(look: Look, rows: int, by: int) -> Look:
    """Its next place below (1) or above (-1) the one before, or what is shown; 0: the last one."""
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


def _of_fleet(look: Look, key: str, snapshot: Fields) -> Pressed:
    own = sum(1 for worker in snapshot["workers"] if worker["own"])
    match key:
        case "p":
            return look, Ask("bw.resume" if snapshot["state"] == "paused" else "bw.pause")
        case "+" | "=":
            return look, Ask("bw.scale", {"workers": own + 1})
        case "-":
            return look, Ask("bw.scale", {"workers": max(0, own - 1)})
        case "x":
            return _release(look, snapshot)
        case "r":
            return _retry(look, snapshot)
        case "a":
            return _retry_all(look, snapshot)
        case _ if len(key) == 1:
            return replace(look, message=f"{key} does nothing here; ? shows the keys"), None
        case _:
            return look, None


def _release(look: Look, snapshot: Fields) -> Pressed:
    shown = shown_attempt(look, snapshot) if look.part is Part.WORKERS else None
    if shown is None or not shown.running:
        return replace(look, message="choose a busy worker first"), None
    text = (
        f"release {shown.issue_id}? Its task on {shown.worker_id} is ended, and the issue is"
        " left alone until you retry it. y yes, n no"
    )
    question = Question(text, {"y": Ask("bw.release", {"issue_ids": [shown.issue_id]})})
    return replace(look, question=question), None


def _retry(look: Look, snapshot: Fields) -> Pressed:
    """The chosen issue, where it is quarantined."""
    row = chosen_row(look, snapshot, look.part)
    quarantined = {each["issue_id"] for each in snapshot["quarantined"]}
    if not quarantined:
        return replace(look, message="nothing is quarantined"), None
    if row is None or row["issue_id"] not in quarantined:
        return replace(look, message="r tries a quarantined issue again; 3 shows them"), None
    return look, Ask("bw.retry", {"issue_ids": [row["issue_id"]]})


def _retry_all(look: Look, snapshot: Fields) -> Pressed:
    ids = [row["issue_id"] for row in rows_of(look, snapshot, Part.QUARANTINED)]
    if look.pane is not Pane.QUARANTINE:
        return replace(look, message="a tries all that is quarantined again; 3 shows it"), None
    if not ids:
        return replace(look, message="nothing is quarantined"), None
    text = f"try {counted(len(ids), 'issue')} again? y yes, n no"
    return replace(look, question=Question(text, {"y": Ask("bw.retry", {"issue_ids": ids})})), None


def _leave(look: Look, snapshot: Fields) -> Pressed:
    if look.role is not Role.START or not snapshot["running"]:
        return look, Leave()
    answers: dict[str, Wish] = {
        "s": Ask("bw.stop"),
        "d": Ask("bw.stop", {"drain": True}),
        "b": Detach(),
    }
    text = "leave? n stay; b let it run in the background; d drain; s stop, requeueing what runs"
    return replace(look, question=Question(text, answers)), None


def _of_replay(look: Look, key: str) -> Pressed:
    factors = {"+": 2.0, "=": 2.0, "-": 0.5, "space": 0.0, "p": 0.0}
    return look, Faster(factors[key]) if key in factors else None


# --- renderer ------------------------------------------------------------------------------------
# A rich renderable as rows of text with colours in it, as a terminal of this size shows them.


_SYSTEMS = {
    "standard": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "truecolor": ColorSystem.TRUECOLOR,
}
_ATTRIBUTES = (
    "bold", "dim", "italic", "underline", "blink", "blink2", "reverse", "conceal", "strike",
    "underline2", "frame", "encircle", "overline",
)  # fmt: skip
STYLES_MAX = 1000
"""A dashboard has some dozens; colours that are computed must not fill the memory."""


class Renderer:
    """One for each way of showing colours; keeps its console, which is dear to make."""

    def __init__(self, environ: Mapping[str, str] = os.environ, name: str = "") -> None:
        """Colours as rich finds them in ``environ``: NO_COLOR, COLORTERM, TERM. ``name``: of the
        theme; without one it is what ``environ`` asks for, or what fits any background."""
        self._console = Console(
            file=io.StringIO(),
            force_terminal=True,
            legacy_windows=False,
            markup=False,
            emoji=False,
            highlight=False,
            _environ=environ,
        )
        self._system = _SYSTEMS.get(self._console.color_system or "")
        colours = 16 if self._system is ColorSystem.STANDARD else 256
        self._console.push_theme(
            theme.styles(name or theme.named(environ) or "any", colours=colours)
        )
        self._around: dict[Style, tuple[str, str]] = {}
        """What stands before and after text in a style."""

    def lines(self, renderable: RenderableType, columns: int, rows: int) -> list[str]:
        """At most ``rows`` rows of at most ``columns`` columns, for ``Terminal.draw``."""
        options = self._console.options.update(width=columns, height=None)
        options.max_height = rows
        lines = self._console.render_lines(renderable, options, pad=False)
        return [self._row(line) for line in lines[:rows]]

    def _row(self, segments: list[Segment]) -> str:
        return "".join(
            self._styled(text, style) if style else text
            for text, style, control in _without_blank_end(segments)
            if not control
        )

    def _styled(self, text: str, style: Style) -> str:
        """As ``Style.render``, which keeps what it made for whichever colours came first."""
        if (around := self._around.get(style)) is None:
            if len(self._around) >= STYLES_MAX:
                self._around.clear()
            around = self._around[style] = self._codes(style)
        return f"{around[0]}{text}{around[1]}"

    def _codes(self, style: Style) -> tuple[str, str]:
        colours = not self._console.no_color
        fresh = Style(
            color=style.color if colours else None,
            bgcolor=style.bgcolor if colours else None,
            **{name: getattr(style, name) for name in _ATTRIBUTES},
        )
        before, _, after = fresh.render("\0", color_system=self._system).partition("\0")
        return before, after


def _without_blank_end(segments: list[Segment]) -> list[Segment]:
    """Without the spaces up to the edge: fewer bytes, and nothing to select that is not there."""
    end = len(segments)
    while end and not segments[end - 1].text.strip(" ") and _is_unseen(segments[end - 1].style):
        end -= 1
    if not end:
        return []
    last = segments[end - 1]
    if not last.text.endswith(" ") or not _is_unseen(last.style):
        return segments[:end]
    return [*segments[: end - 1], Segment(last.text.rstrip(" "), last.style)]


def _is_unseen(style: Style | None) -> bool:
    """Whether a space in this style looks like nothing."""
    return style is None or not (
        style.bgcolor or style.reverse or style.underline or style.underline2 or style.strike
    )
