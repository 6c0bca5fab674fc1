"""Why nothing, or little, happens: the fleet's own state, and the backlog sorted by its reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from beads_workers.core.jobs import IssueId
from beads_workers.core.values import value
from beads_workers.core.why.explaining import OF_THE_FLEET, explain
from beads_workers.core.why.reasons import Cause, Picture, Reason, of_the_fleet, span

NAMED_MAX = 5
"""Ids that stand behind a count."""

AT_WORK = (Cause.RUNNING, Cause.LOST, Cause.HANDING, Cause.QUEUED)


@value
class Group:
    """Unfinished issues that share their most decisive reason; ``cause`` ``due`` is ready."""

    cause: Cause
    count: int
    issue_ids: tuple[str, ...]


@value
class Coming:
    """What happens next by itself, and when (epoch seconds)."""

    at: float
    text: str


@value
class Overview:
    """``fleet``: what holds everything back. ``next_up`` is None where only events lead on."""

    headline: str
    fleet: tuple[Reason, ...]
    groups: tuple[Group, ...]
    next_up: Coming | None


def survey(issue_ids: Iterable[IssueId], picture: Picture) -> Overview:
    """Sort a backlog; where the tracker could not be looked at, what the scheduler remembers."""
    if picture.unseen:
        issue_ids = [IssueId(each) for each in picture.known]
    sorted_out: dict[Cause, list[str]] = {}
    first: dict[str, Reason] = {}
    for issue_id in issue_ids:
        reason = explain(issue_id, picture)[0]
        cause = Cause.DUE if reason.cause in OF_THE_FLEET else reason.cause
        sorted_out.setdefault(cause, []).append(issue_id)
        first[issue_id] = reason
    fleet = of_the_fleet(picture)
    groups = tuple(
        Group(cause, len(sorted_out[cause]), tuple(sorted_out[cause][:NAMED_MAX]))
        for cause in Cause
        if cause in sorted_out
    )
    coming = min(_coming(first, picture), key=lambda each: each.at, default=None)
    return Overview(_headline(groups, fleet, picture), tuple(fleet), groups, coming)


def _headline(groups: Sequence[Group], fleet: Sequence[Reason], picture: Picture) -> str:
    count = {group.cause: group.count for group in groups}
    ready, at_work = count.get(Cause.DUE, 0), sum(count.get(cause, 0) for cause in AT_WORK)
    facts = picture.facts
    if not picture.has_fleet:
        if not ready:
            return "no fleet runs here, and nothing is ready for one"
        return f"ready for a fleet: {ready}; 'beads-workers start' runs one"
    if fleet:
        return f"{fleet[0].text}; {ready} ready, {at_work} under way"
    if picture.unseen:
        return f"the tracker could not be looked at: {picture.unseen}"
    if not groups:
        return "nothing is left to do: every issue is closed"
    if not ready and not at_work:
        return "nothing can be taken: no issue is ready"
    if facts.slots and facts.busy >= facts.slots:
        behind = f"; ready and waiting for one: {ready}" if ready else ""
        who = "the worker is" if facts.slots == 1 else f"all {facts.slots} workers are"
        return f"{who} busy{behind}"
    if at_work:
        idle = facts.slots - facts.busy
        return f"at work: {at_work} under way; workers without work: {idle}, ready: {ready}"
    return f"ready, and about to be taken: {ready}"


def _coming(first: dict[str, Reason], picture: Picture) -> Iterator[Coming]:
    for issue_id, reason in first.items():
        if reason.until is None:
            continue
        if reason.cause is Cause.COOLING and picture.has_fleet:
            yield Coming(reason.until, f"{issue_id} is tried again")
        elif reason.cause is Cause.DEFERRED:
            yield Coming(reason.until, f"{issue_id} is no longer deferred")
    facts = picture.facts
    if facts.trouble is not None:
        yield Coming(picture.now + facts.trouble.again_seconds, "the tracker is asked again")
    elif facts.look_seconds is not None and facts.state == "running":
        yield Coming(picture.now + facts.look_seconds, "the tracker is asked for new issues")


def when(coming: Coming, picture: Picture) -> str:
    """``14:03:20, in 95 s``."""
    return f"{picture.clock(coming.at)}, in {span(max(0.0, coming.at - picture.now))}"
