"""The jobs in our hands: from the claim to the tracker's last answer on them."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.framing import is_deep, strict_loads
from beads_workers.core.base.model import Arguments, Call, IssueId, Job, Outcome, OutcomeKind
from beads_workers.core.base.policy import (
    AskPerson,
    AttemptHistory,
    Ended,
    Finish,
    HandBack,
    Land,
    Policy,
    Quarantine,
    Requeue,
    Verdict,
    blamed,
    fate,
)
from beads_workers.core.base.source import Action, Lease, Renewed, Result, Settled, Settlement
from beads_workers.core.base.states import ISSUE, IssueReaction, IssueState, IssueStimulus, step
from beads_workers.core.base.traces import NOT_TRACED, Traces
from beads_workers.core.base.wire import Priority
from beads_workers.core.records import journal as rec
from beads_workers.core.records.issues import Issue
from beads_workers.core.records.landing import LAND_ASK, awaits_approval
from beads_workers.core.records.receipts import NOBODY, Candidate
from beads_workers.core.schedule.agent_work import AgentWork
from beads_workers.core.schedule.commands import (
    AwaitDeparture,
    ReadUsage,
    SyncJournal,
    TellGuard,
    Word,
)
from beads_workers.core.schedule.effects import Effects, jitter
from beads_workers.core.schedule.events import ConnId
from beads_workers.core.schedule.retry import (
    CircuitBreaker,
    PreparationBrake,
    RetryState,
    history_of,
)
from beads_workers.core.schedule.round_trips import RoundTrips

# --- in flight -----------------------------------------------------------------------------------
# A job that is in our hands, and all that is known of who has it.


@dataclass(slots=True)
class InFlight:
    """A job that is ours until the tracker knows better: ``issue``, and what no record tells of
    it."""

    job: Job
    issue: Issue
    # Of the worker that has it, or is to get it.
    conn_id: ConnId | None = None
    # When its worker began it.
    started_at: float = 0.0
    # Of the worker that had it when its connection was lost.
    lost_conn_id: ConnId | None = None
    # Why it was taken from its worker, if it was.
    cancelled: str = ""
    # Its worker has another task to end before it begins this one.
    queued_on_worker: bool = False
    # Its time was over long before.
    overdue: bool = False
    # Its worker closed its connection when it was told to stop.
    obeyed: bool = False
    # The W3C headers of its attempt.
    trace_context: Mapping[str, str] = field(default_factory=dict)
    # The agent that works on it, if one does.
    candidate: Candidate = NOBODY
    # The last progress that its worker reported.
    reached: str = ""
    # The machine has slept since its claim.
    slept: bool = False
    # Its guard has said that nothing of it lives, or its lease is over: then nothing more is
    # expected of it.
    is_over: bool = False
    is_given_up: bool = False

    @property
    def started(self) -> rec.Started:
        """The attempt under way."""
        assert self.issue.attempt is not None, "it is with a worker"
        return self.issue.attempt.started


RELEASED = "released"
"""Reason of a cancel if a person releases the issue."""

RETRIED = "retried"
"""Reason of a cancel if a person wants another try while the worker is lost."""

CANCELLED = "cancelled"
"""Reason of a cancel by dispatcherd's ``cancel``, if the source sends the task."""


def lost(pid: int) -> Outcome:
    """Return the outcome of a job whose worker died under a living orchestrator."""
    return Outcome(OutcomeKind.LOST, f"its worker (pid {pid}) died")


def not_back(pid: int) -> Outcome:
    """Return the outcome of a job whose foreign worker left its connection and is not heard of."""
    return Outcome(OutcomeKind.LOST, f"its worker (pid {pid}) left its connection, and lives on")


# --- kept ----------------------------------------------------------------------------------------
# The part of a call that the journal keeps: its arguments, unless they are too long.


ISSUE_PATH = "beads.issue"
"""Function path of an issue that names none: the fleet's own work is run for it."""

