"""The backlog: every issue of a tracker by its state, each with its reason. Pure.

    found = backlog(picture, [seen.issue_id for seen in listed])
    found.counts[State.READY]
    for group in found.groups:          # quarantined issues: a group for each cause
        group.state, group.cause, [row.issue_id for row in group.rows]

``list --status``, the dashboard and the live page draw this model; ``as_json`` is its JSON. Which
state an issue is in follows from its most decisive reason, as ``why`` gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from types import MappingProxyType
from typing import Any

from beads_workers.core.causes import folded
from beads_workers.core.facts import IssueFacts
from beads_workers.core.model import PRIORITY_DEFAULT, IssueId, value
from beads_workers.core.source import Seen
from beads_workers.ui.reasons import Cause, Picture, Reason, blockers, epoch
from beads_workers.ui.why import OF_THE_FLEET, explain


class State(Enum):
    """States of issues, in the order of their groups: the first two wait for a person."""

    NEEDS_YOU = "needs_you"
    QUARANTINED = "quarantined"
    RUNNING = "running"
    LANDING = "landing"
    RETRYING = "retrying"
    READY = "ready"
    BLOCKED = "blocked"
    LEFT_ALONE = "left_alone"
    CLOSED = "closed"


TITLES = {
    State.NEEDS_YOU: "needs you",
    State.QUARANTINED: "quarantined",
    State.RUNNING: "in progress",
    State.LANDING: "done, and on the way in",
    State.RETRYING: "waiting for a retry",
    State.READY: "ready",
    State.BLOCKED: "blocked",
    State.LEFT_ALONE: "left alone",
    State.CLOSED: "closed",
}

_STATES = {
    Cause.ASKED: State.NEEDS_YOU,
    Cause.AWAITS_APPROVAL: State.NEEDS_YOU,
    Cause.QUARANTINED: State.QUARANTINED,
    Cause.RUNNING: State.RUNNING,
    Cause.LOST: State.RUNNING,
    Cause.DELEGATING: State.RUNNING,
    Cause.QUEUED: State.RUNNING,
    Cause.IN_PROGRESS: State.RUNNING,
    Cause.SETTLING: State.RUNNING,
    Cause.WAITING_TO_LAND: State.LANDING,
    Cause.UNCLOSED: State.LANDING,
    Cause.COOLING: State.RETRYING,
    Cause.DUE: State.READY,
    Cause.CYCLE: State.BLOCKED,
    Cause.BLOCKED: State.BLOCKED,
    Cause.CLOSED: State.CLOSED,
    **dict.fromkeys(OF_THE_FLEET, State.READY),
}
"""The state that a reason puts an issue in. All other reasons leave it alone."""


@value
class Row:
    """An issue of a backlog.

    ``cause`` and ``text``: its most decisive reason, for programs and for people; ``remedy``: what
    would end it. ``error``: of its last attempt. ``at``: epoch seconds since which it runs, from
    which it may be taken, or at which it was closed; None if nothing says so. ``attempts``: those
    that count; for a running issue, the number of this one.
    """

    issue_id: str
    title: str
    state: State
    cause: Cause
    text: str
    remedy: str = ""
    priority: int = PRIORITY_DEFAULT
    blocked_by: tuple[str, ...] = ()
    at: float | None = None
    attempts: int = 0
    error: str = ""
    worker_id: str = ""


@value
class Group:
    """Issues of one state; quarantined ones: of one cause, which is "" for all other groups."""

    state: State
    cause: str
    rows: tuple[Row, ...]


@value
class Backlog:
    """All issues by state. ``cut``: there are more, less urgent ones. ``unseen``: why the tracker
    could not be read, "" if it was: then only the issues are there that the fleet remembers."""

    groups: tuple[Group, ...]
    cut: bool = False
    unseen: str = ""

    @property
    def counts(self) -> dict[State, int]:
        """The number of issues of each state, also of those without any."""
        counts = dict.fromkeys(State, 0)
        for group in self.groups:
            counts[group.state] += len(group.rows)
        return counts

    def rows(self) -> Iterator[Row]:
        """Yield all issues in the order of their groups."""
        for group in self.groups:
            yield from group.rows


Order = Callable[[Row], Any]

ORDERS: Mapping[str, Order] = {
    "priority": lambda row: row.priority,
    "time": lambda row: row.at if row.at is not None else float("inf"),
    "id": lambda row: row.issue_id,
    "title": lambda row: row.title.casefold(),
}
"""Orders of the issues of a group, by name; the first one is the usual one."""


def backlog(
    picture: Picture,
    issue_ids: Iterable[IssueId],
    *,
    cut: bool = False,
    titles: Mapping[str, str] = MappingProxyType({}),
) -> Backlog:
    """Sort these issues by state, and those that the fleet has beside them.

    ``picture``: the facts of the fleet, and the tracker's listing (``Picture.seen``, ``ready``).
    ``titles``: of issues that are not in the listing, as far as they are known.
    """
    listed = dict.fromkeys(issue_ids)
    rows = [_row(each, picture, "") for each in listed]
    beside = replace(picture, unseen=picture.unseen or "not listed")
    for each in picture.facts.issues:
        # What the fleet claimed after the listing; without a listing, all that it remembers.
        if each.issue_id not in listed and (picture.unseen or each.in_flight):
            title = titles.get(each.issue_id, "")
            rows.append(_row(IssueId(each.issue_id), beside, title))
    return grouped(rows, cut=cut, unseen=picture.unseen)


def grouped(
    rows: Iterable[Row], order: str = "", *, cut: bool = False, unseen: str = ""
) -> Backlog:
    """Return the backlog of these rows; ``order``: of ``ORDERS``, "" for the first one."""
    by_state: dict[State, list[Row]] = {}
    for row in sorted(rows, key=ORDERS[order or "priority"]):
        by_state.setdefault(row.state, []).append(row)
    groups: list[Group] = []
    for state in State:
        here = by_state.get(state, [])
        causes = [("", here)] if here else []
        if state is State.QUARANTINED:
            causes = folded(here, lambda row: row.error, lambda row: row.issue_id)
        groups += [Group(state, cause, tuple(alike)) for cause, alike in causes]
    return Backlog(tuple(groups), cut, unseen)


def _row(issue_id: IssueId, picture: Picture, title: str) -> Row:
    reason = explain(issue_id, picture)[0]
    facts = picture.known.get(issue_id, IssueFacts(issue_id))
    seen = picture.seen.get(issue_id)
    state = _state(reason, seen)
    waits_for = blockers(seen, picture) if seen else []
    running = state is State.RUNNING and facts.running_seconds is not None
    return Row(
        issue_id,
        seen.title if seen else title,
        state,
        reason.cause,
        reason.text,
        reason.remedy,
        seen.priority if seen else PRIORITY_DEFAULT,
        tuple(waits_for or reason.issue_ids) if state is State.BLOCKED else (),
        picture.now - (facts.running_seconds or 0.0) if running else _at(reason, seen),
        facts.attempt if running else facts.charged,
        facts.error,
        facts.worker_id if running else "",
    )


def _state(reason: Reason, seen: Seen | None) -> State:
    if reason.cause is Cause.STATUS and seen is not None and seen.status == "blocked":
        return State.BLOCKED  # A person said so, and named no issue.
    return _STATES.get(reason.cause, State.LEFT_ALONE)


def _at(reason: Reason, seen: Seen | None) -> float | None:
    if reason.cause is Cause.CLOSED and seen is not None:
        return epoch(seen.closed_at)
    return reason.until if reason.cause in (Cause.COOLING, Cause.DEFERRED) else None


def as_json(found: Backlog) -> dict[str, Any]:
    """Return the JSON of a backlog, as docs/CLI.md describes it. Additive changes only."""
    return {
        "counts": {state.value: count for state, count in found.counts.items()},
        "cut": found.cut,
        "unseen": found.unseen or None,
        "groups": [
            {
                "state": group.state.value,
                "cause": group.cause or None,
                "count": len(group.rows),
                "issues": [row_json(row) for row in group.rows],
            }
            for group in found.groups
        ],
    }


def row_json(row: Row) -> dict[str, Any]:
    """Return the JSON of an issue."""
    return {
        "issue_id": row.issue_id,
        "title": row.title,
        "state": row.state.value,
        "reason": row.cause.value,
        "text": row.text,
        "remedy": row.remedy,
        "priority": row.priority,
        "blocked_by": list(row.blocked_by),
        "at": None if row.at is None else round(row.at, 3),
        "attempts": row.attempts,
        "error": row.error,
        "worker_id": row.worker_id or None,
    }
