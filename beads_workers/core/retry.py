"""What is remembered of issues that are not done, and the circuit breaker for spawn storms."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace

from beads_workers.core import limits
from beads_workers.core.effects import Effects, Timers
from beads_workers.core.issues import Standing
from beads_workers.core.journal import Checkpointed, Refunded
from beads_workers.core.model import IssueId, Outcome, OutcomeKind, value
from beads_workers.core.policy import AttemptHistory
from beads_workers.core.round_trips import RoundTrips
from beads_workers.core.source import Action, Settlement
from beads_workers.core.text import printable

# --- retry state ---------------------------------------------------------------------------------
# What is remembered of issues that are not done: attempts, cooling down, quarantined, on hold.
#
# It outlives the run: the checkpoint at the start of each journal carries it over.


@dataclass(slots=True)
class RetryEntry:
    """One unfinished issue. ``not_before`` on the monotonic clock; ``claimed_by`` an actor.

    ``failed_here``: an attempt in this run ended without success. ``path`` and ``arguments``: of
    the function that it names, as ``kept.arguments_of`` has them.
    """

    history: AttemptHistory = field(default_factory=AttemptHistory)
    standing: Standing = Standing.OPEN
    not_before: float = 0.0
    title: str = ""
    error: str = ""
    claimed_by: str = ""
    failed_here: bool = False
    path: str = ""
    arguments: str = ""


@value
class RetryDue:
    """Timer key: an issue has cooled down."""

    issue_id: IssueId


class RetryState:
    """An entry for each unfinished issue that has a past; a fresh issue needs none."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self.retry_entries: dict[IssueId, RetryEntry] = {}

    def restore(self, checkpointed: Checkpointed, now: float, epoch: float) -> None:
        """Take an entry over from an earlier run. ``epoch``: the wall clock at ``now``."""
        retry_entry = RetryEntry(
            history=AttemptHistory(checkpointed.charged, checkpointed.free_in_a_row),
            title=checkpointed.title,
            error=checkpointed.error,
            claimed_by=checkpointed.claimed_by,
            path=checkpointed.path,
            arguments=checkpointed.arguments,
        )
        issue_id = IssueId(checkpointed.issue_id)
        self.retry_entries[issue_id] = retry_entry
        if checkpointed.claimed_by:
            retry_entry.standing = Standing.UNCLOSED
        elif checkpointed.quarantined:
            retry_entry.standing = Standing.QUARANTINED
        elif (left := checkpointed.not_before - epoch) > 0:
            # A wall clock that was set back must not park an issue: no wait is longer than it was.
            most = checkpointed.delay_seconds or limits.RETRY_AFTER_MAX_SECONDS
            self._cool(issue_id, retry_entry, now + min(left, most))

    def retry_entry(self, issue_id: IssueId) -> RetryEntry:
        """The entry of an issue, made when it is missing."""
        return self.retry_entries.setdefault(issue_id, RetryEntry())

    def history(self, issue_id: IssueId) -> AttemptHistory:
        """Attempts so far; none for an issue without an entry."""
        retry_entry = self.retry_entries.get(issue_id)
        return retry_entry.history if retry_entry else AttemptHistory()

    def taken(self, issue_id: IssueId) -> None:
        """The tracker lets us have it: whatever stood in the way is over.

        An issue that was quarantined and is ready again was reopened by a person, who thereby
        gave it new attempts.
        """
        retry_entry = self.retry_entries.get(issue_id)
        if retry_entry is None:
            return
        self._timers.cancel(RetryDue(issue_id))
        if retry_entry.standing is Standing.QUARANTINED:
            retry_entry.history = AttemptHistory()
        retry_entry.standing = Standing.OPEN
        if retry_entry.history == AttemptHistory():
            del self.retry_entries[issue_id]

    def done(self, issue_id: IssueId) -> None:
        """Closed: there is nothing left to remember."""
        self._timers.cancel(RetryDue(issue_id))
        self.retry_entries.pop(issue_id, None)

    def requeue(
        self,
        issue_id: IssueId,
        title: str,
        error: str,
        history: AttemptHistory,
        now: float,
        until: float,
    ) -> None:
        """Try again, no sooner than ``until``."""
        retry_entry = self.retry_entry(issue_id)
        retry_entry.title, retry_entry.error, retry_entry.history = title, error, history
        retry_entry.failed_here = True
        retry_entry.standing = Standing.OPEN
        if until > now:
            self._cool(issue_id, retry_entry, until)
        elif history == AttemptHistory():
            del self.retry_entries[issue_id]

    def quarantine(
        self, issue_id: IssueId, title: str, error: str, history: AttemptHistory
    ) -> None:
        """No more attempts until a person says so."""
        retry_entry = self.retry_entry(issue_id)
        retry_entry.title, retry_entry.error, retry_entry.history = title, error, history
        retry_entry.failed_here = True
        retry_entry.standing = Standing.QUARANTINED

    def is_quarantined(self, issue_id: IssueId) -> bool:
        """Whether it still stands so; a person may have asked for another try since."""
        retry_entry = self.retry_entries.get(issue_id)
        return retry_entry is not None and retry_entry.standing is Standing.QUARANTINED

    def put_on_hold(self, issue_id: IssueId) -> None:
        """A person put it on hold."""
        self._timers.cancel(RetryDue(issue_id))
        self.retry_entry(issue_id).standing = Standing.ON_HOLD

    def retry(self, issue_id: IssueId) -> Standing | None:
        """A person wants it tried again now; returns how it stood, None if there is no entry."""
        retry_entry = self.retry_entries.get(issue_id)
        if retry_entry is None or retry_entry.standing is Standing.UNCLOSED:
            return retry_entry.standing if retry_entry else None
        stood = retry_entry.standing
        self._timers.cancel(RetryDue(issue_id))
        del self.retry_entries[issue_id]
        return stood

    def refund(self, issue_id: IssueId, attempts: int) -> tuple[Standing, int] | None:
        """So many charged attempts were not the issue's fault: it may be taken again at once.

        Returns how it stood and what is still charged; None where nothing is remembered of it.
        """
        retry_entry = self.retry_entries.get(issue_id)
        if retry_entry is None:
            return None
        stood, charged = retry_entry.standing, max(0, retry_entry.history.charged - attempts)
        retry_entry.history = replace(retry_entry.history, charged=charged)
        if stood in (Standing.COOLING, Standing.QUARANTINED):
            self._timers.cancel(RetryDue(issue_id))
            retry_entry.standing = Standing.OPEN
        if retry_entry.standing is Standing.OPEN and retry_entry.history == AttemptHistory():
            del self.retry_entries[issue_id]
        return stood, charged

    def cooled_down(self, issue_id: IssueId) -> None:
        """Its time has come."""
        retry_entry = self.retry_entries.get(issue_id)
        if retry_entry and retry_entry.standing is Standing.COOLING:
            retry_entry.standing = Standing.OPEN

    def not_to_take(self) -> set[IssueId]:
        """What a take must leave out. Quarantined ones are out of the backlog by themselves."""
        off = (Standing.COOLING, Standing.ON_HOLD, Standing.UNCLOSED)
        return {i for i, retry_entry in self.retry_entries.items() if retry_entry.standing in off}

    def next_due(self) -> float | None:
        """When the first retry is due (monotonic); None when nothing cools down."""
        cooling = (
            p.not_before for p in self.retry_entries.values() if p.standing is Standing.COOLING
        )
        return min(cooling, default=None)

    def any_cooling(self) -> bool:
        """Whether a retry is due at some time."""
        return self.next_due() is not None

    def _cool(self, issue_id: IssueId, retry_entry: RetryEntry, until: float) -> None:
        retry_entry.standing, retry_entry.not_before = Standing.COOLING, until
        self._timers.set(RetryDue(issue_id), until)


