"""Attempts on other machines: who has one there is a lease, not a process of ours.

A guard on the host ends an attempt that has not heard of us for the time of its lease. So such an
attempt is over if its guard says so, or if that time has passed here since the guard was last
heard. It is not over because a worker, a connection or an engine says so. Source: docs/MACHINES.md.
"""

from __future__ import annotations

from collections.abc import Callable

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId, Outcome, OutcomeKind, value
from beads_workers.core.base.states import IssueState, RunState
from beads_workers.core.base.wire import Done, Failed
from beads_workers.core.records.journal import Leased
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import TellGuard, Word
from beads_workers.core.schedule.inflight import InFlight
from beads_workers.core.schedule.parts import Parts
from beads_workers.core.workers.sender import Sender


@value
class LeaseOver:
    """Timer key: the guard of an attempt was not heard for as long as its lease, and a margin."""

    issue_id: IssueId


NOT_HEARD = "its host was not heard of until its lease was over"
_WITH_SOMEBODY = (IssueState.RUNNING, IssueState.ORPHANED)
_OVER = (RunState.SETTLING, RunState.ENDED)


class Away:
    """Keeps the leases of attempts: from the word to begin to the certainty that they are over."""

    requests = (ev.Placed, ev.GuardHeard, ev.FoundEnded)

    def __init__(
        self,
        parts: Parts,
        sender: Sender,
        end: Callable[[InFlight, Done | Failed | None], None],
    ) -> None:
        """``end`` ends an orphaned attempt, with its answer if there is one."""
        self._parts = parts
        self._sender = sender
        self._end = end
        self._effects = parts.effects

    def is_at_large(self, in_flight: InFlight) -> bool:
        """Return whether an attempt may be at work on another machine."""
        return self.is_expected(in_flight) and not in_flight.is_over

    def is_expected(self, in_flight: InFlight) -> bool:
        """Return whether news of an attempt may come from another machine, if only of its end."""
        return in_flight.issue.lease is not None and not in_flight.is_given_up

    def is_open(self, in_flight: InFlight, message: Done | Failed) -> bool:
        """Return whether an attempt may be at work after its worker's last word, or its answer lies
        on its host: whoever was to bring it has failed, and another one is to try it, once."""
        if self.is_at_large(in_flight):
            return True
        if isinstance(message, Done) or message.receipt or message.outcome is not OutcomeKind.RETRY:
            return False
        return self.is_expected(in_flight) and not in_flight.cancelled

    def asked(self, event: ev.OfPlace) -> None:
        """Take in news of a guard."""
        match event:
            case ev.Placed(lease):
                self._placed(lease)
            case ev.GuardHeard(issue_id, nonce):
                if (found := self._find(issue_id, nonce)) is not None:
                    self._count(*found)  # It has our word.
            case ev.FoundEnded(lease, answer) if self._parts.state not in _OVER:
                at_large = self._find(IssueId(lease.issue_id), lease.nonce)
                self._effects.ask(TellGuard(Word.HEARD if at_large else Word.DROP, lease))
                if at_large is not None:
                    self._is_over(at_large[0], answer)
            case _:
                pass  # The next start asks for it.

    def lease_over(self, issue_id: IssueId) -> None:
        """Give up an attempt: its guard has ended it by now, wherever it is."""
        in_flight = self._parts.tasks.in_flight.get(issue_id)
        if in_flight is None or in_flight.issue.state not in _WITH_SOMEBODY:
            return
        if (lease := in_flight.issue.lease) is None:
            return
        self._effects.note("warning", f"{issue_id} on {lease.host}: {NOT_HEARD}")
        in_flight.is_given_up = True
        waits = in_flight.issue.state is IssueState.RUNNING
        self._is_over(in_flight, None)
        if waits:
            self._sender.end_attempt(in_flight, NOT_HEARD)  # Its worker still waits for it.

    def orphan(self, in_flight: InFlight) -> None:
        """Orphan an attempt whose worker is gone or has given it up: it may go on without it."""
        issue_id, lease = in_flight.job.issue_id, in_flight.issue.lease
        assert lease is not None, "it is at large"
        if self._effects.timers.at(LeaseOver(issue_id)) is None:
            self._count(in_flight, lease)  # It has ended there; its answer is waited for as long.
        due = self._effects.timers.at(LeaseOver(issue_id)) or self._effects.now
        until = self._effects.epoch + due - self._effects.now
        self._parts.tasks.lose(in_flight, 0, lease_until=until)
        self.look(in_flight, end=bool(in_flight.cancelled or in_flight.overdue))

    def inherited(self, in_flight: InFlight) -> None:
        """Watch an attempt that an earlier run has left: its lease counts from now on."""
        lease = in_flight.issue.lease
        assert lease is not None, "its record says so"
        self._count(in_flight, lease)
        self.look(in_flight)

    def look(self, in_flight: InFlight, *, end: bool = False) -> None:
        """Have the end of an orphaned attempt watched; ``end``: and brought about."""
        if (lease := in_flight.issue.lease) is not None:
            self._effects.ask(TellGuard(Word.END if end else Word.LOOK, lease))

    def seconds(self, lease: Leased) -> float:
        """Return how long after its guard was last heard an attempt is certain to be over."""
        grace = self._parts.settings.work.term_grace_seconds
        return lease.seconds + grace + limits.AWAY_MARGIN_SECONDS

    def _placed(self, lease: Leased) -> None:
        """Have an attempt begun that waits on a host; its lease is recorded first."""
        in_flight = self._parts.tasks.in_flight.get(IssueId(lease.issue_id))
        begun = in_flight.issue.attempt if in_flight is not None else None
        if (
            in_flight is None
            or in_flight.issue.state is not IssueState.RUNNING
            or begun is None
            or begun.started.request_id != lease.request_id
            or in_flight.cancelled
            or in_flight.issue.lease not in (None, lease)
        ):
            self._effects.ask(TellGuard(Word.DROP, lease))
            return
        if in_flight.issue.lease is None:
            self._effects.write(lease)
        self._count(in_flight, lease)
        self._effects.ask(TellGuard(Word.GO, lease))

    def _count(self, in_flight: InFlight, lease: Leased) -> None:
        due = self._effects.now + self.seconds(lease)
        self._effects.timers.set(LeaseOver(in_flight.job.issue_id), due)

    def _find(self, issue_id: IssueId, nonce: str) -> tuple[InFlight, Leased] | None:
        in_flight = self._parts.tasks.in_flight.get(issue_id)
        if in_flight is None or in_flight.issue.state not in _WITH_SOMEBODY:
            return None
        lease = in_flight.issue.lease
        return (in_flight, lease) if lease is not None and lease.nonce == nonce else None

    def _is_over(self, in_flight: InFlight, answer: Done | Failed | None) -> None:
        in_flight.is_over = True
        self._effects.timers.cancel(LeaseOver(in_flight.job.issue_id))
        if in_flight.issue.state is IssueState.ORPHANED:
            self._end(in_flight, answer)  # Else its worker has the answer, or is about to get it.


def no_answer(in_flight: InFlight) -> Outcome:
    """Return the outcome of an attempt of which nothing is known but that it is over."""
    why = NOT_HEARD if in_flight.is_given_up else "it has ended on its host without an answer"
    return Outcome(OutcomeKind.CANCELLED, why)
