"""Leases: until when each claim is ours alone, which is renewed next, and which is given up.

Source: docs/PROTOCOL.md, "Leases". All times are on the boot clock (``Desk.boot``), which goes on
while the machine sleeps; the timers do not, so leases are also looked at every few seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import inf

from beads_workers.core import limits
from beads_workers.core.desk import Desk
from beads_workers.core.jobs import IssueId
from beads_workers.core.source import Lease, Renewed
from beads_workers.core.tasks import Tasks

LOOK = "look at the leases"
"""Timer key: something is due for a lease, or the machine may have slept."""


@dataclass(slots=True)
class Kept:
    """One lease. ``due_since``: when it was found at half its life; ``again_at``: next try."""

    lease: Lease
    due_since: float | None = None
    again_at: float = 0.0

    @property
    def half(self) -> float:
        """Half its life is over: it is to be renewed."""
        return (self.lease.began + self.lease.ends) / 2


class Leases:
    """The leases of all jobs in our hands; sources without leases leave it empty."""

    def __init__(self, desk: Desk, tasks: Tasks, grace_seconds: float) -> None:
        """``grace_seconds``: how long a task may take to end after TERM."""
        self._desk = desk
        self._tasks = tasks
        self._margin = grace_seconds + limits.LEASE_MARGIN_SECONDS
        self._kept: dict[IssueId, Kept] = {}
        self._asked: tuple[IssueId, ...] = ()
        self._look_at = inf

    def granted(self, leases: Iterable[Lease]) -> None:
        """The tracker says until when these are ours."""
        for lease in leases:
            self._kept[lease.issue_id] = kept = Kept(lease)
            self._look_by(kept.half)

    def to_renew(self, settling: Collection[IssueId]) -> tuple[IssueId, ...]:
        """The lease that ends first of those that are due: one, so that no close waits long.

        ``settling``: what the same turn is about to let go of.
        """
        due = [k for i, k in self._kept.items() if self._is_due(k) and i not in settling]
        first = min(due, key=lambda kept: kept.lease.ends, default=None)
        return (first.lease.issue_id,) if first else ()

    def asked(self, issue_ids: tuple[IssueId, ...]) -> None:
        """These are being renewed in the turn that begins."""
        self._asked = issue_ids

    def answered(self, renewed: Renewed | None) -> None:
        """What came of it; None: the tracker could not be asked."""
        asked, self._asked = self._asked, ()
        for issue_id in asked:
            if (kept := self._kept.get(issue_id)) is not None:
                kept.again_at = self._desk.boot + limits.LEASE_RETRY_SECONDS
                self._look_by(kept.again_at)
        if renewed is None:
            return
        self.granted(renewed.leases)
        for lost in renewed.lost:
            self._kept.pop(lost.issue_id, None)

    def run_out(self) -> list[IssueId]:
        """What must be given up now, before somebody else may start it; each is named once.

        Call it after every event and deadline.
        """
        if self._desk.boot < self._look_at:
            self._set_timer()
            return []
        self._forget_settled()
        over = []
        for issue_id, kept in self._kept.items():
            if kept.due_since is None and self._desk.boot >= kept.half:
                kept.due_since = self._desk.boot
            if self._gives_up_at(kept) <= self._desk.boot:
                over.append(issue_id)
        for issue_id in over:
            del self._kept[issue_id]
        self._look_at = min((self._next(kept) for kept in self._kept.values()), default=inf)
        self._set_timer()
        return over

    def _is_due(self, kept: Kept) -> bool:
        return kept.due_since is not None and kept.again_at <= self._desk.boot

    def _gives_up_at(self, kept: Kept) -> float:
        if kept.due_since is None:
            return inf
        life = kept.lease.ends - kept.lease.began
        margin = min(self._margin, life * limits.LEASE_MARGIN_SHARE_MAX)
        # Found late, after a sleep or a freeze: nobody has tried to renew it yet.
        return max(kept.lease.ends - margin, kept.due_since + limits.LEASE_WAKE_SECONDS)

    def _next(self, kept: Kept) -> float:
        if kept.due_since is None:
            return kept.half
        ends = self._gives_up_at(kept)
        return min(ends, kept.again_at) if kept.again_at > self._desk.boot else ends

    def _forget_settled(self) -> None:
        # A job that was handed over is in nobody's name: it has no lease any more.
        for issue_id in list(self._kept):
            held = self._tasks.held.get(issue_id)
            if held is None or held.handed_over:
                del self._kept[issue_id]

    def _look_by(self, at: float) -> None:
        self._look_at = min(self._look_at, at)

    def _set_timer(self) -> None:
        if not self._kept:
            self._desk.timers.cancel(LOOK)
            return
        wait = max(0.0, self._look_at - self._desk.boot)
        self._desk.timers.set_earlier(LOOK, self._desk.now + min(wait, limits.LEASE_LOOK_SECONDS))
