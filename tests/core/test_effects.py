"""Deadlines by key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.schedule.effects import Timers


def test_what_is_due_comes_earliest_first_and_once() -> None:
    timers = Timers[str]()
    timers.set("late", 3.0)
    timers.set("early", 1.0)
    timers.set("far", 9.0)
    assert timers.due(5.0) == ["early", "late"]
    assert timers.due(5.0) == [] and timers.deadline() == 9.0


def test_setting_again_moves_it_in_both_directions() -> None:
    timers = Timers[str]()
    timers.set("a", 5.0)
    timers.set("a", 9.0)
    assert timers.due(6.0) == [] and timers.deadline() == 9.0
    timers.set("a", 2.0)
    assert timers.due(2.0) == ["a"] and timers.deadline() is None


def test_set_earlier_never_puts_off() -> None:
    timers = Timers[str]()
    timers.set_earlier("a", 5.0)
    timers.set_earlier("a", 9.0)
    assert timers.deadline() == 5.0


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 9)), max_size=20),
    st.integers(0, 9),
)
def test_it_does_what_a_plain_dictionary_would(
    steps: list[tuple[str, int | None]], now: int
) -> None:
    timers, model = Timers[str](), dict[str, int]()
    for key, at in steps:
        if at is None:
            timers.cancel(key)
            model.pop(key, None)
        else:
            timers.set(key, float(at))
            model[key] = at
        assert timers.deadline() == min(model.values(), default=None)
        assert all((key in timers) == (key in model) for key in "abc")
    due = timers.due(float(now))
    assert sorted(map(str, due)) == sorted(key for key, at in model.items() if at <= now)
    assert [model[str(key)] for key in due] == sorted(model[str(key)] for key in due)
