"""What one viewer has before the eyes: the choices that keys change, and rows of coloured text."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from rich.color import ColorSystem
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style

# --- look ----------------------------------------------------------------------------------------
# What one viewer has before the eyes, and what a key changes in it or asks of the fleet. Pure.


class Role(Enum):
    """Whose dashboard this is; it decides what leaving means."""

    START = "start"
    WATCH = "watch"
    REPLAY = "replay"


class Pane(Enum):
    """What fills the middle."""

    FLEET = "fleet"
    LOG = "log"
    QUARANTINE = "quarantined"
    HELP = "help"


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


Wish = Ask | Leave | Detach | Faster


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked before something is done; each key with what it means."""

    text: str
    answers: Mapping[str, Wish]


@dataclass(frozen=True, slots=True)
class ShownLog:
    """The end of a log: its name, and as many lines as were read, the last one last."""

    title: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """``chosen``: the worker that the arrows are on. ``row``: of the list of what is quarantined.

    ``message``: what the fleet answered last. ``caption``: what a demo says about the moment.
    ``unicode``: whether the terminal can show more than ASCII.
    """

    role: Role = Role.WATCH
    pane: Pane = Pane.FLEET
    chosen: str | None = None
    row: int = 0
    question: Question | None = None
    message: str = ""
    caption: str = ""
    log: ShownLog | None = None
    unicode: bool = True


Pressed = tuple[Look, Wish | None]


def press(look: Look, key: str, snapshot: Mapping[str, Any], page_rows: int = 8) -> Pressed:
    """What a key does: how the view is then, and what is asked of the fleet."""
    if look.question is not None:
        wish = look.question.answers.get(key)
        return replace(look, question=None, message="" if wish else "left as it is"), wish
    look = replace(look, message="")
    if key in _STEPS:
        return _move(look, _STEPS[key], snapshot, page_rows), None
    if key == "escape" and look.pane is not Pane.FLEET:
        return replace(look, pane=Pane.FLEET), None
    if key == "?":
        pane = Pane.FLEET if look.pane is Pane.HELP else Pane.HELP
        return replace(look, pane=pane), None
    if key == "q":
        return _leave(look, snapshot)
    if look.role is Role.REPLAY:
        return _of_replay(look, key)
    if look.pane is Pane.QUARANTINE and key in ("enter", "a"):
        return _retry(look, snapshot, everything=key == "a")
    return _of_fleet(look, key, snapshot)


def chosen_worker(look: Look, snapshot: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The worker that the arrows are on; the first one where they are on none."""
    workers = snapshot["workers"]
    found = (worker for worker in workers if worker["worker_id"] == look.chosen)
    return next(found, workers[0] if workers else None)


_STEPS: dict[str, tuple[int, bool]] = {
    "up": (-1, False),
    "down": (1, False),
    "page_up": (-1, True),
    "page_down": (1, True),
    "left": (-1, True),
    "right": (1, True),
    "home": (-(1 << 20), False),
    "end": (1 << 20, False),
}
"""Key -> how far it goes, and whether in pages."""


def _move(look: Look, step: tuple[int, bool], snapshot: Mapping[str, Any], rows: int) -> Look:
    by = step[0] * (rows if step[1] else 1)
    if look.pane is Pane.QUARANTINE:
        last = max(0, len(snapshot["quarantined"]) - 1)
        return replace(look, row=min(max(0, look.row + by), last))
    ids = [worker["worker_id"] for worker in snapshot["workers"]]
    if not ids:
        return look
    at = ids.index(look.chosen) if look.chosen in ids else 0
    return replace(look, chosen=ids[min(max(0, at + by), len(ids) - 1)])


def _of_fleet(look: Look, key: str, snapshot: Mapping[str, Any]) -> Pressed:
    own = sum(1 for worker in snapshot["workers"] if worker["own"])
    match key:
        case "p":
            return look, Ask("bw.resume" if snapshot["state"] == "paused" else "bw.pause")
        case "+" | "=":
            return look, Ask("bw.scale", {"workers": own + 1})
        case "-":
            return look, Ask("bw.scale", {"workers": max(0, own - 1)})
        case "l" | "enter":
            pane = Pane.FLEET if look.pane is Pane.LOG else Pane.LOG
            return replace(look, pane=pane), None
        case "r":
            pane = Pane.FLEET if look.pane is Pane.QUARANTINE else Pane.QUARANTINE
            return replace(look, pane=pane, row=0), None
        case "k":
            return _release(look, snapshot)
        case _:
            return look, None


def _release(look: Look, snapshot: Mapping[str, Any]) -> Pressed:
    worker = chosen_worker(look, snapshot)
    if worker is None or worker["issue_id"] is None:
        return replace(look, message="choose a busy worker with the arrows first"), None
    issue_id = worker["issue_id"]
    text = f"take {issue_id} away from {worker['worker_id']}? Its task is ended. y yes, n no"
    question = Question(text, {"y": Ask("bw.release", {"issue_ids": [issue_id]})})
    return replace(look, question=question), None


def _retry(look: Look, snapshot: Mapping[str, Any], *, everything: bool) -> Pressed:
    ids = [row["issue_id"] for row in snapshot["quarantined"]]
    if not ids:
        return replace(look, pane=Pane.FLEET, message="nothing is quarantined"), None
    chosen = ids if everything else [ids[min(look.row, len(ids) - 1)]]
    return replace(look, row=0), Ask("bw.retry", {"issue_ids": chosen})


def _leave(look: Look, snapshot: Mapping[str, Any]) -> Pressed:
    if look.role is not Role.START or not snapshot["running"]:
        return look, Leave()
    answers: dict[str, Wish] = {
        "s": Ask("bw.stop"),
        "d": Ask("bw.stop", {"drain": True}),
        "b": Detach(),
    }
    text = "leave: s stop, requeueing what runs; d drain; b let it run in the background; n stay"
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

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        """Colours as rich finds them in ``environ``: NO_COLOR, COLORTERM, TERM."""
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


def render_lines(
    renderable: RenderableType,
    columns: int,
    rows: int,
    *,
    environ: Mapping[str, str] = os.environ,
) -> list[str]:
    """One picture; who draws many keeps a ``Renderer``."""
    return Renderer(environ).lines(renderable, columns, rows)


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
