"""The ``Source`` over ``bd``: claims, what is sure about them, and what must be asked."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from beads_workers.core.base import limits, source
from beads_workers.core.base.limits import TAKEOVER_LOOK_SECONDS
from beads_workers.core.base.model import (
    FLEETS,
    Filters,
    IssueId,
    Job,
    ListedIssue,
    call_of,
    path_of,
)
from beads_workers.core.base.ready import HIDDEN_KEYS, HOLDING
from beads_workers.core.base.traces import KEY
from beads_workers.kinds import CallLog
from beads_workers.trackers.bd import edits
from beads_workers.trackers.bd.calls import BdCalls, BdResult, UnknownOutcome
from beads_workers.trackers.bd.changes import ChangeWatch
from beads_workers.trackers.bd.settlements import SettlementGroup, rounds, whose
from beads_workers.trackers.bd.tracker import (
    CLOSED,
    IDS_PER_CALL_MAX,
    IN_PROGRESS,
    OPEN,
    BdFeatures,
    BdRow,
    BdTracker,
    candidates,
    held_back,
    held_by,
    is_safe_id,
    object_of,
    refusals,
    rows,
    rows_of_group,
    wanted,
)
from beads_workers.trackers.issue import enqueued_at, timeout_of
from beads_workers.trackers.settlement_rules import boot_seconds, other_run, pending

# --- listings ------------------------------------------------------------------------------------
# Ready issues: listings are bounded, but wide enough to find wanted issues; used twice if safe.


HELD_AT_TAKE = 2
"""Take that also looks for issues held by other runs: the first take does not wait for that."""

CLOSE_SECONDS = 4.0
"""Time limit of the last call, in seconds. A fleet waits for 10 s: a ``bd`` that outlives TERM is
killed by then, too."""
REUSE_SECONDS = 2.0
"""Age in seconds up to which a listing may serve several claims, if a claim refuses issues that are
gone."""
WIDER_MAX = 4
"""Number of wider listings, if unwanted rows fill the first; after that all rows are listed."""


@dataclass(slots=True)
class Listing:
    """Untaken candidates of a listing made at ``made`` (monotonic seconds)."""

    rows: list[BdRow]
    more: bool
    made: float
    held: tuple[IssueId, ...] = ()


class Listings:
    """Listings of one source; ``rows_max`` limits the rows asked for at first."""

    def __init__(
        self,
        tracker: BdTracker,
        filters: Filters,
        actor: str,
        rows_max: int,
        reuse_seconds: float = REUSE_SECONDS,
    ) -> None:
        self._tracker = tracker
        self._filters = filters
        self._actor = actor
        self._rows_max = rows_max
        self._reuse_seconds = reuse_seconds
        self._last: Listing | None = None
        self._slack = 0

    def forget(self) -> None:
        """Forget the last listing: after a settlement other issues may be ready."""
        self._last = None

    def ready(self, limit: int, skip: Collection[IssueId]) -> Listing:
        """Return a new listing, or the last one if it is young and still holds ``limit`` rows."""
        if self._last is None or not self._may_reuse(self._last, limit, skip):
            # A failure must not leave the old listing behind.
            self._last = None
            self._last = self._new(limit, skip)
        return self._last

    def _new(self, limit: int, skip: Collection[IssueId]) -> Listing:
        made = time.monotonic()
        needed = self._rows_max + limit
        for _ in range(WIDER_MAX):
            rows_max = needed + len(skip) + 1 + self._slack
            shown = self._tracker.ready(self._filters, rows_max)
            rows = candidates(shown, self._filters, self._actor, skip)
            full = len(shown) >= rows_max
            if not full or len(rows) > needed:
                return Listing(rows, full, made, self._held(shown))
            # Unwanted rows may hide wanted ones; next time, ask for as many more at once.
            self._slack = 2 * (self._slack + len(shown) - len(rows))
        shown = self._tracker.ready(self._filters, 0)
        rows = candidates(shown, self._filters, self._actor, skip)
        return Listing(rows, False, made, self._held(shown))

    def _held(self, shown: Sequence[BdRow]) -> tuple[IssueId, ...]:
        return held_back(shown, self._filters, self._actor)

    def _may_reuse(self, listing: Listing, limit: int, skip: Collection[IssueId]) -> bool:
        # Without compare-and-swap a claim would reopen an issue closed meanwhile.
        if not self._tracker.abilities.compare_and_swap or limit == 0:
            return False
        if time.monotonic() - listing.made > self._reuse_seconds:
            return False
        return sum(row.issue_id not in skip for row in listing.rows) >= limit


# --- leases --------------------------------------------------------------------------------------
# Claims of this source in ``bd``, and until when nobody else can have them.
#
# ``bd`` lets a claim lapse after some minutes; then anybody's ``bd reclaim`` gives the issue back
# to the backlog. A lease is measured on our own boot clock, from before the claim was asked for, by
# the lifetime that ``bd`` names. So no two clocks have to agree.


LIFE_SECONDS = 300.0
"""Lifetime of a lease of ``bd`` 1.x that does not name it, in seconds."""

LIFE_SECONDS_MAX = 366 * 86_400.0
"""Longest lifetime. Times that are further apart, or in the wrong order, do not count: a zero date,
for instance."""


class ClaimedIssues:
    """All issues that were claimed here and not written since."""

    def __init__(self) -> None:
        self._claims: dict[IssueId, source.Lease] = {}

    def claimed(self, rows: Mapping[IssueId, BdRow], began: float) -> tuple[source.Lease, ...]:
        """Add issues that have just been claimed; return the leases that must be renewed."""
        for issue_id, row in rows.items():
            self._claims[issue_id] = source.Lease(issue_id, began, began + _life(row))
        return tuple(
            self._claims[i] for i, row in rows.items() if "lease_expires_at" in row.original
        )

    def renewed(self, issue_id: IssueId, began: float) -> source.Lease:
        """Renew the lease of an issue, and return it."""
        last = self._claims.get(issue_id)
        life = last.ends - last.began if last else LIFE_SECONDS
        self._claims[issue_id] = lease = source.Lease(issue_id, began, began + life)
        return lease

    def forget(self, issue_ids: Iterable[IssueId]) -> None:
        """Forget issues that may have been written: only a look or a new claim tells their state
        now."""
        for issue_id in issue_ids:
            self._claims.pop(issue_id, None)

    def is_known(self, issue_id: IssueId) -> bool:
        """Return whether the issue is in progress in our name, unless somebody has taken it
        since."""
        return issue_id in self._claims

    def is_sure(self, issue_id: IssueId) -> bool:
        """Return whether nobody can have taken the issue, nor can before a call that begins now has
        ended."""
        lease = self._claims.get(issue_id)
        return lease is not None and lease.ends - boot_seconds() > limits.LEASE_SURE_SECONDS


def renew(
    tracker: BdTracker, actor: str, leases: ClaimedIssues, issue_ids: Sequence[IssueId]
) -> source.Renewed:
    """Renew leases by one call for each, and one look at all that were refused."""
    kept, refused = [], []
    for issue_id in filter(is_safe_id, issue_ids):
        began = boot_seconds()
        if tracker.ask(["heartbeat", "--json", "--", issue_id], ids=1).status == 0:
            kept.append(leases.renewed(issue_id, began))
        else:
            refused.append(IssueId(issue_id))
    seen = tracker.look(refused) if refused else {}
    lost = [i for i in refused if not _still_ours(seen.get(i), actor)]
    leases.forget(lost)
    return source.Renewed(tuple(kept), tuple(source.Lost(i, _why(seen.get(i))) for i in lost))


def reclaim(tracker: BdTracker, actor: str, now: float) -> tuple[source.Lost, ...]:
    """Requeue issues that other fleets have left; ``now``: seconds since the epoch.

    Only claims of other runs of ours whose lease has expired, never a person's; ``bd`` itself
    checks that again.
    """
    rows = [row for row in tracker.in_progress() if _is_abandoned(row, actor, now)]
    freed: list[source.Lost] = []
    for start in range(0, len(rows), IDS_PER_CALL_MAX):
        part = rows[start : start + IDS_PER_CALL_MAX]
        holders = dict.fromkeys(row.assignee for row in part)
        arguments = ["reclaim", "--json", f"--older-than={limits.TAKEOVER_SECONDS:g}s"]
        arguments += [f"--id={row.issue_id}" for row in part]
        arguments += [f"--assignee={holder}" for holder in holders]
        entries = object_of(tracker.ask(arguments, ids=len(part))).get("reclaimed")
        freed += [source.Lost(i, f"the lease of {by} was over") for i, by in _freed(entries)]
    return tuple(freed)


def _freed(entries: object) -> list[tuple[IssueId, str]]:
    named = [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
    pairs = [(str(e.get("id")), str(e.get("previous_owner"))) for e in named]
    return [(IssueId(issue_id), owner) for issue_id, owner in pairs if is_safe_id(issue_id)]


def _is_abandoned(row: BdRow, actor: str, now: float) -> bool:
    if not row.assignee.startswith(FLEETS) or "," in row.assignee or held_by(row.assignee, actor):
        return False
    ends = _moment(row.original.get("lease_expires_at"))
    return ends is not None and now - ends > limits.TAKEOVER_SECONDS


def held_elsewhere(
    tracker: BdTracker, actor: str, *, shared: bool
) -> tuple[source.HeldElsewhere, ...]:
    """See ``ClaimingSource.held``; leases are only taken over on a shared tracker."""
    others = [row for row in tracker.in_progress() if not held_by(row.assignee, actor)]
    return tuple(_as_held(row, shared=shared) for row in others)


def _as_held(row: BdRow, *, shared: bool) -> source.HeldElsewhere:
    run = other_run(row.assignee)
    leased = bool(run) and shared and _moment(row.original.get("lease_expires_at")) is not None
    return source.HeldElsewhere(row.issue_id, run or row.assignee, leased)


def _life(row: BdRow) -> float:
    began = _moment(row.original.get("heartbeat_at"))
    ends = _moment(row.original.get("lease_expires_at"))
    if began is None or ends is None or not 0 < ends - began <= LIFE_SECONDS_MAX:
        return LIFE_SECONDS
    return ends - began


def _moment(text: object) -> float | None:
    """Seconds since the epoch."""
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None
    except (ValueError, OverflowError):
        return None


def _still_ours(row: BdRow | None, actor: str) -> bool:
    return row is not None and row.status == IN_PROGRESS and held_by(row.assignee, actor)


def _why(row: BdRow | None) -> str:
    return whose(row) if row is not None else "the tracker has no such issue"


# --- lookups -------------------------------------------------------------------------------------
# Reading issues for people who ask, without ever writing.
#
# ``bd`` 1.3 lists issues with their dependencies; older ones need ``bd show`` for them.


def look(tracker: BdTracker, issue_ids: Sequence[IssueId]) -> dict[IssueId, source.TrackedIssue]:
    """See ``Source.look``; one or two calls for every hundred issues."""
    seen: dict[IssueId, source.TrackedIssue] = {}
    safe = [issue_id for issue_id in dict.fromkeys(issue_ids) if is_safe_id(issue_id)]
    for start in range(0, len(safe), IDS_PER_CALL_MAX):
        part = safe[start : start + IDS_PER_CALL_MAX]
        # "show" fails if one issue is missing, and takes a part of an id for the whole.
        found = _list(tracker, "--all", "--limit=0", f"--id={','.join(part)}", ids=len(part))
        seen |= {row.issue_id: _seen(row) for row in _with_details(tracker, found)}
    return seen


def unfinished(tracker: BdTracker, rows_max: int) -> list[source.TrackedIssue]:
    """See ``Source.unfinished``."""
    found = _list(tracker, "--sort=priority", f"--limit={rows_max}")
    return [_seen(row) for row in _with_details(tracker, found)]


def ready(tracker: BdTracker) -> frozenset[IssueId]:
    """See ``Source.ready``."""
    brief = ["--brief"] if tracker.abilities.brief else []
    shown = rows(_ask(tracker, "ready", "--json", "--limit=0", *brief))
    return frozenset(row.issue_id for row in shown if row.status == OPEN)


def _with_details(tracker: BdTracker, found: Sequence[BdRow]) -> list[BdRow]:
    """Return the rows of a listing with the parts that this ``bd`` may leave out: dependencies,
    deferral."""
    if tracker.abilities.brief_list:
        return list(found)
    ids = [row.issue_id for row in found]
    shown: list[BdRow] = []
    for start in range(0, len(ids), IDS_PER_CALL_MAX):
        part = ids[start : start + IDS_PER_CALL_MAX]
        shown += rows(_ask(tracker, "show", "--json", *part, ids=len(part)))
    return [row for row in shown if row.issue_id in ids]


def _list(tracker: BdTracker, *arguments: str, ids: int = 0) -> list[BdRow]:
    brief = ["--brief"] if tracker.abilities.brief_list else []
    hidden = tracker.abilities.hidden
    return rows(_ask(tracker, "list", "--json", *hidden, *brief, *arguments, ids=ids))


def _ask(tracker: BdTracker, *arguments: str, ids: int = 0) -> BdResult:
    readonly = ["--readonly"] if tracker.abilities.readonly else []
    return tracker.ask([*arguments, *readonly], ids=ids)


def _seen(row: BdRow) -> source.TrackedIssue:
    fields = row.original
    named = _dependencies(fields)
    parent = fields.get("parent")
    parents = [name for name, kind in named if kind == "parent-child"]
    if isinstance(parent, str) and parent not in parents:
        parents.append(parent)
    return source.TrackedIssue(
        issue_id=row.issue_id,
        title=row.title,
        status=row.status,
        assignee=row.assignee,
        priority=row.priority,
        issue_type=row.issue_type,
        labels=row.labels,
        waits_for=_ids(name for name, kind in named if kind in HOLDING),
        parents=_ids(parents),
        deferred_until=_text(fields, "defer_until"),
        closed_at=_text(fields, "closed_at"),
        close_reason=_text(fields, "close_reason"),
        calls=path_of(fields, row.labels),
    )


def _dependencies(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return id and kind of each dependency, in the form of a listing or of ``bd show``."""
    named = fields.get("dependencies")
    found = [each for each in named if isinstance(each, dict)] if isinstance(named, list) else []
    return [
        (
            _text(each, "depends_on_id") or _text(each, "id"),
            _text(each, "type") or _text(each, "dependency_type") or "blocks",
        )
        for each in found
    ]


