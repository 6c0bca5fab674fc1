"""The view of one viewer: the choices that keys change, and rows of coloured text."""

from __future__ import annotations

import io
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any

from rich.color import ColorSystem
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style

from beads_workers.core.views.history import RUNNING
from beads_workers.ui import theme
from beads_workers.ui.attempt_view import (
    AttemptView,
    Pin,
    pin_issue,
    pin_outcome,
    pin_worker,
    running,
)
from beads_workers.ui.backlog import IssueBacklog, by_cause, entries, issue_rows
from beads_workers.ui.landing import to_type
from beads_workers.ui.line_comments import LineComment
from beads_workers.ui.lines import FOLDED_MIN
from beads_workers.ui.words import DID_NOT_LAND, STATE_TITLES


class Role(Enum):
    """The owner of a dashboard; it decides what leaving means."""

    START = "start"
    WATCH = "watch"
    REPLAY = "replay"
    MORNING = "morning"
    """No fleet runs: what a person decides is carried out here, or kept for the next start."""


class Pane(Enum):
    """Content of the middle of the screen."""

    FLEET = "fleet"
    LANDING = "landing"
    QUARANTINE = "quarantined"
    DECISIONS = "to decide"
    ISSUES = "issues"
    LOG = "log"
    DIFF = "diff"
    ABOUT = "why"
    HELP = "help"
    PAGE = "live page"


ATTEMPT = (Pane.LOG, Pane.DIFF, Pane.ABOUT)
"""The sections of the view of one attempt, in their order."""


class Part(Enum):
    """A list that the arrows move in: the first two are in ``Pane.FLEET``."""

    WORKERS = "workers"
    ENDED = "ended"
    LANDING = "landing"
    QUARANTINED = "quarantined"
    DECISIONS = "to decide"
    ISSUES = "issues"


OWN_PARTS = {
    Pane.LANDING: Part.LANDING,
    Pane.QUARANTINE: Part.QUARANTINED,
    Pane.DECISIONS: Part.DECISIONS,
    Pane.ISSUES: Part.ISSUES,
}
"""Panes that are one list."""
PANES = {part: pane for pane, part in OWN_PARTS.items()}
"""List -> its pane, if that is not ``Pane.FLEET``."""


Fields = Mapping[str, Any]

FOLDED = (Part.QUARANTINED, Part.DECISIONS, Part.ISSUES)
"""Lists in which quarantined issues of one cause are one row, see ``backlog.entries``."""

WAITS, REFUSED, IN_REVIEW = "waits", "refused", "review"
"""Verdicts of rows of ``Part.LANDING`` beside those of the lander: branches that wait to land, and
those that are quarantined."""


def _is_in(state: str, row: Fields) -> bool:
    return bool(row["state"] == state)


