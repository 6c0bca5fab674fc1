"""Texts that explain why an issue does not run: all reasons in order, and the fleet's state.

``reasons`` has the scheduler's side.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

from beads_workers.core.base.facts import IssueFacts
from beads_workers.core.base.model import IssueId, value
from beads_workers.core.base.ready import FINISHED
from beads_workers.core.base.source import Seen, why_over
from beads_workers.core.base.text import printable
from beads_workers.ui.reasons import (
    Cause,
    Link,
    Picture,
    Reason,
    account_closed,
    blockers,
    chain,
    cycle,
    epoch,
    filtered,
    in_our_hands,
    is_held_up,
    its_turn,
    of_the_fleet,
    remembered,
)
from beads_workers.ui.words import FATE_WORDS, duration

OF_THE_FLEET = (
    Cause.NO_FLEET,
    Cause.RECOVERING,
    Cause.PAUSED,
    Cause.DRAINING,
    Cause.STOPPING,
    Cause.TRACKER,
    Cause.LIMIT,
    Cause.ACCOUNT,
    Cause.NO_WORKERS,
    Cause.BUSY,
    Cause.BEHIND,
)
"""Causes of the fleet, not of the issue: the issue itself is ready."""


_WAITS = ("asked", "awaits_approval", "quarantined", "on_hold")


def explain(issue_id: IssueId, picture: Picture) -> list[Reason]:
    """Return every reason that holds, the most decisive first; never empty."""
    facts = picture.known.get(issue_id, IssueFacts(issue_id))
    seen = picture.seen.get(issue_id)
    waits = facts.standing in _WAITS or facts.in_flight == "shelved"
    on_hold = facts.standing == "on_hold"
    if seen is not None and waits and why_over(seen.status, seen.assignee, or_open=on_hold):
        facts = IssueFacts(issue_id)  # A person has taken it, or opened it again.
    ours = in_our_hands(facts, picture)
    if seen is None and not picture.unseen:
        if picture.is_pushed:
            text = "no job of that id waits or runs here: it is over, or never came"
            remedy = f"see 'beads-workers logs {issue_id}' and 'beads-workers list --envelopes'"
            return [Reason(Cause.NOT_FOUND, text, remedy)]
        remedy = "check the id; 'beads-workers list --all' shows what there is"
        return [Reason(Cause.NOT_FOUND, "the tracker has no issue of that id", remedy)]
    if seen is not None and seen.status in FINISHED:
        return [_closed(seen, picture)]
    if ours:
        return ours
    marks = remembered(issue_id, facts, picture)
    own = [m for m in marks if m.cause is not Cause.COOLING]
    found = [*own]
    if seen is not None:
        found += _by_the_tracker(seen, picture, marked=bool(own))
        found += filtered(seen, picture)
    found += [m for m in marks if m not in own]
    single = bool(found)
    fleet = of_the_fleet(picture)
    if facts.parked and not any(each.cause is Cause.ACCOUNT for each in fleet):
        fleet.append(account_closed(picture))
    found += fleet
    if seen is not None and not found:
        if picture.ready is not None and issue_id not in picture.ready:
            text = "the tracker itself does not list it as ready"
            return [Reason(Cause.NOT_READY, text, "see what the tracker shows of it")]
        return its_turn(seen, picture)
    if picture.unseen and not single:
        text = f"the tracker could not be looked at: {picture.unseen}"
        found.append(Reason(Cause.TRACKER, text, "ask again when it answers"))
    return found


def headline(issue_id: IssueId, reasons: list[Reason], picture: Picture) -> str:
    """Return the most decisive reason in one sentence."""
    first = reasons[0]
    if first.cause in OF_THE_FLEET and issue_id in picture.seen:
        return f"ready, but {first.text}"
    links = chain(issue_id, picture) if first.cause is Cause.BLOCKED else []
    if not links:
        return first.text
    # Follow the first path down to what has to happen first.
    way = links[:1]
    for link in links[1:]:
        if link.depth != len(way):
            break
        way.append(link)
    below = f", in the end for {way[-1].issue_id}" if len(way) > 1 else ""
    others = sum(link.depth == 0 for link in links) - 1
    more = f" (and for {others} more)" if others else ""
    return f"it waits for {links[0].issue_id}{below}, which is {way[-1].state}{more}"


def _closed(seen: Seen, picture: Picture) -> Reason:
    at = epoch(seen.closed_at)
    when = f" at {picture.clock(at)}" if at is not None else ""
    reason = f": {seen.close_reason}" if seen.close_reason else ""
    who = f" (last assigned to {seen.assignee})" if seen.assignee else ""
    again = f"'beads-workers reopen {seen.issue_id}' opens it again"
    return Reason(Cause.CLOSED, f"closed{when}{reason}{who}", again)


def _by_the_tracker(seen: Seen, picture: Picture, *, marked: bool) -> list[Reason]:
    """Return the tracker's reasons.

    ``marked``: another reason already explains why it is out of the backlog.
    """
    found = []
    if seen.status == "in_progress":
        found.append(_in_progress(seen, picture))
    elif seen.assignee:
        text = f"assigned to {seen.assignee}: left to them"
        found.append(Reason(Cause.ASSIGNED, text, "clear the assignee in the tracker"))
    found += _blocked(seen, picture)
    later = _later(seen, picture)
    if seen.hidden_by:
        text = f"it is {seen.hidden_by}: kept beside the backlog, and no work"
        found.append(Reason(Cause.STATUS, text, f"take {seen.hidden_by!r} off in the tracker"))
    if later:
        found += later
    elif seen.status == "deferred":
        found.append(Reason(Cause.DEFERRED, "deferred", "undefer it in the tracker"))
    elif seen.status not in ("open", "in_progress") and not marked:
        text = f"its status is {seen.status}: somebody took it out of the backlog"
        found.append(Reason(Cause.STATUS, text, "set its status to open in the tracker"))
    return found


def _later(seen: Seen, picture: Picture) -> list[Reason]:
    """Return reasons for an issue that is, or whose parent is, deferred until a later time."""
    above = [picture.seen[i] for i in seen.parents if i in picture.seen]
    found = []
    for each in (seen, *above):
        until = epoch(each.deferred_until)
        if until is not None and until > picture.now:
            whose = "" if each is seen else f"its parent {each.issue_id} is "
            text = f"{whose}deferred until {picture.at(until - picture.now)}"
            remedy = "wait, or undefer it in the tracker"
            found.append(Reason(Cause.DEFERRED, text, remedy, (), until))
    return found


def _in_progress(seen: Seen, picture: Picture) -> Reason:
    release = f"'beads-workers release {shlex.quote(seen.issue_id)}'"
    if not seen.assignee:
        remedy = f"if nobody works on it: {release}"
        return Reason(Cause.IN_PROGRESS, "in progress, in nobody's name", remedy)
    text = f"in progress by {seen.assignee}"
    words = seen.assignee.split("/")
    if words[0] != "beads-workers":
        remedy = f"{seen.assignee} finishes it; if nobody works on it: {release}"
        return Reason(Cause.IN_PROGRESS, text, remedy)
    if picture.facts.run_id in words[1:]:
        if picture.has_fleet:
            return Reason(Cause.IN_PROGRESS, "claimed by this fleet just now", "nothing to do")
        remedy = "the next 'beads-workers start' requeues it first"
        return Reason(Cause.IN_PROGRESS, f"{text}: held by a run that has ended", remedy)
    remedy = (
        "another run has it, here or elsewhere: if that run is over, its own next start requeues"
        f" it; 'beads-workers release --abandoned {shlex.quote(seen.issue_id)}' does it now"
    )
    return Reason(Cause.IN_PROGRESS, text, remedy)


def _blocked(seen: Seen, picture: Picture) -> list[Reason]:
    path: frozenset[IssueId] = frozenset({seen.issue_id})
    above = [i for i in seen.parents if is_held_up(i, picture, path)]
    direct = blockers(seen, picture)
    found = []
    if circle := cycle(seen.issue_id, picture):
        text = f"a cycle: {' waits for '.join(circle)}"
        remedy = "take one of these dependencies away in the tracker"
        found.append(Reason(Cause.CYCLE, text, remedy, tuple(circle[:-1])))
    if direct:
        roots = [link for link in chain(seen.issue_id, picture) if not _waits(link, picture)]
        first = ", ".join(dict.fromkeys(link.issue_id for link in roots if link.depth))
        remedy = f"it is ready when {_all(direct)} closed"
        remedy += f"; first of all: {first}" if first else ""
        text = f"blocked by {', '.join(direct)}"
        found.append(Reason(Cause.BLOCKED, text, remedy, tuple(direct)))
    if above:
        text = f"its parent {', '.join(above)} waits for something"
        remedy = "what holds the parent back holds it back, too"
        found.append(Reason(Cause.BLOCKED, text, remedy, tuple(above)))
    return found


def _waits(link: Link, picture: Picture) -> bool:
    return bool(blockers(picture.seen[link.issue_id], picture))


def _all(ids: list[IssueId]) -> str:
    return f"{ids[0]} is" if len(ids) == 1 else f"all of {', '.join(ids)} are"


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
    seen: Seen | None,
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
