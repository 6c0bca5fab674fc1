"""Durations, bars and sparklines: short, right, and of fixed width."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from beads_workers.ui.panels import TOOK_COLUMNS
from beads_workers.ui.rows import bar, sparkline
from beads_workers.ui.time_text import duration, elapsed


@given(st.floats(-5, 8.6e6))
def test_a_duration_fits_its_column(seconds: float) -> None:
    assert len(duration(seconds)) <= TOOK_COLUMNS and len(elapsed(seconds)) <= TOOK_COLUMNS


def test_what_counts_has_no_tenths() -> None:
    assert (elapsed(1.9), elapsed(12.2), elapsed(-1)) == ("1 s", "12 s", "0 s")


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
