"""What a benchmark hands back: two rows of measurements, their ratio, and the goal."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

Measure = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Figure:
    """One ratio. ``ours`` and ``peer``: one number per round, taken in turn, in ``unit``."""

    name: str
    unit: str
    ours: tuple[float, ...]
    peer: tuple[float, ...]
    goal: float | None = None
    faster: bool = False
    """Whether the ratio is "times faster" (peer / ours, more is better) or ours / peer."""
    paired: bool = False
    """Whether both of a round were so close together that what disturbed one disturbed both."""

    @property
    def ratio(self) -> float:
        """Infinite or nought where there is no peer to divide by.

        That of the medians; the median of the rounds' where they are ``paired``.
        """
        if self.paired:
            return median(self._ratios)
        return self._of(median(self.ours), median(self.peer))

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the greatest ratio of a single round: how noisy the machine is."""
        return min(self._ratios), max(self._ratios)

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached; None without one."""
        if self.goal is None:
            return None
        return self.ratio >= self.goal if self.faster else self.ratio <= self.goal

    def as_json(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        return {
            "name": self.name,
            "unit": self.unit,
            "ours": list(self.ours),
            "peer": list(self.peer),
            "ours_median": median(self.ours),
            "peer_median": median(self.peer),
            "ratio": round(self.ratio, 3),
            "paired": self.paired,
            "ratio_spread": [round(r, 3) for r in self.spread],
            "ratio_is": "times faster" if self.faster else "ours / peer",
            "goal": self.goal,
            "reached": self.reached,
        }

    @property
    def _ratios(self) -> list[float]:
        return [self._of(a, b) for a, b in zip(self.ours, self.peer, strict=True)]

    def _of(self, ours: float, peer: float) -> float:
        above, below = (peer, ours) if self.faster else (ours, peer)
        return above / below if below else float("inf")


def say(text: str) -> None:
    """Progress, for people."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def in_turn(
    name: str, rounds: int, ours: Measure, peer: Measure
) -> tuple[list[float], list[float]]:
    """Measure both once per round, the other one first every second time."""
    mine: list[float] = []
    theirs: list[float] = []
    for number in range(rounds):
        pairs = [(ours, mine), (peer, theirs)]
        for measure, row in pairs if number % 2 == 0 else reversed(pairs):
            row.append(measure())
        say(f"{name}, round {number + 1} of {rounds}: ours {mine[-1]:.4g}, peer {theirs[-1]:.4g}")
    return mine, theirs


def table(figures: list[Figure]) -> str:
    """The figures as aligned lines."""
    rows = [("figure", "ours", "peer", "ratio", "(rounds)", "goal", "")]
    for figure in figures:
        low, high = figure.spread
        ratio = f"{figure.ratio:.2f}x" if figure.ratio < 100 else f"{figure.ratio:.0f}x"
        sign = ">=" if figure.faster else "<="
        verdict = {True: "reached", False: "MISSED", None: ""}[figure.reached]
        rows.append(
            (
                figure.name,
                f"{median(figure.ours):.4g} {figure.unit}",
                f"{median(figure.peer):.4g} {figure.unit}",
                ratio,
                f"({low:.2f}-{high:.2f})",
                f"{sign} {figure.goal:g}x" if figure.goal is not None else "",
                verdict,
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(7)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
