"""Settling what an earlier run of ours left: its journal knows more than Redis does."""

from __future__ import annotations

from collections.abc import Sequence

from beads_workers.core.jobs import IssueId
from beads_workers.core.outcomes import Outcome, OutcomeKind
from beads_workers.core.source import Action, DeadRun, Result, Settled, Settlement
from beads_workers.protocols.hero.jobs import HeroJob
from beads_workers.protocols.hero.reading import WrongField, read_job
from beads_workers.sources.hero.answers import NOT_WITH_US, Again, Ends, judge
from beads_workers.sources.hero.queue import Ending
from beads_workers.sources.hero.runs import Runs
from beads_workers.sources.hero.store import Store
from beads_workers.sources.results import whole


def settle_past(
    store: Store, runs: Runs, dead: DeadRun, run: str, retry_seconds: float
) -> list[Settled]:
    """First what its journal says, which Redis was not told; then all that it holds goes back to
    the queue, and what it was at work on counts as an attempt. Raises ``SourceError``.
    """
    outcomes: dict[IssueId, Outcome | None] = dict.fromkeys(dead.unbegun)
    outcomes |= {job_id: Outcome(OutcomeKind.SUCCESS) for job_id in dead.done_not_closed}
    outcomes |= dict(dead.outcomes)
    known = _known(store, list(outcomes))
    endings: list[Ending] = []
    again: list[tuple[str, str, int, bool]] = []
    for job_id, (job, attempts) in known.items():
        context = "" if job.concurrent else "c:" + job.context_id
        outcome = whole(outcomes[job_id])
        verdict = judge(outcome, attempts, job.attempts_max, retry_seconds=retry_seconds)
        match verdict:
            case Ends(status, said):
                endings.append(Ending(job_id, context, attempts, status, said))
            case Again(_, never):
                again.append((job_id, context, attempts, never))
    answers = store.end(endings, run)
    store.again(again, run)
    settled = [
        _settled(Action.CLOSE if e.status.value == "finished" else Action.RELEASE, e.job_id, answer)
        for e, answer in zip(endings, answers, strict=True)
    ]
    for given_back, _ in runs.give_back(run, "known"):
        settled.append(_settled(Action.RELEASE, given_back, "done"))
    return settled


def _known(store: Store, job_ids: Sequence[IssueId]) -> dict[IssueId, tuple[HeroJob, int]]:
    found = {}
    attempts = store.attempts_of(job_ids)
    for job_id, fields, count in zip(job_ids, store.hashes(job_ids), attempts, strict=True):
        try:
            found[job_id] = read_job(job_id, fields), count
        except WrongField:
            continue  # It went wrong since: what is left of it is given back.
    return found


def _settled(action: Action, job_id: str, answer: str) -> Settled:
    settlement = Settlement(action, IssueId(job_id))
    if answer == "done":
        return Settled(settlement, Result.APPLIED)
    return Settled(settlement, Result.NOT_OURS, NOT_WITH_US)
