"""What goes wrong, how often, and the count of it by kind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class CallFate:
    """How one call of the tracker goes. ``late``: seconds before it begins.

    ``steps``: it is killed after so many of its steps. ``answer_lost``: it does its work and the
    caller is told of a failure.
    """

    starts: bool = True
    late: float = 0.0
    steps: int | None = None
    answer_lost: bool = False


_WELL = CallFate()


class Faults:
    """Draws from the world's randomness; ``rate`` scales all chances, 0 is a world at peace."""

    def __init__(self, random: Random, rate: float) -> None:
        self._random = random
        self.rate = rate
        self.counts: Counter[str] = Counter()
        self.left: int | None = None
        """How many may still be injected; None is no limit. Shrinking lowers it."""
        self.without: frozenset[str] = frozenset()
        """Kinds that do not happen in this world."""

    def hits(self, kind: str, chance: float) -> bool:
        """Whether it goes wrong this time; counted if it does."""
        # Drawn even at peace, so that fewer faults do not change what else happens.
        drawn = self._random.random()
        if drawn >= chance * self.rate or self.left == 0 or kind in self.without:
            return False
        if self.left is not None:
            self.left -= 1
        self.counts[kind] += 1
        return True

    def call_fate(self, ids: int) -> CallFate:
        """What becomes of a call that names so many issues."""
        if not self.hits_any(0.3):
            return _WELL
        choice = self._random.randrange(6)
        if choice == 0:
            self.counts["call: does not start"] += 1
            return CallFate(starts=False)
        if choice == 1:
            self.counts["call: killed half-way"] += 1
            return CallFate(steps=self._random.randint(0, ids + 1))
        if choice == 2:
            self.counts["call: done, told it failed"] += 1
            return CallFate(answer_lost=True)
        if choice == 3:
            self.counts["call: hangs"] += 1
            return CallFate(late=self._random.uniform(50.0, 200.0))
        self.counts["call: slow"] += 1
        return CallFate(late=self._random.uniform(0.5, 20.0))

    def hits_any(self, chance: float) -> bool:
        """Like ``hits``, for a caller that counts by itself."""
        if self._random.random() >= chance * self.rate or self.left == 0:
            return False
        if self.left is not None:
            self.left -= 1
        return True
