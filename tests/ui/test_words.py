"""How durations and times are written: once, for the terminal, the page and the report."""

from __future__ import annotations

import time

import pytest

from beads_workers.ui.time_text import clock, duration, moment

NOON = 1_700_049_600.0
DURATIONS = [
    (0.0, "0 s"), (-1.0, "0 s"), (0.004, "4 ms"), (0.44, "0.4 s"), (9.96, "10 s"), (59.6, "1 min"),
    (119, "1 min 59 s"), (3599.7, "1 h"), (9000, "2 h 30 min"), (86_400, "1 d"),
    (360_000, "4 d 4 h"),
]  # fmt: skip


@pytest.mark.parametrize(("seconds", "text"), DURATIONS)
def test_a_duration_is_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_time_far_away_has_its_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert (clock(NOON), clock(NOON, seconds=False)) == ("12:00:00", "12:00")
    assert clock(NOON + 12.5 * 3600, NOON) == "2023-11-16 00:30:00"
    assert clock(NOON + 11 * 3600, NOON) == "23:00:00"
    assert clock(NOON + 1800, NOON + 11.9 * 3600 + 2000) == "12:30:00"
    assert moment(NOON) == "2023-11-15 12:00:00"
    monkeypatch.undo()
    time.tzset()
