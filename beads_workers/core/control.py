"""What a person can ask of a running fleet: pause, resume, scale, retry, release, why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from beads_workers.core import limits
from beads_workers.core.claims import ClaimScheduler
from beads_workers.core.commands import Answer
from beads_workers.core.connections import Connections
from beads_workers.core.events import (
    BY_HAND,
    Asked,
    PauseAsked,
    ReleaseAskedFor,
    ResumeAsked,
    RetryAskedFor,
    ScaleAsked,
    StatusWanted,
    TasksAsked,
    Ticket,
    WhyAsked,
)
from beads_workers.core.facts import AccountFacts, Facts, IssueFacts, TrackerTrouble
from beads_workers.core.inflight import CANCELLED, RELEASED, RETRIED, InFlight
from beads_workers.core.issues import Issue, Standing
from beads_workers.core.journal import PutOnHold, SettledRecord
from beads_workers.core.lifecycle import Ending
from beads_workers.core.model import IssueId, Outcome, OutcomeKind
from beads_workers.core.parts import Parts
from beads_workers.core.round_trips import CLAIM_AGAIN
from beads_workers.core.sender import Sender
from beads_workers.core.source import Action, Result
from beads_workers.core.states import ConnState, IssueState, RunReaction, RunState, RunStimulus

MORE_WORKERS = "start it with --worktree, or with --shared-checkout"
"""How several agents work at once: each in its own checkout, or a person takes the blame."""


class Control:
    """Each method that has a ticket answers it exactly once."""

    def __init__(
        self,
        parts: Parts,
        sender: Sender,
        connections: Connections,
        scheduler: ClaimScheduler,
        ending: Ending,
    ) -> None:
        self._parts = parts
        self._connections = connections
        self._effects = parts.effects
        self._sender = sender
        self._scheduler = scheduler
        self._ending = ending

    def asked(self, event: Asked) -> None:
        """Do what a person, or a program of theirs, asks for."""
        match event:
            case PauseAsked():
                self.pause(event)
            case ResumeAsked():
                self.resume(event)
            case ScaleAsked():
                self.scale(event)
            case RetryAskedFor():
                self.retry(event)
            case ReleaseAskedFor():
                self.release(event)
            case WhyAsked():
                self.why(event)
            case TasksAsked():
                self.tasks(event)
            case StatusWanted():
                self._connections.asked(event)
            case _:
                assert_never(event)

    def pause(self, event: PauseAsked) -> None:
        """Nothing new is handed out; what runs goes on."""
        if event.worker_ids:
            self._ask_workers(event)
            return
        self._move(event.ticket, RunStimulus.PAUSE, "paused", BY_HAND)
        if self._parts.state is RunState.PAUSED:
            # What had paused it before goes on being told, and does not end this pause.
            self._parts.state_reason = BY_HAND

    def resume(self, event: ResumeAsked) -> None:
        """Go on: whoever waits has work as soon as there is some."""
        if event.worker_ids:
            self._ask_workers(event)
            return
        self._connections.asked(event)
        self._move(event.ticket, RunStimulus.RESUME, "running")
        if self._parts.state is RunState.RUNNING:
            self._parts.breaker.reset()
            self._parts.preparation.reset()
            self._parts.agents.accounts.resume()
            self._parts.landings.go_on()

    def _ask_workers(self, event: PauseAsked | ResumeAsked) -> None:
        if not self._connections.asked(event):
            error = "only the whole fleet can be paused here"
            self._effects.ask(Answer(event.ticket, error=error))

    def scale(self, event: ScaleAsked) -> None:
        """Idle workers go first; a busy one finishes its task and then leaves."""
        if self._parts.state not in (RunState.RECOVERING, RunState.RUNNING, RunState.PAUSED):
            self._refuse(event.ticket)
            return
        supervisor = self._parts.supervisor
        before = supervisor.wanted()
        workers = max(0, before + event.workers) if event.relative else event.workers
        if workers > limits.LISTEN_BACKLOG:
            error = f"{workers} workers are too many: {limits.LISTEN_BACKLOG} at most"
            self._effects.ask(Answer(event.ticket, error=error))
            return
        most = self._parts.settings.workers_max
        if most is not None and workers > most:
            error = f"more than {most} would share one checkout; {MORE_WORKERS}"
            self._effects.ask(Answer(event.ticket, error=error))
            return
        while supervisor.wanted() < workers:
            used = {c.worker_id for c in self._parts.registry} | supervisor.members.keys()
            supervisor.add(self._parts.registry.next_worker_id(used))
        for worker_id in self._superfluous(supervisor.wanted() - workers):
            self._dismiss(worker_id)
        self._scheduler.reschedule()
        self._say(event.ticket, f"workers: {before} -> {workers}")

    def retry(self, event: RetryAskedFor) -> None:
        """Try again what was quarantined, cools down or is on hold."""
        if self._parts.state is RunState.ENDED:
            # Its last word may wait for room on the disk; the tracker is told nothing any more.
            self._refuse(event.ticket)
            return
        asked = event.issue_ids
        if event.quarantined:
            found = self._parts.effects.issues.standing(Standing.QUARANTINED)
            asked = tuple(IssueId(each.issue_id) for each in found)
            if not asked:
                self._say(event.ticket, "nothing is quarantined")
                return
        for issue_id in asked:
            self._parts.landings.retried(issue_id)
        unknown = [i for i in asked if not self._retry_one(i)]
        self._scheduler.reschedule()
        self._parts.round_trips.wake()
        self._done(event.ticket, asked, unknown, "will be retried", "nothing to retry")

    def release(self, event: ReleaseAskedFor) -> None:
        """Put these on hold: their attempts end, and this run leaves them alone until ``retry``."""
        unknown = [i for i in event.issue_ids if not self._release_one(i)]
        self._done(event.ticket, event.issue_ids, unknown, "on hold", "not in flight here")

    def why(self, event: WhyAsked) -> None:
        """What the scheduler knows of these issues, and of itself; changes nothing."""
        self._effects.ask(Answer(event.ticket, facts=gather(self._parts, event.issue_ids)))

    def tasks(self, event: TasksAsked) -> None:
        """Answer with the tasks that are meant, each as it was before it was cancelled."""
        from beads_workers.core.queries import find  # Few fleets are asked.

        found = find(self._parts, event.wanted)
        if event.cancel:
            for task in found.tasks:
                self._cancel_one(IssueId(task.key))
        self._effects.ask(Answer(event.ticket, found=found))

    def _cancel_one(self, issue_id: IssueId) -> None:
        in_flight = self._parts.tasks.in_flight.get(issue_id)
        if in_flight is None and self._parts.settings.policy.hand_back:
            # It waits for another try with its sender, who forgets it.
            not_ours = Action.RELEASE.value, Result.NOT_OURS.value
            self._effects.write(SettledRecord(issue_id, *not_ours, CANCELLED))
        elif not self._parts.push or in_flight is None:
            # The tracker keeps it: this run leaves it alone until a person says ``retry``.
            self._release_one(issue_id)
        elif in_flight.issue.state is IssueState.CLAIMED:
            # Without a word its sender would have it run after all.
            in_flight.cancelled = CANCELLED
            self._parts.tasks.drop_claim(in_flight, Outcome(OutcomeKind.CANCELLED, CANCELLED))
        elif in_flight.issue.state is IssueState.RUNNING:
            self._sender.end_attempt(in_flight, CANCELLED)

    def _retry_one(self, issue_id: IssueId) -> bool:
        in_flight, given_back = self._parts.tasks.in_flight.get(issue_id), False
        if in_flight is not None and in_flight.issue.state is IssueState.ORPHANED:
            given_back = self._connections.give_back(in_flight, RETRIED)
        if not self._parts.retry_state.retry(issue_id) and not given_back:
            return False
        self._parts.breaker.retried(issue_id)
        return True

    def _release_one(self, issue_id: IssueId) -> bool:
        in_flight = self._parts.tasks.in_flight.get(issue_id)
        if in_flight is None:
            if self._parts.retry_state.standing(issue_id) is not Standing.COOLING:
                return False
        elif in_flight.issue.state is IssueState.CLAIMED:
            self._parts.tasks.drop_claim(in_flight)
        elif in_flight.issue.state is IssueState.ORPHANED:
            return self._connections.give_back(in_flight, RELEASED)
        elif in_flight.issue.state is IssueState.DELEGATING:
            self._sender.unreserve(in_flight)
        elif in_flight.issue.state is IssueState.RUNNING:
            self._end_released(in_flight)
            return True  # It is put on hold when its attempt has ended.
        elif in_flight.issue.state is not IssueState.RELEASING:
            return False
        self._effects.write(PutOnHold(issue_id))
        return True

    def _end_released(self, in_flight: InFlight) -> None:
        if self._sender.cancel(in_flight, RELEASED):
            return
        worker_id, issue_id = in_flight.issue.worker_id, in_flight.job.issue_id
        why = f"it knows no CANCEL, and {issue_id} is released"
        self._effects.note("info", f"{worker_id}: connection closed: {why}")
        self._sender.end_attempt(in_flight, RELEASED)
        in_flight.cancelled = RELEASED  # Whatever had ended it before.

    def _superfluous(self, count: int) -> list[str]:
        if count <= 0:
            return []
        working = (ConnState.RESERVED, ConnState.BUSY)
        busy = {c.pid for c in self._parts.registry if c.own and c.state in working}
        members = [m for m in self._parts.supervisor.members.values() if not m.unwanted]
        # Idle before busy, the youngest numbers first.
        members.reverse()
        members.sort(key=lambda m: m.pid in busy)
        return [m.worker_id for m in members[:count]]

    def _dismiss(self, worker_id: str) -> None:
        pid = self._parts.supervisor.members[worker_id].pid
        self._parts.supervisor.dismiss(worker_id)
        for connection in self._parts.registry:
            if connection.own and connection.pid == pid:
                self._parts.registry.retire(connection)
                if connection.state in (ConnState.READY, ConnState.IDLE):
                    self._sender.shut_down(connection)

    def _move(self, ticket: Ticket, stimulus: RunStimulus, done: str, reason: str = "") -> None:
        if self._ending.move(stimulus, reason) is RunReaction.REFUSE:
            self._refuse(ticket)
        else:
            self._say(ticket, done)

    def _refuse(self, ticket: Ticket) -> None:
        state = self._parts.state.name.lower()
        self._effects.ask(Answer(ticket, error=f"the fleet is {state}"))

    def _say(self, ticket: Ticket, text: str) -> None:
        self._effects.ask(Answer(ticket, text))

    def _done(
        self,
        ticket: Ticket,
        asked: tuple[IssueId, ...],
        unknown: list[IssueId],
        done: str,
        not_done: str,
    ) -> None:
        known = [i for i in asked if i not in unknown]
        text = f"{done}: {', '.join(known)}" if known else ""
        error = f"{not_done}: {', '.join(unknown)}"[: limits.ERROR_CHARS_MAX] if unknown else ""
        self._effects.ask(Answer(ticket, text, error, not_found=bool(unknown)))


# --- facts ---------------------------------------------------------------------------------------
# What the scheduler knows of an issue, taken from its parts: the answer to ``bw.why``.


ISSUES_MAX = 1000
"""How many one answer speaks of: far below what would fill a control connection."""

ERROR_CHARS_MAX = 300
"""Of the last error; the whole of it stands in the attempt's log."""