STATES: dict[Part, dict[str, Callable[[Fields], bool]]] = {
    Part.WORKERS: {
        "busy": lambda row: row["issue_id"] is not None,
        "idle": lambda row: row["issue_id"] is None,
    },
    Part.ENDED: {
        "failed": lambda row: (
            row["decision"] not in ("finish", "land", "asked") and row["outcome"] != "cancelled"
        ),
        "done": lambda row: row["decision"] in ("finish", "land"),
    },
    Part.LANDING: {
        "landed": lambda row: row["verdict"] == "landed",
        DID_NOT_LAND: lambda row: row["verdict"] not in ("landed", WAITS, IN_REVIEW),
        "waiting": lambda row: row["verdict"] in (WAITS, IN_REVIEW),
    },
    Part.QUARANTINED: {},
    Part.DECISIONS: {},
    Part.ISSUES: {title: partial(_is_in, state.value) for state, title in STATE_TITLES.items()},
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


@dataclass(frozen=True, slots=True)
class Save:
    """Wish: write the shown text to a new file; ``path``: as it was typed."""

    path: str


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Wish: ask the tracker for its issues now."""


@dataclass(frozen=True, slots=True)
class Copy:
    """Wish: give a text to the clipboard of the terminal; ``what``: what it is, in words."""

    what: str
    text: str


@dataclass(frozen=True, slots=True)
class Mouse:
    """Wish: have the mouse reported, or leave it to the terminal again."""


@dataclass(frozen=True, slots=True)
class RunOwn:
    """Wish: run a command of the person's own on an issue."""

    command: str
    issue_id: str


Wish = (
    RunOwn | Ask | Copy | Mouse | Leave | Detach | Faster | OtherTheme | SayPage | Save | LookAgain
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question before an action; ``answers``: the meaning of each key."""

    text: str
    answers: Mapping[str, Wish]


@dataclass(frozen=True, slots=True)
class Writing:
    """What a person types for an issue.

    ``control``: the request that sends it; "" for the name of a file (``Save``). ``comment``: the
    comment that it becomes instead.
    """

    label: str
    control: str
    issue_id: str
    comment: LineComment | None = None


@dataclass(frozen=True, slots=True)
class PageCard:
    """How to open the live page. ``tunnel``: the command with which another machine reaches it.

    ``code``: its address as a QR code, a text of ``0`` and ``1`` for each row; empty without one.
    """

    url: str
    tunnel: str
    code: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownLog:
    """A log, or the end of a long one; or another text in its place."""

    title: str
    # Rows of the screen.
    lines: Sequence[str] = ()
    # Number of lines before these.
    first: int = 0
    # Changes of the attempt in its worktree so far, in git's words.
    changes: str = ""
    # The indexes of rows that go on with the line of the row before, in order.
    cuts: Sequence[int] = ()
    # When each row came, "" if that is not known; empty if times are not shown.
    times: Sequence[str] = ()

    @property
    def end(self) -> int:
        """Number of rows in all."""
        return self.first + len(self.lines)

    def line_of(self, row: int) -> int:
        """Return the number of lines that end at or before this number of rows."""
        return row - bisect_right(self.cuts, row - 1 - self.first)

    def row_of(self, line: int) -> int:
        """Return the number of rows up to the end of the first row of a line."""
        lines_before = line - 1 - self.first
        cuts = range(len(self.cuts))
        return line + bisect_left(cuts, lines_before, key=lambda at: self.cuts[at] - at - 1)

    def whole_lines(self) -> Iterator[tuple[int, str]]:
        """Yield each line, with the index of its first row."""
        if not self.cuts:
            yield from enumerate(self.lines)
            return
        goes_on, begin = set(self.cuts), 0
        for at in range(1, len(self.lines) + 1):
            if at not in goes_on:
                yield begin, "".join(self.lines[begin:at])
                begin = at


@dataclass(frozen=True, slots=True)
class ShownAttempt:
    """The selected attempt."""

    issue_id: str
    attempt: int
    # "" if its worker is no longer known.
    worker_id: str
    running: bool
    # Its row of the snapshot, with further fields.
    row: Fields
    # "" for the run of the snapshot.
    run_id: str = ""

    @property
    def title(self) -> str:
        """``W1 runs app-1, attempt 2``."""
        does = "runs" if self.running else "ran"
        who = f"{self.worker_id} {does} " if self.worker_id else ""
        return f"{who}{self.issue_id}" + (f", attempt {self.attempt}" if self.attempt else "")


@dataclass(frozen=True, slots=True)
class Screen:
    """State of a view."""

    role: Role = Role.WATCH
    pane: Pane = Pane.FLEET
    # The list that the arrows are in.
    part: Part = Part.WORKERS
    # The key of each list's chosen row.
    chosen: Mapping[Part, str] = field(default_factory=dict)
    # Filter of each list; a list without one shows all rows.
    states: Mapping[Part, str] = field(default_factory=dict)
    # Of each pane, the text that its rows must have.
    finds: Mapping[Pane, str] = field(default_factory=dict)
    # One of ``ORDERS``; "" for names.
    order: str = ""
    # The last answer of the tracker; None before the first.
    backlog: IssueBacklog | None = None
    # One of ``backlog.ORDERS``; "" for the usual one.
    issue_order: str = ""
    # Epoch seconds while the backlog is shown.
    now: float = 0.0
    # Keys of the causes whose issues are listed.
    unfolded: frozenset[str] = frozenset()
    # The pane to which another one leads back, if that is not the fleet.
    back: Mapping[Pane, Pane] = field(default_factory=dict)
    # The attempt that is viewed; the fields up to ``full``, and ``log``, belong to its view.
    opened: Pin | None = None
    # What the journals have of it.
    view: AttemptView | None = None
    # The last shown row; None while the end is followed.
    log_end: int | None = None
    # The text that is searched.
    log_find: str = ""
    # The row where it was found last.
    log_found: int | None = None
    # Long lines go on in the next row.
    wrap: bool = False
    # Each line has its time.
    times: bool = False
    # Nothing else is on the screen.
    full: bool = False
    # Scroll position of the help.
    top: int = 0
    # The most rows that the list of workers had lately.
    tallest: int = 0
    # Text after ``/``, or of ``writing``; None while nobody types.
    typed: str | None = None
    # What is typed is a name of the palette.
    naming: bool = False
    writing: Writing | None = None
    # Comments on lines of the diff, by issue: a reject sends them.
    comments: Mapping[str, tuple[LineComment, ...]] = field(default_factory=dict)
    question: Question | None = None
    # The last answer of the fleet.
    message: str = ""
    # Comment of a demo on the moment.
    caption: str = ""
    # The text of the section of the opened attempt.
    log: ShownLog | None = None
    # The card of the live page.
    card: PageCard | None = None
    # Commands of the person's own, by their keys.
    own_keys: Mapping[str, str] = field(default_factory=dict)
    # The terminal can show more than ASCII.
    unicode: bool = True

    @property
    def find(self) -> str:
        """The text that the rows of this pane must have."""
        return self.finds.get(self.pane, "")

    @property
    def in_attempt(self) -> bool:
        """Whether one attempt is open."""
        return self.pane in ATTEMPT and self.opened is not None


Pressed = tuple[Screen, Wish | None]

# --- lists ---------------------------------------------------------------------------------------


def rows_of(screen: Screen, snapshot: Fields, part: Part) -> list[Fields]:
    """Return the rows of a list, in its order: ended attempts with the newest first."""
    match part:
        case Part.WORKERS:
            rows = list(snapshot["workers"])
            if screen.order:
                rows.sort(key=ORDERS[screen.order], reverse=True)
            if not (screen.states.get(part) or screen.finds.get(Pane.FLEET)):
                rows = _idle_folded(rows)
        case Part.ENDED:
            rows = list(reversed(snapshot["outcomes"]))
        case Part.LANDING:
            rows = _landing_rows(snapshot)
        case Part.QUARANTINED:
            rows = by_cause(snapshot["quarantined"])
        case Part.ISSUES:
            rows = [*issue_rows(screen.backlog, snapshot, screen.issue_order)]
        case Part.DECISIONS:
            rows = [*snapshot["questions"], *snapshot["approvals"]]
            if screen.role is Role.MORNING:
                rows += by_cause(snapshot["quarantined"])
                if command := to_type(snapshot["landing"]):
                    rows.append({"issue_id": "", "title": command, "merge": command})
    if shown := STATES[part].get(screen.states.get(part, "")):
        rows = [row for row in rows if shown(row)]
    if find := screen.finds.get(PANES.get(part, Pane.FLEET), ""):
        rows = [row for row in rows if _says(row, find)]
    return [*entries(rows, screen.unfolded)] if part in FOLDED else rows


def _idle_folded(rows: list[Fields]) -> list[Fields]:
    """Return the workers with many idle ones as one row at the end, which has their number."""
    idle = [row for row in rows if row["state"] == "idle" and row["issue_id"] is None]
    if len(idle) < FOLDED_MIN:
        return rows
    sums = {name: sum(row[name] for row in idle) for name in ("done", "failed")}
    others = [row for row in rows if row["state"] != "idle" or row["issue_id"] is not None]
    return [*others, {**idle[0], **sums, "worker_id": "idle", "folded": len(idle)}]


def _landing_rows(snapshot: Fields) -> list[Fields]:
    """Return the branches that wait, those that do not land, and the last verdicts."""
    if (landing := snapshot["landing"]) is None:
        return []
    waiting = ({**row, "verdict": WAITS, "at": 0} for row in landing["waiting_to_land"])
    verdicts = {row["issue_id"]: row for row in landing["last"] if row["verdict"] == "quarantined"}
    refused = [
        {**row, "verdict": REFUSED, "at": verdicts.get(row["issue_id"], {}).get("at", 0)}
        for row in landing["refused"]
    ]
    # A branch that is quarantined is listed once.
    told = [verdicts.get(row["issue_id"]) for row in refused]
    last = (row for row in reversed(landing["last"]) if row not in told)
    return [*waiting, *reviews(landing), *refused, *last]


def reviews(landing: Fields) -> list[Fields]:
    """Return the rows of pull requests, with what they wait for as their titles."""
    return [
        {**row, "title": row["text"], "verdict": IN_REVIEW, "at": 0} for row in landing["in_review"]
    ]


def key_of(part: Part, row: Fields) -> str:
    """Return the key of a row, which does not depend on its place."""
    if part in FOLDED and "key" in row:
        return str(row["key"])
    if part is Part.WORKERS:
        return str(row["worker_id"])
    if part is Part.LANDING:
        return f"{row['issue_id']} {row['verdict']} {row['at']}"
    return f"{row['issue_id']} {row['at']}" if part is Part.ENDED else str(row["issue_id"])


def chosen_at(screen: Screen, rows: Sequence[Fields], part: Part) -> int:
    """Return the index of the chosen row; 0 if that row is gone."""
    key = screen.chosen.get(part)
    return next((at for at, row in enumerate(rows) if key_of(part, row) == key), 0)


def chosen_row(screen: Screen, snapshot: Fields, part: Part) -> Fields | None:
    """Return the row that the arrows are on; None in an empty list."""
    rows = rows_of(screen, snapshot, part)
    return rows[chosen_at(screen, rows, part)] if rows else None


def pin_of(screen: Screen, snapshot: Fields, row: Fields) -> Pin | None:
    """Return the pin of the attempt of a row of the list that the arrows are in.

    Of an idle worker, that is its last attempt, and of an issue its newest one. None if nothing has
    run there.
    """
    if screen.part is Part.ENDED:
        return pin_outcome(row, snapshot)
    if screen.part is not Part.WORKERS:
        return pin_issue(row["issue_id"], snapshot)
    if row["issue_id"] is not None:
        return pin_worker(row, snapshot)
    ran = (each for each in reversed(snapshot["outcomes"]) if each["worker_id"] == row["worker_id"])
    return next((pin_outcome(each, snapshot) for each in ran), None)


def shown_attempt(screen: Screen, snapshot: Fields) -> ShownAttempt | None:
    """Return the attempt that is open, or else that of the chosen row."""
    if screen.in_attempt:
        assert screen.opened is not None, "an attempt is open"
        return _pinned(screen.opened, screen.view, snapshot)
    row = chosen_row(screen, snapshot, screen.part)
    pin = pin_of(screen, snapshot, row) if row is not None else None
    return _pinned(pin, None, snapshot) if pin is not None else None


def _pinned(pin: Pin, view: AttemptView | None, snapshot: Fields) -> ShownAttempt:
    if (row := running(pin, snapshot)) is not None:
        return ShownAttempt(pin.issue_id, pin.number, pin.worker_id, running=True, row=row)
    tried = view.tried if view is not None else None
    if tried is not None and tried.attempt.outcome != RUNNING:
        return _ended(tried.row, pin.run_id)
    name = (pin.issue_id, pin.number, pin.worker_id)
    for outcome in reversed(snapshot["outcomes"]):
        if (outcome["issue_id"], outcome["attempt"], outcome["worker_id"]) != name:
            continue
        if pin.run_id == snapshot["run_id"] and pin.ended_at in (None, outcome["at"]):
            return _ended(outcome)
    if tried is not None:
        return _ended(tried.row, pin.run_id)
    known = (row for row in snapshot["quarantined"] if row["issue_id"] == pin.issue_id)
    row = next(known, {"issue_id": pin.issue_id, "error": "", "title": ""})
    return ShownAttempt(pin.issue_id, pin.number, "", False, row, pin.run_id)


def needing_you(snapshot: Fields) -> list[str]:
    """Return the issues that need a person, the most pressing first: those with questions, branches
    that await approval, those in whose worktrees a person stands, quarantined issues, of these the
    newest first."""
    rows = (row for name in ("questions", "approvals", "occupied") for row in snapshot[name])
    return [row["issue_id"] for row in (*rows, *reversed(snapshot["quarantined"]))]


def _ended(row: Fields, run_id: str = "") -> ShownAttempt:
    return ShownAttempt(row["issue_id"], row["attempt"], row["worker_id"], False, row, run_id)


def _says(row: Fields, text: str) -> bool:
    """Return whether a row has the text; a lower-case text matches any case."""
    whole = " ".join(value for value in row.values() if isinstance(value, str))
    return text in (whole.lower() if text.islower() else whole)


def found_in(text: str, line: str) -> int:
    """Return where a line of a log has the text, -1 if nowhere; lower case matches any case."""
    return (line.lower() if text.islower() else line).find(text)


def placed(screen: Screen, log: ShownLog) -> Screen:
    """Return the view with this text: if it is wrapped otherwise, at the same line as before."""
    old = screen.log
    if old is None or screen.log_end is None or (old.first, old.cuts) == (log.first, log.cuts):
        return replace(screen, log=log)
    end = log.row_of(min(old.line_of(screen.log_end), log.line_of(log.end)))
    return replace(screen, log=log, log_end=end, log_found=None)


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
