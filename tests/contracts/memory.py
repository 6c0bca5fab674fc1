"""A tracker in memory: deterministic, and it fails on request.

Several sources may share one ``MemoryTracker``: several orchestrators on one tracker. It keeps
the same contract as the real ones (``test_sources.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from typing import TypeVar

from beads_workers.core.base import source
from beads_workers.core.base.model import Filters, IssueId, ListedIssue
from beads_workers.core.base.ready import (
    FINISHED,
    HIDDEN_TYPES,
    HOLDS_NOTHING,
    NO_WORK,
    PARENT_CHILD,
    UNTIL_CLOSED,
    WAITS_FOR,
)
from beads_workers.trackers import settlement_rules
from beads_workers.trackers.issue import TrackerIssue, to_job, to_seen

_Answer = TypeVar("_Answer")


class FaultKind(Enum):
    """How a call goes wrong."""

    REFUSED = "refused"
    """Nothing happens, and the call raises ``SourceError``."""
    ANSWER_LOST = "answer_lost"
    """Everything happens, and the call raises ``SourceError`` all the same."""
    NOT_APPLIED = "not_applied"
    """One settlement (or those of ``issue_id``) is not done and reported as ``FAILED``."""
    REPORT_LOST = "report_lost"
    """One settlement (or those of ``issue_id``) is done and reported as ``FAILED``."""


@dataclass(slots=True)
class Fault:
    """What goes wrong, ``times`` times. ``call``: ``take``, ``settle``, ...; empty means any.

    ``issue_id`` only goes with ``NOT_APPLIED`` and ``REPORT_LOST``; empty means any issue.
    """

    kind: FaultKind
    call: str = ""
    issue_id: str = ""
    times: int = 1


@dataclass(slots=True)
class MemoryTracker:
    """The issues, in the order in which they were created; shared between sources."""

    issues: dict[str, TrackerIssue] = field(default_factory=dict)
    writes: list[tuple[str, str, str]] = field(default_factory=list)
    """Every change of a holding, in order: (id, status, assignee). Checkers count on it."""

    def add(self, issue: TrackerIssue) -> None:
        """Create it, or replace the one of that id."""
        self.issues[issue.id] = issue

    def put(self, issue_id: str, status: str, assignee: str, note: str = "") -> None:
        """Change who holds an issue, as a stranger may do at any time."""
        issue = self.issues[issue_id]
        reason = note if status == settlement_rules.CLOSED else issue.close_reason
        self.issues[issue_id] = replace(
            issue, status=status, assignee=assignee, close_reason=reason
        )
        self.writes.append((issue_id, status, assignee))

    def annotate(self, issue_id: str, note: str) -> None:
        """Append a line to the notes."""
        issue = self.issues[issue_id]
        notes = f"{issue.notes}\n{note}" if issue.notes else note
        self.issues[issue_id] = replace(issue, notes=notes)

    def comment(self, issue_id: str, text: str, at: float) -> None:
        """Append a comment of a person, at so many epoch seconds: whole ones, as trackers keep."""
        created_at = datetime.fromtimestamp(int(at), UTC).isoformat()
        comment = {"author": "ann", "text": text, "created_at": created_at}
        issue = self.issues[issue_id]
        self.issues[issue_id] = replace(issue, comments=(*issue.comments, comment))

    def holding(self, issue_id: str) -> settlement_rules.Ownership | None:
        """Its status and assignee; None where there is no such issue."""
        issue = self.issues.get(issue_id)
        return None if issue is None else settlement_rules.Ownership(issue.status, issue.assignee)

    def is_blocked(self, issue_id: str, seen: frozenset[str] = frozenset()) -> bool:
        """Whether it, or a parent of it, waits for an unfinished issue."""
        if issue_id in seen or self.issues[issue_id].status in HOLDS_NOTHING:
            return False
        for dependency in self.issues[issue_id].dependencies:
            other = self.issues.get(dependency.depends_on_id)
            if other is None:
                continue
            if dependency.type in UNTIL_CLOSED and other.status not in HOLDS_NOTHING:
                return True
            if dependency.type == WAITS_FOR and self._has_work_below(other.id, issue_id):
                return True
            if dependency.type == PARENT_CHILD and self.is_blocked(other.id, seen | {issue_id}):
                return True
        return False

    def _has_work_below(self, issue_id: str, but: str) -> bool:
        return any(
            dependency.type == PARENT_CHILD and dependency.depends_on_id == issue_id
            for each in self.issues.values()
            if each.status not in HOLDS_NOTHING and each.id != but
            for dependency in each.dependencies
        )

    def is_under(self, issue_id: str, ancestor: str, seen: frozenset[str] = frozenset()) -> bool:
        """Whether ``ancestor`` is a parent, or a parent's parent."""
        issue = self.issues.get(issue_id)
        if issue is None or issue_id in seen:
            return False
        parents = [d.depends_on_id for d in issue.dependencies if d.type == PARENT_CHILD]
        return ancestor in parents or any(
            self.is_under(parent, ancestor, seen | {issue_id}) for parent in parents
        )