def gather(parts: Parts, issue_ids: Iterable[IssueId]) -> Facts:
    """Facts about these issues; where none is named, about all in flight or remembered."""
    known = dict.fromkeys(issue_ids) or dict.fromkeys(
        [*parts.tasks.in_flight, *map(IssueId, parts.effects.issues.known)]
    )
    asked = list(known)
    places = {issue_id: at for at, issue_id in enumerate(parts.tasks.waiting(), 1)}
    settings, registry = parts.settings, parts.registry
    busy = registry.count(ConnState.BUSY, ConnState.RESERVED)
    look_at = parts.effects.timers.at(CLAIM_AGAIN)
    return Facts(
        state=parts.state.name.lower(),
        state_reason="" if parts.state_reason == BY_HAND else parts.state_reason,
        run_id=parts.run_id,
        source=settings.source,
        tracker=settings.tracker,
        project=settings.project,
        filters=settings.filters,
        attempts_max=0 if settings.policy.hand_back else settings.policy.attempts_max,
        issues_max=settings.issues_max,
        ended=parts.tasks.ended,
        slots=registry.slots(),
        busy=busy,
        starting=max(0, parts.supervisor.wanted() - registry.slots()),
        unsent=parts.effects.issues.count(IssueState.CLAIMED),
        look_seconds=None if look_at is None else _from(parts, look_at),
        listed=parts.listed.by_priority,
        trouble=_trouble(parts),
        issues=tuple(_issue(parts, each, places.get(each, 0)) for each in asked[:ISSUES_MAX]),
        more=len(asked) > ISSUES_MAX,
        source_options=settings.source_options,
        accounts=tuple(_accounts(parts)),
        all_closed=parts.agents.all_closed(),
    )


