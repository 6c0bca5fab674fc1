"""RFC 3339: what is read is what was meant, and what is written can be read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.times import read_time, write_time

NOON = 1735732800.0  # 2025-01-01T12:00:00Z
YEARS = st.integers(-2_000_000_000_000_000, 8_000_000_000_000_000)
"""Microseconds from 1906 to 2223: further away a float has too few digits."""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2025-01-01T12:00:00Z", NOON),
        ("2025-01-01t12:00:00z", NOON),
        ("2025-01-01 12:00:00Z", NOON),
        ("2025-01-01T12:00:00", NOON),
        ("2025-01-01T14:30:00+02:30", NOON),
        ("2025-01-01T11:59:59.5-00:00", NOON - 0.5),
        ("2025-01-01T12:00:00.123456789Z", NOON + 0.123456),
        ("2025-01-01T12:00:00.1Z", NOON + 0.1),
        ("2016-12-31T23:59:60Z", 1483228800.0),
        ("1969-12-31T23:59:59.75Z", -0.25),
    ],
)
def test_what_peers_write_is_read(text: str, seconds: float) -> None:
    assert read_time(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "", "now", "2025-01-01", "2025-01-01T12:00Z", "2025-13-01T12:00:00Z",
        "2025-02-30T12:00:00Z", "2025-01-01T25:00:00Z", "2025-01-01T12:00:61Z",
        "2025-01-01T12:00:00.Z", "2025-01-01T12:00:00+25:00", "2025-01-01T12:00:00Z ",
        "0001-01-01T00:00:00+12:00", "٢٠٢٥-01-01T12:00:00Z",
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_time(text)


@given(YEARS)
def test_what_is_written_is_read_back_to_the_microsecond(microseconds: int) -> None:
    written = write_time(microseconds / 1_000_000)
    assert written.endswith("Z")
    assert round(read_time(written) * 1_000_000) == round(microseconds / 1_000_000 * 1_000_000)


@given(YEARS)
def test_it_says_the_same_as_the_standard_library(microseconds: int) -> None:
    text = write_time(microseconds / 1_000_000)
    assert datetime.fromisoformat(text).timestamp() == pytest.approx(read_time(text), abs=1e-5)
    assert datetime.fromisoformat(text).tzinfo == UTC


@pytest.mark.parametrize("seconds", [1e15, -1e15])
def test_what_no_calendar_has_is_not_written(seconds: float) -> None:
    with pytest.raises(ValueError):
        write_time(seconds)
