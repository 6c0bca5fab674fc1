"""The double run: what ``core.issues`` makes of a journal beside what everything else does.

After every record the issue that it is about is compared with the recovery's
account of it; after every event, with what the live core believes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from beads_workers.core.issues import Issue, Issues, Standing
from beads_workers.core.jobs import IssueId
from beads_workers.core.journal_lines import Entry
from beads_workers.core.orchestrator import Orchestrator
from beads_workers.core.policy import set_aside_note
from beads_workers.core.recovery import Remains
from beads_workers.core.states import IssueState

Facts = Mapping[str, Any]
"""The projection: one issue, as names and values."""

HELD = frozenset(IssueState) - {
    IssueState.ENQUEUED,
    IssueState.CLOSED,
    IssueState.SET_ASIDE,
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
        self._left = Remains()
        self._touched: set[str] = set()

    def applied(self, entry: Entry) -> None:
        """Raises ``Disagreement``."""
        change = self.issues.apply(entry)
        self._left.apply(entry)
        if change is None:
            return
        issue_id = change.issue.issue_id
        self._touched.add(issue_id)
        issue = self.issues.known.get(issue_id, _NO_ISSUE)
        _compare(issue_id, entry, _left(issue, self._left), of_remains(self._left, issue_id))

    def believed(self, core: Orchestrator, now: float, *, whole: bool = False) -> None:
        """Raises ``Disagreement``. ``whole``: all issues, not only those of the last records."""
        asked: Iterable[str] = self._touched
        if whole:
            parts = core._parts
            asked = {*parts.tasks.held, *parts.ledger.pages, *parts.lane.owed, *self.issues.known}
        for issue_id in asked:
            issue = self.issues.known.get(issue_id, _NO_ISSUE)
            ours = _live(issue, now - self._began)
            _compare(issue_id, None, ours, self._of_core(core, IssueId(issue_id), now))
        self._touched.clear()

    def _of_core(self, core: Orchestrator, issue_id: IssueId, now: float) -> Facts:
        parts = core._parts
        held, page = parts.tasks.held.get(issue_id), parts.ledger.pages.get(issue_id)
        owed = parts.lane.owed.get(issue_id)
        standing = page.standing if page else Standing.OPEN
        due = page.not_before if page and standing is Standing.COOLING else 0.0
        cools = due > now + CLOCKS_SECONDS
        closing = held is not None and held.state is IssueState.CLOSING
        return {
            "state": held.state if held else None,
            "worker": held.worker_id if held and held.state in _WITH_WORKER else "",
            "pending": owed.settlement.action if owed else None,
            "standing": Standing.OPEN if standing is Standing.COOLING and not cools else standing,
            "due": due - self._began if cools else None,
            # What is done has no attempts any more, though its page is there until it is closed.
            "charged": page.history.charged if page and not closing else 0,
            "free": page.history.free_in_a_row if page and not closing else 0,
        }


_WITH_WORKER = (IssueState.RUNNING, IssueState.LOOSE)


def _live(issue: Issue, elapsed: float) -> Facts:
    cools = issue.standing is Standing.COOLING and issue.due > elapsed + CLOCKS_SECONDS
    earlier = issue.standing is Standing.NOT_CLOSED
    standing = issue.standing
    return {
        # What an earlier run has done is closed by the recovery, and not in the core's hands.
        "state": issue.state if issue.state in HELD and not earlier else None,
        "worker": issue.worker_id if issue.state in _WITH_WORKER else "",
        "pending": None if earlier else issue.pending,
        "standing": Standing.OPEN if standing is Standing.COOLING and not cools else standing,
        "due": issue.due if cools else None,
        "charged": issue.charged,
        "free": issue.free_in_a_row,
    }


def _left(issue: Issue, left: Remains) -> Facts:
    page, done = issue.page, issue.state is IssueState.CLOSING
    note = None
    if issue.state is IssueState.SHELVING and _is_set_aside(issue):
        note = set_aside_note(issue.charged, issue.error)
    unbegun = issue.attempt is None and issue.end is None and issue.claimed is not None
    return {
        "page": _without_holder(page),
        "done_not_closed": (page.held_by if page else left.actor) if done else None,
        "handed_over": issue.handed_over,
        "set_aside": note,
        "reopened": issue.is_reopened,
        "holder": issue.holder,
        "begun": issue.attempt.started if issue.attempt else None,
        "unbegun": unbegun,
        "untold": issue.end,
    }


def of_remains(left: Remains, issue_id: str) -> Facts:
    """What the next start would know of it."""
    begun = left.begun.get(issue_id)
    return {
        "page": left.pages.get(issue_id),
        "done_not_closed": left.done_not_closed.get(issue_id),
        "handed_over": issue_id in left.handed_over,
        "set_aside": left.set_aside.get(issue_id),
        "reopened": issue_id in left.reopened,
        "holder": left.holders.get(issue_id),
        "begun": begun.started if begun else None,
        "unbegun": issue_id in left.claims and begun is None,
        "untold": left.untold.get(issue_id),
    }


def _without_holder(page: Any) -> Any:
    return replace(page, held_by="") if page is not None else None


def _is_set_aside(issue: Issue) -> bool:
    return issue.standing is Standing.SET_ASIDE


def _compare(issue_id: str, entry: Entry | None, ours: Facts, theirs: Facts) -> None:
    if differ := list(_different(ours, theirs)):
        when = f"after {entry.record}" if entry else "in the live core"
        raise Disagreement(f"{issue_id}, {when}: {'; '.join(differ)}")


def _nearly(one: object, other: object) -> bool:
    # A journal has milliseconds.
    both = isinstance(one, float) and isinstance(other, float)
    return both and abs(one - other) < CLOCKS_SECONDS  # type: ignore[operator]


def _different(ours: Facts, theirs: Facts) -> Iterator[str]:
    for name, value in ours.items():
        if value != theirs[name] and not _nearly(value, theirs[name]):
            yield f"{name}: issues say {value!r}, others {theirs[name]!r}"