def _ids(names: Iterable[str]) -> tuple[IssueId, ...]:
    return tuple(IssueId(name) for name in dict.fromkeys(names) if is_safe_id(name))


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""


# --- source --------------------------------------------------------------------------------------
# The ``Source`` over ``bd``: claims, what is sure about them, and what must be asked.


class BdSource:
    """Takes issues from the ``.beads`` in ``folder`` and requeues them, through ``bd``.

    ``actor`` must be unique to the run. ``listed_max`` bounds listings, in rows. ``environment``
    replaces that of this process; ``call_seconds`` is the limit of a call that names no issue.
    ``shared``: other orchestrators work on this tracker. Then every write is a compare-and-swap,
    and issues they left are taken over when the lease has expired. ``known``: the ``abilities`` of
    another source on the same ``bd``, which saves five calls. ``with_details``: jobs have their
    issues with comments and the results of their dependencies: one call more for twenty claims.
    """

    name = "bd"
    self_claiming = True

    def __init__(
        self,
        folder: Path,
        *,
        actor: str,
        filters: Filters,
        listed_max: int,
        program: str = "bd",
        call_log: CallLog | None = None,
        environment: Mapping[str, str] | None = None,
        call_seconds: float = limits.BD_SECONDS,
        shared: bool = False,
        reuse_seconds: float = REUSE_SECONDS,
        known: BdFeatures | None = None,
        with_details: bool = False,
    ) -> None:
        self.actor = actor
        self.calls = source.Calls()
        runner = BdCalls(program, folder, actor, self.calls, call_log, environment, call_seconds)
        self._tracker = BdTracker(runner, known)
        self._listings = Listings(self._tracker, filters, actor, listed_max, reuse_seconds)
        self._listed_max = listed_max
        self._shared = shared
        self._with_details = with_details
        self._looked_for_others = -TAKEOVER_LOOK_SECONDS
        self._filters = filters
        self._take_count = 0
        self._looked_for_held = boot_seconds()
        self._wrote_since_held = True
        self._claimed_since_look = False
        self._let_go: set[IssueId] = set()
        """Issues settled since the last look: the caller of ``take`` may not know about them
        yet."""
        self._waiting: set[IssueId] | None = None
        """Issues that were open at the last look, and that no listing has shown as ready since."""
        self._blocked: int | None = None
        self._leases = ClaimedIssues()
        self._claims_unanswered: tuple[IssueId, ...] = ()
        self._wrote = False
        self._changes = ChangeWatch(folder / ".beads", actor)
        self._stamp = (0, 0)

    @property
    def abilities(self) -> BdFeatures:
        """Features of this ``bd``, asked once; raises ``SourceError`` as ``describe`` does."""
        return self._tracker.abilities

    @property
    def self_claiming_argv(self) -> tuple[str, ...]:
        """Command line by which a worker that claims and closes by itself calls ``bd``: for
        ``Work.bd_argv``."""
        return self._tracker.self_claiming_argv()

    def describe(self) -> str:
        """Describe the tracker: ``bd 1.3.0, embedded, /path/.beads (prefix x)``."""
        abilities = self._tracker.abilities
        if self._shared and not (abilities.leases and abilities.compare_and_swap):
            raise source.SourceError(
                f"--shared needs bd 1.2 or later, with leases; this is bd {abilities.version}",
                "install a later beads, or leave --shared out",
            )
        return f"bd {abilities.version}, {self._tracker.place()}"

    # --- taking -------------------------------------------------------------------------------

    def take(self, limit: int, skip: Collection[IssueId]) -> source.Taken:
        """Make one listing, and one claim for the group; a second listing if the first shows
        nothing."""
        self._settle_unanswered_claims()
        self._stamp = self._changes.stamp()
        reclaimed = self._reclaim() if self._shared else ()
        listing = self._listings.ready(limit, skip)
        if not (listing.rows or skip) and self._wrote_since_held:
            # Nothing is in hand, so this answer may end the run: it must not be wrong.
            self._listings.forget()
            listing = self._listings.ready(limit, skip)
        found = [row for row in listing.rows if row.issue_id not in skip]
        picked, rest = found[:limit], found[limit:]
        with self._changes.own():
            jobs, leases = self._claim(picked) if picked else ((), ())
        listing.rows = rest
        held = self._look_around(skip, jobs) if self._look_due(limit, found) else None
        return source.Taken(
            jobs=jobs,
            listed=tuple(
                ListedIssue(r.issue_id, r.title, r.priority) for r in rest[: self._listed_max]
            ),
            more=listing.more or len(rest) > self._listed_max,
            leases=leases,
            reclaimed=reclaimed,
            blocked=self._count_blocked(
                (*(row.issue_id for row in found), *skip, *listing.held), complete=not listing.more
            ),
            discovered=listing.held,
            held=held,
            unsure=self._claimed_since_look,
        )

    def changed(self) -> bool:
        """See ``WatchedSource``."""
        before, self._stamp = self._stamp, self._changes.stamp()
        return self._stamp != before

    def _look_due(self, limit: int, found: Sequence[BdRow]) -> bool:
        """Return whether a look is due, which costs a call: at the second take, and if no issue is
        left."""
        self._take_count += 1
        if self._take_count == HELD_AT_TAKE:
            return True
        waited = boot_seconds() - self._looked_for_held >= limits.TAKEOVER_LOOK_SECONDS
        due = waited or self._wrote_since_held or self._shared
        return (due and not found) or (limit == 0 and self._claimed_since_look)

    def _look_around(
        self, skip: Collection[IssueId], jobs: Sequence[Job]
    ) -> tuple[source.HeldElsewhere, ...] | None:
        """Return issues in progress that are not in our hands.

        An issue in our own name that was never reported is requeued by the next take: its claim had
        no answer, or a wrong one. Issues that were claimed just now are reported in any case.
        """
        try:
            # bd 0.44 lists one status at a time, and does not show deferrals.
            counts = self._tracker.abilities.brief_list and self._filters.parent is None
            shown = self._tracker.begun_or_open() if counts else self._tracker.in_progress()
        except source.SourceError:
            if jobs:
                return None
            raise
        self._looked_for_held, self._wrote_since_held = boot_seconds(), False
        self._waiting = {r.issue_id for r in shown if self._may_wait(r)} if counts else None
        known = set(skip) - self._let_go
        self._let_go.clear()
        rows = [r for r in shown if r.status == IN_PROGRESS and r.issue_id not in known]
        rows = [r for r in rows if not self._leases.is_known(r.issue_id)]
        strays = [row.issue_id for row in rows if row.assignee == self.actor]
        self._claims_unanswered = (*self._claims_unanswered, *strays)
        self._claimed_since_look = bool(self._claims_unanswered)
        if any(_is_abandoned(row, self.actor, time.time()) for row in rows):
            self._looked_for_others = -TAKEOVER_LOOK_SECONDS  # The next take frees it.
        if self._filters.parent is not None:
            return None  # This listing does not tell parents and children.
        others = [row for row in rows if row.assignee != self.actor]
        asked = self._filters
        ours = [r for r in others if wanted(replace(r, status=OPEN, assignee=""), asked, "")]
        return tuple(_as_held(row, shared=self._shared) for row in ours)

    def _may_wait(self, row: BdRow) -> bool:
        """Return whether an open issue waits for others, unless a listing shows it as ready."""
        apart = any(row.original.get(key) for key in (*HIDDEN_KEYS, "defer_until"))
        return not apart and wanted(row, self._filters, self.actor)

    def _count_blocked(self, ready: Iterable[IssueId], *, complete: bool) -> int | None:
        """Return how many issues wait for others; None before the first look.

        ``ready``: what is listed or in hand, all of it if ``complete``.
        """
        if self._waiting is not None:
            self._waiting.difference_update(ready)
            self._blocked = len(self._waiting) if complete else self._blocked
        return self._blocked

    def held(self) -> tuple[source.HeldElsewhere, ...]:
        """See ``ClaimingSource``."""
        return held_elsewhere(self._tracker, self.actor, shared=self._shared)

    def _reclaim(self) -> tuple[source.Lost, ...]:
        """Free issues that another orchestrator has left, now and then."""
        now = boot_seconds()
        if now - self._looked_for_others < TAKEOVER_LOOK_SECONDS:
            return ()
        self._looked_for_others = now
        freed = reclaim(self._tracker, self.actor, time.time())
        if freed:
            self._listings.forget()
        return freed

    def _claim(self, picked: Sequence[BdRow]) -> tuple[tuple[Job, ...], tuple[source.Lease, ...]]:
        began = boot_seconds()
        ids = [row.issue_id for row in picked]
        # Until bd has reported the result, any of these may be ours.
        self._claims_unanswered = tuple(ids)
        self._let_go -= set(ids)
        self._wrote = self._wrote_since_held = self._claimed_since_look = True
        try:
            won = self._claimed(picked)
        except source.SourceError as error:
            if isinstance(error, UnknownOutcome) or not error.passing:
                raise
            # Once more at once: if each third call fails, that may be the claim of each round trip.
            self._settle_unanswered_claims()
            if self._claims_unanswered:
                raise
            self._claims_unanswered = tuple(ids)
            won = self._claimed(picked)
        if not self._tracker.abilities.compare_and_swap:
            # This bd reads, then writes: of two claims at once, the last writer wins.
            seen = self._tracker.look([i for i in ids if i in won])
            won = {i: row for i, row in seen.items() if self._is_claimed(row)}
        if self._with_details:
            won = self._completed(won)
        self._claims_unanswered = ()
        leases = self._leases.claimed(won, began)
        return tuple(_job(won[i]) for i in ids if i in won), leases

    def _completed(self, won: Mapping[IssueId, BdRow]) -> dict[IssueId, BdRow]:
        """Complete the rows with all that the tracker knows; fields that the claim printed stay."""
        details = self._tracker.details(list(won))
        return {
            i: replace(row, original={**details[i].original, **row.original, **_nested(details[i])})
            if i in details
            else row
            for i, row in won.items()
        }

    def _claimed(self, picked: Sequence[BdRow]) -> dict[IssueId, BdRow]:
        ids = [row.issue_id for row in picked]
        if not self._tracker.abilities.compare_and_swap:
            self._unassign([row.issue_id for row in picked if row.assignee])
        answer = self._tracker.ask(["update", "--json", "--claim", "--", *ids], ids=len(ids))
        rows = rows_of_group(answer)
        refused = refusals(answer)
        if not rows and refused and not any(refusal.lost for refusal in refused):
            raise source.SourceError(
                f"bd update --claim: {refused[0].error}", "see what bd doctor says"
            )
        return {r.issue_id: r for r in rows if r.issue_id in ids and self._is_claimed(r)}

    def _unassign(self, issue_ids: Sequence[IssueId]) -> None:
        """Remove the assignee: ``bd`` 0.x refuses to claim assigned issues, even our own."""
        if issue_ids:
            arguments = ["update", "--json", "--assignee=", "--", *issue_ids]
            rows_of_group(self._tracker.ask(arguments, ids=len(issue_ids)))

    def _is_claimed(self, row: BdRow) -> bool:
        return row.status == IN_PROGRESS and row.assignee == self.actor

    def _settle_unanswered_claims(self) -> None:
        """Requeue the issues of a claim without an answer, which may have been done."""
        if not self._claims_unanswered:
            return
        self._claimed_since_look = True
        seen = self._tracker.look(self._claims_unanswered)
        ours = [i for i, row in seen.items() if held_by(row.assignee, self.actor)]
        answers = self.settle(
            [source.Settlement(source.Action.RELEASE, i, read_first=True) for i in ours]
        )
        left = [a.settlement.issue_id for a in answers if a.result is source.Result.FAILED]
        self._claims_unanswered = tuple(left)

    # --- settling -----------------------------------------------------------------------------

    def settle(self, settlements: Sequence[source.Settlement]) -> list[source.Settled]:
        """See ``Source``; reads issues that are not sure, and makes one call for each kind of
        write."""
        answers: dict[int, source.Settled] = {}
        if any(each.action is not source.Action.CONFIRM for each in settlements):
            self._listings.forget()
        with self._changes.own():
            for group in rounds(settlements):
                for settled in self._settle_group(group):
                    answers[id(settled.settlement)] = settled
        return [answers[id(settlement)] for settlement in settlements]

    def _settle_group(self, group: Sequence[source.Settlement]) -> list[source.Settled]:
        unsafe = [s for s in group if not is_safe_id(s.issue_id)]
        safe = [s for s in group if is_safe_id(s.issue_id)]
        answers = [
            source.Settled(s, source.Result.NOT_OURS, "not an id that bd would give")
            for s in unsafe
        ]
        if not safe:
            return answers
        self._wrote = self._wrote_since_held = True
        known = {s.issue_id: self._is_sure(s) for s in safe if self._is_known(s)}
        sure = frozenset(s.issue_id for s in safe if self._is_sure(s) and not s.handed_over)
        # Whatever happens now, these issues are read before they are written again.
        self._leases.forget(s.issue_id for s in safe if s.action is not source.Action.CONFIRM)
        group_settled = SettlementGroup(self._tracker, self.actor, safe, self._shared, sure)
        settled = group_settled.settle(known)
        self._let_go -= {s.settlement.issue_id for s in settled}
        self._let_go |= {s.settlement.issue_id for s in settled if _is_over(s)}
        self._claimed_since_look |= any(s.result is source.Result.NOT_OURS for s in settled)
        return answers + settled

    def _is_known(self, settlement: source.Settlement) -> bool:
        unseen = settlement.read_first or settlement.handed_over
        guarded = self._tracker.abilities.compare_and_swap
        return guarded and not unseen and self._leases.is_known(settlement.issue_id)

    def _is_sure(self, settlement: source.Settlement) -> bool:
        return not self._shared and self._leases.is_sure(settlement.issue_id)

    # --- leases and crashed runs -----------------------------------------------------------------

    def renew(self, issue_ids: Sequence[IssueId]) -> source.Renewed:
        """See ``Source``; one call for each."""
        if not self._tracker.abilities.leases:
            return source.Renewed()
        with self._changes.own():
            return renew(self._tracker, self.actor, self._leases, issue_ids)

    def recover(self, dead: source.CrashedRun) -> list[source.Settled]:
        """See ``Source``; acts as the crashed run's actor, which holds the claims."""
        self._listings.forget()
        rows = {row.issue_id: row for row in self._tracker.under_way(dead.actor)}
        named = {*dead.unclosed, *dead.handed_over, *dead.reopened, *dead.by_agents}
        missing = [i for i in named if i not in rows and is_safe_id(i)]
        rows |= self._tracker.look(missing) if missing else {}
        held = [i for i, row in rows.items() if _is_held(row, dead)]
        found = [each for each in pending(dead, held) if is_safe_id(each.issue_id)]
        if not found:
            return []
        self._wrote = self._wrote_since_held = True
        return SettlementGroup(self._tracker, dead.actor, found, self._shared).settle({}, rows)

    # --- for people who ask -------------------------------------------------------------------

    def look(self, issue_ids: Sequence[IssueId]) -> dict[IssueId, source.TrackedIssue]:
        """See ``Source``."""
        return look(self._tracker, issue_ids)

    def read(self, issue_ids: Sequence[IssueId]) -> dict[IssueId, Job]:
        """See ``ReadableSource``."""
        safe = [i for i in dict.fromkeys(issue_ids) if is_safe_id(i)]
        there = self._tracker.look(safe)
        return {i: _job(row) for i, row in self._tracker.details(list(there)).items()}

    def conversations(self, issue_ids: Sequence[IssueId]) -> tuple[source.Conversation, ...]:
        """See ``ConversingSource``."""
        there = self._tracker.look([i for i in issue_ids if is_safe_id(i)])
        rows = self._tracker.details(list(there)).values()
        return tuple(
            source.Conversation(
                row.issue_id, row.status, source.read_replies(row.original), row.assignee
            )
            for row in rows
        )

    def unfinished(self, rows_max: int) -> list[source.TrackedIssue]:
        """See ``Source``."""
        return unfinished(self._tracker, rows_max)

    def ready(self) -> frozenset[IssueId]:
        """See ``Source``."""
        return ready(self._tracker)

    # --- for people who change an issue -------------------------------------------------------

    def add(self, change: source.IssueEdit, author: str) -> IssueId:
        """See ``EditableSource``."""
        self._wrote = True
        return edits.add(self._tracker, change, author)

    def edit(self, issue_id: IssueId, change: source.IssueEdit, author: str) -> None:
        """See ``EditableSource``."""
        self._wrote = True
        edits.edit(self._tracker, issue_id, change, author)

    def comment(self, issue_id: IssueId, text: str, author: str) -> source.IssueComment:
        """See ``EditableSource``."""
        self._wrote = True
        return edits.comment(self._tracker, issue_id, text, author)

    def delete(self, issue_id: IssueId, author: str) -> None:
        """See ``EditableSource``."""
        self._wrote = True
        edits.delete(self._tracker, issue_id, author)

    def close(self) -> None:
        """Requeue what an unanswered claim may have claimed; leave the JSON Lines complete."""
        calls = self._tracker.calls
        calls.call_seconds = min(calls.call_seconds, CLOSE_SECONDS)
        try:
            self._settle_unanswered_claims()
            if self._wrote:
                self._tracker.flush()
        except source.SourceError:
            # The next start asks the tracker for the issues of this actor.
            return


def _is_over(settled: source.Settled) -> bool:
    goes_on = (source.Action.CONFIRM, source.Action.HAND_OVER)
    return settled.result is not source.Result.FAILED and settled.settlement.action not in goes_on


def _is_held(row: BdRow, dead: source.CrashedRun) -> bool:
    if row.status == CLOSED:
        # Its events tell whether the agent closed it.
        return row.issue_id in dead.by_agents
    return row.status in (OPEN, IN_PROGRESS) and held_by(row.assignee, dead.actor)


def _nested(row: BdRow) -> dict[str, Any]:
    """Return the fields that a claim prints in a shorter form, or not at all."""
    named = ("comments", "dependencies", "labels", "parent")
    return {name: row.original[name] for name in named if name in row.original}


def _job(row: BdRow) -> Job:
    return Job(
        source=BdSource.name,
        issue_id=row.issue_id,
        title=row.title,
        priority=row.priority,
        issue_type=row.issue_type,
        labels=row.labels,
        description=row.description,
        call=call_of(row.original, row.labels),
        timeout_seconds=timeout_of(row.labels),
        original=row.original,
        enqueued_at=enqueued_at(row.original.get("created_at")),
        trace_context=row.original.get(KEY),
    )
