"""One account: what ``core.records.issues`` makes of a journal that is read back, and the live
core's.

After every event the issues that its records are about are compared, with each other and with what
the core keeps beside them: jobs in flight, pending writes, timers. So is whatever a checkpoint says
of all of them, with what it was made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import Action
from beads_workers.core.base.states import IssueState
from beads_workers.core.orchestrator import Orchestrator
from beads_workers.core.records.issues import Issue, Issues, Standing
from beads_workers.core.records.journal import (
    Checkpointed,
    CheckpointEnded,
    Entry,
    Live,
    decode,
    encode,
)
from beads_workers.core.schedule.effects import RetryDue
from beads_workers.core.views.snapshot import Board
from tests.support.totals import SteadyTotal

Facts = Mapping[str, Any]
"""The projection: one issue, as names and values."""

HELD = frozenset(IssueState) - {
    IssueState.ENQUEUED,
    IssueState.CLOSED,
    IssueState.QUARANTINED,
    IssueState.FOREIGN,
}
CLOCKS_SECONDS = 0.002
_NO_ISSUE = Issue("")

SET_ASIDE = (Standing.UNCLOSED, Standing.AWAITS_APPROVAL, Standing.IN_REVIEW)


class Disagreement(AssertionError):
    """Two accounts of one issue differ."""


class DoubleRun:
    """``applied`` every entry of one run; then ``believed`` whenever the core has had its say."""

    def __init__(self, began: float) -> None:
        """``began``: the reading of the core's clock at the beginning of the run."""
        self._began = began
        self.issues = Issues()
        self._touched: set[str] = set()
        self._totals = SteadyTotal(Board(issues=self.issues))

    def applied(self, entry: Entry) -> None:
        """The next record of the run; it is taken as whoever comes later reads it."""
        if isinstance(entry.record, Live):
            return  # It is never written.
        read = decode(encode(entry))
        assert read is not None
        change = self.issues.apply(read)
        self._totals.show(read, change)
        if change is not None:
            self._touched.add(change.issue.issue_id)

    def believed(self, core: Orchestrator, now: float, *, whole: bool = False) -> None:
        """Raises ``Disagreement``. ``whole``: all issues, not only those of the last records."""
        self._totals.look(now - self._began)
        parts = core._parts
        asked: Iterable[str] = self._touched
        if whole:
            live = (parts.effects.issues.known, parts.tasks.in_flight, parts.round_trips.pending)
            asked = {*self.issues.known, *(issue_id for each in live for issue_id in each)}
        for issue_id in asked:
            read = self.issues.known.get(issue_id, _NO_ISSUE)
            issue = parts.effects.issues.known.get(issue_id, _NO_ISSUE)
            told = _known(read, now - self._began, 0.0)
            _compare(issue_id, "in the live core", told, _known(issue, now, self._began))
            _compare(issue_id, "beside it", _due(issue, now), _kept(core, issue, now))
        self._touched.clear()

    def dumped(self, entries: Iterable[Entry]) -> None:
        """A segment begins with these; raises ``Disagreement`` where they do not say it all."""
        read, now = Issues(), Entry(CheckpointEnded(), 0.0, 0.0)
        for now in entries:
            read.apply(now)
        for issue_id in {*read.known, *self.issues.known}:
            one, other = (i.known.get(issue_id, _NO_ISSUE) for i in (self.issues, read))
            _compare(issue_id, "in a checkpoint", _told(one, now), _told(other, now))


def _known(issue: Issue, now: float, began: float) -> Facts:
    """All that a reducer says of it. ``began``: the beginning of the run on its clock."""
    waits = _waits(issue, now)
    return {
        "state": issue.state,
        "standing": waits["standing"],
        "due": waits["due"] and waits["due"] - began,
        "worker": issue.worker_id,
        "pending": issue.pending,
        "attempt": issue.attempt and issue.attempt.started,
        "end": issue.end,
        # The clock on the wall may have been set: the core is told it once.
        "page": issue.retry_entry and _page(issue.retry_entry),
        "owner": issue.owner,
        "orphaned": issue.orphaned,
        "handed_over": issue.handed_over,
        "landed": issue.landed,
    }


def _page(entry: Checkpointed) -> Checkpointed:
    landing = replace(entry.landing, ended_at=0.0) if entry.landing else None
    return replace(entry, not_before=0.0, landing=landing)


def _due(issue: Issue, now: float) -> Facts:
    """What the core must have in its hands by that."""
    # What an earlier run has done is closed by the recovery, and not in the core's hands.
    earlier = issue.standing in SET_ASIDE
    # A branch that an earlier run has shelved is closed when it has landed, and in nobody's hands.
    held = issue.state in HELD and not (earlier or issue.shelved)
    return {
        "in flight": issue if held else None,
        "pending": None if earlier else issue.pending,
        "timer": _waits(issue, now)["due"],
    }


def _kept(core: Orchestrator, issue: Issue, now: float) -> Facts:
    """What it has: the job, the write with all that goes with it, the timer."""
    parts, issue_id = core._parts, IssueId(issue.issue_id)
    in_flight = parts.tasks.in_flight.get(issue_id)
    pending = parts.round_trips.pending.get(issue_id)
    if pending is not None and pending.settlement.action is Action.CONFIRM:
        pending = None  # It writes nothing, so no record tells of it.
    timer = parts.effects.timers.at(RetryDue(issue_id))
    return {
        "in flight": in_flight and in_flight.issue,
        "pending": pending and pending.settlement.action,
        "timer": timer if timer and timer > now + CLOCKS_SECONDS else None,
    }


def _waits(issue: Issue, elapsed: float) -> Facts:
    """Why it is not to be taken now; what has cooled down is as good as what never did."""
    cools = issue.standing is Standing.COOLING and issue.due > elapsed + CLOCKS_SECONDS
    cooled = issue.standing is Standing.COOLING and not cools
    return {
        "standing": Standing.OPEN if cooled else issue.standing,
        "due": issue.due if cools else None,
    }


def _told(issue: Issue, now: Entry) -> Facts:
    """All that a checkpoint must say of it."""
    waits = _waits(issue, now.elapsed)
    if not issue.entries and issue.retry_entry and issue.retry_entry.not_before:
        # The clock may have been set since: the page says by the clock when it may be taken.
        waits = {"standing": None, "due": None}
    return {
        "state": issue.state,
        **waits,
        "worker": issue.worker_id,
        "pending": issue.pending,
        "attempt": issue.attempt,
        "end": issue.end,
        "page": issue.retry_entry,
        "holder": issue.owner,
        "handed_over": issue.handed_over,
        "reopened": issue.is_reopened,
        "unstarted": issue.is_unstarted,
        "landed": issue.landed,
        # What has no past has its name in the records that are dropped at an attempt's end.
        "title": "" if issue.end else issue.title,
    }


def _compare(issue_id: str, where: str, ours: Facts, theirs: Facts) -> None:
    if differ := list(_different(ours, theirs)):
        raise Disagreement(f"{issue_id}, {where}: {'; '.join(differ)}")


def _nearly(one: object, other: object) -> bool:
    # A journal has milliseconds.
    both = isinstance(one, float) and isinstance(other, float)
    return both and abs(one - other) < CLOCKS_SECONDS  # type: ignore[operator]


def _different(ours: Facts, theirs: Facts) -> Iterator[str]:
    for name, value in ours.items():
        if value != theirs[name] and not _nearly(value, theirs[name]):
            yield f"{name}: issues say {value!r}, others {theirs[name]!r}"
