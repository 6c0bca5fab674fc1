"""All reasons why one issue does not run, in their order; and those that the tracker knows.

``reasons`` has the scheduler's side.
"""

from __future__ import annotations

from beads_workers.core.jobs import IssueId
from beads_workers.core.source import Seen
from beads_workers.core.why.facts import IssueFacts
from beads_workers.core.why.filtered import filtered
from beads_workers.core.why.reasons import (
    Cause,
    Picture,
    Reason,
    epoch,
    in_our_hands,
    its_turn,
    of_the_fleet,
    remembered,
)
from beads_workers.core.why.waiting import FINISHED, Link, blockers, chain, cycle, is_held_up

OF_THE_FLEET = (
    Cause.NO_FLEET,
    Cause.RECOVERING,
    Cause.PAUSED,
    Cause.DRAINING,
    Cause.STOPPING,
    Cause.TRACKER,
    Cause.LIMIT,
    Cause.NO_WORKERS,
    Cause.BUSY,
    Cause.BEHIND,
)
"""Causes that lie with the fleet and not with the issue: it is ready."""


def explain(issue_id: IssueId, picture: Picture) -> list[Reason]:
    """Every reason that holds, the most decisive first; never empty."""
    facts = picture.known.get(issue_id, IssueFacts(issue_id))
    seen = picture.seen.get(issue_id)
    ours = in_our_hands(facts, picture)
    if seen is None and not picture.unseen:
        change = "check the id; 'beads-workers list' or 'bd list' shows what there is"
        return [Reason(Cause.NOT_FOUND, "the tracker has no issue of that id", change)]
    if seen is not None and seen.status in FINISHED:
        return [_closed(seen, picture)]
    if ours:
        return ours
    marks = remembered(issue_id, facts, picture)
    if seen is not None and seen.status == "open":
        # A person has opened it again, which gives it new attempts.
        marks = [m for m in marks if m.cause is not Cause.SET_ASIDE]
    own = [m for m in marks if m.cause in (Cause.SET_ASIDE, Cause.TAKEN_AWAY)]
    found = [*own]
    if seen is not None:
        found += _by_the_tracker(seen, picture, marked=bool(own))
        found += filtered(seen, picture)
    found += [m for m in marks if m not in own]
    single = bool(found)
    found += of_the_fleet(picture)
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
    """The most decisive reason in one sentence."""
    first = reasons[0]
    if first.cause in OF_THE_FLEET and issue_id in picture.seen:
        return f"ready, but {first.text}"
    links = chain(issue_id, picture) if first.cause is Cause.BLOCKED else []
    if not links:
        return first.text
    # Down the first way to what has to happen first.
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
    return Reason(Cause.CLOSED, f"closed{when}{reason}{who}", "open it again in the tracker")


def _by_the_tracker(seen: Seen, picture: Picture, *, marked: bool) -> list[Reason]:
    """``marked``: it is known already why it is out of the backlog."""
    found = []
    if seen.status == "in_progress":
        found.append(_in_progress(seen, picture))
    elif seen.assignee:
        text = f"assigned to {seen.assignee}: left to them"
        found.append(Reason(Cause.ASSIGNED, text, "clear the assignee in the tracker"))
    found += _blocked(seen, picture)
    until = epoch(seen.deferred_until)
    if until is not None and until > picture.now:
        text = f"deferred until {picture.at(until - picture.now)}"
        found.append(Reason(Cause.DEFERRED, text, "wait, or undefer it in the tracker", (), until))
    elif seen.status == "deferred":
        found.append(Reason(Cause.DEFERRED, "deferred", "undefer it in the tracker"))
    elif seen.status not in ("open", "in_progress") and not marked:
        text = f"its status is {seen.status}: somebody took it out of the backlog"
        found.append(Reason(Cause.STATUS, text, "set its status to open in the tracker"))
    return found


def _in_progress(seen: Seen, picture: Picture) -> Reason:
    if not seen.assignee:
        change = "set its status to open in the tracker, if nobody works on it"
        return Reason(Cause.IN_PROGRESS, "in progress, in nobody's name", change)
    text = f"in progress by {seen.assignee}"
    words = seen.assignee.split("/")
    if words[0] != "beads-workers":
        return Reason(Cause.IN_PROGRESS, text, f"{seen.assignee} finishes it, or gives it back")
    if picture.facts.run_id in words[1:]:
        if picture.has_fleet:
            return Reason(Cause.IN_PROGRESS, "claimed by this fleet just now", "nothing to do")
        change = "the next 'beads-workers start' gives it back first"
        return Reason(Cause.IN_PROGRESS, f"{text}: held by a run that has ended", change)
    change = "that is another fleet, or one that died: its own next start gives it back"
    return Reason(Cause.IN_PROGRESS, text, change)


def _blocked(seen: Seen, picture: Picture) -> list[Reason]:
    path: frozenset[IssueId] = frozenset({seen.issue_id})
    above = [i for i in seen.parents if is_held_up(i, picture, path)]
    direct = blockers(seen, picture)
    found = []
    if circle := cycle(seen.issue_id, picture):
        text = f"a cycle: {' waits for '.join(circle)}"
        change = "take one of these dependencies away in the tracker"
        found.append(Reason(Cause.CYCLE, text, change, tuple(circle[:-1])))
    if direct:
        roots = [link for link in chain(seen.issue_id, picture) if not _waits(link, picture)]
        first = ", ".join(dict.fromkeys(link.issue_id for link in roots if link.depth))
        change = f"it is ready when {_all(direct)} closed"
        change += f"; first of all: {first}" if first else ""
        text = f"blocked by {', '.join(direct)}"
        found.append(Reason(Cause.BLOCKED, text, change, tuple(direct)))
    if above:
        text = f"its parent {', '.join(above)} waits for something"
        change = "what holds the parent back holds it back, too"
        found.append(Reason(Cause.BLOCKED, text, change, tuple(above)))
    return found


def _waits(link: Link, picture: Picture) -> bool:
    return bool(blockers(picture.seen[link.issue_id], picture))


def _all(ids: list[IssueId]) -> str:
    return f"{ids[0]} is" if len(ids) == 1 else f"all of {', '.join(ids)} are"