# --- circuit breaker -----------------------------------------------------------------------------
# Spawn storms: everything fails at its start, so the fault is not with the issues.
#
# Nobody is logged in, or it is the wrong folder: without a brake a fleet would burn through every
# attempt of a whole backlog within seconds. Source: docs/SEMANTICS.md, "Spawn storms".


FAILURES = (OutcomeKind.ERROR, OutcomeKind.TIMEOUT, OutcomeKind.NOT_FOUND)
"""What a task says by failing. A worker that dies has a brake of its own (``supervisor``); a retry
and a cancellation are no failures."""


class CircuitBreaker:
    """Sees every attempt end. While ``is_open``, failures at the start are not charged."""

    def __init__(self, effects: Effects, round_trips: RoundTrips, retry_state: RetryState) -> None:
        self._effects = effects
        self._round_trips = round_trips
        self._retry_state = retry_state
        self._charged: dict[IssueId, int] = {}
        self._refuted = False
        self._error = ""
        self.is_open = False

    def trips(self, issue_id: IssueId, outcome: Outcome, seconds: float) -> bool:
        """An attempt that took so long has ended; True: a storm ended it, it is not to be charged.

        Then say ``refund`` when it has been requeued.
        """
        if outcome.kind is OutcomeKind.SUCCESS:
            # Whatever fails from now on: the command can be run here, and does its work.
            self._refuted, self.is_open = True, False
            self._charged.clear()
        if self._refuted or outcome.kind not in FAILURES or seconds >= limits.BREAKER_SECONDS:
            return False
        self._charged.setdefault(issue_id, 0)
        self._error = outcome.error
        self.is_open = self.is_open or len(self._charged) >= limits.BREAKER_ISSUES
        if not self.is_open:
            self._charged[issue_id] += 1
        return self.is_open

    def refund(self, in_flight: Container[IssueId]) -> None:
        """Requeue what was charged to the issues that a storm has struck, and say so once.

        ``in_flight``: jobs whose settlement is still under way; theirs follows by itself.
        """
        for issue_id, attempts in self._charged.items():
            refunded = self._retry_state.refund(issue_id, attempts)
            if refunded is None and issue_id not in in_flight:
                continue
            stood, charged = refunded or (Standing.OPEN, 0)
            self._effects.write(Refunded(issue_id, charged))
            if stood is Standing.QUARANTINED and issue_id not in in_flight:
                self._round_trips.enqueue(Settlement(Action.REOPEN, issue_id))
        self._charged.clear()

    def retried(self, issue_id: IssueId) -> None:
        """A person gave it a clean history: nothing is left to be requeued."""
        if issue_id in self._charged:
            self._charged[issue_id] = 0

    def reset(self) -> None:
        """A person says that it is over: one more chance, and the count begins anew."""
        self.is_open = False
        self._charged.clear()

    def text(self) -> str:
        """What happened, for people: one sentence, fit for any terminal."""
        return (
            f"not logged in, or the wrong folder? {limits.BREAKER_ISSUES} different issues failed"
            f" within {limits.BREAKER_SECONDS:.0f} s of their start and none has succeeded. Nothing"
            f" was charged to them; the last error: {printable(self._error, ERROR_WIDTH) or 'none'}"
        )


ERROR_WIDTH = 100
"""Of the last error in the one message, in columns."""
