"""Colours by meaning: drawing code names a meaning, and the theme gives its colour.

The 256 colours are exact, and the same in every terminal. Each theme's colours have a contrast of
at least 4.5:1 (WCAG 2.2, AA) on its backgrounds. ``dark`` and ``light`` fit the usual dark and
light backgrounds. No colour fits both: ``any``, for a terminal that does not report its background,
has the terminal's own text colour, and colours with 3:1 for marks and single bold words. The
sixteen colours of the oldest terminals differ between terminals: only those that are readable in
all are used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rich.theme import Theme

VARIABLE = "BW_THEME"
NAMES = ("dark", "light", "any")

MEANINGS = ("good", "attention", "bad", "time", "agent", "muted")
"""Success; attention; failure; durations and activity; agents; less important text."""

_COLOURS: dict[str, tuple[int, ...]] = {
    "dark": (78, 220, 210, 80, 177, 248),
    "light": (22, 94, 124, 25, 91, 240),
}
"""Theme -> the colour of each meaning, of 256."""

_BOLD_ON_ANY = {"good": 65, "attention": 166, "bad": 197, "time": 32, "agent": 134}
"""Meaning -> its colour in bold on an unknown background: 3:1, as WCAG asks of marks."""

_OLD: dict[str, tuple[str, ...]] = {
    "dark": (
        "bright_green",
        "bright_yellow",
        "bright_red",
        "bright_cyan",
        "bright_magenta",
        "default",
    ),
    "light": ("blue", "red", "red", "blue", "blue", "default"),
    "any": ("bold", "bold", "bold", "default", "default", "default"),
}
"""The same of sixteen colours: a light background leaves red and blue, an unknown one bold. Dimmed
text is below 4.5:1 in many terminals."""

BACKGROUND_KEYS = {"background:dark": "dark", "background:light": "light"}
"""Name in ``keys`` of a terminal's answer to ``ASK`` -> the theme for it."""

ASK = b"\x1b]11;?\x1b\\"
"""Question for a terminal's background. A terminal that does not know it ignores it."""

_ANSWER = re.compile(r"11;rgba?:([0-9a-f]{1,4})/([0-9a-f]{1,4})/([0-9a-f]{1,4})", re.IGNORECASE)


def styles(name: str, *, colours: int) -> Theme:
    """Return the styles of each meaning, for a console with so many colours."""
    if colours >= 256 and name in _COLOURS:
        of = {m: f"color({c})" for m, c in zip(MEANINGS, _COLOURS[name], strict=True)}
    else:
        of = dict(zip(MEANINGS, _OLD[name], strict=True))
    strong = {f"{meaning}.strong": f"bold {style}" for meaning, style in of.items()}
    if colours >= 256 and name not in _COLOURS:
        strong |= {f"{meaning}.strong": f"bold color({c})" for meaning, c in _BOLD_ON_ANY.items()}
    return Theme(
        of
        | strong
        | {
            "strong": "bold",
            "chosen": "bold reverse",
            "found": "bold underline",
            "question": f"reverse {of['attention']}",
            "caption": f"reverse {of['time']}",
            # A camera wants it dark on light, whatever the theme.
            "code": "color(16) on color(231)" if colours >= 256 else "black on bright_white",
        }
    )


def named(environ: Mapping[str, str]) -> str | None:
    """Return the theme that ``BW_THEME``, or ``COLORFGBG`` of rxvt and others, asks for."""
    if (asked := environ.get(VARIABLE, "")) in NAMES:
        return asked
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    if not background.isdecimal():
        return None
    return "light" if int(background) in (7, 15) else "dark"


def background_key(answer: str) -> str:
    """Return the key for a terminal's answer, without its escapes; "" for other answers."""
    if (found := _ANSWER.match(answer)) is None:
        return ""
    red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in found.groups())
    return f"background:{'light' if luminance(red, green, blue) > 0.18 else 'dark'}"


def luminance(red: float, green: float, blue: float) -> float:
    """Return the relative luminance of WCAG 2.2, 0 to 1, of parts of 0 to 1."""
    linear = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (red, green, blue)
    )
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
