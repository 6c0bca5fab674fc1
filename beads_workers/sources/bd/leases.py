"""What this source holds in ``bd``, and until when nobody else can have it.

``bd`` lets a claim lapse after some minutes; whoever asks for ``bd reclaim`` then gives the issue
back to the backlog. A lease is counted on our own boot clock from before the claim was asked for,
by the life that ``bd`` names, so no clock has to agree with any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from beads_workers.core import limits
from beads_workers.core.jobs import IssueId
from beads_workers.core.source import Lease, Lost, Renewed
from beads_workers.sources.bd.answers import IN_PROGRESS, Row, is_safe_id, object_of
from beads_workers.sources.bd.tracker import IDS_PER_CALL_MAX, Tracker
from beads_workers.sources.bd.verdicts import held_by, whose
from beads_workers.sources.clock import boot_seconds

LIFE_SECONDS = 300.0
"""Of a lease of ``bd`` 1.x that does not name it."""

LIFE_SECONDS_MAX = 366 * 86_400.0
"""Times that are further apart, or the wrong way round, name none: a date of nought, for one."""

FLEETS = "beads-workers/"
"""What the actor of every run begins with."""


class Leases:
    """Every issue that was claimed here and not written since."""

    def __init__(self) -> None:
        self._claims: dict[IssueId, Lease] = {}

    def claimed(self, rows: Mapping[IssueId, Row], began: float) -> tuple[Lease, ...]:
        """These have just been won; returns those that must be renewed."""
        for issue_id, row in rows.items():
            self._claims[issue_id] = Lease(issue_id, began, began + _life(row))
        return tuple(
            self._claims[i] for i, row in rows.items() if "lease_expires_at" in row.original
        )

    def renewed(self, issue_id: IssueId, began: float) -> Lease:
        """Its life has begun anew."""
        last = self._claims.get(issue_id)
        life = last.ends - last.began if last else LIFE_SECONDS
        self._claims[issue_id] = lease = Lease(issue_id, began, began + life)
        return lease

    def forget(self, issue_ids: Iterable[IssueId]) -> None:
        """Whatever was written about these: only a look or a new claim says what holds now."""
        for issue_id in issue_ids:
            self._claims.pop(issue_id, None)

    def is_known(self, issue_id: IssueId) -> bool:
        """Whether it is in progress in our name, unless somebody has taken it since."""
        return issue_id in self._claims

    def is_sure(self, issue_id: IssueId) -> bool:
        """Whether nobody can have taken it, nor can before a call that begins now has ended."""
        lease = self._claims.get(issue_id)
        return lease is not None and lease.ends - boot_seconds() > limits.LEASE_SURE_SECONDS


def renew(tracker: Tracker, actor: str, leases: Leases, issue_ids: Sequence[IssueId]) -> Renewed:
    """One call for each, and one look at all that were refused."""
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
    return Renewed(tuple(kept), tuple(Lost(i, _why(seen.get(i))) for i in lost))


def reclaim(tracker: Tracker, actor: str, now: float) -> tuple[Lost, ...]:
    """Give back what other fleets have left; ``now``: seconds since the epoch.

    Only claims of other runs of ours whose lease is over, never a person's; ``bd`` itself looks
    again whether that is so.
    """
    rows = [row for row in tracker.in_progress() if _is_abandoned(row, actor, now)]
    freed: list[Lost] = []
    for start in range(0, len(rows), IDS_PER_CALL_MAX):
        part = rows[start : start + IDS_PER_CALL_MAX]
        holders = dict.fromkeys(row.assignee for row in part)
        arguments = ["reclaim", "--json", f"--older-than={limits.TAKEOVER_SECONDS:g}s"]
        arguments += [f"--id={row.issue_id}" for row in part]
        arguments += [f"--assignee={holder}" for holder in holders]
        entries = object_of(tracker.ask(arguments, ids=len(part))).get("reclaimed")
        freed += [Lost(i, f"the lease of {by} was over") for i, by in _freed(entries)]
    return tuple(freed)


def _freed(entries: object) -> list[tuple[IssueId, str]]:
    named = [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
    pairs = [(str(e.get("id")), str(e.get("previous_owner"))) for e in named]
    return [(IssueId(issue_id), owner) for issue_id, owner in pairs if is_safe_id(issue_id)]


def _is_abandoned(row: Row, actor: str, now: float) -> bool:
    if not row.assignee.startswith(FLEETS) or "," in row.assignee or held_by(row.assignee, actor):
        return False
    ends = _moment(row.original.get("lease_expires_at"))
    return ends is not None and now - ends > limits.TAKEOVER_SECONDS


def _life(row: Row) -> float:
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


def _still_ours(row: Row | None, actor: str) -> bool:
    return row is not None and row.status == IN_PROGRESS and held_by(row.assignee, actor)


def _why(row: Row | None) -> str:
    return whose(row) if row is not None else "the tracker has no such issue"
