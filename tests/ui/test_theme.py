"""Colours: readable on every background they are for, and chosen as the terminal says."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.color import Color

from beads_workers.ui.dashboard import draw
from beads_workers.ui.theme import MEANINGS, NAMES, background_key, luminance, named, styles
from beads_workers.ui.viewer import Pane, Renderer, Screen
from tests.ui.snapshots import after, agents_at_work, ended, fleet

BACKGROUNDS = {
    "dark": {
        "xterm, macOS Pro": "#000000", "Windows Terminal, Campbell": "#0c0c0c",
        "VS Code, Dark+": "#1e1e1e", "GNOME, Adwaita Dark": "#1d1d20", "Ubuntu": "#300a24",
        "Tango": "#2e3436", "Dracula": "#282a36", "One Dark": "#282c34", "Nord": "#2e3440",
        "Solarized Dark": "#002b36", "Gruvbox Dark": "#282828", "Tokyo Night": "#1a1b26",
        "Catppuccin Mocha": "#1e1e2e", "Catppuccin Frappe": "#303446", "Monokai": "#272822",
        "Material": "#263238",
    },
    "light": {
        "macOS Basic": "#ffffff", "Solarized Light": "#fdf6e3", "Gruvbox Light": "#fbf1c7",
        "GitHub Light": "#f6f8fa", "One Light": "#fafafa", "Catppuccin Latte": "#eff1f5",
        "grey": "#eeeeee",
    },
}  # fmt: skip
"""Backgrounds of the most used themes of terminals, as their authors give them."""

CONTRAST = 4.5
"""WCAG 2.2, level AA, for text."""
CONTRAST_OF_MARKS = 3.0
"""The same for marks."""


def contrast(one: Color, other: Color) -> float:
    """From 1 to 21, as WCAG has it."""
    of = [luminance(*(part / 255 for part in each.get_truecolor())) for each in (one, other)]
    return (max(of) + 0.05) / (min(of) + 0.05)


@pytest.mark.parametrize(
    ("name", "background"),
    [(name, colour) for name, known in BACKGROUNDS.items() for colour in known.values()],
)
def test_every_colour_can_be_read_on_every_background_of_its_theme(
    name: str, background: str
) -> None:
    theme = styles(name, colours=256)
    for meaning in (*MEANINGS, *(f"{meaning}.strong" for meaning in MEANINGS)):
        colour = theme.styles[meaning].color
        assert colour is not None
        assert contrast(colour, Color.parse(background)) >= CONTRAST, meaning
    for block in ("question", "caption"):
        colour = theme.styles[block].color
        assert colour is not None and theme.styles[block].reverse
        assert contrast(colour, Color.parse(background)) >= CONTRAST, block


@pytest.mark.parametrize("colours", [16, 256])
def test_on_an_unknown_background_text_is_the_terminal_s_own_and_never_dimmed(colours: int) -> None:
    drawn = styles("any", colours=colours).styles
    for meaning in MEANINGS:
        style = drawn[meaning]
        assert style.color is None or style.color.is_default, meaning
        assert not style.dim, meaning


def test_marks_and_bold_words_have_colours_that_can_be_told_on_every_usual_background() -> None:
    drawn = styles("any", colours=256).styles
    usual = [colour for known in BACKGROUNDS.values() for colour in known.values()]
    bold = [drawn[f"{meaning}.strong"] for meaning in MEANINGS if meaning != "muted"]
    assert len({style.color for style in bold}) == len(bold)
    for style in bold:
        assert style.bold and style.color is not None
        for each in usual:
            assert contrast(style.color, Color.parse(each)) >= CONTRAST_OF_MARKS


def test_no_one_colour_can_be_read_on_every_usual_background() -> None:
    usual = [colour for known in BACKGROUNDS.values() for colour in known.values()]
    for number in range(16, 256):
        colour = Color.from_ansi(number)
        assert min(contrast(colour, Color.parse(each)) for each in usual) < CONTRAST


@pytest.mark.parametrize("name", ["dark", "light"])
def test_meanings_differ_in_colour_where_there_are_enough(name: str) -> None:
    theme = styles(name, colours=256)
    assert len({theme.styles[meaning].color for meaning in MEANINGS}) == len(MEANINGS)


@pytest.mark.parametrize("name", NAMES)
def test_a_terminal_of_sixteen_colours_gets_none_that_its_background_swallows(name: str) -> None:
    swallowed = {
        "dark": {"black", "blue"},
        "light": {"white", "bright_white", "yellow", "bright_yellow", "green", "bright_green",
                  "cyan", "bright_cyan"},
        "any": {"black", "white", "bright_white", "yellow", "bright_yellow", "blue",
                "bright_green", "bright_cyan"},
    }  # fmt: skip
    theme = styles(name, colours=16)
    for meaning in MEANINGS:
        colour = theme.styles[meaning].color
        assert colour is None or colour.name not in swallowed[name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("term", ["xterm-256color", "xterm", "dumb"])
def test_every_style_that_is_drawn_is_in_the_theme(name: str, term: str) -> None:
    failed = ended("app-7", outcome="error", verdict="requeue", charged=1, error="no")
    snapshot = after(*agents_at_work(), *fleet(5, busy=3), ended("app-9"), failed)
    renderer = Renderer({"TERM": term}, name)
    lines = renderer.lines(draw(snapshot, Screen(), 1.0, 200, 50), 200, 50)
    codes = {code for line in lines for code in line.split("\x1b[")[1:]}
    coloured = term == "xterm-256color"
    assert any("38;5;" in code for code in codes) == coloured
    assert not any("good" in line or "muted" in line for line in lines)


@pytest.mark.parametrize("pane", Pane)
def test_without_colours_the_whole_dashboard_has_none(pane: Pane) -> None:
    snapshot = after(*agents_at_work(), *fleet(5, busy=3), ended("app-9"))
    renderer = Renderer({"TERM": "xterm-256color", "NO_COLOR": "1"}, "dark")
    rows = renderer.lines(draw(snapshot, Screen(pane=pane), 1.0, 120, 35), 120, 35)
    codes = {code for row in rows for code in re.findall(r"\x1b\[([0-9;]*)m", row)}
    assert codes <= {"0", "1", "1;7", "7"} and "1" in codes


@pytest.mark.parametrize(
    ("answer", "key"),
    [
        ("11;rgb:0000/0000/0000\x1b\\", "background:dark"),
        ("11;rgb:ffff/ffff/ffff\x07", "background:light"),
        ("11;rgb:1e/1e/1e\x07", "background:dark"),
        ("11;rgba:fdfd/f6f6/e3e3/ffff\x07", "background:light"),
        ("11;rgb:2e2e/3434/4040\x07", "background:dark"),
        ("11;rgb:f/f/f\x07", "background:light"),
        ("10;rgb:ffff/ffff/ffff\x07", ""),
        ("11;?\x07", ""),
        ("52;c;", ""),
    ],
)
def test_what_a_terminal_says_of_its_background(answer: str, key: str) -> None:
    assert background_key(answer) == key


@given(st.text())
def test_whatever_a_terminal_says_is_a_key_or_nothing(answer: str) -> None:
    assert background_key(answer) in ("background:dark", "background:light", "")
    assert background_key("11;" + answer) in ("background:dark", "background:light", "")


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({}, None),
        ({"BW_THEME": "light"}, "light"),
        ({"BW_THEME": "pink"}, None),
        ({"COLORFGBG": "15;0"}, "dark"),
        ({"COLORFGBG": "0;15"}, "light"),
        ({"COLORFGBG": "0;default;15"}, "light"),
        ({"COLORFGBG": "12;8"}, "dark"),
        ({"COLORFGBG": "default;default"}, None),
        ({"COLORFGBG": "0;15", "BW_THEME": "dark"}, "dark"),
    ],
)
def test_a_theme_is_what_is_asked_for_or_what_the_terminal_has_set(
    environ: dict[str, str], name: str | None
) -> None:
    assert named(environ) == name
