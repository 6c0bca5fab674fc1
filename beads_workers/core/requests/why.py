"""Facts about issues that do not run, taken from the scheduler's parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from beads_workers.core.base.facts import AccountFacts, Facts, IssueFacts, TrackerTrouble, facts_of
from beads_workers.core.base.model import IssueId, value
from beads_workers.core.base.states import ConnState, IssueState, RunState
from beads_workers.core.control import Control
from beads_workers.core.records.issues import Issue, Standing
from beads_workers.core.records.landing import ahead_text, pull_text
from beads_workers.core.requests import issue_ids
from beads_workers.core.schedule.commands import Answer
from beads_workers.core.schedule.events import BY_HAND, FleetRequest, Ticket
from beads_workers.core.schedule.parts import Parts
from beads_workers.core.schedule.round_trips import CLAIM_AGAIN


@value
class WhyAsked(FleetRequest):
    """A person asks why these issues do not run; without ids, about all that are remembered."""

    issue_ids: tuple[IssueId, ...] = ()

    @classmethod
    def read(cls, data: Mapping[str, Any], ticket: Ticket) -> WhyAsked:
        """See ``FleetRequest``."""
        return cls(ticket, issue_ids(data) if data.get("issue_ids") else ())

    def answer(self, fleet: Control) -> None:
        """Answer with the facts about these issues and the scheduler; change nothing."""
        fleet.parts.effects.ask(Answer(self.ticket, facts=gather(fleet.parts, self.issue_ids)))


REQUEST = WhyAsked


ISSUES_MAX = 1000
"""Maximum issues in one answer: far below what would fill a control connection."""

ERROR_CHARS_MAX = 300
"""Maximum of the last error; the whole of it is in the attempt's log."""


def gather(parts: Parts, issue_ids: Iterable[IssueId]) -> Facts:
    """Return facts about these issues; if none is named, about all in flight or remembered."""
    known = dict.fromkeys(issue_ids) or dict.fromkeys(
        [*parts.tasks.in_flight, *map(IssueId, parts.effects.issues.known)]
    )
    asked = list(known)
    places = {issue_id: at for at, issue_id in enumerate(parts.tasks.waiting(), 1)}
    settings, registry = parts.settings, parts.registry
    busy = registry.count(ConnState.BUSY, ConnState.RESERVED)
    look_at = parts.effects.timers.at(CLAIM_AGAIN)
    return facts_of(
        settings,
        parts.state.name.lower(),
        state_reason="" if parts.state_reason == BY_HAND else parts.state_reason,
        begins_at=parts.settings.start_at if parts.state is RunState.WAITING else None,
        run_id=parts.run_id,
        issues_max=settings.ending.issues_max,
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
        accounts=tuple(_accounts(parts)),
        all_closed=parts.agents.all_closed(),
    )


def _accounts(parts: Parts) -> Iterator[AccountFacts]:
    accounts, now = parts.agents.accounts, parts.effects.epoch
    for account in accounts.each():
        for closed in account.closed.values():
            refusal, until = closed.refusal, closed.refusal.until or 0.0
            yield AccountFacts(
                account.agent,
                refusal.trouble.value,
                refusal.why[:ERROR_CHARS_MAX],
                refusal.model,
                accounts.todo(account, refusal),
                round(until - now, 1) if until > now else None,
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
        error=_error(issue)[:ERROR_CHARS_MAX],
        pending=pending.settlement.action.value if pending else "",
        pending_tries=pending.tries if pending else 0,
        parked=issue_id in parts.agents.waiting(),
        behind=parts.landings.behind(issue),
        gate_seconds=parts.landings.gate_seconds(issue),
        no_verdict=parts.landings.no_verdict(issue),
        by=_by(parts, issue),
        ahead=_ahead(issue),
    )


def _ahead(issue: Issue) -> str:
    """Return what is known of a branch that people judge."""
    if issue.in_review is not None:
        return pull_text(issue.in_review)
    return ahead_text(issue.retry_entry.ahead) if issue.retry_entry else ""


def _error(issue: Issue) -> str:
    if issue.standing is Standing.OCCUPIED and issue.retry_entry is not None:
        return issue.retry_entry.occupied
    return issue.error


def _by(parts: Parts, issue: Issue) -> str:
    if issue.attempt:
        started = issue.attempt.started
        return f"{started.agent} {started.model}".rstrip() if started.instead_of else ""
    if not parts.agents.is_last_of_several(issue):
        return ""
    stronger = dict.fromkeys(f"{c.agent} {c.model}" for c in parts.agents.stronger_tries(issue))
    return " or ".join(each.rstrip() for each in stronger)


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
