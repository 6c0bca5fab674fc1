"""Pending writes and questions to the source.
Settlements gather, and go out in one round trip at a time.

While a round trip is under way everything waits for the next; the busier the tracker, the larger
the groups. A failure to ask is never an answer: settlements stay pending, and nothing is concluded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId, value
from beads_workers.core.base.source import Action, Result, Settled, Settlement
from beads_workers.core.records import journal as rec
from beads_workers.core.schedule.commands import RoundTrip
from beads_workers.core.schedule.effects import Effects, jitter
from beads_workers.core.schedule.events import RoundTripEnded

CLAIM_AGAIN = "take again"
"""Timer key: ask once more, for an idle fleet or after trouble."""

LINGER = "linger"
"""Timer key: pending writes have gathered for long enough."""


@dataclass(slots=True)
class PendingWrite:
    """A settlement that is to be written."""

    settlement: Settlement
    # When it became pending.
    at: float
    tries: int = 0
    # Time of the first failure.
    since: float | None = None
    # Back-off after failures of this one issue.
    not_before: float = 0.0
    # The machine has slept since it became pending.
    slept: bool = False


@value
class Trouble:
    """The last failure to ask the source. Times on the monotonic clock."""

    error: str
    hint: str
    failures: int
    since: float
    again_at: float


@value
class WriteRetryDue:
    """Timer key: a settlement that failed is due to be tried again."""

    issue_id: IssueId


class RoundTrips:
    """The core's side of the one helper thread that talks to the source."""

    def __init__(self, effects: Effects, *, push: bool = False) -> None:
        """``push``: a round trip asks nobody, and costs nothing that people would want to know."""
        self._effects = effects
        self._push = push
        self.pending: dict[IssueId, PendingWrite] = {}
        self.busy = False
        self._delegating: set[IssueId] = set()
        self._failing = False
        self._trip_ended_at = 0.0
        self.trip_seconds = 0.0
        self.trouble: Trouble | None = None
        self.claims_unknown = False
        """True if the tracker may hold issues in our name that are unknown here: a claim was not
        answered, or said so."""
        self._resting = False
        self._failed_at = 0.0

    @property
    def troubled_now(self) -> bool:
        """Whether the last attempt to ask the source failed."""
        return self.trouble is not None

    @property
    def resting(self) -> bool:
        """Whether the source is left alone for a while after trouble."""
        return self._resting

    def enqueue(self, settlement: Settlement) -> None:
        """Add a pending write; a later one for the same issue takes its place."""
        self.pending[settlement.issue_id] = PendingWrite(settlement, self._effects.now)
        if settlement.action is Action.HAND_OVER:
            self._delegating.add(settlement.issue_id)
        else:
            self._delegating.discard(settlement.issue_id)

    def claimed(self, issue_id: IssueId) -> None:
        """Drop the pending write of a claimed issue.
        A reopening that failed before would take it from its worker."""
        self.pending.pop(issue_id, None)

    def may_linger(self) -> bool:
        """Return whether pending writes can gather for another moment; if so, a timer ends that.

        Nobody waits for a close while there is other work; a hand-over has a worker waiting.
        """
        first = next(iter(self.pending.values()))
        # Writes that came in during a long round trip wait for a moment, too: the jobs that the
        # round trip has brought may be done in no time, and share the next call.
        linger = self.trip_seconds * limits.LINGER_SHARE
        due = max(
            first.at + limits.LINGER_SECONDS,
            self._trip_ended_at + min(linger, limits.LINGER_SECONDS_MAX),
        )
        if (
            self._delegating
            or len(self.pending) >= limits.LINGER_ISSUES_MAX
            or self._effects.now >= due
        ):
            return False
        self._effects.timers.set_earlier(LINGER, due)
        return True

    def failing_for(self) -> float | None:
        """Return how long the oldest settlement that still fails has done so; None if none does.

        It is measured from its first failure to the last one: time in which nobody asked, because
        we were stopped ourselves, proves nothing.
        """
        if not self._failing:
            return None  # This is called after every event.
        since = min((o.since for o in self.pending.values() if o.since is not None), default=None)
        self._failing = since is not None
        return None if since is None else self._failed_at - since

    def due_writes(self) -> tuple[Settlement, ...]:
        """Return the pending writes that can be asked for now."""
        now = self._effects.now
        due = [o for o in self.pending.values() if o.not_before <= now]
        for pending in due:
            if pending.slept and pending.settlement.action is not Action.REOPEN:
                pending.settlement = replace(pending.settlement, read_first=True)
        return tuple(pending.settlement for pending in due)

    def to_close(self) -> set[IssueId]:
        """Return done issues whose close the tracker has not answered: a take would repeat them."""
        each = self.pending.values()
        return {p.settlement.issue_id for p in each if p.settlement.action is Action.CLOSE}

    def woke(self) -> None:
        """Have every pending write read its issue first: the machine has slept.

        A write under way was begun before, and counts if it is done. An issue that is to be
        reopened is nobody's claim.
        """
        for pending in self.pending.values():
            pending.slept = True

    def has_due_writes(self) -> bool:
        """Return whether a settlement is under way, or about to be: it may make work ready."""
        now = self._effects.now
        return bool(self.pending) and (
            self.busy or any(o.not_before <= now for o in self.pending.values())
        )

    def begin(self, round_trip: RoundTrip) -> None:
        """Begin a round trip; ``RoundTripEnded`` will answer."""
        assert not self.busy, "one round trip at a time"
        self.busy = True
        if not self._push:
            self._effects.write(
                rec.RoundTripBegan(
                    len(round_trip.settlements), len(round_trip.renew), round_trip.take
                )
            )
        self._effects.ask(round_trip)

    def wake(self) -> None:
        """End the rest: its time is over, or a person wants to know now."""
        self._resting = False
        self._effects.timers.cancel(CLAIM_AGAIN)

    def hurry(self) -> None:
        """Make all pending writes due now: the run ends, or what blocked them is gone."""
        self.wake()
        for pending in self.pending.values():
            pending.not_before = self._effects.now

    def ended(self, round_trip: RoundTripEnded) -> list[Settled]:
        """Take in the answer; return it without the settlements that a later one has overtaken."""
        self.busy = False
        self._trip_ended_at = self._effects.now
        # This moving average spans about four round trips: groups grow and shrink with the tracker.
        self.trip_seconds = self.trip_seconds or round_trip.seconds
        self.trip_seconds += (round_trip.seconds - self.trip_seconds) * 0.25
        if not self._push:
            self._effects.write(rec.Spent(round_trip.calls, round(round_trip.call_seconds, 3)))
        taken = round_trip.taken
        unsure = self.claims_unknown if taken is None else taken.unsure
        # "Not ours" may be a mistake of the tracker's.
        doubtful = any(s.result is Result.NOT_OURS for s in round_trip.settled)
        unsure = unsure or (doubtful and not self._push)
        self.claims_unknown = bool(round_trip.take_error) or unsure
        error = round_trip.settle_error or round_trip.take_error
        if error:
            self._trouble(error, round_trip.hint)
            if round_trip.settle_error:
                self._failed_at, self._failing = self._effects.now, True
                for pending in self.pending.values():
                    if pending.since is None:
                        pending.since = self._effects.now
        elif round_trip.taken is not None or round_trip.settled or round_trip.renewed is not None:
            self.recovered()
        return [s for s in round_trip.settled if self._checked_off(s)]

    def troubled(self, error: str, hint: str, retry_in_seconds: float) -> None:
        """Note that the source could not be asked; the caller asks again by itself."""
        now, before = self._effects.now, self.trouble
        failures = before.failures + 1 if before else 1
        since = before.since if before else now
        error = error[: limits.ERROR_CHARS_MAX]
        self.trouble = Trouble(error, hint, failures, since, now + retry_in_seconds)
        self._effects.write(rec.SourceTrouble(error, retry_in_seconds, hint, failures))

    def recovered(self) -> None:
        """Note that the source answers, whatever was before."""
        if self.trouble is not None:
            self.trouble = None
            self._effects.write(rec.SourceRecovered())

    def _trouble(self, error: str, hint: str) -> None:
        failures = self.trouble.failures if self.trouble else 0
        delay = min(
            limits.SOURCE_RETRY_SECONDS * 2.0 ** min(failures, 10),
            limits.SOURCE_RETRY_MAX_SECONDS,
        )
        self._resting = True
        self._effects.timers.set(CLAIM_AGAIN, self._effects.now + delay)
        self.troubled(error, hint, delay)

    def _checked_off(self, settled: Settled) -> bool:
        issue_id = settled.settlement.issue_id
        pending = self.pending.get(issue_id)
        if pending is None or pending.settlement != settled.settlement:
            return False
        if settled.result is Result.FAILED:
            self._retry_later(pending, settled.error)
        else:
            del self.pending[issue_id]
            self._delegating.discard(issue_id)
        return True

    def _retry_later(self, pending: PendingWrite, error: str) -> None:
        issue_id = pending.settlement.issue_id
        pending.tries += 1
        self._failed_at, self._failing = self._effects.now, True
        pending.since = self._effects.now if pending.since is None else pending.since
        delay = limits.SOURCE_RETRY_SECONDS * 2.0 ** min(pending.tries - 1, 10)
        delay = min(delay, limits.SOURCE_RETRY_MAX_SECONDS) * (1 - 0.2 * jitter(issue_id))
        pending.not_before = self._effects.now + delay
        self._effects.timers.set(WriteRetryDue(issue_id), pending.not_before)
        action, error = pending.settlement.action.value, error[: limits.ERROR_CHARS_MAX]
        self._effects.write(
            rec.SettlementFailed(issue_id, action, error, pending.tries, round(delay, 3))
        )
        if pending.tries == 1:
            self._effects.note("warning", f"{issue_id}: {action} failed, trying again: {error}")
