"""Untrusted text on a screen."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.text import (
    as_shown,
    asked_in_one_line,
    columns,
    counted,
    in_counting_order,
    json_line,
    printable,
)

OBEYED = "\x1b\x07\x7f\x9b\u202e\u2066\u200f\r"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines", "two⏎lines"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b31m", "\\x9b31m"),
        ("a\u202eb", "a\\u202eb"),
        ("tab\tcr\r", "tab\\tcr\\r"),
        ("\ud800", "\\ud800"),
        ("no\u00a0break", "no break"),
        ("\U000e0041", "\\U000e0041"),
        ("👩\u200d🔬 é ü 漢", "👩\u200d🔬 é ü 漢"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(), st.none() | st.integers(1, 30))
def test_nothing_obeyed_gets_through_and_it_fits(text: str, width: int | None) -> None:
    shown = printable(text, width)
    assert not set(shown) & {*OBEYED, "\n"}
    assert shown.encode("utf-8").decode("utf-8") == shown
    assert width is None or columns(shown) <= width


def test_what_is_cut_ends_in_an_ellipsis() -> None:
    assert printable("abcdef", 4) == "abc…"
    assert printable("abcd", 4) == "abcd"
    assert printable("漢漢漢", 4) == "漢…"
    assert printable("x" * 10_000_000, 5) == "xxxx…"


@given(
    st.dictionaries(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
)
def test_json_is_safe_to_show_and_means_the_same(value: dict[str, str]) -> None:
    line = json_line({**value, "key": OBEYED})
    assert json.loads(line) == {**value, "key": OBEYED}
    assert not set(line) & set(OBEYED)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m and \x1b[38;2;1;2;3mmore\x1b[m\n", "red and more"),
        ("\x1b]8;;https://x.invalid\x1b\\link\x1b]8;;\x1b\\ \x1b]0;title\x07rest", "link rest"),
        (" 10%\r 50%\r100%\r\n", "100%"),
        ("a\tb\x1b(B\x1b7\x1b=", "a       b"),
        ("cut off \x1b[12", "cut off \x1b[12"),
        ("\r\n", ""),
    ],
)
def test_output_is_what_a_terminal_would_have_left(line: str, shown: str) -> None:
    assert as_shown(line) == shown


def test_one_is_not_many() -> None:
    assert (counted(1, "issue"), counted(2, "issue")) == ("1 issue", "2 issues")
    assert counted(1234, "try", "tries") == "1,234 tries"


@pytest.mark.parametrize(
    ("question", "shown"),
    [
        ("I have read it all. Which key?\n  1. FOO\n  2. BAR", "Which key? 1. FOO 2. BAR"),
        ("Two ways are open:\n\nShall I use euros, or cents?", "Shall I use euros, or cents?"),
        ("publishing needs a token", "publishing needs a token"),
        ("A? B. C?", "A? B. C?"),
        ("", ""),
    ],
)
def test_a_question_in_one_line_begins_with_what_is_asked(question: str, shown: str) -> None:
    assert asked_in_one_line(question, 80) == shown


def test_ids_are_sorted_as_people_count() -> None:
    ids = ["10", "9", "t-10", "t-9", "t-9a", "s-100", "2"]
    assert sorted(ids, key=in_counting_order) == ["2", "9", "10", "s-100", "t-9", "t-9a", "t-10"]
