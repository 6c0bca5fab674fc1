"""The claim scheduler: when the source is asked, and for how much.

Enough is claimed that a worker which finishes during one round trip finds its next job here, and no
more: an agent that works for minutes hoards nothing, no-ops get large groups.
"""

from __future__ import annotations

from collections import Counter
from operator import attrgetter

from beads_workers.core.base import limits
from beads_workers.core.base.model import FLEETS, PRIORITY_DEFAULT, IssueId, Job, value
from beads_workers.core.base.source import Action, Result, Taken
from beads_workers.core.base.states import ConnState, IssueState, RunState
from beads_workers.core.base.text import counted, some
from beads_workers.core.records.journal import Listed
from beads_workers.core.schedule.commands import RoundTrip
from beads_workers.core.schedule.connection_registry import Connection
from beads_workers.core.schedule.events import RoundTripEnded
from beads_workers.core.schedule.parts import Parts
from beads_workers.core.schedule.round_trips import CLAIM_AGAIN

RECHECK = "recheck"
"""Timer key: look at work that has come while perhaps no worker is free."""


WORKING = (ConnState.RESERVED, ConnState.BUSY)


@value
class Unwanted:
    """A job whose claim was dropped, because no free worker accepts it.

    ``until``: monotonic seconds when it may be claimed again in any case.
    """

    job: Job
    until: float