_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def arguments_of(call: Call | None) -> Arguments | None:
    """Return the arguments of a call; None if there are none.
    If they are longer together than ``limits.ARGUMENTS_CHARS_MAX`` as JSON, the longer part is left
    out first."""
    if call is None or not (call.args or call.kwargs):
        return None
    args, kwargs = len(_ENCODER.encode(list(call.args))), len(_ENCODER.encode(dict(call.kwargs)))
    if args + kwargs + 3 <= limits.ARGUMENTS_CHARS_MAX:
        return Arguments(call.args, call.kwargs)
    if min(args, kwargs) + 7 > limits.ARGUMENTS_CHARS_MAX:
        return Arguments(None, None)
    return Arguments(None, call.kwargs) if args > kwargs else Arguments(call.args, None)


def stored_value(text: str) -> Any:
    """Return a value that was kept as text, if it can be written again; None if it is damaged."""
    try:
        value = strict_loads(text.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return None if is_deep(value) else value


# --- backlog -------------------------------------------------------------------------------------
# Claimed and unsent jobs, in the order in which they are sent.


class Backlog:
    """A queue by priority, then by age.
    It may hold jobs that are claimed no longer, so the caller checks what it takes."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, IssueId]] = []
        self._added = 0

    def add(self, issue_id: IssueId, priority: int) -> None:
        """Add an issue to the queue."""
        self._added += 1
        heapq.heappush(self._heap, (priority, self._added, issue_id))

    def next(self) -> IssueId | None:
        """Remove and return the first issue; None if the queue is empty."""
        return heapq.heappop(self._heap)[2] if self._heap else None

    def first(
        self, unsent: Callable[[IssueId], bool], fits: Callable[[IssueId], bool]
    ) -> IssueId | None:
        """Remove and return the first issue that is unsent and fits; the others keep order."""
        self._heap = [entry for entry in self._heap if unsent(entry[2])]
        found = min((entry for entry in self._heap if fits(entry[2])), default=None)
        if found is not None:
            self._heap.remove(found)
        heapq.heapify(self._heap)
        return None if found is None else found[2]

    def in_order(self) -> list[IssueId]:
        """Return all issues, the next one first."""
        return [issue_id for _, _, issue_id in sorted(self._heap)]


# --- tasks ---------------------------------------------------------------------------------------
# The jobs in our hands: from the claim to the tracker's last answer on them.


_STIMULUS = {
    Result.APPLIED: IssueStimulus.APPLIED,
    Result.FOUND_CLOSED: IssueStimulus.FOUND_CLOSED,
    Result.NOT_OURS: IssueStimulus.NOT_OURS,
    Result.FAILED: IssueStimulus.FAILED,
}

_STAYS = (IssueReaction.DELIVER, IssueReaction.RETRY, IssueReaction.LAND)
"""Reactions after which the job stays in our hands."""

_NO_RESULT = Outcome(OutcomeKind.SUCCESS)


class Tasks:
    """Every job in flight by issue id, and the backlog of those that are claimed and unsent."""

    def __init__(
        self,
        effects: Effects,
        round_trips: RoundTrips,
        retry_state: RetryState,
        breaker: CircuitBreaker,
        preparation: PreparationBrake,
        traces: Traces,
        agents: AgentWork,
        policy: Policy,
        run_id: str,
        *,
        lands: bool = False,
        approves: bool = False,
    ) -> None:
        """``lands``: a success with a branch lands before it is closed. ``approves``: a person
        approves each branch first."""
        self._effects = effects
        self._issues = effects.issues
        self._round_trips = round_trips
        self._retry_state = retry_state
        self._breaker = breaker
        self._preparation = preparation
        self._policy = policy
        self._run_id = run_id
        self._lands = lands
        self._approves = approves
        self._land: Callable[[Issue], None] = lambda issue: None
        self._traces = traces
        self._agents = agents
        self._requests = 0
        self._backlog = Backlog()
        self.in_flight: dict[IssueId, InFlight] = {}
        self.last_seconds = 0.0
        """Duration in seconds of the attempt that ended last."""
        self.ended = 0
        """Number of issues that came to their end in this run: done or quarantined."""

    def land_by(self, land: Callable[[Issue], None]) -> None:
        """Set the function that has an issue's branch landed."""
        self._land = land

    def claimed(self, job: Job) -> None:
        """Take in a job that the source claimed for us."""
        self._round_trips.claimed(job.issue_id)
        self._effects.write(self._line_up(job))
        self.in_flight[job.issue_id] = InFlight(job, self._issues.known[job.issue_id])

    def _line_up(self, job: Job) -> rec.Claimed:
        self._backlog.add(job.issue_id, job.priority)
        named = job.call or job.named
        described = (named.path if named else "", arguments_of(named), job.enqueued_at)
        return rec.Claimed(
            *(job.issue_id, job.title, job.priority, *described),
            issue_type=job.issue_type,
            # Whoever replays its result has to know the one that forbids its landing.
            labels=tuple(sorted(job.labels, key=LAND_ASK.__ne__))[: limits.LABELS_KEPT],
        )

    def most_urgent(self, wants: Priority | None = None) -> InFlight | None:
        """Remove and return the next job to send: by priority, then by age of the claim.

        ``wants``: of a worker that does not accept every task.
        """
        if wants is not None:
            return self._first_of(wants)
        while (issue_id := self._backlog.next()) is not None:
            in_flight = self.in_flight.get(issue_id)
            if in_flight and in_flight.issue.state is IssueState.CLAIMED:
                return in_flight
        return None

    def _first_of(self, wants: Priority) -> InFlight | None:
        def unsent(issue_id: IssueId) -> bool:
            in_flight = self.in_flight.get(issue_id)
            return in_flight is not None and in_flight.issue.state is IssueState.CLAIMED

        def fits(issue_id: IssueId) -> bool:
            return wants.accepts(self.in_flight[issue_id].job)

        found = self._backlog.first(unsent, fits)
        return None if found is None else self.in_flight[found]

    def next_to_begin(
        self, wants: Priority | None, is_for_other: Callable[[Issue], bool] = lambda issue: False
    ) -> InFlight | None:
        """Return the most urgent job that may begin now; release those whose agents may not.
        ``is_for_other``: whether another worker is to have an issue."""
        if self._preparation.room() == 0:
            return None
        left: list[Job] = []
        chosen = None
        while chosen is None and (in_flight := self.most_urgent(wants)) is not None:
            candidate = self._agents.choose(in_flight.job) if self._agents.agents else NOBODY
            if candidate is None:
                self.drop_claim(in_flight)
            elif candidate is not NOBODY and is_for_other(in_flight.issue):
                left.append(in_flight.job)
            else:
                in_flight.candidate, chosen = candidate, in_flight
        for job in left:
            self._backlog.add(job.issue_id, job.priority)
        return chosen

    def waiting(self) -> list[IssueId]:
        """Return the claimed and unsent issues, the next one first."""
        unsent = {i for i, h in self.in_flight.items() if h.issue.state is IssueState.CLAIMED}
        return [issue_id for issue_id in self._backlog.in_order() if issue_id in unsent]

    def reserve(self, in_flight: InFlight, conn_id: ConnId, worker_id: str) -> None:
        """Reserve a job for a worker that claims by itself; the tracker is told first."""
        issue_id = in_flight.job.issue_id
        in_flight.conn_id = conn_id
        self.move(in_flight.issue, IssueStimulus.RESERVED, rec.ClaimDelegated(issue_id, worker_id))
        self._round_trips.enqueue(
            Settlement(Action.HAND_OVER, issue_id, read_first=in_flight.slept)
        )

    def woke(self) -> None:
        """Have each claim read again before it is settled.
        The machine has slept, and nobody here can say whose the claims were meanwhile."""
        for in_flight in self.in_flight.values():
            in_flight.slept = True
        self._round_trips.woke()

    def begin(self, in_flight: InFlight, conn_id: ConnId, worker_id: str, place: str = "") -> None:
        """Begin a new attempt, in this ``place``; the TASK is sent right after this."""
        self._requests += 1
        if self._preparation.is_on:
            self._preparation.begun()
        job, request_id = in_flight.job, f"{self._run_id}.{self._requests}"
        in_flight.conn_id, in_flight.started_at = conn_id, self._effects.now
        in_flight.reached = ""
        in_flight.is_over = in_flight.is_given_up = False
        is_traced = self._traces.tracing is not None or job.trace_context
        traced = self._traces.begin(job, request_id) if is_traced else NOT_TRACED
        in_flight.trace_context = traced.headers
        attempt = job.attempt or in_flight.issue.charged + 1
        ids = job.issue_id, worker_id, attempt, request_id
        spans = traced.own, traced.parent, traced.state
        who = in_flight.candidate
        chosen = who.agent, who.model, who.instead_of
        started = rec.Started(*ids, job.title, job.priority, *spans, *chosen, place)
        if who is not NOBODY:
            self._agents.begun(job.issue_id, who)
        if in_flight.issue.state is IssueState.CLAIMED:
            self.move(in_flight.issue, IssueStimulus.SENT, started)
        else:
            self._effects.write(started)
        if started.agent:
            # The agent may close its issue by itself: even after a power cut, its close is told
            # from ours.
            self._effects.ask(SyncJournal())

    def attempt_ended(
        self, in_flight: InFlight, outcome: Outcome, duration_ms: int | None = None
    ) -> None:
        """End an attempt: the policy decides, the journal records, and a write is pending."""
        job, issue, started = in_flight.job, in_flight.issue, in_flight.started
        lease = issue.lease
        if in_flight.candidate is not NOBODY or outcome.receipt is not None:
            outcome = blamed(*self._agents.ended(issue, outcome))
        self.last_seconds = self._effects.now - in_flight.started_at
        if duration_ms is None:
            duration_ms = int(self.last_seconds * 1000)
        history = history_of(issue)
        hands_back = self._policy.hand_back
        struck = not hands_back and self._breaker.trips(job.issue_id, outcome, self.last_seconds)
        unprepared = not hands_back and self._preparation.ended(job.issue_id, outcome)
        has_work = outcome.receipt is not None and bool(outcome.receipt.head)
        lands = self._lands and has_work and not issue.handed_over
        spread = 0.0 if outcome.kind is OutcomeKind.SUCCESS else jitter(started.request_id)
        awaits = lands and awaits_approval(job.labels, approves=self._approves)
        ended = Ended(outcome, history, spread, lands, awaits, struck or unprepared)
        verdict = fate(self._policy, ended)
        by_agent = in_flight.candidate is not NOBODY
        unseen = issue.handed_over or issue.state is IssueState.ORPHANED
        word, stimulus = _VERDICTS[type(verdict)]
        self.move(
            in_flight.issue, stimulus, _finished(in_flight, outcome, duration_ms, word, verdict)
        )
        match verdict:
            case Finish():
                note = issue.close_note
                self._enqueue(
                    in_flight, Action.CLOSE, note, outcome, unseen=unseen, by_agent=by_agent
                )
            case Land():
                self._land(issue)
            case HandBack():
                self._enqueue(in_flight, Action.RELEASE, outcome=outcome, unseen=unseen)
            case Requeue():
                self._retry_state.failed_here.add(job.issue_id)
                if in_flight.cancelled == RELEASED:
                    self._effects.write(rec.PutOnHold(job.issue_id))
                self._enqueue(in_flight, Action.RELEASE, unseen=unseen, by_agent=by_agent)
            case Quarantine() | AskPerson():
                self._retry_state.failed_here.add(job.issue_id)
                action = Action.ASK if isinstance(verdict, AskPerson) else Action.QUARANTINE
                note = issue.quarantine_note
                self._enqueue(in_flight, action, note, unseen=unseen, by_agent=by_agent)
        if struck:
            self._breaker.refund()
        if lease is not None:
            self._effects.ask(TellGuard(Word.BYE, lease))
        if outcome.occupied:
            self._effects.ask(AwaitDeparture(job.issue_id, outcome.occupied))
        if by_agent and outcome.receipt is None:
            end = issue.end
            assert end is not None, "its record says so"
            self._effects.ask(ReadUsage(job.issue_id, end.attempt, end.request_id))

    def send_back(self, in_flight: InFlight, ended: rec.LandingEnded) -> None:
        """Queue a job again, for its own agent, because its branch did not land."""
        self._retry_state.failed_here.add(in_flight.job.issue_id)
        in_flight.conn_id = in_flight.lost_conn_id = None
        in_flight.cancelled, in_flight.queued_on_worker = "", False
        self.move(in_flight.issue, IssueStimulus.TO_MEND, ended, self._line_up(in_flight.job))

    def quarantined_unlanded(self, issue: Issue, *, shelved: bool) -> None:
        """Quarantine an issue whose branch nobody can mend; the branch stays."""
        issue_id = IssueId(issue.issue_id)
        self._retry_state.failed_here.add(issue_id)
        if shelved:
            self.ended += 1
            return
        note, by_agent = issue.quarantine_note, bool(issue.agent)
        self._round_trips.enqueue(
            Settlement(Action.QUARANTINE, issue_id, note, by_agent, by_agent=by_agent)
        )

    def requeue_unsent(self) -> None:
        """Requeue all claimed and unsent jobs at once, for a stop or a drain."""
        for in_flight in list(self.in_flight.values()):
            if in_flight.issue.state is IssueState.CLAIMED:
                self.drop_claim(in_flight)

    def returned_unstarted(self, in_flight: InFlight, why: str) -> None:
        """Queue a job again that its worker returned unstarted."""
        issue = in_flight.issue
        uncharged = Requeue(0.0, history_of(issue))
        ended = _finished(in_flight, Outcome(OutcomeKind.CANCELLED, why), 0, "requeue", uncharged)
        again = self._line_up(in_flight.job)
        self.move(in_flight.issue, IssueStimulus.RETURNED_UNSTARTED, ended, again)
        self._agents.ended(issue, Outcome(OutcomeKind.LOST))
        in_flight.conn_id = in_flight.lost_conn_id = None
        in_flight.cancelled, in_flight.queued_on_worker = "", False

    def drop_claim(self, in_flight: InFlight, outcome: Outcome = _NO_RESULT) -> None:
        """Release a job before it was sent; ``outcome``: for a sender that is told one."""
        self.move(in_flight.issue, IssueStimulus.REQUEUED, rec.Requeued(in_flight.job.issue_id))
        self._enqueue(in_flight, Action.RELEASE, outcome=outcome)

    def unreserve(self, in_flight: InFlight) -> None:
        """Release a job that was reserved for a worker."""
        in_flight.conn_id = None
        self.move(in_flight.issue, IssueStimulus.REQUEUED, rec.Requeued(in_flight.job.issue_id))

    def lose(
        self,
        in_flight: InFlight,
        pid: int,
        *,
        told_to_stop: bool = False,
        several: bool = False,
        grace_seconds: float = 0.0,
        lease_until: float = 0.0,
    ) -> None:
        """Orphan a job whose worker's connection is lost; for the arguments see ``OwnerLost``."""
        in_flight.lost_conn_id, in_flight.conn_id = in_flight.conn_id, None
        ids = in_flight.job.issue_id, in_flight.issue.worker_id, pid
        lost = rec.OwnerLost(*ids, told_to_stop, several, grace_seconds, lease_until)
        self.move(in_flight.issue, IssueStimulus.OWNER_LOST, lost)

    def inherit(self, inherited: rec.Inherited, source: str) -> None:
        """Take over an issue that an earlier run holds, and whose worker lives on."""
        issue_id = IssueId(inherited.issue_id)
        issue = self._issues.of(issue_id)
        job = Job(source, issue_id, inherited.title, inherited.priority)
        in_flight = self.in_flight[issue_id] = InFlight(job, issue, started_at=self._effects.now)
        self.move(in_flight.issue, IssueStimulus.INHERITED, inherited)

    def is_open(self, issue_id: IssueId) -> bool:
        """Return whether nobody has the issue, as far as this run knows."""
        issue = self._issues.known.get(issue_id)
        return issue is None or issue.state is IssueState.ENQUEUED

    def give_back(self, in_flight: InFlight) -> None:
        """Release an inherited issue, uncharged: it is open again in the tracker."""
        inherited = in_flight.issue.inherited
        assert inherited is not None, "an earlier run holds it"
        if inherited.lease is not None:
            self._effects.ask(TellGuard(Word.BYE, inherited.lease))
        issue_id = in_flight.job.issue_id
        self.move(in_flight.issue, IssueStimulus.REQUEUED, rec.Requeued(issue_id))
        if in_flight.cancelled == RELEASED:
            self._effects.write(rec.PutOnHold(issue_id))
        self._round_trips.enqueue(
            Settlement(Action.RELEASE, issue_id, read_first=True, run_id=inherited.run_id)
        )

    def inherited(self) -> int:
        """Return how many issues an earlier run holds whose workers still have them."""
        return sum(in_flight.issue.inherited is not None for in_flight in self.orphaned())

    def orphaned(self) -> list[InFlight]:
        """Return the jobs whose owner is not known to be dead."""
        if not self._issues.count(IssueState.ORPHANED):
            return []
        return [h for h in self.in_flight.values() if h.issue.state is IssueState.ORPHANED]

    def running(self) -> int:
        """Return how many jobs are with a worker, or about to be, or with a lost worker."""
        return self._issues.count(IssueState.RUNNING, IssueState.DELEGATING, IssueState.ORPHANED)

    def in_hand(self) -> int:
        """Return how many jobs are ours, without those of earlier runs."""
        return len(self.in_flight) - self.inherited()

    def running_here(self) -> int:
        """Return how many jobs are running, without those of earlier runs."""
        return self.running() - self.inherited()

    def settled(self, settled: Settled) -> tuple[InFlight, IssueReaction] | None:
        """Take in the tracker's answer.
        Return the job and what is left to do, None for jobs that we no longer hold."""
        settlement, result = settled.settlement, settled.result
        ids = settlement.issue_id, settlement.action.value
        # A failure is in the journal already: ``RoundTrips`` says when the write is tried again.
        looked = settlement.action is Action.CONFIRM and result is Result.APPLIED
        silent = looked or result is Result.FAILED
        records = () if silent else (rec.SettledRecord(*ids, result.value, settled.error),)
        in_flight = self.in_flight.get(settlement.issue_id)
        if in_flight is None or settlement.action is Action.REOPEN:
            for record in records:
                self._effects.write(record)
            return None
        delegated = in_flight.issue.state is IssueState.DELEGATING
        left = settlement.action is Action.HAND_OVER and not delegated
        if left and result in (Result.APPLIED, Result.FAILED):
            # The worker left while the issue was handed over; now it can be released.
            for record in records:
                self._effects.write(record)
            self._enqueue(in_flight, Action.RELEASE, unseen=True)
            return None
        reaction = self.move(in_flight.issue, _STIMULUS[result], *records)
        if reaction not in _STAYS:
            self._remove(in_flight, reaction)
        return in_flight, reaction

    def _remove(self, in_flight: InFlight, reaction: IssueReaction) -> None:
        issue_id = in_flight.job.issue_id
        match reaction:
            case IssueReaction.KEEP:
                pass  # The branch is in the journal.
            case IssueReaction.COUNT | IssueReaction.LEAVE:
                self._retry_state.failed_here.discard(issue_id)
                self._traces.forget(issue_id)
                self.ended += 1
            case IssueReaction.QUARANTINE:
                self.ended += 1
                if in_flight.issue.pending is Action.REOPEN:
                    # A person asked for another try, or answered, while the mark was being set.
                    self._retry_state.reopen(in_flight.issue)
        del self.in_flight[issue_id]

    def move(self, issue: Issue, stimulus: IssueStimulus, *records: rec.Record) -> IssueReaction:
        """Move an issue by writing records; the table says whether the move exists.

        Raise ``ImpossibleMove`` if it does not.
        """
        move = step(ISSUE, issue.state, stimulus)
        for record in records:
            self._effects.write(record)
        # An issue that is wanted back while it is being quarantined is open as soon as it is
        # marked.
        assert issue.state is move.to or issue.pending is Action.REOPEN, f"{stimulus}: {issue}"
        return move.reaction

    def _enqueue(
        self,
        in_flight: InFlight,
        action: Action,
        note: str = "",
        outcome: Outcome = _NO_RESULT,
        *,
        unseen: bool = False,
        by_agent: bool = False,
    ) -> None:
        """Enqueue a write for the tracker.
        ``unseen``: a worker did it by itself, or nobody saw the end. Then the issue is read first,
        as it is with ``by_agent``, and after a sleep."""
        self._round_trips.enqueue(
            Settlement(
                action,
                in_flight.job.issue_id,
                note,
                unseen or by_agent or in_flight.slept,
                in_flight.issue.handed_over,
                outcome.result,
                outcome.result_file,
                outcome if self._policy.hand_back and outcome is not _NO_RESULT else None,
                in_flight.cancelled == CANCELLED,
                by_agent,
            )
        )


_VERDICTS = {
    Finish: ("finish", IssueStimulus.SUCCEEDED),
    Land: ("land", IssueStimulus.TO_LAND),
    HandBack: ("hand_back", IssueStimulus.REQUEUED),
    Requeue: ("requeue", IssueStimulus.REQUEUED),
    Quarantine: ("quarantined", IssueStimulus.SPENT),
    AskPerson: ("asked", IssueStimulus.SPENT),
}
"""Each verdict's name in the journal, and the stimulus that it gives the issue."""


def _finished(
    in_flight: InFlight, outcome: Outcome, duration_ms: int, word: str, verdict: Verdict
) -> rec.Finished:
    started = in_flight.started
    history = AttemptHistory()
    if isinstance(verdict, Requeue | Quarantine | AskPerson | Land):
        history = verdict.history
    delay = verdict.delay_seconds if isinstance(verdict, Requeue) else 0.0
    ids = started.issue_id, in_flight.issue.worker_id, started.attempt, started.request_id
    error = verdict.reason if isinstance(verdict, Quarantine) else outcome.error
    end = outcome.kind.value, word, error, duration_ms
    came = outcome.note, outcome.result, outcome.result_file
    history_after = history.charged, history.free_in_a_row, delay
    known = started.agent, in_flight.reached
    awaits = isinstance(verdict, Land) and verdict.awaits
    counts = history.unprepared, history.questions
    last = awaits, outcome.occupied
    return rec.Finished(*ids, *end, *history_after, *came, outcome.receipt, *known, *counts, *last)


# --- leases --------------------------------------------------------------------------------------
# Leases: until when each claim is ours alone, which is renewed next, and which is given up.
#
# Source: docs/SEMANTICS.md, "Leases". All times are on the boot clock (``Effects.boot``), which
# goes on while the machine sleeps. The timers do not, so leases are also checked every few seconds.


LOOK = "look at the leases"
"""Timer key: something is due for a lease, or the machine may have slept."""


@dataclass(slots=True)
class LeaseRenewal:
    """One lease. ``due_since``: when it was found at half its life; ``again_at``: next try."""

    lease: Lease
    due_since: float | None = None
    again_at: float = 0.0

    @property
    def half(self) -> float:
        """Time at which half of the lease is over, and it is to be renewed."""
        return (self.lease.began + self.lease.ends) / 2


class Leases:
    """The leases of all jobs in our hands; sources without leases leave it empty."""

    def __init__(self, effects: Effects, tasks: Tasks, grace_seconds: float) -> None:
        """``grace_seconds``: how long a task may take to end after TERM."""
        self._effects = effects
        self._tasks = tasks
        self._margin = grace_seconds + limits.LEASE_MARGIN_SECONDS
        self._kept: dict[IssueId, LeaseRenewal] = {}
        self._asked: tuple[IssueId, ...] = ()
        self._look_at = inf

    def granted(self, leases: Iterable[Lease]) -> None:
        """Take in leases that the tracker has granted or renewed."""
        for lease in leases:
            self._kept[lease.issue_id] = kept = LeaseRenewal(lease)
            self._look_by(kept.half)

    def to_renew(self, settling: Collection[IssueId]) -> tuple[IssueId, ...]:
        """Return the due lease that ends first: only one, so that no close waits long.

        ``settling``: issues that the same round trip is about to let go of.
        """
        due = [k for i, k in self._kept.items() if self._is_due(k) and i not in settling]
        first = min(due, key=lambda kept: kept.lease.ends, default=None)
        return (first.lease.issue_id,) if first else ()

    def asked(self, issue_ids: tuple[IssueId, ...]) -> None:
        """Note which leases the round trip that begins renews."""
        self._asked = issue_ids

    def answered(self, renewed: Renewed | None) -> None:
        """Take in the answer to a renewal; None: the tracker could not be asked."""
        asked, self._asked = self._asked, ()
        for issue_id in asked:
            if (kept := self._kept.get(issue_id)) is not None:
                kept.again_at = self._effects.boot + limits.LEASE_RETRY_SECONDS
                self._look_by(kept.again_at)
        if renewed is None:
            return
        self.granted(renewed.leases)
        for lost in renewed.lost:
            self._kept.pop(lost.issue_id, None)

    def run_out(self) -> list[IssueId]:
        """Return the issues to give up now, before others may start them; each is named once.

        Call this after every event and deadline.
        """
        if self._effects.boot < self._look_at:
            self._set_timer()
            return []
        self._forget_settled()
        over = []
        for issue_id, kept in self._kept.items():
            if kept.due_since is None and self._effects.boot >= kept.half:
                kept.due_since = self._effects.boot
            if self._gives_up_at(kept) <= self._effects.boot:
                over.append(issue_id)
        for issue_id in over:
            del self._kept[issue_id]
        self._look_at = min((self._next(kept) for kept in self._kept.values()), default=inf)
        self._set_timer()
        return over

    def _is_due(self, kept: LeaseRenewal) -> bool:
        return kept.due_since is not None and kept.again_at <= self._effects.boot

    def _gives_up_at(self, kept: LeaseRenewal) -> float:
        if kept.due_since is None:
            return inf
        life = kept.lease.ends - kept.lease.began
        margin = min(self._margin, life * limits.LEASE_MARGIN_SHARE_MAX)
        # Found late, after a sleep or a freeze: nobody has tried to renew the lease yet.
        return max(kept.lease.ends - margin, kept.due_since + limits.LEASE_WAKE_SECONDS)

    def _next(self, kept: LeaseRenewal) -> float:
        if kept.due_since is None:
            return kept.half
        ends = self._gives_up_at(kept)
        return min(ends, kept.again_at) if kept.again_at > self._effects.boot else ends

    def _forget_settled(self) -> None:
        # A job that was handed over is in nobody's name: it has no lease any more.
        for issue_id in list(self._kept):
            in_flight = self._tasks.in_flight.get(issue_id)
            if in_flight is None or in_flight.issue.handed_over:
                del self._kept[issue_id]

    def _look_by(self, at: float) -> None:
        self._look_at = min(self._look_at, at)

    def _set_timer(self) -> None:
        if not self._kept:
            self._effects.timers.cancel(LOOK)
            return
        wait = max(0.0, self._look_at - self._effects.boot)
        self._effects.timers.set_earlier(
            LOOK, self._effects.now + min(wait, limits.LEASE_LOOK_SECONDS)
        )
