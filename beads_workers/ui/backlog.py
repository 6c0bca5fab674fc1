"""The backlog: every issue of a tracker by its state, each with its reason. Pure.

    found = backlog(picture, [seen.issue_id for seen in listed])
    found.counts[State.READY]
    for group in found.groups:          # quarantined issues: a group for each cause
        group.state, group.cause, [row.issue_id for row in group.rows]

``list --status``, the dashboard and the live page draw this model; ``as_json`` is its JSON. Which
state an issue is in follows from its most decisive reason, as ``why`` gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from types import MappingProxyType
from typing import Any

from beads_workers.core.base.causes import OBJECT, ROW, cause_of, folded
from beads_workers.core.base.facts import IssueFacts
from beads_workers.core.base.model import PRIORITY_DEFAULT, IssueId, value
from beads_workers.core.base.source import TrackedIssue
from beads_workers.core.base.text import columns, counted, in_counting_order, printable
from beads_workers.ui.reasons import OF_THE_FLEET, Cause, Picture, Reason, blockers, epoch, explain
from beads_workers.ui.time_text import clock, duration
from beads_workers.ui.words import DID_NOT_LAND, ORDER_NAMES, STATE_TITLES, State

_STATES = {
    Cause.ASKED: State.NEEDS_YOU,
    Cause.AWAITS_APPROVAL: State.NEEDS_YOU,
    Cause.OCCUPIED: State.NEEDS_YOU,
    Cause.QUARANTINED: State.QUARANTINED,
    Cause.RUNNING: State.RUNNING,
    Cause.LOST: State.RUNNING,
    Cause.DELEGATING: State.RUNNING,
    Cause.QUEUED: State.READY,
    Cause.IN_PROGRESS: State.RUNNING,
    Cause.SETTLING: State.RUNNING,
    Cause.WAITING_TO_LAND: State.LANDING,
    Cause.IN_REVIEW: State.LANDING,
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
class IssueRow:
    """An issue of a backlog."""

    issue_id: str
    title: str
    state: State
    # Its most decisive reason: ``cause`` for programs, ``text`` for people.
    cause: Cause
    text: str
    # What would end that reason.
    remedy: str = ""
    # None if it is not known.
    priority: int | None = None
    blocked_by: tuple[str, ...] = ()
    # Epoch seconds since which it runs, from which it may be taken, or at which it was closed; None
    # if nothing says so.
    at: float | None = None
    # Number of the attempts that count; for a running issue, the number of this one.
    attempts: int = 0
    # The error of its last attempt.
    error: str = ""
    worker_id: str = ""


@value
class Group:
    """Issues of one state; quarantined ones: of one cause, which is "" for all other groups."""

    state: State
    cause: str
    rows: tuple[IssueRow, ...]


@value
class IssueBacklog:
    """All issues by state."""

    groups: tuple[Group, ...]
    # There are more, less urgent ones.
    cut: bool = False
    # Why the tracker could not be read; "" if it was. If it could not, only the issues are there
    # that the fleet remembers.
    unseen: str = ""
    # Epoch seconds at which the tracker was asked; None if it was not.
    listed_at: float | None = None

    @property
    def counts(self) -> dict[State, int]:
        """The number of issues of each state, also of those without any."""
        counts = dict.fromkeys(State, 0)
        for group in self.groups:
            counts[group.state] += len(group.rows)
        return counts

    def rows(self) -> Iterator[IssueRow]:
        """Yield all issues in the order of their groups."""
        for group in self.groups:
            yield from group.rows


Order = Callable[[IssueRow], Any]

_ORDERS: tuple[Order, ...] = (
    lambda row: PRIORITY_DEFAULT if row.priority is None else row.priority,
    lambda row: row.at if row.at is not None else float("inf"),
    lambda row: in_counting_order(row.issue_id),
    lambda row: row.title.casefold(),
)
ORDERS: Mapping[str, Order] = dict(zip(ORDER_NAMES, _ORDERS, strict=True))
"""Orders of the issues of a group, by name; the first one is the usual one."""


def backlog(
    picture: Picture,
    issue_ids: Iterable[IssueId],
    *,
    cut: bool = False,
    listed_at: float | None = None,
    titles: Mapping[str, str] = MappingProxyType({}),
) -> IssueBacklog:
    """Sort these issues by state, and those that the fleet has beside them.

    ``picture``: the facts of the fleet, and the tracker's listing (``Picture.seen``, ``ready``).
    ``listed_at``: when the tracker was asked, if not for this picture. ``titles``: of issues that
    are not in the listing, as far as they are known.
    """
    listed = dict.fromkeys(issue_ids)
    rows = [_row(each, picture, "") for each in listed]
    beside = replace(picture, unseen=picture.unseen or "not listed")
    for each in picture.facts.issues:
        # What the fleet claimed after the listing; without a listing, all that it remembers.
        if each.issue_id in listed or not (each.in_flight or each.standing):
            continue
        if each.in_flight or picture.unseen or picture.is_pushed:
            title = titles.get(each.issue_id, "")
            rows.append(_row(IssueId(each.issue_id), beside, title))
    return IssueBacklog(grouped(rows), cut, picture.unseen, listed_at or picture.now)


def grouped(rows: Iterable[IssueRow], order: str = "") -> tuple[Group, ...]:
    """Return these rows in their groups; ``order``: of ``ORDERS``, "" for the first one."""
    by_state: dict[State, list[IssueRow]] = {}
    for row in sorted(rows, key=ORDERS[order or "priority"]):
        by_state.setdefault(row.state, []).append(row)
    groups: list[Group] = []
    for state in State:
        here = by_state.get(state, [])
        causes = [("", here)] if here else []
        if state is State.QUARANTINED:
            causes = folded(here, OBJECT)
        groups += [Group(state, cause, tuple(alike)) for cause, alike in causes]
    return tuple(groups)


def _row(issue_id: IssueId, picture: Picture, title: str) -> IssueRow:
    reason = explain(issue_id, picture)[0]
    facts = picture.known.get(issue_id, IssueFacts(issue_id))
    seen = picture.seen.get(issue_id)
    state = _state(reason, seen)
    waits_for = blockers(seen, picture) if seen else []
    running = state is State.RUNNING and facts.running_seconds is not None
    return IssueRow(
        issue_id,
        seen.title if seen else title,
        state,
        reason.cause,
        reason.text,
        reason.remedy,
        seen.priority if seen else None,
        tuple(waits_for or reason.issue_ids) if state is State.BLOCKED else (),
        picture.now - (facts.running_seconds or 0.0) if running else _at(reason, seen),
        facts.attempt if running else facts.charged,
        facts.error,
        facts.worker_id if running else "",
    )


def _state(reason: Reason, seen: TrackedIssue | None) -> State:
    if reason.cause is Cause.STATUS and seen is not None and seen.status == "blocked":
        return State.BLOCKED  # A person said so, and named no issue.
    return _STATES.get(reason.cause, State.LEFT_ALONE)


def _at(reason: Reason, seen: TrackedIssue | None) -> float | None:
    if reason.cause is Cause.CLOSED and seen is not None:
        return epoch(seen.closed_at)
    return reason.until if reason.cause in (Cause.COOLING, Cause.DEFERRED) else None


def of_snapshot(snapshot: Mapping[str, Any]) -> IssueBacklog:
    """Return the issues that a snapshot (``status --json``) names: what is known without asking."""
    landing = snapshot["landing"] or {}
    lists = (
        (snapshot["workers"], State.RUNNING, Cause.RUNNING),
        (snapshot["questions"], State.NEEDS_YOU, Cause.ASKED),
        (snapshot["approvals"], State.NEEDS_YOU, Cause.AWAITS_APPROVAL),
        (snapshot["occupied"], State.NEEDS_YOU, Cause.OCCUPIED),
        (landing.get("waiting_to_land", ()), State.LANDING, Cause.WAITING_TO_LAND),
        (landing.get("in_review", ()), State.LANDING, Cause.IN_REVIEW),
        (snapshot["quarantined"], State.QUARANTINED, Cause.QUARANTINED),
    )
    rows = (
        IssueRow(
            row["issue_id"],
            row["title"] or "",
            state,
            cause,
            row.get("worker_id") or STATE_TITLES[state],
            attempts=row.get("attempts") or row.get("attempt") or 0,
            error=row.get("question") or row.get("who") or row.get("error") or "",
            worker_id=row.get("worker_id") or "",
        )
        for named, state, cause in lists
        for row in named
        if row["issue_id"]
    )
    return IssueBacklog(grouped(rows))


def closed_rows(snapshot: Mapping[str, Any]) -> list[IssueRow]:
    """Return the issues that the run of a snapshot closed last, the last one first."""
    landing = snapshot["landing"] or {"last": ()}
    ended = [each for each in snapshot["outcomes"] if each["decision"] == "finish"]
    ended += [each for each in landing["last"] if each["verdict"] == "landed"]
    newest: dict[str, Mapping[str, Any]] = {}
    for each in sorted(ended, key=lambda each: -each["at"]):
        newest.setdefault(each["issue_id"], each)
    closed = State.CLOSED, Cause.CLOSED, "closed"
    return [IssueRow(i, each["title"], *closed, at=each["at"]) for i, each in newest.items()]


def titles_of(snapshot: Mapping[str, Any]) -> dict[str, str]:
    """Return the titles of all issues in a snapshot (``status --json``)."""
    landing = snapshot["landing"] or {}
    lists = (
        *(snapshot[n] for n in ("workers", "outcomes", "quarantined", "questions")),
        *(snapshot[n] for n in ("approvals", "occupied")),
        *(landing.get(name, ()) for name in ("waiting_to_land", "last")),
    )
    return {row["issue_id"]: row["title"] for rows in lists for row in rows if row["issue_id"]}


def as_json(found: IssueBacklog) -> dict[str, Any]:
    """Return the JSON of a backlog, as docs/CLI.md describes it. Additive changes only."""
    return {
        "counts": {state.value: count for state, count in found.counts.items()},
        "cut": found.cut,
        "unseen": found.unseen or None,
        "listed_at": None if found.listed_at is None else round(found.listed_at, 3),
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


def row_json(row: IssueRow) -> dict[str, Any]:
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


# --- entries -------------------------------------------------------------------------------------
# A backlog as a list to choose from: quarantined issues of one cause are one entry, until it is
# opened.


def entries(rows: Iterable[Mapping[str, Any]], unfolded: Collection[str]) -> list[dict[str, Any]]:
    """Return the rows, with quarantined ones below an entry for each cause that several have.

    ``rows``: those of one cause follow each other. ``unfolded``: keys of the entries whose issues
    are listed, too. An entry of several issues has their ``issue_ids``, its cause as ``error`` and
    its ``key``; all else is that of the first issue.
    """
    found: list[dict[str, Any]] = []
    for key, several in groupby(rows, _cause_key):
        alike = list(several)
        if not key or len(alike) == 1:
            found += map(dict, alike)
            continue
        ((cause, _),) = folded(alike, ROW)
        ids = [row["issue_id"] for row in alike]
        found.append({**alike[0], "key": key, "error": cause, "issue_ids": ids})
        if key in unfolded:
            found += [{**row, "below": key} for row in alike]
    return found


def by_cause(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return quarantined rows in the order of their causes, as ``entries`` wants them."""
    causes = folded(rows, ROW)
    return [row for _, alike in causes for row in alike]


