"""One account: what ``core.issues`` makes of a journal, and what the live core believes.

After every event the issues that its records are about are compared; and whatever a checkpoint
says of all of them, with what it was made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from beads_workers.core.issues import Issue, Issues, Standing
from beads_workers.core.journal import CheckpointEnded, Entry
from beads_workers.core.model import IssueId
from beads_workers.core.orchestrator import Orchestrator
from beads_workers.core.source import Action
from beads_workers.core.states import IssueState

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


class Disagreement(AssertionError):
    """Two accounts of one issue differ."""


class DoubleRun:
    """``applied`` every entry of one run; then ``believed`` whenever the core has had its say."""

    def __init__(self, began: float) -> None:
        """``began``: the reading of the core's clock at the beginning of the run."""
        self._began = began
        self.issues = Issues()
        self._touched: set[str] = set()

    def applied(self, entry: Entry) -> None:
        """The next record of the run."""
        change = self.issues.apply(entry)
        if change is not None:
            self._touched.add(change.issue.issue_id)

    def believed(self, core: Orchestrator, now: float, *, whole: bool = False) -> None:
        """Raises ``Disagreement``. ``whole``: all issues, not only those of the last records."""
        asked: Iterable[str] = self._touched
        if whole:
            parts = core._parts
            asked = {
                *parts.tasks.in_flight,
                *parts.retry_state.retry_entries,
                *parts.round_trips.pending,
                *self.issues.known,
            }
        for issue_id in asked:
            issue = self.issues.known.get(issue_id, _NO_ISSUE)
            ours = _live(issue, now - self._began)
            _compare(
                issue_id, "in the live core", ours, self._of_core(core, IssueId(issue_id), now)
            )
        self._touched.clear()

    def dumped(self, entries: Iterable[Entry]) -> None:
        """A segment begins with these; raises ``Disagreement`` where they do not say it all."""
        read, now = Issues(), Entry(CheckpointEnded(), 0.0, 0.0)
        for now in entries:
            read.apply(now)
        for issue_id in {*read.known, *self.issues.known}:
            one, other = (i.known.get(issue_id, _NO_ISSUE) for i in (self.issues, read))
            _compare(issue_id, "in a checkpoint", _told(one, now), _told(other, now))

    def _of_core(self, core: Orchestrator, issue_id: IssueId, now: float) -> Facts:
        parts = core._parts
        in_flight, retry_entry = (
            parts.tasks.in_flight.get(issue_id),
            parts.retry_state.retry_entries.get(issue_id),
        )
        pending = parts.round_trips.pending.get(issue_id)
        standing = retry_entry.standing if retry_entry else Standing.OPEN
        due = retry_entry.not_before if retry_entry and standing is Standing.COOLING else 0.0
        cools = due > now + CLOCKS_SECONDS
        closing = in_flight is not None and in_flight.state is IssueState.CLOSING
        return {
            "state": in_flight.state if in_flight else None,
            "worker": in_flight.worker_id if in_flight and in_flight.state in _WITH_WORKER else "",
            "pending": pending.settlement.action if pending else None,
            "standing": Standing.OPEN if standing is Standing.COOLING and not cools else standing,
            "due": due - self._began if cools else None,
            # What is done has no attempts any more, though its page is there until it is closed.
            "charged": retry_entry.history.charged if retry_entry and not closing else 0,
            "free": retry_entry.history.free_in_a_row if retry_entry and not closing else 0,
        }


_WITH_WORKER = (IssueState.RUNNING, IssueState.ORPHANED)


def _live(issue: Issue, elapsed: float) -> Facts:
    earlier = issue.standing is Standing.UNCLOSED
    return {
        # What an earlier run has done is closed by the recovery, and not in the core's hands.
        "state": issue.state if issue.state in HELD and not earlier else None,
        "worker": issue.worker_id if issue.state in _WITH_WORKER else "",
        "pending": None if earlier else issue.pending,
        **_waits(issue, elapsed),
        "charged": issue.charged,
        "free": issue.free_in_a_row,
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
    if not issue.told and issue.retry_entry and issue.retry_entry.not_before:
        # The clock may have been set since: the page says by the clock when it may be taken.
        waits = {"standing": None, "due": None}
    # What was claimed is open, whatever the tracker says to a reopening that had failed.
    reopens = issue.pending is Action.REOPEN and issue.state in HELD
    return {
        "state": issue.state,
        **waits,
        "worker": issue.worker_id,
        "pending": None if reopens else issue.pending,
        "attempt": issue.attempt,
        "end": issue.end,
        "page": issue.retry_entry,
        "holder": issue.owner,
        "handed_over": issue.handed_over,
        "reopened": issue.is_reopened,
        "unstarted": issue.is_unstarted,
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
