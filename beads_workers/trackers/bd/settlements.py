"""A group of settlements: read the issues if needed, write in as few calls as this ``bd``
allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from beads_workers.core.base import source
from beads_workers.core.base.limits import CLOSE_REASON_CHARS_MAX
from beads_workers.core.base.model import IssueId, value
from beads_workers.trackers.bd.tracker import (
    BLOCKED,
    CLOSED,
    IDS_PER_CALL_MAX,
    IN_PROGRESS,
    OPEN,
    BdRow,
    BdTracker,
    failed,
    held_by,
    object_of,
    refusals,
    rows,
    rows_of_group,
)
from beads_workers.trackers.settlement_rules import Ownership, unmarks

# --- verdicts ------------------------------------------------------------------------------------
# The meaning of a settlement for an issue as it was just read. Pure.
#
# Each write names the status and the assignee that were read, so that ``bd`` can refuse the write
# if they have changed since (compare-and-swap).


@value
class ConditionalWrite:
    """A write for an issue that is in ``status``, in the name of ``assignee``, and for no other."""

    settlement: source.Settlement
    status: str
    assignee: str
    # The existing notes, for a ``bd`` that cannot append.
    notes: str = ""
    # Nobody can have changed the issue, so that the write need not name the expected state.
    sure: bool = False

    @property
    def status_after(self) -> str:
        """Status of the issue after the write."""
        match self.settlement.action:
            case source.Action.CLOSE:
                return CLOSED
            case source.Action.RELEASE | source.Action.REOPEN:
                return OPEN
            case source.Action.QUARANTINE | source.Action.SHELVE | source.Action.ASK:
                return BLOCKED
            case source.Action.HAND_OVER | source.Action.CONFIRM:
                return IN_PROGRESS
            case _:
                assert_never(self.settlement.action)


def unseen(settlement: source.Settlement, actor: str, *, sure: bool) -> ConditionalWrite:
    """Return the write for an issue that we hold as far as we know: in progress, in our own
    name."""
    return ConditionalWrite(settlement, IN_PROGRESS, actor, sure=sure)


def decide(
    settlement: source.Settlement, seen: BdRow | None, actor: str, closed_by: str = ""
) -> ConditionalWrite | source.Settled:
    """Decide for one issue; ``seen`` is None if the tracker no longer has it.

    ``closed_by``: who closed the issue, if it is closed and this ``bd`` can tell; else "".
    """
    if seen is None:
        return source.Settled(settlement, source.Result.NOT_OURS, "the tracker has no such issue")
    if settlement.action is source.Action.CONFIRM:
        return _confirm(settlement, seen, actor, closed_by)
    write = ConditionalWrite(settlement, seen.status, seen.assignee, seen.notes)
    if seen.status == CLOSED:
        if settlement.taken_back or _is_agents_close(settlement, seen, actor, closed_by):
            return write
        return source.Settled(settlement, source.Result.FOUND_CLOSED)
    if _is_as_asked(settlement.action, seen):
        return source.Settled(settlement, source.Result.APPLIED)
    if settlement.action is source.Action.REOPEN:
        may = _may_reopen(settlement, seen, actor)
    else:
        may = _may_write(settlement, seen, actor)
    if may:
        return write
    return source.Settled(settlement, source.Result.NOT_OURS, whose(seen))


def _confirm(
    settlement: source.Settlement, seen: BdRow, actor: str, closed_by: str
) -> source.Settled:
    ours = seen.status in (OPEN, IN_PROGRESS) and held_by(seen.assignee, actor)
    if seen.status == CLOSED:
        ours, why = held_by(closed_by or seen.assignee, actor), source.CLOSED_BY_OTHERS
        why = f"{why} ({closed_by})" if closed_by else why
    else:
        ours = ours or (settlement.shelved and seen.status == BLOCKED and not seen.assignee)
        why = whose(seen)
    if ours:
        return source.Settled(settlement, source.Result.APPLIED)
    return source.Settled(settlement, source.Result.NOT_OURS, why)


def _is_agents_close(
    settlement: source.Settlement, seen: BdRow, actor: str, closed_by: str
) -> bool:
    """Return whether a close by the agent is to be undone, or to be given our reason.

    If nobody can tell who closed the issue, it was in our name, so most likely the agent did:
    unfinished work must not count as done. A close that succeeded anyway needs nothing more.
    """
    if not settlement.by_agent:
        return False
    if settlement.action is source.Action.CLOSE:
        return closed_by.startswith(actor + "/")
    return held_by(closed_by or seen.assignee, actor)


def _may_reopen(settlement: source.Settlement, seen: BdRow, actor: str) -> bool:
    if seen.status == BLOCKED and not seen.assignee:
        return True
    # An issue of a crashed run: a living run may have claimed it again by now.
    return settlement.read_first and _may_write(settlement, seen, actor)


def _is_as_asked(action: source.Action, seen: BdRow) -> bool:
    if seen.assignee:
        return False
    match action:
        case source.Action.RELEASE | source.Action.REOPEN:
            return seen.status == OPEN
        case source.Action.QUARANTINE | source.Action.SHELVE | source.Action.ASK:
            return seen.status == BLOCKED
        case source.Action.HAND_OVER:
            return seen.status == IN_PROGRESS
        case source.Action.CLOSE | source.Action.CONFIRM:
            return False
        case _:
            assert_never(action)


def _may_write(settlement: source.Settlement, seen: BdRow, actor: str) -> bool:
    if settlement.shelved and seen.status == BLOCKED and not seen.assignee:
        return True
    if seen.status not in (OPEN, IN_PROGRESS):
        return False
    if settlement.action is source.Action.HAND_OVER and seen.status == OPEN:
        return False
    if held_by(seen.assignee, actor):
        return True
    if seen.assignee:
        return False
    # Without an assignee: done work is closed in any status, an open issue may be quarantined, and
    # an issue in progress is ours only if we handed it over ourselves.
    if settlement.action is source.Action.CLOSE or seen.status == OPEN:
        return True
    return settlement.handed_over


def whose(seen: BdRow) -> str:
    """Return status and holder, for people."""
    holder = f"assigned to {seen.assignee}" if seen.assignee else "assigned to nobody"
    return f"it is {seen.status}, {holder}"


# --- writes --------------------------------------------------------------------------------------
# Carrying out writes in as few calls as this ``bd`` allows.
#
# With compare-and-swap every write names the expected state. Closes that are sure (our lease on the
# issue lasts long enough) go through ``bd batch`` instead: three times faster. Without
# compare-and-swap the issue was read just before.


Errors = dict[IssueId, str]
"""One line for each issue that was not written; all others were written."""


def apply(
    tracker: BdTracker, actor: str, writes: Sequence[ConditionalWrite], *, alone: bool = False
) -> Errors:
    """Write all of them; ``alone``: one call for each, so that no write can spoil another's."""
    errors: Errors = {}
    for call, group in _groups(tracker, writes):
        size = 1 if alone else IDS_PER_CALL_MAX
        for start in range(0, len(group), size):
            part = group[start : start + size]
            try:
                errors |= call(tracker, actor, part)
            except source.SourceError as error:
                errors |= {write.settlement.issue_id: str(error) for write in part}
    return errors