def _cause_key(row: Mapping[str, Any]) -> str:
    if row.get("state", State.QUARANTINED.value) != State.QUARANTINED.value or "error" not in row:
        return ""
    return f"cause {cause_of(row['error'], row['issue_id'])}"


def _is_over(row: IssueRow, ended_at: Mapping[str, float], listed_at: float) -> bool:
    """Return whether an issue was closed after the listing that has it in progress, or open."""
    at = ended_at.get(row.issue_id)
    return at is not None and (at >= listed_at or row.cause is Cause.IN_PROGRESS)


def issue_rows(
    known: IssueBacklog | None, snapshot: Mapping[str, Any], order: str
) -> list[dict[str, Any]]:
    """Return all issues as rows, by state and in this order, the last closed ones at the end.

    ``known``: the last answer about the backlog; without one, the snapshot has to do.
    """
    found, closed = known or of_snapshot(snapshot), closed_rows(snapshot)
    # The listing is older than the snapshot, and the tracker hears of a close after its end.
    ended_at = {row.issue_id: row.at or 0.0 for row in closed}
    rows = [row for row in found.rows() if not _is_over(row, ended_at, found.listed_at or 0.0)]
    if order:
        closed.sort(key=ORDERS[order])
    groups = (*grouped(rows, order), Group(State.CLOSED, "", tuple(closed)))
    return [row_json(row) for group in groups for row in group.rows]


