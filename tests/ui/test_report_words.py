"""Durations in prose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.model import OutcomeKind
from beads_workers.core.views.history import OUTCOMES, Fate
from beads_workers.ui.report_text import MARKS
from beads_workers.ui.time_text import duration
from beads_workers.ui.words import FATE_WORDS, OUTCOME_WORDS


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0 s"), (0.004, "4 ms"), (0.0994, "99 ms"), (0.0996, "0.1 s"), (2.0, "2 s"),
        (2.44, "2.4 s"), (9.96, "10 s"), (59.4, "59 s"), (59.6, "1 min"), (200, "3 min 20 s"),
        (3600, "1 h"), (25_500, "7 h 5 min"), (86_400, "1 d"), (183_600, "2 d 3 h"),
    ],
)  # fmt: skip
def test_a_duration_is_what_one_would_write(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@given(st.floats(0, 1e9))
def test_a_duration_is_short_and_says_its_unit(seconds: float) -> None:
    assert len(duration(seconds)) <= 12
    assert duration(seconds).split()[-1] in ("ms", "s", "min", "h", "d")


def test_every_outcome_and_every_fate_has_its_words() -> None:
    assert {kind.value for kind in OutcomeKind} <= set(OUTCOMES) <= set(OUTCOME_WORDS)
    assert set(OUTCOMES) == set(MARKS)
    assert {fate.value for fate in Fate} == set(FATE_WORDS)
