"""What a benchmark hands back: one row of measurements or two, their ratio, and the goal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from statistics import median
from typing import Any

Measure = Callable[[], float]


class Goal(Enum):
    """On which side of a goal a figure has to be."""

    AT_MOST = "<="
    AT_LEAST = ">="


@dataclass(frozen=True, slots=True)
class Figure:
    """``ours`` and ``peer``: one number per round, taken in turn, in ``unit``.

    The goal is one for the ratio ours / peer, or, where ``peer`` is empty, for ours, in ``unit``.
    """

    name: str
    unit: str
    ours: tuple[float, ...]
    peer: tuple[float, ...] = ()
    goal: float | None = None
    sense: Goal = Goal.AT_MOST
    paired: bool = False
    """Whether both of a round were so close together that what disturbed one disturbed both."""

    @property
    def ratio(self) -> float | None:
        """Ours / peer, of the medians; the median of the rounds' ratios where ``paired``.

        None without a peer, infinite where there is nothing to divide by.
        """
        if not self.peer:
            return None
        if self.paired:
            return median(self._ratios)
        return _divided(median(self.ours), median(self.peer))

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the greatest of a single round (ratio, or ours): how noisy it was."""
        rounds = self._ratios or self.ours
        return min(rounds), max(rounds)

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached; None without one."""
        if self.goal is None:
            return None
        judged = median(self.ours) if self.ratio is None else self.ratio
        return judged <= self.goal if self.sense is Goal.AT_MOST else judged >= self.goal

    def as_json(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        ratio = self.ratio
        return {
            "name": self.name,
            "unit": self.unit,
            "ours": list(self.ours),
            "peer": list(self.peer),
            "ours_median": median(self.ours),
            "peer_median": median(self.peer) if self.peer else None,
            "ratio": round(ratio, 3) if ratio is not None else None,
            "paired": self.paired,
            "spread": [round(r, 3) for r in self.spread],
            "goal": self.goal,
            "goal_is": self.sense.value,
            "reached": self.reached,
        }

    @property
    def _ratios(self) -> list[float]:
        if not self.peer:
            return []
        return [_divided(a, b) for a, b in zip(self.ours, self.peer, strict=True)]


def _divided(ours: float, peer: float) -> float:
    return ours / peer if peer else float("inf")


def say(text: str) -> None:
    """Progress, for people."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def in_turns(name: str, rounds: int, measures: dict[str, Measure]) -> dict[str, tuple[float, ...]]:
    """Measure all of them once per round, in the opposite order every second time."""
    rows: dict[str, list[float]] = {key: [] for key in measures}
    for number in range(rounds):
        for key in measures if number % 2 == 0 else reversed(measures):
            rows[key].append(measures[key]())
        text = ", ".join(f"{key} {row[-1]:.4g}" for key, row in rows.items())
        say(f"{name}, round {number + 1} of {rounds}: {text}")
    return {key: tuple(row) for key, row in rows.items()}


def in_turn(
    name: str, rounds: int, ours: Measure, peer: Measure
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Two of them."""
    rows = in_turns(name, rounds, {"ours": ours, "peer": peer})
    return rows["ours"], rows["peer"]
