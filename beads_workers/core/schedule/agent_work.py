"""The choice of an agent for an issue: between the claim of an issue and its TASK.

Each orchestrator has one ``AgentWork``. It ties together ``Accounts`` (who may begin), ``Ledger``
(what the work has cost) and the receipts of earlier attempts. It costs nothing in a fleet without
agents that are understood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from beads_workers.core.base.budget import Budget
from beads_workers.core.base.model import IssueId, Job, Outcome, OutcomeKind
from beads_workers.core.base.plain import to_plain
from beads_workers.core.base.policy import Blame
from beads_workers.core.base.settings import Agent, FleetSettings
from beads_workers.core.base.states import IssueState
from beads_workers.core.base.wire import Progress
from beads_workers.core.records import receipts
from beads_workers.core.records.issues import Issue, Standing
from beads_workers.core.records.journal import UsageFound
from beads_workers.core.records.money import Ledger, UnderWay
from beads_workers.core.schedule.accounts import Accounts
from beads_workers.core.schedule.effects import Effects, RetryDue
from beads_workers.core.schedule.retry import AlikeFailures

AGENT_LABEL, MODEL_LABEL = "agent:", "model:"
"""Prefixes of labels that choose for an issue (``agent:codex``, ``model:opus``) at its claim."""


def agents_for(job: Job, agents: Sequence[Agent]) -> list[tuple[Agent, str]]:
    """Return the agents that may work on a job, the preferred one first, each with its model.
    The job's labels choose agents and model."""
    named = [x.removeprefix(AGENT_LABEL) for x in job.labels if x.startswith(AGENT_LABEL)]
    models = [x.removeprefix(MODEL_LABEL) for x in job.labels if x.startswith(MODEL_LABEL)]
    known = {agent.name: agent for agent in agents}
    chosen = [known[name] for name in named if name in known]
    chosen = chosen or [agent for agent in agents if not agent.reserve]
    return [(agent, models[0] if models else agent.model) for agent in chosen]


