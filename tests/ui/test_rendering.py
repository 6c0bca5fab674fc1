"""Rows of text from what rich draws: as wide and as high as the screen, in the colours it has."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from beads_workers.ui.viewer import Renderer

TRUE = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
RED = Text("error", style="bold #ff8800")


def render_lines(
    renderable: RenderableType, columns: int, rows: int, *, environ: Mapping[str, str]
) -> list[str]:
    return Renderer(environ).lines(renderable, columns, rows)


def test_rows_and_columns_are_cut_to_the_screen() -> None:
    table = Table("one", "two", expand=True)
    for number in range(50):
        table.add_row(f"row {number}", "字" * 60)
    lines = render_lines(table, 40, 10, environ={"TERM": "xterm", "NO_COLOR": "1"})
    assert len(lines) == 10
    assert all(Text.from_ansi(line).cell_len <= 40 for line in lines)


def test_a_panel_is_as_wide_as_the_screen() -> None:
    [top, *_] = render_lines(Panel("x"), 30, 5, environ=TRUE)
    assert Text.from_ansi(top).cell_len == 30


def test_colours_are_those_that_the_terminal_has() -> None:
    assert render_lines(RED, 20, 1, environ=TRUE) == ["\x1b[1;38;2;255;136;0merror\x1b[0m"]
    assert render_lines(RED, 20, 1, environ={"TERM": "xterm-256color"}) == [
        "\x1b[1;38;5;208merror\x1b[0m"
    ]
    assert render_lines(RED, 20, 1, environ={"TERM": "xterm"}) == ["\x1b[1;91merror\x1b[0m"]


def test_without_colours_only_weight_is_left() -> None:
    assert render_lines(RED, 20, 1, environ={**TRUE, "NO_COLOR": "1"}) == ["\x1b[1merror\x1b[0m"]


def test_unseen_spaces_at_the_end_are_left_out_and_coloured_ones_are_kept() -> None:
    padded = Text("a  ") + Text("  ", style="bold")
    assert render_lines(padded, 20, 1, environ=TRUE) == ["a"]
    bar = Text("a ") + Text("  ", style="on red")
    assert render_lines(bar, 20, 1, environ=TRUE) == ["a \x1b[41m  \x1b[0m"]


def test_text_is_no_markup() -> None:
    assert render_lines("[bold]:smile: 12", 20, 1, environ=TRUE) == ["[bold]:smile: 12"]
