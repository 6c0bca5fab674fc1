"""What is ready: listed bounded, but wide enough to find what is wanted; used twice where safe."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from beads_workers.core.jobs import Filters, IssueId
from beads_workers.sources.bd.answers import Row
from beads_workers.sources.bd.listing import candidates
from beads_workers.sources.bd.tracker import Tracker

REUSE_SECONDS = 2.0
"""A listing this young may serve several claims, where a claim refuses what is gone by then."""
WIDER_MAX = 4
"""A listing full of rows that are not wanted is asked for wider so often, then for all rows."""


@dataclass(slots=True)
class Listing:
    """Candidates still untaken of a listing made at ``made`` (monotonic seconds)."""

    rows: list[Row]
    more: bool
    made: float


class Listings:
    """Makes listings for one source; ``rows_max`` bounds what is asked for at first."""

    def __init__(
        self,
        tracker: Tracker,
        filters: Filters,
        actor: str,
        rows_max: int,
        reuse_seconds: float = REUSE_SECONDS,
    ) -> None:
        self._tracker = tracker
        self._filters = filters
        self._actor = actor
        self._rows_max = rows_max
        self._reuse_seconds = reuse_seconds
        self._last: Listing | None = None
        self._slack = 0

    def forget(self) -> None:
        """Something was settled: what is ready may have changed."""
        self._last = None

    def ready(self, limit: int, skip: Collection[IssueId]) -> Listing:
        """A new listing, or the last one where it is young and holds ``limit`` rows still."""
        if self._last is None or not self._may_reuse(self._last, limit, skip):
            # A failure must not leave the old one behind.
            self._last = None
            self._last = self._new(limit, skip)
        return self._last

    def _new(self, limit: int, skip: Collection[IssueId]) -> Listing:
        made = time.monotonic()
        needed = self._rows_max + limit
        for _ in range(WIDER_MAX):
            rows_max = needed + len(skip) + 1 + self._slack
            shown = self._tracker.ready(self._filters, rows_max)
            rows = candidates(shown, self._filters, self._actor, skip)
            full = len(shown) >= rows_max
            if not full or len(rows) > needed:
                return Listing(rows, full, made)
            # Unwanted rows may hide wanted ones; next time, ask for as many more at once.
            self._slack = 2 * (self._slack + len(shown) - len(rows))
        shown = self._tracker.ready(self._filters, 0)
        return Listing(candidates(shown, self._filters, self._actor, skip), False, made)

    def _may_reuse(self, listing: Listing, limit: int, skip: Collection[IssueId]) -> bool:
        # Without compare-and-swap a claim would reopen what somebody has closed meanwhile.
        if not self._tracker.abilities.compare_and_swap or limit == 0:
            return False
        if time.monotonic() - listing.made > self._reuse_seconds:
            return False
        return sum(row.issue_id not in skip for row in listing.rows) >= limit
