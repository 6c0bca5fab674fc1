"""A rich renderable as rows of text with colours in it, as a terminal of this size shows them."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping

from rich.color import ColorSystem
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style

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