def _accounts(parts: Parts) -> Iterator[AccountFacts]:
    accounts, now = parts.agents.accounts, parts.effects.epoch
    for account in accounts.each():
        for closed in account.closed.values():
            refusal = closed.refusal
            yield AccountFacts(
                account.agent,
                refusal.trouble.value,
                refusal.why[:ERROR_CHARS_MAX],
                refusal.model,
                accounts.todo(account, refusal),
                None if refusal.until is None else round(max(0.0, refusal.until - now), 1),
                round(max(0.0, closed.probe_at - now), 1),
            )


def _issue(parts: Parts, issue_id: IssueId, position: int) -> IssueFacts:
    in_flight = parts.tasks.in_flight.get(issue_id)
    pending = parts.round_trips.pending.get(issue_id)
    issue = parts.effects.issues.known.get(issue_id, Issue(issue_id))
    standing = parts.retry_state.standing(issue_id)
    running = in_flight if issue.state in (IssueState.RUNNING, IssueState.ORPHANED) else None
    return IssueFacts(
        issue_id=issue_id,
        in_flight=issue.state.name.lower() if in_flight or issue.landing else "",
        worker_id=issue.worker_id,
        owner_pid=issue.lost_pid,
        running_seconds=round(parts.effects.now - running.started_at, 1) if running else None,
        position=position,
        standing=standing.name.lower() if standing else "",
        attempt=issue.attempt.started.attempt if issue.attempt else issue.charged + 1,
        charged=issue.charged,
        again_seconds=_from(parts, issue.due) if standing is Standing.COOLING else None,
        error=issue.error[:ERROR_CHARS_MAX],
        pending=pending.settlement.action.value if pending else "",
        pending_tries=pending.tries if pending else 0,
        parked=issue_id in parts.agents.waiting(),
        behind=parts.landings.behind(issue),
        gate_seconds=parts.landings.gate_seconds(issue),
        untold=parts.landings.untold(issue),
    )


def _trouble(parts: Parts) -> TrackerTrouble | None:
    trouble = parts.round_trips.trouble
    if trouble is None:
        return None
    return TrackerTrouble(
        trouble.error[:ERROR_CHARS_MAX],
        trouble.hint,
        trouble.failures,
        round(parts.effects.now - trouble.since, 1),
        _from(parts, trouble.again_at),
    )


def _from(parts: Parts, at: float) -> float:
    return round(max(0.0, at - parts.effects.now), 1)
