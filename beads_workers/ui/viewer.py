"""The view of one viewer: the choices that keys change, and rows of coloured text."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from rich.color import ColorSystem
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style

from beads_workers.ui import theme


class Role(Enum):
    """The owner of a dashboard; it decides what leaving means."""

    START = "start"
    WATCH = "watch"
    REPLAY = "replay"


class Pane(Enum):
    """Content of the middle of the screen."""

    FLEET = "fleet"
    LANDING = "landing"
    QUARANTINE = "quarantined"
    DECISIONS = "to decide"
    LOG = "log"
    HELP = "help"


class Part(Enum):
    """A list that the arrows move in: the first two are in ``Pane.FLEET``."""

    WORKERS = "workers"
    ENDED = "ended"
    QUARANTINED = "quarantined"
    DECISIONS = "to decide"


Fields = Mapping[str, Any]

STATES: dict[Part, dict[str, Callable[[Fields], bool]]] = {
    Part.WORKERS: {
        "busy": lambda row: row["issue_id"] is not None,
        "idle": lambda row: row["issue_id"] is None,
    },
    Part.ENDED: {
        "failed": lambda row: row["decision"] not in ("finish", "land"),
        "done": lambda row: row["decision"] in ("finish", "land"),
    },
    Part.QUARANTINED: {},
    Part.DECISIONS: {},
}
"""Filters of a list that ``f`` cycles through, after all rows."""

ORDERS: dict[str, Callable[[Fields], float]] = {
    "time": lambda row: row["elapsed_seconds"] or -1.0,
    "cost": lambda row: row["money_usd"] or (row["tokens"] or 0) / 1e9,
}
"""Orders of workers that ``s`` cycles through, largest first, after the order by name."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A control request."""

    control: str
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Leave:
    """Wish: end this view; the fleet goes on, or ends, by itself."""


@dataclass(frozen=True, slots=True)
class Detach:
    """Wish: end this view, and let the fleet live on without its owner."""


@dataclass(frozen=True, slots=True)
class Faster:
    """Wish: replay so many times as fast as now; 0 holds the replay, or continues it."""

    factor: float


@dataclass(frozen=True, slots=True)
class OtherTheme:
    """Wish: draw in the colours of the next theme."""


@dataclass(frozen=True, slots=True)
class SayPage:
    """Wish: show the address of the live page."""


Wish = Ask | Leave | Detach | Faster | OtherTheme | SayPage


@dataclass(frozen=True, slots=True)
class Question:
    """A question before an action; ``answers``: the meaning of each key."""

    text: str
    answers: Mapping[str, Wish]


@dataclass(frozen=True, slots=True)
class Writing:
    """What a person types for an issue; ``control``: the request that sends it."""

    label: str
    control: str
    issue_id: str


@dataclass(frozen=True, slots=True)
class ShownLog:
    """A log, or the end of a long one.

    ``first``: number of lines before these. ``changes``: changes of the attempt in its worktree so
    far, in git's words.
    """

    title: str
    lines: Sequence[str] = ()
    first: int = 0
    changes: str = ""

    @property
    def end(self) -> int:
        """Number of lines in all."""
        return self.first + len(self.lines)


