"""A task as people are shown it who ask why it does not run. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from beads_workers.core.jobs import IssueId
from beads_workers.core.source import Seen
from beads_workers.protocols.times import write_time
from beads_workers.sources.dispatcherd.entries import Entry, Place


def seen_of(entries: Iterable[Entry]) -> dict[IssueId, Seen]:
    """All of these, which are not over, oldest first: what is blocked waits for the first like it
    that is not."""
    listed = list(entries)
    blocked = [entry for entry in listed if entry.place is Place.BLOCKED]
    kinds = {entry.same_work() for entry in blocked}
    first: dict[str, IssueId] = {}
    for entry in listed:
        if kinds and entry.place in _ACTIVE and (kind := entry.same_work()) in kinds:
            first.setdefault(kind, entry.issue_id)
    return {entry.issue_id: _seen(entry, first) for entry in listed}


_ACTIVE = (Place.QUEUED, Place.TAKEN)


def _seen(entry: Entry, first: dict[str, IssueId]) -> Seen:
    before = first.get(entry.same_work()) if entry.place is Place.BLOCKED else None
    return Seen(
        entry.issue_id,
        entry.task.task,
        "open",
        waits_for=(before,) if before else (),
        deferred_until=_until(entry) if entry.place is Place.DELAYED else "",
        calls=entry.task.task,
    )


def _until(entry: Entry) -> str:
    try:
        return write_time(entry.received_at + entry.task.delay)
    except ValueError:
        return ""  # Beyond all calendars.
