"""What a figure says of its goal, and how the table shows it."""

from __future__ import annotations

import pytest

from benchmarks.tools.figures import Figure, Goal, in_turns
from benchmarks.tools.printing import markdown, table


def test_a_ratio_is_ours_over_the_peer_by_the_medians_of_all_rounds() -> None:
    figure = Figure("f", "ms", (10.0, 20.0, 90.0), (10.0, 5.0, 10.0), 2.0)
    assert figure.ratio == 2.0
    assert figure.spread == (1.0, 9.0)
    assert figure.reached


def test_rounds_that_belong_together_are_compared_each_by_itself() -> None:
    figure = Figure("f", "ms", (10.0, 100.0, 30.0), (10.0, 50.0, 10.0), 2.0, paired=True)
    assert figure.ratio == 2.0


@pytest.mark.parametrize(
    ("ours", "sense", "reached"),
    [(79.0, Goal.AT_LEAST, False), (80.0, Goal.AT_LEAST, True), (81.0, Goal.AT_MOST, False)],
)
def test_a_goal_has_a_side(ours: float, sense: Goal, reached: bool) -> None:
    assert Figure("f", "tasks/s", (ours,), (100.0,), 0.8, sense).reached is reached


def test_without_a_peer_the_goal_is_one_for_ours() -> None:
    assert Figure("f", "MB", (1.9,), goal=2.0).reached
    assert not Figure("f", "MB", (2.1,), goal=2.0).reached
    assert Figure("f", "MB", (2.1,)).reached is None


def test_the_others_go_first_every_second_round() -> None:
    order: list[str] = []

    def measured(name: str) -> float:
        order.append(name)
        return float(len(order))

    rows = in_turns("t", 2, {"a": lambda: measured("a"), "b": lambda: measured("b")})
    assert order == ["a", "b", "b", "a"]
    assert rows == {"a": (1.0, 4.0), "b": (2.0, 3.0)}


def test_the_table_can_be_pasted_and_shows_what_is_missed() -> None:
    figures = [
        Figure("start: ready", "s", (0.25, 0.35), goal=0.5),
        Figure("tasks / xargs", "tasks/s", (900.0,), (1800.0,), 0.8, Goal.AT_LEAST),
    ]
    head, rule, ready, tasks = markdown(figures).splitlines()
    assert head.count("|") == rule.count("|") == ready.count("|") == tasks.count("|") == 8
    assert ready == "| start: ready | 0.3 s |  |  | 0.25-0.35 | <= 0.5 s | reached |"
    assert tasks == (
        "| tasks / xargs | 900 tasks/s | 1,800 tasks/s | 0.5x |  | >= 0.8x | **missed** |"
    )
    assert "MISSED" in table(figures).splitlines()[2]
