"""What the scheduler knows of an issue, taken from its parts: the answer to ``bw.why``."""

from __future__ import annotations

from collections.abc import Iterable

from beads_workers.core.issues import Standing
from beads_workers.core.jobs import IssueId
from beads_workers.core.lane import TAKE_AGAIN
from beads_workers.core.parts import BY_HAND, Parts
from beads_workers.core.states import ConnState, IssueState
from beads_workers.core.why.facts import Facts, IssueFacts, TrackerTrouble

ISSUES_MAX = 1000
"""How many one answer speaks of: far below what would fill a control connection."""

ERROR_CHARS_MAX = 300
"""Of the last error; the whole of it stands in the attempt's log."""


def gather(parts: Parts, issue_ids: Iterable[IssueId]) -> Facts:
    """Facts about these issues, or about all that are held or remembered where none is named."""
    known = dict.fromkeys(issue_ids) or dict.fromkeys([*parts.tasks.held, *parts.ledger.pages])
    asked = list(known)
    places = {issue_id: at for at, issue_id in enumerate(parts.tasks.waiting(), 1)}
    settings, roster = parts.settings, parts.roster
    busy = roster.count(ConnState.BUSY, ConnState.RESERVED)
    look_at = parts.desk.timers.at(TAKE_AGAIN)
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
        slots=roster.slots(),
        busy=busy,
        starting=max(0, parts.crew.wanted() - roster.slots()),
        unsent=parts.tasks.count(IssueState.CLAIMED),
        look_seconds=None if look_at is None else _from(parts, look_at),
        listed=parts.listed.by_priority,
        trouble=_trouble(parts),
        issues=tuple(_issue(parts, each, places.get(each, 0)) for each in asked[:ISSUES_MAX]),
        more=len(asked) > ISSUES_MAX,
        source_options=settings.source_options,
    )


def _issue(parts: Parts, issue_id: IssueId, position: int) -> IssueFacts:
    held = parts.tasks.held.get(issue_id)
    page = parts.ledger.pages.get(issue_id)
    owed = parts.lane.owed.get(issue_id)
    history = parts.ledger.history(issue_id)
    cooling = page is not None and page.standing is Standing.COOLING
    running = held is not None and held.state in (IssueState.RUNNING, IssueState.LOOSE)
    return IssueFacts(
        issue_id=issue_id,
        held=held.state.name.lower() if held else "",
        worker_id=held.worker_id if held else "",
        holder_pid=held.holder_pid if held else 0,
        running_seconds=round(parts.desk.now - held.started_at, 1) if held and running else None,
        position=position,
        standing=page.standing.name.lower() if page else "",
        attempt=held.attempt if held and running else history.attempt,
        charged=history.charged,
        again_seconds=_from(parts, page.not_before) if page and cooling else None,
        error=page.error[:ERROR_CHARS_MAX] if page else "",
        owed=owed.settlement.action.value if owed else "",
        owed_tries=owed.tries if owed else 0,
    )


def _trouble(parts: Parts) -> TrackerTrouble | None:
    trouble = parts.lane.trouble
    if trouble is None:
        return None
    return TrackerTrouble(
        trouble.error[:ERROR_CHARS_MAX],
        trouble.hint,
        trouble.failures,
        round(parts.desk.now - trouble.since, 1),
        _from(parts, trouble.again_at),
    )


def _from(parts: Parts, at: float) -> float:
    return round(max(0.0, at - parts.desk.now), 1)
