"""Durations, bars and sparklines: short, right, and of fixed width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.ui.rows import bar, duration, fine, sparkline, whole_seconds


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0.0 s"), (-1.0, "0.0 s"), (0.44, "0.4 s"), (9.96, "10.0 s"), (59.4, "59 s"),
        (59.6, "1:00"), (83, "1:23"), (3599.7, "1:00:00"), (3723, "1:02:03"), (360_000, "4d 4h"),
    ],
)  # fmt: skip
def test_a_duration_is_what_one_would_say(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@given(st.floats(-5, 1e8))
def test_a_duration_never_needs_more_than_eight_columns(seconds: float) -> None:
    assert len(duration(seconds)) <= 8 and len(whole_seconds(seconds)) <= 8


def test_what_counts_has_no_tenths_and_what_is_small_has_milliseconds() -> None:
    assert (whole_seconds(1.9), whole_seconds(12.2)) == ("1 s", "12 s")
    assert (fine(0.004), fine(0.41), fine(75)) == ("4 ms", "0.41 s", "1:15")


@given(st.floats(-1, 2), st.integers(1, 200), st.booleans())
def test_a_bar_is_as_wide_as_asked_and_fuller_with_more(
    share: float, width: int, unicode: bool
) -> None:
    drawn = bar(share, width, unicode=unicode)
    assert len(drawn) == width
    assert bar(0.0, width, unicode=unicode).strip("░-") == ""
    assert set(bar(1.0, width, unicode=unicode)) == ({"█"} if unicode else {"#"})


@given(st.lists(st.integers(0, 1000), max_size=300), st.integers(1, 80))
def test_a_sparkline_keeps_to_its_width_and_shows_the_highest(
    values: list[int], width: int
) -> None:
    drawn = sparkline(values, width)
    assert len(drawn) == min(len(values), width)
    if any(values):
        assert "█" in drawn


def test_a_sparkline_without_unicode_is_ascii() -> None:
    assert sparkline([0, 1, 2, 3], 10, unicode=False).isascii()
    assert sparkline([], 10) == ""