Call = Callable[[BdTracker, str, Sequence[ConditionalWrite]], Errors]


def _groups(
    tracker: BdTracker, writes: Iterable[ConditionalWrite]
) -> list[tuple[Call, list[ConditionalWrite]]]:
    """Group the writes that can share a call, in the order in which each group begins."""
    groups: dict[tuple[Call, object], list[ConditionalWrite]] = {}
    for write in writes:
        call = _call_for(tracker, write)
        if call is None:
            continue
        groups.setdefault((call, _shared(call, write)), []).append(write)
    return [(call, group) for (call, _), group in groups.items()]


def _call_for(tracker: BdTracker, write: ConditionalWrite) -> Call | None:
    abilities = tracker.abilities
    action = write.settlement.action
    if action is source.Action.HAND_OVER and not abilities.compare_and_swap:
        # Nothing to write: this bd lets any actor update and close issues of another assignee.
        return None
    if action is source.Action.CLOSE:
        if abilities.batch and (write.sure or write.status == CLOSED):
            return _close_in_batch
        if not abilities.compare_and_swap:
            return _close
        if write.status == CLOSED:
            return None  # It is as asked, except for the reason, which this bd keeps.
    return _update


def _shared(call: Call, write: ConditionalWrite) -> object:
    """Return the fields that the writes of one call must have in common."""
    if call is _close:
        return _reason(write.settlement.note)  # One call has one reason.
    if call is not _update:
        return None
    if write.settlement.action in (*source.BLOCKING, source.Action.CLOSE) and write.settlement.note:
        return write
    return (write.settlement.action, write.status, write.assignee, write.settlement.mark)


