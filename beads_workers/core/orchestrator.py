"""The orchestrator, whole and pure: events and the time in, commands out.

    commands = orchestrator.handle(event, now, boot)
    when = orchestrator.deadline()            # then call on_deadline(now, boot)

``now`` is on the monotonic clock of the run, from 0 at its beginning; all durations and the times
of its records are on it. ``boot`` is the same moment on the clock that goes on while the machine
sleeps, on which leases are (left out: the machine never slept). ``wall`` is on the clock that
people set.

It ties the parts together: ``Connections`` (the conversation with workers), ``Supervisor`` (our
processes), ``Tasks`` (jobs in our hands), ``RoundTrips``, ``ClaimScheduler`` and ``Leases`` (the
source), ``RetryState`` (the memory of unfinished issues), ``Ending`` (the state of the run),
``Control`` (people's requests). Each has its own module; ``docs/ARCHITECTURE.md`` walks one issue
through them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId
from beads_workers.core.base.settings import FleetSettings
from beads_workers.core.base.source import Action, Result, Settled
from beads_workers.core.base.states import IssueReaction, IssueState, RunState, RunStimulus
from beads_workers.core.control import Control
from beads_workers.core.lifecycle import IDLE_OUT, RUN_OUT, SETTLE_TIMEOUT, STOP_DEADLINE, Ending
from beads_workers.core.records.issues import Issues
from beads_workers.core.records.journal import Checkpointed, SettledRecord, UsageFound
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule import inflight
from beads_workers.core.schedule.accounts import ACCOUNTS
from beads_workers.core.schedule.claims import RECHECK, ClaimScheduler
from beads_workers.core.schedule.commands import Command
from beads_workers.core.schedule.effects import RetryDue
from beads_workers.core.schedule.hours import HOURS
from beads_workers.core.schedule.landings import (
    LANDER_DUE,
    LANDING_HELPLESS,
    REVIEWS_WAITED,
)
from beads_workers.core.schedule.parts import make_parts
from beads_workers.core.schedule.questions import LISTEN
from beads_workers.core.schedule.retry import PREPARATION_TRIAL
from beads_workers.core.schedule.round_trips import CLAIM_AGAIN, LINGER, WriteRetryDue
from beads_workers.core.schedule.supervisor import RespawnDue
from beads_workers.core.workers import connections, sender
from beads_workers.core.workers.away import LeaseOver
from beads_workers.core.workers.connections import Connections
from beads_workers.core.workers.sender import Sender


class Orchestrator:
    """One run. Call ``start`` first; carry out the commands of every call in their order."""

    def __init__(
        self,
        settings: FleetSettings,
        run_id: str,
        now: float,
        *,
        self_claiming: bool,
        push: bool = False,
        checkpointed: Iterable[Checkpointed] = (),
        epoch: float = 0.0,
        boot: float | None = None,
    ) -> None:
        """``self_claiming``: a plain v1 worker claims and closes by itself on this source.

        ``push``: of a push source; ``Arrived`` says when there is work. Any other source may say
        so, too, and is asked all the same. ``checkpointed``: what earlier runs left to remember;
        ``epoch``: the wall clock at ``now``, needed only for their ``not_before``.
        """
        self._parts = make_parts(
            settings, run_id, now, epoch, boot, self_claiming=self_claiming, push=push
        )
        self._effects = self._parts.effects
        self._sender = Sender(self._parts)
        self._scheduler = ClaimScheduler(self._parts)
        self._connections = Connections(self._parts, self._sender, self._scheduler)
        self._ending = Ending(self._parts, self._sender, self._connections, self._scheduler)
        self._control = Control(
            self._parts, self._sender, self._connections, self._scheduler, self._ending
        )
        for retry_entry in checkpointed:
            self._effects.apply(retry_entry)
            self._parts.traces.keep(retry_entry.issue_id, retry_entry.traceparent)

    @property
    def state(self) -> RunState:
        """The state of the run."""
        return self._parts.state

    @property
    def issues(self) -> Issues:
        """All issues, as the records so far make them; only to be read."""
        return self._effects.issues

    def place_of(self, worker_id: str) -> str:
        """Return where the attempts of one of our workers run; "" for this machine."""
        member = self._parts.supervisor.members.get(worker_id)
        return member.place if member is not None else ""

    def start(self, now: float) -> list[Command]:
        """Begin the run: our workers start while the source settles what an earlier run left."""
        self._effects.now = now
        for number, place in enumerate(self._parts.settings.slots(), 1):
            self._parts.supervisor.add(f"W{number}", place)
        self._ending.begin()
        return self._effects.flush()

    def handle(
        self,
        event: ev.Event,
        now: float,
        boot: float | None = None,
        wall: float | None = None,
        *,
        more: bool = False,
    ) -> list[Command]:
        """Handle an event; return the commands that follow from it.

        ``more``: another event follows, or ``after_events``; the commands that wait for all of them
        come then.
        """
        self._at(now, boot, wall)
        self._dispatch(event)
        return self._effects.flush() if more else self._after_events()

    def after_events(
        self, now: float, boot: float | None = None, wall: float | None = None
    ) -> list[Command]:
        """Return the commands that follow from all events so far.

        No worker that has just spoken waits for them. Here a round trip to the source begins, and
        here a run comes to its end.
        """
        self._at(now, boot, wall)
        return self._after_events()

    def held(self) -> tuple[IssueId, ...]:
        """See ``lifecycle.Ending.held``."""
        return self._ending.held()

    def deadline(self) -> float | None:
        """Return when ``on_deadline`` is to be called at the latest; None: not before an event."""
        return self._effects.timers.deadline()

    def on_deadline(
        self, now: float, boot: float | None = None, wall: float | None = None
    ) -> list[Command]:
        """Handle the timers that are due; calling this too early does no harm."""
        self._at(now, boot, wall)
        for key in self._effects.timers.due(now):
            self._due(key)
        return self._after_events()

    def _at(self, now: float, boot: float | None, wall: float | None) -> None:
        if self._effects.at(now, boot, wall):
            self._parts.tasks.woke()

    def _after_events(self) -> list[Command]:
        for issue_id in self._parts.leases.run_out():
            self._claim_lost(issue_id, "its lease could not be renewed")
        self._connections.serve_idle()
        if self._parts.registry.paused and self._parts.state is RunState.RUNNING:
            self._scheduler.leave_to_others()
        self._scheduler.consider()
        before = self._parts.state
        self._ending.consider()
        if self._parts.state is not before:
            # The end of a run requeues at once.
            self._scheduler.consider()
        return self._effects.flush()

    def _dispatch(self, event: ev.Event) -> None:
        match event:
            case ev.Received():
                self._connections.received(event)
            case ev.Connected():
                self._connections.connected(event)
            case ev.Misread():
                self._connections.misread(event)
            case ev.Unknown():
                self._connections.unknown(event)
            case ev.Disconnected():
                self._connections.disconnected(event)
            case ev.RoundTripEnded():
                self._round_trip_ended(event)
            case ev.WorkerSpawned(worker_id, pid):
                # During a stop, too: it connects, and is told to leave like all others.
                self._parts.supervisor.spawned(worker_id, pid)
            case ev.WorkerNotStarted(worker_id, error):
                self._parts.supervisor.not_started(worker_id, error)
            case ev.WorkerReaped(worker_id, pid, status):
                self._parts.supervisor.reaped(worker_id, pid, status)
                self._connections.reaped(pid)
            case ev.OwnerGone(pid):
                self._connections.owner_dead(pid)
            case ev.Placed() | ev.GuardHeard() | ev.FoundEnded() | ev.PlaceSeen():
                self._connections.asked(event)
            case ev.WorktreeLeft(issue_id):
                self._parts.retry_state.vacated(issue_id)
            case ev.UsageRead():
                self._usage_read(event)
            case ev.RecoveryFailed(error, hint, seconds) | ev.Unreachable(error, hint, seconds):
                self._parts.round_trips.troubled(error, hint, seconds)
            case ev.RecoveryEnded():
                self._recovered(event)
            case ev.Arrived():
                self._scheduler.arrived()
            case ev.Withdrawn(issue_ids, why):
                for issue_id in issue_ids:
                    self._claim_lost(issue_id, why, "info")
            case ev.StopAsked():
                self._ending.stop(event)
            case ev.FatalError():
                self._ending.fail(event)
            case ev.LanderSaid(news):
                self._parts.landings.handle(news)
                self._connections.serve_waiting(soon=self._scheduler.coming())
            case ev.LanderGone(why):
                self._parts.landings.died(why)
            case ev.Warned(text, refused):
                self._effects.note("warning", text, refused)
            case ev.AccountTold(account, closed):
                self._parts.agents.learn(account, closed)
                self._scheduler.reschedule()
            case ev.Degraded():
                self._parts.degraded.degraded(event)
            case ev.ConditionRecovered(what):
                self._condition_over(what)
            case _:
                self._control.asked(event)

    def _condition_over(self, what: str) -> None:
        if self._parts.degraded.recovered(what):
            # The condition blocked the tracker, too: no reason to wait for its next turn.
            self._parts.round_trips.hurry()
        self._scheduler.reschedule()

    def _round_trip_ended(self, round_trip: ev.RoundTripEnded) -> None:
        for settled in self._parts.round_trips.ended(round_trip):
            self._settled(settled)
        for late in round_trip.late_entries:
            self._effects.write(self._effects.issues.with_known_cost(late))
            self._parts.landings.found(late.issue_id)
        self._parts.questions.written(round_trip.remarks)
        self._parts.questions.read(round_trip.conversations)
        self._scheduler.answered(round_trip)
        self._parts.leases.answered(round_trip.renewed)
        for lost in round_trip.renewed.lost if round_trip.renewed else ():
            self._claim_lost(lost.issue_id, f"the claim was lost: {lost.why}".rstrip(": "))
        self._scheduler.leave_to_others()
        self._connections.serve_waiting(soon=self._scheduler.coming())
        if round_trip.settled or round_trip.settle_error:
            self._ending.tried()

    def _claim_lost(self, issue_id: IssueId, why: str, level: str = "error") -> None:
        """Stop our work on an issue: somebody else may have it now, or soon, or nobody wants it."""
        in_flight = self._parts.tasks.in_flight.get(issue_id)
        if in_flight is None or in_flight.issue.handed_over:
            return
        if in_flight.issue.state is IssueState.CLAIMED:
            # The release finds out whose it is now, and leaves it alone.
            self._parts.tasks.drop_claim(in_flight)
        elif in_flight.issue.state is IssueState.LANDING:
            self._effects.note(level, f"{issue_id}: {why}; its branch is left as it is")
            self._parts.landings.drop(in_flight)
        elif in_flight.issue.state is IssueState.RUNNING:
            self._effects.note(level, f"{issue_id}: {why}; its attempt is ended")
            self._sender.end_attempt(in_flight, why)

    def _settled(self, settled: Settled) -> None:
        if settled.settlement.action is Action.CONFIRM:
            settled = self._parts.landings.named(settled)
            self._parts.tasks.settled(settled)
            self._parts.landings.confirmed(settled)
            if settled.result is Result.NOT_OURS:
                self._scheduler.reschedule()
            return
        outcome = self._parts.tasks.settled(settled)
        if settled.result is not Result.FAILED:
            self._scheduler.reschedule()
        if outcome is None:
            return
        in_flight, reaction = outcome
        if reaction is IssueReaction.QUARANTINE:
            self._parts.landings.settled(in_flight.job.issue_id)
        if reaction is IssueReaction.KEEP:
            self._parts.landings.shelved(in_flight.job.issue_id)
        if reaction is IssueReaction.DELIVER:
            self._connections.handed_over(in_flight)
        elif settled.settlement.action is Action.HAND_OVER and reaction is not IssueReaction.RETRY:
            self._connections.not_handed_over(in_flight)
        if reaction is IssueReaction.LEAVE:
            text = f"{in_flight.job.issue_id} is not ours any more and was left alone"
            self._effects.note("warning", f"{text}: {settled.error}" if settled.error else text)

    def _usage_read(self, event: ev.UsageRead) -> None:
        found = UsageFound(
            event.issue_id, event.attempt, event.request_id, event.receipt, event.whole
        )
        if self._effects.issues.is_counted(event.issue_id, event.request_id):
            return  # A start that was broken off has found it before.
        self._effects.write(found)
        self._parts.agents.found(found)

    def _recovered(self, event: ev.RecoveryEnded) -> None:
        self._parts.round_trips.recovered()
        for done in event.late_entries:
            self._effects.write(self._effects.issues.with_known_cost(done))
        for settled in event.settled:
            issue_id, action = settled.settlement.issue_id, settled.settlement.action
            if settled.result is Result.FAILED:
                text = f"{issue_id}: {action.value} failed, kept for the next start"
                self._effects.note("warning", f"{text}: {settled.error}")
                continue
            self._effects.write(
                SettledRecord(issue_id, action.value, settled.result.value, settled.error)
            )
        if self._parts.state not in (RunState.STOPPING, RunState.SETTLING, RunState.ENDED):
            for inherited in event.inherited:
                self._connections.inherit(inherited)
            self._parts.landings.begin()
        self._ending.recovered()
        self._connections.serve_waiting(soon=True)

    def _due(self, key: Hashable) -> None:
        match key:
            case connections.HelloTimeout(conn_id):
                self._connections.hello_timed_out(conn_id)
            case sender.HoldTimeout(conn_id) | sender.IdleTimeout(conn_id):
                self._connections.hold_timed_out(conn_id)
            case sender.Overdue(conn_id):
                self._connections.overdue(conn_id)
            case connections.GraceOver(issue_id):
                self._connections.grace_over(issue_id)
            case LeaseOver(issue_id):
                self._connections.away.lease_over(issue_id)
            case connections.ExitDue(pid):
                self._connections.exit_due(pid)
            case RespawnDue(worker_id) if self._parts.degraded.stop:
                self._effects.timers.set(key, self._effects.now + limits.RESPAWN_DELAY_SECONDS)
            case RespawnDue(worker_id):
                self._parts.supervisor.respawn(worker_id)
            case RetryDue():
                self._scheduler.reschedule()
            case WriteRetryDue():
                pass  # ``consider`` finds it due now.
            case _ if self._connections.is_due(key):
                pass
            case _:
                self._due_by_name(key)

    def _due_by_name(self, key: Hashable) -> None:
        named: dict[Hashable, Callable[[], object]] = {
            ACCOUNTS: self._look_at_accounts,
            LANDER_DUE: self._parts.landings.restart,
            REVIEWS_WAITED: lambda: None,
            LANDING_HELPLESS: lambda: None,  # ``consider`` finds out whether it still is.
            PREPARATION_TRIAL: self._scheduler.reschedule,
            CLAIM_AGAIN: self._take_again,
            RECHECK: self._scheduler.recheck,
            LINGER: lambda: None,  # ``consider`` finds that it is due.
            LISTEN: lambda: None,  # Likewise.
            inflight.LOOK: lambda: None,  # ``_after_events`` looks at them.
            STOP_DEADLINE: lambda: self._ending.move(RunStimulus.DEADLINE),
            SETTLE_TIMEOUT: self._ending.settle_timed_out,
            IDLE_OUT: self._ending.idle_out,
            RUN_OUT: self._ending.run_out,
            HOURS: self._ending.look_at_hours,
        }
        if key == STOP_DEADLINE and self._parts.state is not RunState.STOPPING:
            return
        named[key]()

    def _look_at_accounts(self) -> None:
        if self._parts.agents.accounts.look():
            self._scheduler.reschedule()

    def _take_again(self) -> None:
        self._parts.round_trips.wake()
        self._scheduler.poll()