class MemorySource:
    """See ``Source``. Give it ``issues``, or a ``tracker`` to share.

    ``faults`` may be added to at any time; the first that fits a call is used up by it. Set
    ``self_claiming`` to play a tracker whose workers are self-claiming.
    """

    name = "memory"

    def __init__(
        self,
        issues: Iterable[TrackerIssue] = (),
        *,
        actor: str,
        tracker: MemoryTracker | None = None,
        filters: Filters | None = None,
        listed_max: int = 200,
        faults: Iterable[Fault] = (),
        self_claiming: bool = False,
    ) -> None:
        self.actor = actor
        self.calls = source.Calls()
        self.self_claiming = self_claiming
        self.tracker = MemoryTracker() if tracker is None else tracker
        self.faults = list(faults)
        self._filters = Filters() if filters is None else filters
        self._listed_max = listed_max
        self._unanswered: tuple[str, ...] = ()
        for issue in issues:
            self.tracker.add(issue)

    def describe(self) -> str:
        """How many issues there are."""
        return self._faulty("describe", lambda: f"memory: {len(self.tracker.issues)} issues")

    def take(self, limit: int, skip: Collection[IssueId]) -> source.Taken:
        """Claim up to ``limit`` ready issues, most urgent first, oldest first among equals."""
        taken = self._faulty("take", lambda: self._taken(max(limit, 0), frozenset(skip)))
        self._unanswered = ()
        return taken

    def settle(self, settlements: Sequence[source.Settlement]) -> list[source.Settled]:
        """Apply a group, one by one."""
        if not settlements:
            return []
        return self._faulty("settle", lambda: self._settled("settle", settlements, self.actor))

    def renew(self, issue_ids: Sequence[IssueId]) -> source.Renewed:
        """There are no leases."""
        return source.Renewed()

    def recover(self, dead: source.CrashedRun) -> list[source.Settled]:
        """Close what the crashed run had done, requeue whatever else is in its name."""
        held = [
            IssueId(issue.id)
            for issue in self._in_order()
            if settlement_rules.is_left_by(
                dead, issue.id, settlement_rules.Ownership(issue.status, issue.assignee)
            )
        ]
        return self._faulty(
            "recover",
            lambda: self._settled("recover", settlement_rules.pending(dead, held), dead.actor),
        )

    def look(self, issue_ids: Sequence[IssueId]) -> dict[IssueId, source.TrackedIssue]:
        """See ``Source``."""
        known = self.tracker.issues
        return self._faulty("look", lambda: {i: to_seen(known[i]) for i in issue_ids if i in known})

    def conversations(self, issue_ids: Sequence[IssueId]) -> tuple[source.Conversation, ...]:
        """See ``ConversingSource``."""
        found = [self.tracker.issues[i] for i in issue_ids if i in self.tracker.issues]
        read = [source.read_replies({"comments": issue.comments}) for issue in found]
        told = (
            source.Conversation(IssueId(issue.id), issue.status, replies, issue.assignee)
            for issue, replies in zip(found, read, strict=True)
        )
        return self._faulty("conversations", lambda: tuple(told))

    def unfinished(self, rows_max: int) -> list[source.TrackedIssue]:
        """See ``Source``."""
        found = [to_seen(each) for each in self._in_order() if each.status not in FINISHED]
        return self._faulty("unfinished", lambda: found[:rows_max])

    def ready(self) -> frozenset[IssueId]:
        """See ``Source``."""
        open_ones = [each for each in self._in_order() if each.status == settlement_rules.OPEN]
        shown = [each.id for each in open_ones if each.issue_type not in HIDDEN_TYPES]
        found = frozenset(IssueId(i) for i in shown if not self.tracker.is_blocked(i))
        return self._faulty("ready", lambda: found)

    def close(self) -> None:
        """Requeue what a take won whose answer was lost."""
        self._requeue_unanswered()

    def _requeue_unanswered(self) -> None:
        for issue_id in self._unanswered:
            if self.tracker.holding(issue_id) == settlement_rules.Ownership(
                settlement_rules.IN_PROGRESS, self.actor
            ):
                self.tracker.put(issue_id, settlement_rules.OPEN, "")
        self._unanswered = ()

    def _taken(self, limit: int, skip: frozenset[str]) -> source.Taken:
        self._requeue_unanswered()
        open_ones = [each for each in self._in_order() if self._wanted(each)]
        blocked = {each.id for each in open_ones if self.tracker.is_blocked(each.id)}
        ready = [
            each
            for each in open_ones
            if each.id not in blocked and each.id not in skip and each.assignee in ("", self.actor)
        ]
        for each in ready[:limit]:
            self.tracker.put(each.id, settlement_rules.IN_PROGRESS, self.actor)
        self._unanswered = tuple(each.id for each in ready[:limit])
        others = ready[limit:]
        return source.Taken(
            jobs=tuple(to_job(self.tracker.issues[e.id], self.name) for e in ready[:limit]),
            listed=tuple(
                ListedIssue(IssueId(e.id), e.title, e.priority) for e in others[: self._listed_max]
            ),
            more=len(others) > self._listed_max,
            blocked=len(blocked),
        )

    def _settled(
        self, call: str, settlements: Sequence[source.Settlement], actor: str
    ) -> list[source.Settled]:
        return [self._settled_one(call, each, actor) for each in settlements]

    def _settled_one(self, call: str, settlement: source.Settlement, actor: str) -> source.Settled:
        issue_id = settlement.issue_id
        fault = self._next_fault(call, (FaultKind.NOT_APPLIED, FaultKind.REPORT_LOST), issue_id)
        if fault is FaultKind.NOT_APPLIED:
            return source.Settled(settlement, source.Result.FAILED, "the tracker did not do it")
        ruling = settlement_rules.rule(settlement, self.tracker.holding(issue_id), actor)
        if ruling.write is not None:
            self.tracker.put(issue_id, ruling.write.status, ruling.write.assignee, settlement.note)
            if settlement.action in source.BLOCKING and settlement.note:
                self.tracker.annotate(issue_id, settlement.note)
        if fault is FaultKind.REPORT_LOST:
            return source.Settled(settlement, source.Result.FAILED, "the tracker's answer was lost")
        return source.Settled(settlement, ruling.result, ruling.error)

    def _in_order(self) -> list[TrackerIssue]:
        return sorted(self.tracker.issues.values(), key=lambda issue: issue.priority)

    def _wanted(self, issue: TrackerIssue) -> bool:
        return is_wanted(issue, self._filters, self.tracker.is_under)

    def _faulty(self, call: str, answer: Callable[[], _Answer]) -> _Answer:
        self.calls.count += 1
        fault = self._next_fault(call, (FaultKind.REFUSED, FaultKind.ANSWER_LOST))
        if fault is FaultKind.REFUSED:
            raise source.SourceError("the tracker does not answer")
        found = answer()
        if fault is FaultKind.ANSWER_LOST:
            raise source.SourceError("the tracker's answer was lost")
        return found

    def _next_fault(
        self, call: str, kinds: tuple[FaultKind, ...], issue_id: str = ""
    ) -> FaultKind | None:
        for fault in self.faults:
            fits = fault.call in ("", call) and fault.issue_id in ("", issue_id)
            if fault.times > 0 and fault.kind in kinds and fits:
                fault.times -= 1
                return fault.kind
        return None


def is_wanted(
    issue: TrackerIssue,
    filters: Filters,
    is_under: Callable[[str, str], bool] = lambda each, above: False,
) -> bool:
    """Whether it is open and passes the filters; ``is_under``: the first is below the second."""
    f, labels = filters, set(issue.labels)
    return (
        issue.status == settlement_rules.OPEN
        and (issue.issue_type in f.types if f.types else issue.issue_type not in NO_WORK)
        and labels.issuperset(f.labels)
        and (not f.labels_any or not labels.isdisjoint(f.labels_any))
        and labels.isdisjoint(f.exclude_labels)
        and (not f.priorities or issue.priority in f.priorities)
        and (f.parent is None or is_under(issue.id, f.parent))
        and (not f.only or issue.id in f.only)
        and (not f.bring or not source.brought(to_seen(issue)).isdisjoint(f.bring))
        and not f.holds(issue.extra.get("created_by"))
    )
