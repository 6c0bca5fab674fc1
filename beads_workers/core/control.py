"""Control requests of people to a running fleet; each file of ``core.requests`` has one request."""

from __future__ import annotations

from typing import assert_never

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId, Outcome, OutcomeKind
from beads_workers.core.base.source import Action, Result
from beads_workers.core.base.states import IssueState, RunReaction, RunState, RunStimulus
from beads_workers.core.lifecycle import Ending
from beads_workers.core.records.issues import Standing
from beads_workers.core.records.journal import PutOnHold, SettledRecord
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.claims import ClaimScheduler
from beads_workers.core.schedule.commands import Answer
from beads_workers.core.schedule.inflight import CANCELLED, RELEASED, InFlight
from beads_workers.core.schedule.parts import Parts
from beads_workers.core.workers.connections import Connections
from beads_workers.core.workers.sender import Sender

MORE_WORKERS = "start it with --worktree, or with --shared-checkout"
"""Ways to let several agents work at once: a checkout each, or a person takes the risk."""


class Control:
    """Answers control requests; each method with a ticket answers it exactly once."""

    def __init__(
        self,
        parts: Parts,
        sender: Sender,
        connections: Connections,
        scheduler: ClaimScheduler,
        ending: Ending,
    ) -> None:
        self.parts = parts
        self.connections = connections
        self._effects = parts.effects
        self.sender = sender
        self.scheduler = scheduler
        self._ending = ending

    def asked(self, event: ev.Asked) -> None:
        """Do what a person, or a program of theirs, asks for."""
        match event:
            case ev.PauseAsked():
                self.pause(event)
            case ev.ResumeAsked():
                self.resume(event)
            case ev.TasksAsked():
                self.tasks(event)
            case ev.FleetRequest():
                event.answer(self)
            case ev.StatusWanted():
                self.connections.asked(event)
            case _:
                assert_never(event)

    def pause(self, event: ev.PauseAsked) -> None:
        """Pause the fleet: nothing new is handed out, and running tasks go on."""
        if event.worker_ids:
            self._ask_workers(event)
            return
        self._move(event.ticket, RunStimulus.PAUSE, "paused", ev.BY_HAND)
        if self.parts.state is RunState.PAUSED:
            # The condition that paused the fleet before is still reported, and does not end this
            # pause.
            self.parts.state_reason = ev.BY_HAND

    def resume(self, event: ev.ResumeAsked) -> None:
        """Resume the fleet: waiting workers get work as soon as there is some."""
        if event.worker_ids:
            self._ask_workers(event)
            return
        self.connections.asked(event)
        self._move(event.ticket, RunStimulus.RESUME, "running")
        if self.parts.state is RunState.RUNNING:
            self.parts.breaker.reset()
            self.parts.preparation.reset()
            self.parts.agents.accounts.resume()
            self.parts.landings.go_on()

    def _ask_workers(self, event: ev.PauseAsked | ev.ResumeAsked) -> None:
        if not self.connections.asked(event):
            error = "only the whole fleet can be paused here"
            self._effects.ask(Answer(event.ticket, error=error))

    def tasks(self, event: ev.TasksAsked) -> None:
        """Answer with the tasks that match, each as it was before it was cancelled."""
        # Loaded here because few fleets are asked.
        from beads_workers.core.schedule.queries import find

        found = find(self.parts, event.wanted)
        if event.cancel:
            for task in found.tasks:
                self._cancel_one(IssueId(task.key))
        self._effects.ask(Answer(event.ticket, found=found))

    def _cancel_one(self, issue_id: IssueId) -> None:
        in_flight = self.parts.tasks.in_flight.get(issue_id)
        if in_flight is None and self.parts.settings.policy.hand_back:
            # The task waits for another try with its sender, who forgets it.
            not_ours = Action.RELEASE.value, Result.NOT_OURS.value
            self._effects.write(SettledRecord(issue_id, *not_ours, CANCELLED))
        elif not self.parts.push or in_flight is None:
            # The tracker keeps it: this run leaves it alone until a person says ``retry``.
            self.release_one(issue_id)
        elif in_flight.issue.state is IssueState.CLAIMED:
            # Without an answer, its sender would have it run after all.
            in_flight.cancelled = CANCELLED
            self.parts.tasks.drop_claim(in_flight, Outcome(OutcomeKind.CANCELLED, CANCELLED))
        elif in_flight.issue.state is IssueState.RUNNING:
            self.sender.end_attempt(in_flight, CANCELLED)

    def release_one(self, issue_id: IssueId) -> bool:
        """Put an issue on hold, whoever has it; return False if nobody has it."""
        in_flight = self.parts.tasks.in_flight.get(issue_id)
        if in_flight is None:
            if self.parts.retry_state.standing(issue_id) not in _WAITING:
                return False
        elif in_flight.issue.state is IssueState.CLAIMED:
            self.parts.tasks.drop_claim(in_flight)
        elif in_flight.issue.state is IssueState.ORPHANED:
            return self.connections.give_back(in_flight, RELEASED)
        elif in_flight.issue.state is IssueState.DELEGATING:
            self.sender.unreserve(in_flight)
        elif in_flight.issue.state is IssueState.RUNNING:
            self._end_released(in_flight)
            return True  # The issue is put on hold when its attempt has ended.
        elif in_flight.issue.state is not IssueState.RELEASING:
            return False
        self._effects.write(PutOnHold(issue_id))
        return True

    def _end_released(self, in_flight: InFlight) -> None:
        if self.sender.cancel(in_flight, RELEASED):
            return
        worker_id, issue_id = in_flight.issue.worker_id, in_flight.job.issue_id
        why = f"it knows no CANCEL, and {issue_id} is released"
        self._effects.note("info", f"{worker_id}: connection closed: {why}")
        self.sender.end_attempt(in_flight, RELEASED)
        in_flight.cancelled = RELEASED  # This overrides whatever had ended it before.

    def _move(self, ticket: ev.Ticket, stimulus: RunStimulus, done: str, reason: str = "") -> None:
        if self._ending.move(stimulus, reason) is RunReaction.REFUSE:
            self.refuse(ticket)
        else:
            self.say(ticket, done)

    def refuse(self, ticket: ev.Ticket, why: str = "") -> None:
        """Answer why the request is not done: by default, the run's state does not allow it."""
        why = why or f"the fleet is {self.parts.state.name.lower()}"
        self._effects.ask(Answer(ticket, error=why))

    def say(self, ticket: ev.Ticket, text: str) -> None:
        """Answer that the request is done."""
        self._effects.ask(Answer(ticket, text))

    def done(
        self,
        ticket: ev.Ticket,
        asked: tuple[IssueId, ...],
        unknown: list[IssueId],
        done: str,
        not_done: str,
    ) -> None:
        """Answer that the request is done for all issues asked for, except the unknown ones."""
        known = [i for i in asked if i not in unknown]
        text = f"{done}: {', '.join(known)}" if known else ""
        error = f"{not_done}: {', '.join(unknown)}"[: limits.ERROR_CHARS_MAX] if unknown else ""
        self._effects.ask(Answer(ticket, text, error, not_found=bool(unknown)))


_WAITING = (Standing.COOLING, Standing.OCCUPIED)
