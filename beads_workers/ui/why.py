"""``why`` for people: the lines of one issue's reasons, and of the fleet's state and backlog.

``ui.reasons`` has the reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from beads_workers.core.base.model import IssueId, value
from beads_workers.core.base.source import TrackedIssue
from beads_workers.core.base.text import printable
from beads_workers.ui.reasons import (
    OF_THE_FLEET,
    Cause,
    Link,
    Picture,
    Reason,
    explain,
    of_the_fleet,
)
from beads_workers.ui.time_text import duration
from beads_workers.ui.words import FATE_WORDS

# --- overview ------------------------------------------------------------------------------------
# Why little or nothing happens: the fleet's own state, and the backlog sorted by reason.


NAMED_MAX = 5
"""Number of ids after a count."""

AT_WORK = (Cause.RUNNING, Cause.LOST, Cause.DELEGATING, Cause.QUEUED)


@value
class IssueGroup:
    """Unfinished issues with the same most decisive reason; ``cause`` ``due``: ready."""

    cause: Cause
    count: int
    issue_ids: tuple[str, ...]


@value
class Coming:
    """The next event that comes by itself, and its time (epoch seconds)."""

    at: float
    text: str


@value
class Overview:
    """Overview. ``fleet``: reasons for all issues. ``next_up``: None if nothing comes by itself."""

    headline: str
    fleet: tuple[Reason, ...]
    groups: tuple[IssueGroup, ...]
    next_up: Coming | None


def survey(issue_ids: Iterable[IssueId], picture: Picture) -> Overview:
    """Sort a backlog by reason; without the tracker, the issues that the scheduler remembers."""
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
        IssueGroup(cause, len(sorted_out[cause]), tuple(sorted_out[cause][:NAMED_MAX]))
        for cause in Cause
        if cause in sorted_out
    )
    coming = min(_coming(first, picture), key=lambda each: each.at, default=None)
    return Overview(_headline(groups, fleet, picture), tuple(fleet), groups, coming)


def _headline(groups: Sequence[IssueGroup], fleet: Sequence[Reason], picture: Picture) -> str:
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
    if facts.accounts:
        first_one = min(facts.accounts, key=lambda each: each.probe_seconds)
        yield Coming(
            picture.now + first_one.probe_seconds, f"the account of {first_one.agent} is tried"
        )
    if facts.trouble is not None:
        yield Coming(picture.now + facts.trouble.again_seconds, "the tracker is asked again")
    elif facts.look_seconds is not None and facts.state == "running":
        yield Coming(picture.now + facts.look_seconds, "the tracker is asked for new issues")


def when(coming: Coming, picture: Picture) -> str:
    """Return ``14:03:20, in 95 s``."""
    return f"{picture.clock(coming.at)}, in {duration(max(0.0, coming.at - picture.now))}"


# --- why -----------------------------------------------------------------------------------------
# ``why`` for people: reasons as plain lines. Pure except for the time zone.


TEXT_WIDTH = 400
TITLE_WIDTH = 60
DAY_SECONDS = 86_400

GROUPS = {
    Cause.RUNNING: "running",
    Cause.LOST: "with a lost worker",
    Cause.DELEGATING: "being handed over",
    Cause.QUEUED: "claimed, next for a worker",
    Cause.UNCLOSED: "done, unclosed yet",
    Cause.WAITING_TO_LAND: FATE_WORDS["waiting_to_land"],
    Cause.SETTLING: "being requeued",
    Cause.ON_HOLD: "released by a person",
    Cause.OCCUPIED: "waiting until you leave its worktree",
    Cause.QUARANTINED: "quarantined",
    Cause.ASKED: "waiting for an answer",
    Cause.AWAITS_APPROVAL: "done, and awaiting approval",
    Cause.IN_REVIEW: "done, and in review",
    Cause.IN_PROGRESS: "in progress by others",
    Cause.ASSIGNED: "assigned to somebody",
    Cause.CYCLE: "waiting for each other",
    Cause.BLOCKED: "blocked",
    Cause.DEFERRED: "deferred",
    Cause.STATUS: "out of the backlog by their status",
    Cause.NOT_READY: "not ready, says the tracker",
    Cause.FILTERED: "filtered",
    Cause.COOLING: "waiting for a retry",
    Cause.DUE: "ready",
}
"""Names of groups of issues; ``ready`` has all issues that wait for the fleet."""


def issue_lines(
    issue_id: str,
    seen: TrackedIssue | None,
    head: str,
    reasons: Sequence[Reason],
    links: Sequence[Link],
) -> Iterator[str]:
    """Yield the headline, each reason with its remedy, and the blockers."""
    title = f" {printable(seen.title, TITLE_WIDTH)}" if seen else ""
    yield f"{printable(issue_id)}{title}"
    yield f"  {printable(head, TEXT_WIDTH)}"
    yield from _change(reasons[0])
    yield from _chain(links)
    for reason in reasons[1:]:
        if reason.cause is not Cause.NO_FLEET:  # It was printed before everything else.
            yield f"also: {printable(reason.text, TEXT_WIDTH)}"
            yield from _change(reason)


def _change(reason: Reason) -> Iterator[str]:
    if reason.remedy:
        yield f"  -> {printable(reason.remedy, TEXT_WIDTH)}"


def _chain(links: Sequence[Link]) -> Iterator[str]:
    for link in links:
        name = f"{printable(link.issue_id)} {printable(link.title, TITLE_WIDTH)}"
        yield f"     {'   ' * link.depth}waits for {name}: {printable(link.state, TEXT_WIDTH)}"


def overview_lines(found: Overview, picture: Picture) -> Iterator[str]:
    """Yield the fleet, the backlog by reason, and the next event."""
    yield printable(found.headline, TEXT_WIDTH)
    for number, reason in enumerate(found.fleet):
        if number:
            yield f"also: {printable(reason.text, TEXT_WIDTH)}"
        if reason.cause is not Cause.NO_FLEET:
            yield from _change(reason)
    if found.groups:
        yield ""
    for group in found.groups:
        more = ", ..." if group.count > len(group.issue_ids) else ""
        ids = ", ".join(printable(each) for each in group.issue_ids)
        yield f"{group.count:>5} {GROUPS[group.cause]:<34} {ids}{more}"
    if found.next_up is not None:
        yield ""
        text = printable(found.next_up.text, TEXT_WIDTH)
        yield f"next: {text} at {when(found.next_up, picture)}"
