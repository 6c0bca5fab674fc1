"""What is counted over a whole run for ``metrics``: a part of the board, bounded by its labels.

Every label is of a closed set: outcomes, verdicts, what the tracker is asked for, and its answers.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from beads_workers.core import records as rec

BUCKETS = (0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600, 14400)
"""Upper bounds in seconds: from functions that take milliseconds to agents that take hours."""

RECOVER = "recover"
"""Asking the tracker about earlier runs, before anything else."""


@dataclass(slots=True)
class Durations:
    """A histogram. ``counts``: one for each of ``BUCKETS``, and one for all that is longer."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds


@dataclass(slots=True)
class Turns:
    """Visits to the tracker of one kind: how many, how long, and how many came to nothing."""

    count: int = 0
    seconds: float = 0.0
    failures: int = 0


@dataclass(slots=True)
class Counters:
    """See the module text. Nothing here ever gets less."""

    started: int = 0
    attempts: dict[tuple[str, str], int] = field(default_factory=dict)
    """By outcome and verdict."""
    durations: dict[str, Durations] = field(default_factory=lambda: {"success": Durations()})
    """By outcome."""
    settled: dict[tuple[str, str], int] = field(default_factory=dict)
    """By action and result."""
    turns: dict[str, Turns] = field(default_factory=dict)
    """By kind, see ``kind_of``."""
    _kind: str = RECOVER
    _since: float = 0.0

    def finished(self, finished: rec.Finished) -> None:
        """An attempt has ended."""
        key = finished.outcome, finished.verdict
        self.attempts[key] = self.attempts.get(key, 0) + 1
        durations = self.durations.get(finished.outcome)
        if durations is None:
            durations = self.durations[finished.outcome] = Durations()
        durations.add(finished.duration_ms / 1000)

    def settlement(self, settled: rec.SettledRecord) -> None:
        """The tracker took what it was told, or had its reason not to."""
        key = settled.action, settled.result
        self.settled[key] = self.settled.get(key, 0) + 1

    def turn_began(self, turn: rec.TurnBegan, elapsed: float) -> None:
        """The tracker is asked."""
        self._kind, self._since = kind_of(turn), elapsed

    def turn_ended(self, elapsed: float) -> None:
        """It was asked; where that failed, ``trouble`` follows."""
        turns = self.turns.setdefault(self._kind, Turns())
        turns.count += 1
        turns.seconds += elapsed - self._since

    def trouble(self) -> None:
        """It could not be asked, or did not answer."""
        self.turns.setdefault(self._kind, Turns()).failures += 1


def kind_of(turn: rec.TurnBegan) -> str:
    """What a turn is for: ``settle``, ``renew``, ``take`` or ``list``; several joined with +."""
    parts = [
        "settle" if turn.settle else "",
        "renew" if turn.renew else "",
        "" if turn.take is None else "take" if turn.take else "list",
    ]
    return "+".join(part for part in parts if part) or "nothing"