@dataclass(frozen=True, slots=True)
class ShownAttempt:
    """The selected attempt. ``row``: its row of the snapshot, with further fields.

    ``worker_id``: its worker, "" if that is no longer known.
    """

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
    """State of a view.

    ``part``: the list that the arrows are in; ``chosen``: the key of each list's chosen row.

    ``states``: filter of each list; a list without one shows all rows. ``find``: only rows with
    this text. ``order``: of ``ORDERS``, "" for names. ``log_end``: the last shown line of the log,
    None while the log is followed; ``log_find``: the text that is searched in the log;
    ``log_found``: the line where it was found last. ``top``: scroll position of the landing pane.
    ``typed``: text after ``/``, or of ``writing``; None while nobody types. ``message``: the last
    answer of the fleet. ``caption``: comment of a demo on the moment. ``unicode``: whether the
    terminal can show more than ASCII.
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
    writing: Writing | None = None
    question: Question | None = None
    message: str = ""
    caption: str = ""
    log: ShownLog | None = None
    unicode: bool = True


Pressed = tuple[Look, Wish | None]

# --- lists ---------------------------------------------------------------------------------------


def rows_of(look: Look, snapshot: Fields, part: Part) -> list[Fields]:
    """Return the rows of a list, in its order: ended attempts with the newest first."""
    match part:
        case Part.WORKERS:
            rows = list(snapshot["workers"])
            if look.order:
                rows.sort(key=ORDERS[look.order], reverse=True)
        case Part.ENDED:
            rows = list(reversed(snapshot["outcomes"]))
        case Part.QUARANTINED:
            rows = list(snapshot["quarantined"])
        case Part.DECISIONS:
            rows = [*snapshot["questions"], *snapshot["approvals"]]
    if shown := STATES[part].get(look.states.get(part, "")):
        rows = [row for row in rows if shown(row)]
    if look.find:
        rows = [row for row in rows if _says(row, look.find)]
    return rows


def key_of(part: Part, row: Fields) -> str:
    """Return the key of a row, which does not depend on its place."""
    if part is Part.WORKERS:
        return str(row["worker_id"])
    return f"{row['issue_id']} {row['at']}" if part is Part.ENDED else str(row["issue_id"])


def chosen_at(look: Look, rows: Sequence[Fields], part: Part) -> int:
    """Return the index of the chosen row; 0 if that row is gone."""
    key = look.chosen.get(part)
    return next((at for at, row in enumerate(rows) if key_of(part, row) == key), 0)


def chosen_row(look: Look, snapshot: Fields, part: Part) -> Fields | None:
    """Return the row that the arrows are on; None in an empty list."""
    rows = rows_of(look, snapshot, part)
    return rows[chosen_at(look, rows, part)] if rows else None


def shown_attempt(look: Look, snapshot: Fields) -> ShownAttempt | None:
    """Return the attempt of the chosen row: a worker's current or last one, or an ended one."""
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
    if look.part is not Part.QUARANTINED:
        return None
    return ShownAttempt(row["issue_id"], row["attempts"], "", running=False, row=row)


def _ended(row: Fields) -> ShownAttempt:
    return ShownAttempt(row["issue_id"], row["attempt"], row["worker_id"], running=False, row=row)


def _says(row: Fields, text: str) -> bool:
    """Return whether a row has the text; a lower-case text matches any case."""
    whole = " ".join(value for value in row.values() if isinstance(value, str))
    return text in (whole.lower() if text.islower() else whole)


def found_in(text: str, line: str) -> int:
    """Return where a line of a log has the text, -1 if nowhere; lower case matches any case."""
    return (line.lower() if text.islower() else line).find(text)


# --- renderer ------------------------------------------------------------------------------------
# A rich renderable as rows of coloured text, for a terminal of this size.


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
"""Maximum of cached styles: a dashboard has some dozens; computed colours must not fill memory."""


class Renderer:
    """Renderer for one set of colours; it keeps its console, which is slow to make."""

    def __init__(self, environ: Mapping[str, str] = os.environ, name: str = "") -> None:
        """Make a renderer with the colours that rich finds in ``environ``.

        These are NO_COLOR, COLORTERM and TERM. ``name``: the theme; "" for the theme of
        ``environ``, or one for any background.
        """
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
        """Style -> codes before and after a text."""

    def lines(self, renderable: RenderableType, columns: int, rows: int) -> list[str]:
        """Return at most ``rows`` rows of at most ``columns`` columns, for ``Terminal.draw``."""
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
        """Render as ``Style.render``, but with a cache for each renderer and its colours."""
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
    """Drop the spaces at the end of a row: fewer bytes, and no blanks to select."""
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
    """Return whether a space in this style is invisible."""
    return style is None or not (
        style.bgcolor or style.reverse or style.underline or style.underline2 or style.strike
    )