# --- text ----------------------------------------------------------------------------------------


TITLE_WIDTH = 50
NOTE_WIDTH = 160


def lines(found: IssueBacklog, now: float) -> Iterator[str]:
    """Yield a heading for each group, and a line for each issue; ``now``: epoch seconds.

    Quarantined issues that are alone with their causes share a heading.
    """
    id_width = max((columns(printable(row.issue_id)) for row in found.rows()), default=0)
    title_width = max((columns(_title(row)) for row in found.rows()), default=0)
    for number, ((state, cause), groups) in enumerate(groupby(found.groups, _shared)):
        if number:
            yield ""
        rows = [row for group in groups for row in group.rows]
        many = f"{STATE_TITLES[state]}: {len(rows)}"
        yield f"{many} x {printable(cause, NOTE_WIDTH)}" if cause else many
        for row in rows:
            note = printable(note_of(row_json(row), now, beside_cause=bool(cause)), NOTE_WIDTH)
            priority = "  " if row.priority is None else f"P{row.priority}"
            cells = f"  {_padded(printable(row.issue_id), id_width)}  {priority}  "
            yield (cells + f"{_padded(_title(row), title_width)}  {note}").rstrip()


def _shared(group: Group) -> tuple[State, str]:
    """Return the heading of a group, which others may share: its state, and a cause of several."""
    return group.state, group.cause if len(group.rows) > 1 else ""


