"""``why`` for people: reasons as plain lines. Pure but for the time zone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from beads_workers.core.source import Seen
from beads_workers.core.text import printable
from beads_workers.core.why.overview import Overview, when
from beads_workers.core.why.reasons import Cause, Picture, Reason
from beads_workers.core.why.waiting import Link

TEXT_WIDTH = 400
TITLE_WIDTH = 60
DAY_SECONDS = 86_400

GROUPS = {
    Cause.RUNNING: "running",
    Cause.LOST: "with a lost worker",
    Cause.HANDING: "being handed over",
    Cause.QUEUED: "claimed, next for a worker",
    Cause.NOT_CLOSED: "done, not closed yet",
    Cause.SETTLING: "being given back",
    Cause.TAKEN_AWAY: "taken away by a person",
    Cause.SET_ASIDE: "set aside",
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
"""What a group of issues is called; everything that lies with the fleet is ``ready``."""


def clock_at(at: float, now: float) -> str:
    """``14:03:20`` here, with the date where that is another day or far away."""
    there = time.localtime(at)
    near = abs(at - now) < DAY_SECONDS and there.tm_yday == time.localtime(now).tm_yday
    return time.strftime("%H:%M:%S" if near else "%Y-%m-%d %H:%M:%S", there)


def issue_lines(
    issue_id: str,
    seen: Seen | None,
    head: str,
    reasons: Sequence[Reason],
    links: Sequence[Link],
) -> Iterator[str]:
    """The headline, then each reason with what would change it, and what the issue waits for."""
    title = f" {printable(seen.title, TITLE_WIDTH)}" if seen else ""
    yield f"{printable(issue_id)}{title}"
    yield f"  {printable(head, TEXT_WIDTH)}"
    yield from _change(reasons[0])
    yield from _chain(links)
    for reason in reasons[1:]:
        if reason.cause is not Cause.NO_FLEET:  # It was said before everything else.
            yield f"also: {printable(reason.text, TEXT_WIDTH)}"
            yield from _change(reason)


def _change(reason: Reason) -> Iterator[str]:
    if reason.change:
        yield f"  -> {printable(reason.change, TEXT_WIDTH)}"


def _chain(links: Sequence[Link]) -> Iterator[str]:
    for link in links:
        name = f"{printable(link.issue_id)} {printable(link.title, TITLE_WIDTH)}"
        yield f"     {'   ' * link.depth}waits for {name}: {printable(link.state, TEXT_WIDTH)}"


def overview_lines(found: Overview, picture: Picture) -> Iterator[str]:
    """The fleet, the backlog by reason, and what comes next."""
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