def _close_in_batch(tracker: BdTracker, actor: str, group: Sequence[ConditionalWrite]) -> Errors:
    lines = [line for write in group for line in _close_lines(write)]
    text = "".join(f"{line}\n" for line in lines)
    answer = tracker.ask(["batch", "--json"], ids=len(group), text=text, actor=actor)
    if object_of(answer).get("operations") != len(lines):
        raise failed(answer)
    return {}


def _close_lines(write: ConditionalWrite) -> list[str]:
    issue_id = write.settlement.issue_id
    reason = _reason(write.settlement.note).replace("\\", "\\\\").replace('"', '\\"')
    close = f'close {issue_id} "{reason}"' if reason else f"close {issue_id}"
    # A close of a closed issue keeps the first reason. In one transaction nobody sees it open.
    return [f"update {issue_id} status={OPEN}", close] if write.status == CLOSED else [close]


def _close(tracker: BdTracker, actor: str, group: Sequence[ConditionalWrite]) -> Errors:
    ids = _ids(group)
    reason = _reason(group[0].settlement.note) or f"Closed by {actor}"
    arguments = ["close", "--json", f"--reason={reason}", "--", *ids]
    closed = rows(tracker.ask(arguments, ids=len(ids), actor=actor))
    done = {row.issue_id for row in closed if row.status == CLOSED}
    return {i: "bd close did not close it" for i in ids if i not in done}


def _update(tracker: BdTracker, actor: str, group: Sequence[ConditionalWrite]) -> Errors:
    ids = _ids(group)
    arguments = ["update", "--json", *_fields(tracker, group[0]), "--", *ids]
    answer = tracker.ask(arguments, ids=len(ids), actor=actor)
    after = group[0].status_after
    done = {row.issue_id for row in rows_of_group(answer) if row.status == after}
    errors = {refusal.issue_id: refusal.error for refusal in refusals(answer)}
    return {i: errors.get(i, "bd update did not change it") for i in ids if i not in done}


def _fields(tracker: BdTracker, write: ConditionalWrite) -> list[str]:
    abilities = tracker.abilities
    fields = []
    if abilities.compare_and_swap:
        fields += [f"--if-assignee={write.assignee}", f"--if-status={write.status}"]
    action = write.settlement.action
    if action is not source.Action.HAND_OVER:
        fields.append(f"--status={write.status_after}")
    if action is not source.Action.CLOSE:
        fields.append("--assignee=")
    if mark := write.settlement.mark:
        fields.append(f"--add-label={mark}")
    if action in (*source.BLOCKING, source.Action.CLOSE) and write.settlement.note:
        note = _note(write.settlement.note)
        if abilities.append_notes:
            fields.append(f"--append-notes={note}")
        else:
            fields.append(f"--notes={write.notes}\n{note}" if write.notes else f"--notes={note}")
    return fields


def _ids(group: Sequence[ConditionalWrite]) -> list[IssueId]:
    return [write.settlement.issue_id for write in group]


def _reason(note: str) -> str:
    """Return the reason as one line: the batch reads lines."""
    line = "".join(c if c.isprintable() else " " for c in note)
    return " ".join(line.split())[:CLOSE_REASON_CHARS_MAX]


