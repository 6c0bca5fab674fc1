"""What has been going on: the last outcomes, how many over time, and how the tracker answers.

A part of the board, bounded whatever the length of the run.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from beads_workers.core import limits
from beads_workers.core import records as rec
from beads_workers.core.values import value


@value
class Ended:
    """An attempt that ended: its record, the issue's title, and when (epoch seconds)."""

    finished: rec.Finished
    title: str
    at: float


@dataclass(slots=True)
class Throughput:
    """Issues done per bucket of the whole run, which gets coarser as the run gets longer."""

    bucket_seconds: float = limits.BUCKET_SECONDS
    done: list[int] = field(default_factory=list)

    def add(self, elapsed: float) -> None:
        """One more was done."""
        while elapsed >= self.bucket_seconds * limits.BUCKETS_MAX:
            self._merge()
        index = int(elapsed // self.bucket_seconds)
        self.done += [0] * (index + 1 - len(self.done))
        self.done[index] += 1

    def _merge(self) -> None:
        pairs = [*self.done, 0] if len(self.done) % 2 else self.done
        self.done = [a + b for a, b in zip(pairs[::2], pairs[1::2], strict=True)]
        self.bucket_seconds *= 2


@dataclass(slots=True)
class Asking:
    """The turn of the lane that is under way, and how long the last calls took (seconds each)."""

    turn: rec.TurnBegan | None = None
    since: float = 0.0
    spent: rec.Spent = field(default_factory=lambda: rec.Spent(0, 0.0))
    each: deque[float] = field(default_factory=lambda: deque(maxlen=limits.RECENT_MAX))

    def began(self, turn: rec.TurnBegan, elapsed: float) -> None:
        """The tracker is asked for something."""
        self.turn, self.since = turn, elapsed

    def ended(self, spent: rec.Spent) -> None:
        """It has answered, or failed to."""
        calls = spent.calls - self.spent.calls
        if calls > 0:
            self.each.append((spent.seconds - self.spent.seconds) / calls)
        self.turn, self.spent = None, spent

    def typical_seconds(self) -> float | None:
        """The median of the last calls; None before the first."""
        return sorted(self.each)[len(self.each) // 2] if self.each else None


@dataclass(slots=True)
class Activity:
    """See the module text."""

    last: deque[Ended] = field(default_factory=lambda: deque(maxlen=limits.RECENT_MAX))
    throughput: Throughput = field(default_factory=Throughput)
    asking: Asking = field(default_factory=Asking)