class ClaimScheduler:
    """Decides when to claim, and composes the round trips."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._effects = parts.effects
        self._round_trips = parts.round_trips
        self._tasks = parts.tasks
        self._issues = parts.effects.issues
        self._exhausted = False
        self._looked = False
        self._recheck = False
        self._overtaken = False
        self._attempt_seconds: float | None = None
        self._asked_for = 0
        # True if publishers wait to be told how each job went.
        self._awaited = parts.push and parts.settings.awaited
        self._was_held = self._blocked = False
        self.found_nothing = False
        """True if the last round trip asked, and found nothing that we may take."""
        self.others_work = False
        """True if other fleets hold issues, which come back by themselves if those fleets end."""
        self._unmet = False
        """True if a worker that does not accept every task has found none that it accepts."""
        self.unwanted: dict[IssueId, Unwanted] = {}
        """Jobs whose claim was dropped because no free worker accepts them. They are not claimed
        again until a worker that accepts them is free, or until ``until`` has passed."""

    def completed(self, seconds: float) -> None:
        """Take in the duration of an attempt; it decides how far ahead we claim."""
        if self._attempt_seconds is None:
            self._attempt_seconds = seconds
        # This moving average spans about four attempts, so a change of work shows soon.
        self._attempt_seconds += (seconds - self._attempt_seconds) * 0.25

    def to_prefetch(self, prefetch_count: int, queued: int) -> int:
        """Return how many more tasks to send to a worker.
        ``prefetch_count``: how many it accepts; ``queued``: how many of them it has."""
        seconds = self._attempt_seconds
        if seconds is None or not self._parts.settings.claims_ahead:
            return 0
        # At most the worker's share of the claimed jobs, so that at the end of a backlog no worker
        # is without a job while another has several.
        share = -(-self._issues.count(IssueState.CLAIMED) // max(1, self._parts.registry.slots()))
        soon = limits.PREFETCH_SECONDS
        room = (
            prefetch_count if prefetch_count * seconds <= soon else int(soon / seconds)
        ) - queued
        # Send several at once, because every message wakes the worker up.
        return min(share, room) if room >= queued else 0

    def reschedule(self) -> None:
        """Note that something changed which may have made work ready.

        A round trip under way was asked before the change, so it proves nothing if it brings
        nothing.
        """
        self._exhausted = self._looked = self.found_nothing = False
        self._overtaken = self._overtaken or self._round_trips.busy

    def arrived(self) -> None:
        """Note that work has come to the source by itself, or may have."""
        if self._parts.push:
            self._round_trips.wake()  # The news comes from the source, so the source answers.
        self._parts.questions.listen_now()
        self.reschedule()
        if not self._parts.settings.claims_ahead:
            # No worker may be free for hours: people see what waits all the same.
            self._effects.timers.set_earlier(RECHECK, self._effects.now + limits.RECHECK_SECONDS)

    def leave_to_others(self) -> None:
        """Requeue what is claimed and unsent if no worker here is to have it.
        The run ends, or each worker is paused."""
        state, registry = self._parts.state, self._parts.registry
        all_paused = registry.paused and self._parts.slots() <= registry.busy_paused()
        if state not in (RunState.RUNNING, RunState.PAUSED) or (
            state is RunState.RUNNING and all_paused
        ):
            self._tasks.requeue_unsent()

    def recheck(self) -> None:
        """List what waits: the recheck timer is due."""
        self._recheck = self._parts.state is RunState.RUNNING

    def poll(self) -> None:
        """Ask again, although nothing is known to have changed; not if nothing may begin yet."""
        if self._parts.state is not RunState.WAITING:
            self._exhausted = self._looked = False

    def coming(self) -> bool:
        """Return whether work may come in a moment.
        True if a round trip that may bring work is under way or about to begin, if a write is due
        that may make an issue ready, or during the recovery."""
        if self._parts.state is RunState.RECOVERING:
            return True
        if self._parts.state is not RunState.RUNNING or self._round_trips.resting:
            return False
        return self._round_trips.has_due_writes() or self._asked_for > 0 or self._want() > 0

    def note_free(self, connection: Connection) -> None:
        """Note that a worker asks for work: what suits the worker may be claimed again."""
        suits = [i for i, each in self.unwanted.items() if connection.accepts(each.job)]
        for issue_id in suits:
            del self.unwanted[issue_id]
        if suits:
            self.reschedule()

    def none_suits(self) -> None:
        """Note that nothing unsent suits a worker that does not accept every task."""
        self._unmet = True

    def _give_up_unwanted(self) -> None:
        """Drop unsent claims that no free worker accepts.

        Another fleet may want those issues, and here they take the place of work that could run.
        As many as we claim ahead, plus one for each worker that is starting, are kept if a busy or
        starting worker may take them.
        """
        self._unmet = False
        if self._parts.push:
            return  # No other fleet could have it.
        parts, starting = self._parts, self._parts.supervisor.starting()
        known = parts.registry.in_state(ConnState.IDLE, ConnState.READY, *WORKING)
        unsent, room = self._tasks.waiting(), self._ahead(parts.slots()) + starting
        for issue_id in dict.fromkeys(unsent):
            job = self._tasks.in_flight[issue_id].job
            takers = [c for c in known if c.accepts(job)]
            if any(c.state not in WORKING for c in takers):
                continue
            if room > 0 and (takers or starting):
                room -= 1
                continue
            until = self._effects.now + limits.UNWANTED_SECONDS
            self.unwanted[issue_id] = Unwanted(job, until)
            self._tasks.drop_claim(self._tasks.in_flight[issue_id])
            self.reschedule()

    def consider(self) -> None:
        """Begin a round trip if the tracker thread is free and there is anything to do."""
        round_trips = self._round_trips
        if self._parts.agents.let_in():
            self.reschedule()
        for issue_id, each in list(self.unwanted.items()):
            if each.until <= self._effects.now:
                del self.unwanted[issue_id]  # A person may have changed the issue.
        if self._unmet and self._parts.state is RunState.RUNNING:
            self._give_up_unwanted()
        self._heed_landing()
        if self._parts.state is RunState.RUNNING and self._parts.preparation.room() == 0:
            self._tasks.requeue_unsent()
        if round_trips.busy or round_trips.resting or not self._parts.recovered:
            return
        if self._parts.state is RunState.ENDED:
            return
        want = self._want()
        take = want if want > 0 or self._recheck or self._listing_due() else None
        lingers = take is None and self._may_linger()
        settlements = () if lingers else round_trips.due_writes()
        if self._parts.state is RunState.SETTLING and not settlements and self._is_unsure():
            take = 0
        renew = self._parts.leases.to_renew({s.issue_id for s in settlements})
        remarks = self._parts.questions.to_write()
        if self._listing_due():
            self._parts.questions.listen_now()  # A run may end, and say what waits.
        listen = () if self._parts.state is RunState.SETTLING else self._parts.questions.due()
        if take is None and not (renew or settlements or listen or remarks):
            return
        skip: frozenset[IssueId] = frozenset()
        if take is not None:
            self._recheck = False
            left_out = self._parts.retry_state.not_to_take() | self._parts.agents.waiting()
            left_out |= self._parts.preparation.tried | round_trips.to_close()
            skip = frozenset(left_out | self._tasks.in_flight.keys() | self.unwanted.keys())
        self._asked_for = take or 0
        self._overtaken = False
        self._parts.leases.asked(renew)
        round_trips.begin(RoundTrip(settlements, renew, take, skip, listen, remarks))

    def _is_unsure(self) -> bool:
        """Return whether the run must not end yet: claims in its name have to be looked for."""
        return self._round_trips.claims_unknown and not self._parts.push

    def _heed_landing(self) -> None:
        """While landing is paused, begin an attempt only if running attempts plus branches that
        wait to land are fewer than the workers.

        Each attempt would cost money, and its branch would only wait with the others.
        """
        room = self._landing_room()
        if room is None:
            if self._was_held:
                self._was_held = self._blocked = False
                self.reschedule()
            return
        self._was_held = True
        waiting = self._parts.landings.waiting()
        if not self._blocked and waiting >= max(1, self._parts.slots()):
            self._blocked = True
            branches = counted(waiting, "branch waits", "branches wait")
            text = f"nothing new is begun: landing is paused, and {branches} to land"
            self._effects.note("warning", text)
        running = self._parts.state is RunState.RUNNING
        if running and self._issues.count(IssueState.CLAIMED) > max(room, 0):
            self._tasks.requeue_unsent()

    def _landing_room(self) -> int | None:
        """Return how many attempts may begin while landing is paused; None if it is not paused."""
        landings = self._parts.landings
        if not landings.is_blocked:
            return None
        busy = self._issues.count(IssueState.RUNNING, IssueState.DELEGATING)
        return self._parts.slots() - landings.waiting() - busy

    def _may_linger(self) -> bool:
        # While workers find their next job here, a round trip for one or two closes is a waste.
        flowing = (
            self._parts.state is RunState.RUNNING and self._issues.count(IssueState.CLAIMED) > 0
        )
        return (
            flowing
            and not self._awaited
            and bool(self._round_trips.pending)
            and self._round_trips.may_linger()
        )

    def answered(self, round_trip: RoundTripEnded) -> None:
        """Take in what a round trip brought: claims go to the backlog."""
        asked_for, self._asked_for = self._asked_for, 0
        self.found_nothing = False
        taken = round_trip.taken
        if taken is None:
            return
        for job in taken.jobs:
            self._tasks.claimed(job)
        self._parts.leases.granted(taken.leases)
        for freed in taken.reclaimed:
            self._effects.note("info", f"{freed.issue_id} was left and is open again: {freed.why}")
        # After a round trip that only listed, the listed rows can still be claimed at the next
        # READY: the source is not exhausted.
        self._exhausted = len(taken.jobs) < asked_for or not (asked_for or taken.listed)
        self._looked = True
        there = taken.jobs or taken.listed or taken.waiting or taken.later
        self.found_nothing = not (there or taken.unsure)
        if self._overtaken or self._requeued(round_trip):
            self._exhausted = self._looked = self.found_nothing = False
        if asked_for and not taken.jobs and self._parts.preparation.tried:
            # Every issue left has already been a trial of ``PreparationBrake``: allow them again.
            self._parts.preparation.tried.clear()
            self._exhausted = False
        self._note_listing(taken)
        if self._exhausted or not asked_for:
            raced = bool(taken.listed) and asked_for > 0
            poll = self._parts.settings.tracking.poll_seconds
            # Rows without claims: another fleet was quicker, so look again soon.
            self._effects.timers.set(
                CLAIM_AGAIN, self._effects.now + (min(0.5, poll) if raced else poll)
            )

    def _requeued(self, round_trip: RoundTripEnded) -> bool:
        """Return whether this round trip itself requeued an issue that may be taken again.
        Its own take did not see the issue, because ``skip`` was made before."""
        off = self._parts.retry_state.not_to_take()
        released = (s.settlement for s in round_trip.settled if s.result is Result.APPLIED)
        return any(s.action is Action.RELEASE and s.issue_id not in off for s in released)

    def _want(self) -> int:
        if self._parts.state is not RunState.RUNNING or self._exhausted:
            return 0
        if self._parts.degraded.stop:
            return 0
        unsent, slots = self._issues.count(IssueState.CLAIMED), self._parts.slots()
        # An orphaned job keeps no slot: its worker has left us, dead or not.
        busy = self._issues.count(IssueState.RUNNING, IssueState.DELEGATING)
        free = max(0, slots - busy) + self._parts.registry.batch_room()
        ahead = self._ahead(slots)
        want = free + ahead - unsent
        if (left := self._issues_left()) is not None:
            want = min(want, left)
        if (room := self._parts.agents.room()) is not None:
            want = min(want, room - unsent)
        if (room := self._landing_room()) is not None:
            want = min(want, room - unsent)
        if (room := self._parts.preparation.room()) is not None:
            want = min(want, room - unsent)
        # Refill in one go when half is used up, not one by one; at once if a worker is idle.
        registry = self._parts.registry
        idle = registry.count(ConnState.READY) - registry.idle_paused() > unsent
        refill = unsent * 2 <= ahead and not self._gone_at_once(unsent, slots)
        return want if idle or free > unsent or refill else 0

    def _gone_at_once(self, unsent: int, slots: int) -> bool:
        """Return whether the unsent jobs last only a moment, compared with a round trip.
        If so, do not refill at half: a round trip that begins once they are gone brings twice as
        much, and no worker waits long."""
        seconds = unsent * (self._attempt_seconds or 0.0) / max(1, slots)
        return seconds < limits.LINGER_SHARE * self._round_trips.trip_seconds

    def _ahead(self, slots: int) -> int:
        """Return how many jobs to keep claimed, so that a free worker finds its next one here."""
        seconds = self._attempt_seconds
        if seconds is None or not self._parts.settings.claims_ahead:
            return 0
        quick = self._round_trips.trip_seconds < limits.QUICK_TRIP_SECONDS
        most = limits.CLAIM_AHEAD_QUICK_MAX if quick else limits.CLAIM_AHEAD_MAX
        most = max(most, limits.CLAIM_AHEAD_PER_SLOT * slots)
        if self._parts.push and not self._awaited:
            return most  # No other fleet wants them, and fewer round trips are cheaper.
        # The number of attempts that end within a second, at the present rate.
        a_second = slots / max(seconds, 0.0001)
        if seconds >= limits.LONG_ATTEMPT_SECONDS:
            return min(most, int(a_second * self._round_trips.trip_seconds))
        # Half of the jobs must last for two round trips: the one under way, and the one that
        # refills. And a large fleet must not list its backlog for every few of its jobs.
        expected = (
            a_second * max(4 * self._round_trips.trip_seconds, limits.CLAIM_AHEAD_SECONDS) + 0.9
        )
        if seconds < limits.SHORT_ATTEMPT_SECONDS:
            # All attempts may end together, and once more before the answer is here.
            expected = max(expected, 2 * slots)
        return min(most, int(expected))

    def _issues_left(self) -> int | None:
        limit = self._parts.settings.ending.issues_max
        if limit is None:
            return None
        return max(0, limit - self._tasks.ended - self._tasks.in_hand())

    def _listing_due(self) -> bool:
        # Even without any slot, --until-empty has to see that nothing is left.
        idle = not self._tasks.in_flight and not self._looked and not self._parts.degraded.stop
        if self._parts.state is RunState.WAITING:
            return idle  # People see what is to come.
        return (
            self._parts.settings.ending.until_empty
            and idle
            and self._parts.state is RunState.RUNNING
        )

    def _note_listing(self, taken: Taken) -> None:
        counts = [0] * 5
        # Four rows for each worker are listed, so ``Counter`` counts them, not a loop of ours.
        for priority, rows in Counter(map(attrgetter("priority"), taken.listed)).items():
            counts[min(max(priority, 0), 4)] += rows
        counts[PRIORITY_DEFAULT] += taken.waiting
        blocked = (taken.blocked or 0) + taken.later
        discovered = taken.discovered[: limits.DISCOVERED_MAX]
        held, holders = self._held(taken)
        listed = Listed(tuple(counts), taken.more, blocked, discovered, held, holders)
        # Also an equal listing is news: it counts the issues that have come back meanwhile.
        if listed != self._parts.listed or self._effects.moved:
            self._parts.listed = listed
            self._effects.write(listed)
            self._effects.moved = False

    def _held(self, taken: Taken) -> tuple[tuple[str, ...], tuple[str, ...]]:
        before = self._parts.listed
        if taken.held is None:
            return before.held, before.holders
        # Issues that earlier runs left with workers that live on are in our hands already.
        found = [each for each in taken.held if each.issue_id not in self._tasks.in_flight]
        self.others_work = any(each.leased for each in found)
        for actor in dict.fromkeys(each.actor for each in found):
            if actor not in before.holders and actor.startswith(FLEETS):
                held = some([each.issue_id for each in found if each.actor == actor])
                todo = "if that run is over, 'release --abandoned' opens it again"
                self._effects.note("warning", f"{held}: held by {actor}; {todo}")
        found = found[: limits.HELD_MAX]
        return tuple(h.issue_id for h in found), tuple(h.actor for h in found)