def _title(row: IssueRow) -> str:
    return printable(row.title, TITLE_WIDTH)


def _padded(text: str, width: int) -> str:
    return text + " " * (width - columns(text))


def note_of(row: Mapping[str, Any], now: float, *, beside_cause: bool = False) -> str:
    """Return the reason in a few words, for a line that has the title as well; "" for none.

    ``row``: as ``row_json`` makes it. ``beside_cause``: the line stands below a cause, which need
    not be said again.
    """
    at, error = row["at"], row["error"]
    match State(row["state"]):
        case State.NEEDS_YOU:
            asks = row["reason"] == Cause.ASKED.value
            awaits = row["reason"] == Cause.AWAITS_APPROVAL.value
            return f"asks: {error}" if asks else "awaits approval" if awaits else error
        case State.QUARANTINED:
            tries = counted(row["attempts"], "attempt") if row["attempts"] else DID_NOT_LAND
            return tries if beside_cause else f"{tries}: {error}"
        case State.RUNNING if at is not None:
            again = f", attempt {row['attempts']}" if row["attempts"] > 1 else ""
            return f"{row['worker_id']}, {duration(round(now - at))}{again}"
        case State.RETRYING if at is not None:
            return f"again in {duration(round(max(0.0, at - now)))}: {error}"
        case State.BLOCKED if row["blocked_by"] and row["reason"] == Cause.BLOCKED.value:
            return f"by {', '.join(row['blocked_by'])}"
        case State.READY:
            return "claimed" if row["reason"] == Cause.QUEUED.value else ""
        case State.CLOSED:
            return f"at {clock(at)}" if at is not None else ""
        case _:
            return str(row["text"])