def _note(note: str) -> str:
    """Keep line ends, and replace other control characters (a NUL above all)."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in note)[
        :CLOSE_REASON_CHARS_MAX
    ]


# --- settlements ---------------------------------------------------------------------------------
# A group of settlements: read, write, and read again the issues whose write was refused.


@dataclass(slots=True)
class SettlementGroup:
    """Settlements of different issues, all for one actor."""

    tracker: BdTracker
    actor: str
    settlements: Sequence[source.Settlement]
    # Somebody else may write at any moment, also right after a look.
    shared: bool = False
    # Issues that nobody can have taken from us, if a look shows them in our name.
    sure: frozenset[IssueId] = frozenset()
    # Fill up as the settlements end.
    answers: dict[IssueId, source.Settled] = field(default_factory=dict)
    _trouble: source.SourceError | None = None

    def settle(
        self, known: Mapping[IssueId, bool], seen: Mapping[IssueId, BdRow] | None = None
    ) -> list[source.Settled]:
        """Settle the group; return one answer each, in order. Raises ``SourceError`` if nothing at
        all is known.

        ``known`` issues need no look: they are in progress in our name, for sure or as far as we
        know. ``seen``: a look that was just taken, at all of them.
        """
        writes = [
            unseen(s, self.actor, sure=known[s.issue_id])
            for s in self.settlements
            if s.issue_id in known
        ]
        writes += self._decide([s for s in self.settlements if s.issue_id not in known], seen)
        errors = apply(self.tracker, self.actor, writes)
        self._applied(writes, errors)
        if errors:
            self._retry_one_by_one(
                [w.settlement for w in writes if w.settlement.issue_id in errors], errors
            )
        answers = [self.answers[s.issue_id] for s in self.settlements]
        if self._trouble and all(a.result is source.Result.FAILED for a in answers):
            raise self._trouble
        return answers

    def _retry_one_by_one(self, settlements: Sequence[source.Settlement], errors: Errors) -> None:
        """Look again at the issues of a refused or lost call, then write them one by one."""
        # An issue that was only refused for its open children is still ours: its work is done.
        writes = [
            replace(write, sure=not self.shared and held_by(write.assignee, self.actor))
            for write in self._decide(settlements, None, errors)
        ]
        errors = apply(self.tracker, self.actor, writes, alone=True)
        self._applied(writes, errors)
        for write in writes:
            error = errors.get(write.settlement.issue_id)
            if error is not None:
                self._answer(source.Settled(write.settlement, source.Result.FAILED, error))

    def _decide(
        self,
        settlements: Sequence[source.Settlement],
        seen: Mapping[IssueId, BdRow] | None,
        errors: Mapping[IssueId, str] | None = None,
    ) -> list[ConditionalWrite]:
        try:
            if settlements and seen is None:
                seen = self.tracker.look([s.issue_id for s in settlements])
            seen = seen or {}
            closers = self._closers(settlements, seen)
            verdicts = [
                decide(one, seen.get(one.issue_id), self.actor, closers.get(one.issue_id, ""))
                for one in settlements
            ]
            self._unmark(settlements, verdicts, seen)
        except source.SourceError as trouble:
            self._trouble = trouble
            for one in settlements:
                error = (errors or {}).get(one.issue_id, str(trouble))
                self._answer(source.Settled(one, source.Result.FAILED, error))
            return []
        writes = []
        for one, verdict in zip(settlements, verdicts, strict=True):
            if isinstance(verdict, ConditionalWrite):
                held = (verdict.status, verdict.assignee) == (IN_PROGRESS, self.actor)
                writes.append(replace(verdict, sure=held and one.issue_id in self.sure))
            else:
                self._answer(verdict)
        return writes

    def _closers(
        self, settlements: Sequence[source.Settlement], seen: Mapping[IssueId, BdRow]
    ) -> dict[IssueId, str]:
        """Return who closed the closed issues, if an agent may have closed them."""
        ids = [s.issue_id for s in settlements if s.by_agent and s.issue_id in seen]
        closed = [i for i in ids if seen[i].status == CLOSED]
        return self.tracker.closers(closed, self.actor) if closed else {}

    def _unmark(
        self,
        settlements: Sequence[source.Settlement],
        verdicts: Sequence[ConditionalWrite | source.Settled],
        seen: Mapping[IssueId, BdRow],
    ) -> None:
        """Take off the labels of issues that do not wait for a person any more."""
        off: dict[tuple[str, ...], list[IssueId]] = {}
        for one, verdict in zip(settlements, verdicts, strict=True):
            row = seen.get(one.issue_id)
            if row is None or not (marks := set(row.labels) & {*source.MARKS} - {one.mark}):
                continue
            result = source.Result.APPLIED
            result = verdict.result if isinstance(verdict, source.Settled) else result
            if unmarks(Ownership(row.status, row.assignee), result):
                off.setdefault(tuple(sorted(marks)), []).append(one.issue_id)
        for labels, ids in off.items():
            fields = [f"--remove-label={each}" for each in labels]
            self.tracker.ask(["update", "--json", *fields, "--", *ids], ids=len(ids))

    def _applied(self, writes: Iterable[ConditionalWrite], errors: Errors) -> None:
        for write in writes:
            if write.settlement.issue_id not in errors:
                self._answer(source.Settled(write.settlement, source.Result.APPLIED))

    def _answer(self, settled: source.Settled) -> None:
        self.answers[settled.settlement.issue_id] = settled


def rounds(settlements: Sequence[source.Settlement]) -> list[list[source.Settlement]]:
    """Split so that each round names an issue once; later settlements of an issue come later."""
    found: list[list[source.Settlement]] = []
    for settlement in settlements:
        for group in found:
            if all(other.issue_id != settlement.issue_id for other in group):
                group.append(settlement)
                break
        else:
            found.append([settlement])
    return found