class AgentWork:
    """Decides which agent works; ``accounts`` and ``ledger`` are public only to be shown."""

    def __init__(
        self,
        effects: Effects,
        settings: FleetSettings,
        slots: Callable[[], int],
        alike: AlikeFailures,
        run_id: str = "",
    ) -> None:
        """``slots``: how many attempts the fleet has workers for now."""
        self._effects, self._alike = effects, alike
        work = settings.work
        self.agents = {} if work.command else {a.name: a for a in work.agents if a.adapter}
        """The agents by their names; none if a command does the work."""
        self._usual = [agent for agent in self.agents.values() if not agent.reserve]
        self._policy = settings.policy
        self._reviewer = work.review
        self._budget = settings.budget
        self._issue_budget = settings.issue_budget or Budget()
        self._lands = settings.landing is not None
        self._allows_calls = bool(work.allow_modules)
        self._questions_max = settings.policy.questions_max
        self._running: dict[str, int] = dict.fromkeys(self.agents, 0)
        self._chosen: dict[IssueId, receipts.Candidate] = {}
        self._waits: dict[IssueId, list[receipts.Candidate]] = {}
        """Issues that were turned away, with the candidates that may work on them."""
        self._reviews: set[IssueId] = set()
        """Canaries of the reviewer's account."""
        known = [*self.agents.values(), *([work.review] if work.review else [])]
        logins = {agent.name: agent.login for agent in known}
        self.accounts = Accounts(effects, settings.pace, slots, logins)
        self.ledger = Ledger(run_id, settings.night)

    # --- before an attempt ------------------------------------------------------------------------

    def choose(self, job: Job) -> receipts.Candidate | None:
        """Return who works on the job, if there are agents.

        None: no agent may now, and the job waits for a candidate.
        """
        if job.command or job.script or (job.call and self._allows_calls):  # It brings its own.
            return receipts.NOBODY
        if self.spent() is not None:
            return None
        candidates = self._candidates(job)
        chosen = self.accounts.choose([c for c in candidates if self._places(c) > 0])
        if chosen is not None and self._may_be_reviewed(job.issue_id):
            return chosen
        self._waits[job.issue_id] = candidates
        return None

    def room(self) -> int | None:
        """Return how many attempts may begin now; None: as many as there are workers."""
        if not self.agents:
            return None
        if self.spent() is not None:
            return 0
        rooms: dict[receipts.AccountId, int] = {}
        for agent in self._usual:
            each = self._candidate(agent, agent.model)
            others = rooms.get(each.account, 0)
            places = others + self._places(each)
            rooms[each.account] = max(others, min(places, self.accounts.room(each)))
        return sum(rooms.values()) or self._room_for_last_tries()

    def _room_for_last_tries(self) -> int:
        """Return how many last attempts may begin now that are not made by the usual agents."""
        if not any(agent.escalate for agent in self._usual):
            return 0
        known = self._effects.issues.known.values()
        ready = [
            each
            for each in known
            if each.state is IssueState.ENQUEUED
            and each.standing in (Standing.OPEN, Standing.COOLING)
            and RetryDue(each.issue_id) not in self._effects.timers
            and IssueId(each.issue_id) not in self._waits
            and self.is_last_of_several(each)
        ]
        tries = {candidate for each in ready for candidate in self.stronger_tries(each)}
        rooms = (min(self._places(each), self.accounts.room(each)) for each in tries)
        return min(len(ready), max(rooms, default=0))

    def waiting(self) -> set[IssueId]:
        """Return the issues not to take: their agents' accounts are closed or have no room."""
        return set(self._waits)

    def let_in(self) -> bool:
        """Let in waiting issues, as many as there are places; return whether there were any."""
        if not self._waits:
            return False  # Asked after every event.
        places: dict[receipts.Candidate, int] = {}
        let_in = []
        for issue_id, candidates in self._waits.items():
            for each in candidates:
                free = places.get(each)
                if free is None:
                    free = min(self._places(each), self.accounts.room(each))
                places[each] = free - 1
                if free > 0 and self._may_be_reviewed(issue_id):
                    let_in.append(issue_id)
                    break
        for issue_id in let_in:
            del self._waits[issue_id]
        return bool(let_in)

    def all_closed(self) -> bool:
        """Return whether every agent's account is closed, however many places are free."""
        each = [self._candidate(agent, agent.model) for agent in self._usual]
        return bool(each) and not any(map(self.accounts.is_open_to, each))

    def spent(self) -> str | None:
        """Return why this run begins nothing more, if its budget is spent."""
        budget = self._budget
        if budget is None:
            return None  # Asked after every event.
        spent = self.ledger.spent() if budget.per_run else self.ledger.spent_in_night()
        if not budget.is_spent(spent.money, spent.tokens):
            return None
        return f"the budget of {budget} is spent (${spent.money:.2f}, {spent.tokens} tokens)"

    def begun(self, issue_id: IssueId, candidate: receipts.Candidate) -> None:
        """Count a new attempt, whose TASK is about to be sent."""
        self._chosen[issue_id] = candidate
        self._waits.pop(issue_id, None)
        self._running[candidate.agent] += 1
        self.accounts.begun(issue_id, candidate)
        if self._reviewer is not None and self._awaits_review(issue_id):
            reviewer = self._candidate(self._reviewer, self._reviewer.model)
            if not self.accounts.is_open_to(reviewer):
                self._reviews.add(issue_id)
                self.accounts.begun(_review_of(issue_id), reviewer)

    def payload(self, issue: Issue, candidate: receipts.Candidate) -> dict[str, Any]:
        """Return a TASK's part about its agent: who works, and what earlier attempts have left."""
        fields: dict[str, Any] = {"name": candidate.agent}
        if candidate.model:
            fields["model"] = candidate.model
        past = issue.retry_entry
        if past is not None and past.error:
            fields["error"] = past.error
        earlier = past.receipt if past is not None else None
        if earlier is not None and earlier.agent == candidate.agent:
            fields["earlier"] = receipts.to_json(earlier)
        elif earlier is not None:
            # Another agent takes over: the findings hold for it, the session does not.
            fields["earlier"] = receipts.to_json(replace(earlier, session="", totals={}))
        asked = past.questions if past is not None else 0
        if asked < self._questions_max:
            fields["may_ask"] = True
        if past is not None and past.question:
            fields["question"], fields["asked_at"] = past.question, past.asked_at
        if past is not None and past.mend is not None:
            fields["mend"] = to_plain(past.mend)
        spent = past.money if past is not None else 0.0
        if (left := self._issue_budget.dollars_left(spent)) is not None:
            fields["money"] = left
        return fields

    def learn(self, account: receipts.AccountId, closed: Iterable[receipts.Closed]) -> None:
        """Take over what other fleets of this user know of an account."""
        agents = [*self.agents.values(), *([self._reviewer] if self._reviewer else [])]
        for agent in agents:
            if self._candidate(agent, "").account == account:
                self.accounts.learn(self._candidate(agent, agent.model), closed)
                return

    # --- during it, and at its end ----------------------------------------------------------------

    def add_progress(self, issue_id: IssueId, progress: Progress) -> None:
        """Take over the progress that an attempt's worker reports."""
        if issue_id not in self._chosen:
            return
        if progress.tokens:
            self.accounts.answered(issue_id)
            self.ledger.progress(issue_id, UnderWay(progress.tokens, progress.money or 0.0))
        if progress.utilization is not None:
            self.accounts.warned(issue_id, progress.utilization)

    def ended(self, issue: Issue, outcome: Outcome) -> tuple[Outcome, Blame]:
        """Count the end of an attempt.
        Return the outcome with the receipt that is believed, and what the policy has to know of the
        attempt."""
        issue_id = IssueId(issue.issue_id)
        candidate = self._chosen.pop(issue_id, None)
        receipt = outcome.receipt
        if candidate is None:
            if receipt is None:
                return outcome, Blame()
            # It had no agent that we know of.
            believed = receipts.work_of(receipt) if self._lands and receipt.head else None
            return replace(outcome, receipt=believed), Blame()
        self._running[candidate.agent] -= 1
        if outcome.receipt is not None and candidate.instead_of:
            receipt = replace(outcome.receipt, instead_of=candidate.instead_of)
            outcome = replace(outcome, receipt=receipt)
        outcome = self._alike.judged(candidate, issue, outcome)
        receipt = outcome.receipt
        refusal = receipt.refusal if receipt is not None else None
        refused = refusal is not None
        counts = refused and self.accounts.charges(issue_id)
        of_reviewer: receipts.AccountRefusal | None = None
        if refusal is not None and receipt is not None and receipt.refused and self._reviewer:
            # The attempt's own account is fine; the reviewer's account is closed.
            refusal, of_reviewer = None, refusal
        is_answered = outcome.kind is OutcomeKind.SUCCESS or _is_answered(receipt)
        self.accounts.ended(issue_id, refusal, lost=not is_answered)
        self._review_ended(issue_id, of_reviewer, outcome)
        self.ledger.ended(issue_id, receipt, outcome.kind.value)
        return outcome, Blame(refused, counts, self._spent(issue, receipt))

    def _review_ended(
        self, issue_id: IssueId, refusal: receipts.AccountRefusal | None, outcome: Outcome
    ) -> None:
        if self._reviewer is None:
            return
        reviewer = self._candidate(self._reviewer, self._reviewer.model)
        # A failed attempt may not have come to its review.
        is_reviewed = outcome.kind is OutcomeKind.SUCCESS
        if issue_id in self._reviews:
            self._reviews.discard(issue_id)
            self.accounts.ended(_review_of(issue_id), refusal, lost=not is_reviewed)
        elif refusal is not None:
            self.accounts.refused(reviewer, refusal)
        elif is_reviewed:
            self.accounts.served(reviewer)

    def found(self, usage: UsageFound) -> None:
        """Count the usage that was found of an attempt that ended without a receipt."""
        self.ledger.found(usage.issue_id, usage.request_id, usage.receipt, whole=usage.whole)

    def _spent(self, issue: Issue, receipt: receipts.Receipt | None) -> str:
        """Return the issue's budget if it is spent, else ""."""
        past = issue.retry_entry
        money = (past.money if past else 0.0) + ((receipt.money if receipt else None) or 0.0)
        tokens = (past.tokens if past else 0) + (receipt.tokens.total if receipt else 0)
        return str(self._issue_budget) if self._issue_budget.is_spent(money, tokens) else ""

    # --- inside -----------------------------------------------------------------------------------

    def _places(self, candidate: receipts.Candidate) -> int:
        most = self.agents[candidate.agent].at_once
        return _MANY if most is None else max(0, most - self._running[candidate.agent])

    def _may_be_reviewed(self, issue_id: IssueId) -> bool:
        """Return whether the reviewer's account lets an issue go on that only awaits review."""
        if self._reviewer is None or not self._awaits_review(issue_id):
            return True
        return self.accounts.may_try(self._candidate(self._reviewer, self._reviewer.model))

    def _awaits_review(self, issue_id: IssueId) -> bool:
        issue = self._effects.issues.known.get(issue_id)
        past = issue.retry_entry if issue is not None else None
        earlier = past.receipt if past is not None else None
        return earlier is not None and bool(earlier.refused)

    def _candidates(self, job: Job) -> list[receipts.Candidate]:
        issue = self._effects.issues.known.get(job.issue_id)
        is_last, asked_by = self.is_last_of_several(issue), _who_asked(issue)
        found = agents_for(job, list(self.agents.values()))
        return [
            (is_last and self._stronger(job.labels, agent)) or self._candidate(agent, model)
            for agent, model in sorted(found, key=lambda each: each[0].name != asked_by)
        ]

    def is_last_of_several(self, issue: Issue | None) -> bool:
        """Return whether the next charge, after others, quarantines the issue."""
        if issue is None or self._policy.hand_back:
            return False
        return 0 < issue.charged >= self._policy.attempts_max - 1

    def stronger_tries(self, issue: Issue) -> list[receipts.Candidate]:
        """Return who is to make the last attempt at an issue instead of its usual agents."""
        labels = issue.claimed.labels if issue.claimed else ()
        each = (self._stronger(labels, agent) for agent in self._usual)
        return [candidate for candidate in each if candidate is not None]

    def _stronger(self, labels: Sequence[str], agent: Agent) -> receipts.Candidate | None:
        """Return who makes the agent's last attempt; None if that is the agent as it is.
        What a label says of an issue holds to its end."""
        to = agent.escalate
        if to is None or any(label.startswith(MODEL_LABEL) for label in labels):
            return None
        if to.agent != agent.name and any(label.startswith(AGENT_LABEL) for label in labels):
            return None
        usual = f"{agent.name} {agent.model}".rstrip()
        made = self._candidate(self.agents[to.agent], to.model or self.agents[to.agent].model)
        return replace(made, instead_of=usual)

    def _candidate(self, agent: Agent, model: str) -> receipts.Candidate:
        return receipts.Candidate(
            agent.name, receipts.AccountId(agent.account or agent.name), model
        )


def _who_asked(issue: Issue | None) -> str:
    """Return the agent whose session goes on with an answer; "" if there is none."""
    past = issue.retry_entry if issue is not None else None
    if past is None or not past.question or past.receipt is None:
        return ""
    return past.receipt.agent


def _is_answered(receipt: receipts.Receipt | None) -> bool:
    # An attempt that was killed before its agent had an answer proves nothing of its account.
    return receipt is not None and bool(receipt.usage or receipt.money or receipt.message)


def _review_of(issue_id: IssueId) -> IssueId:
    # An attempt counts on two accounts while it finds out whether its reviewer's account is open.
    return IssueId(f"{issue_id} (review)")


_MANY = 1_000_000
