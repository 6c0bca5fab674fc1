"""What is written for a frame: only what has changed, at its place, all at once."""

from __future__ import annotations

import base64
import re

import pytest

from beads_workers.ui.terminal import Painter, copied

SIZE = (20, 4)
BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"


def painted(painter: Painter, *lines: str, size: tuple[int, int] = SIZE) -> str:
    """The bytes of a frame, as text, without the marks of synchronized output."""
    text = painter.paint(lines, size).decode()
    if not text:
        return ""
    assert text.startswith(BEGIN) and text.endswith(END)
    inner = text.removeprefix(BEGIN).removesuffix(END)
    assert BEGIN not in inner and END not in inner
    return inner


@pytest.mark.parametrize("text", ["app-1", "a\nb\x1b]52;c;!\x07", "é" * 9000, "\udcff"])
def test_what_is_copied_is_one_safe_line_of_bounded_length(text: str) -> None:
    found = re.fullmatch(rb"\x1b\]52;c;([A-Za-z0-9+/=]*)\x1b\\", copied(text))
    assert found is not None and len(found[1]) < 74_000
    line = base64.b64decode(found[1]).decode()
    assert line.isprintable() and line.startswith(("app-1", "a⏎b", "é", "\\"))


def test_the_first_frame_writes_every_row_and_erases_the_rest() -> None:
    text = painted(Painter(), "one", "two")
    assert text == "\x1b[1;1H\x1b[mone\x1b[m\x1b[K\x1b[2;1H\x1b[mtwo\x1b[m\x1b[K\x1b[3;1H\x1b[J"


def test_the_same_frame_writes_nothing() -> None:
    painter = Painter()
    painted(painter, "one", "two")
    assert painted(painter, "one", "two") == ""


def test_only_rows_that_differ_are_written() -> None:
    painter = Painter()
    painted(painter, "one", "two", "three")
    assert painted(painter, "one", "2", "three") == "\x1b[2;1H\x1b[m2\x1b[m\x1b[K"


def test_rows_that_are_gone_are_erased_once() -> None:
    painter = Painter()
    painted(painter, "one", "two", "three")
    assert painted(painter, "one") == "\x1b[2;1H\x1b[J"
    assert painted(painter, "one") == ""
    assert painted(painter, "one", "", "three").startswith("\x1b[2;1H")


def test_after_forgetting_everything_is_written_again() -> None:
    painter = Painter()
    first = painted(painter, "one", "two")
    painter.forget()
    assert painted(painter, "one", "two") == first


def test_a_full_screen_erases_nothing_below_it() -> None:
    assert "\x1b[J" not in painted(Painter(), "1", "2", "3", "4")


def test_rows_beyond_the_screen_are_not_written() -> None:
    assert "six" not in painted(Painter(), "1", "2", "3", "4", "five", "six")


def test_a_row_up_to_the_edge_is_erased_before_and_keeps_its_last_character() -> None:
    for row in ("x" * 20, "\x1b[1m" + "x" * 20 + "\x1b[0m", "字" * 10):
        assert painted(Painter(), row, "", "", "").startswith(f"\x1b[1;1H\x1b[m\x1b[K{row}\x1b[m")


def test_colours_and_links_do_not_count_as_width() -> None:
    row = "\x1b[1;31m" + "x" * 19 + "\x1b[0m\x1b]8;;http://a\x1b\\\x1b]8;;\x1b\\"
    assert painted(Painter(), row, "", "", "").startswith(f"\x1b[1;1H\x1b[m{row}\x1b[m\x1b[K")


def test_text_that_cannot_be_encoded_is_shown_as_something() -> None:
    assert "a?b" in painted(Painter(), "a\udcffb")
