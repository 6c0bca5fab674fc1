"""Carrying out writes in as few calls as this ``bd`` allows.

With compare-and-swap every write names what it expects. Closes that are sure (our lease on the
issue goes on for long enough) go through ``bd batch`` instead: three times faster. Without
compare-and-swap the issue was looked at just before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from beads_workers.core.jobs import IssueId
from beads_workers.core.limits import ERROR_CHARS_MAX
from beads_workers.core.source import Action, SourceError
from beads_workers.sources.bd.answers import (
    CLOSED,
    failed,
    object_of,
    refusals,
    rows,
    rows_of_group,
)
from beads_workers.sources.bd.tracker import IDS_PER_CALL_MAX, Tracker
from beads_workers.sources.bd.verdicts import Write

REASON_CHARS_MAX = 500

Errors = dict[IssueId, str]
"""One line for each issue that was not written; all others were."""


def apply(tracker: Tracker, actor: str, writes: Sequence[Write], *, alone: bool = False) -> Errors:
    """Write all of them; ``alone``: one call for each, so that none can spoil another's."""
    errors: Errors = {}
    for call, group in _groups(tracker, writes):
        size = 1 if alone else IDS_PER_CALL_MAX
        for start in range(0, len(group), size):
            part = group[start : start + size]
            try:
                errors |= call(tracker, actor, part)
            except SourceError as error:
                errors |= {write.settlement.issue_id: str(error) for write in part}
    return errors


Call = Callable[[Tracker, str, Sequence[Write]], Errors]


def _groups(tracker: Tracker, writes: Iterable[Write]) -> list[tuple[Call, list[Write]]]:
    """What can share a call, in the order in which each group was first asked for."""
    groups: dict[tuple[Call, object], list[Write]] = {}
    for write in writes:
        call = _call_for(tracker, write)
        if call is None:
            continue
        groups.setdefault((call, _shared(call, write)), []).append(write)
    return [(call, group) for (call, _), group in groups.items()]


def _call_for(tracker: Tracker, write: Write) -> Call | None:
    abilities = tracker.abilities
    action = write.settlement.action
    if action is Action.HAND_OVER and not abilities.compare_and_swap:
        # Nothing to write: this bd lets any actor update and close what is in another's name.
        return None
    if action is Action.CLOSE:
        if abilities.batch and write.sure:
            return _close_in_batch
        if not abilities.compare_and_swap:
            return _close
    return _update


def _shared(call: Call, write: Write) -> object:
    """What the writes of one call must have in common."""
    if call is not _update:
        return None
    if write.settlement.action in (Action.SET_ASIDE, Action.CLOSE) and write.settlement.note:
        return write
    return (write.settlement.action, write.status, write.assignee)


def _close_in_batch(tracker: Tracker, actor: str, group: Sequence[Write]) -> Errors:
    lines = "".join(f"{_close_line(write)}\n" for write in group)
    answer = tracker.ask(["batch", "--json"], ids=len(group), text=lines, actor=actor)
    if object_of(answer).get("operations") != len(group):
        raise failed(answer)
    return {}


def _close_line(write: Write) -> str:
    reason = _reason(write.settlement.note).replace("\\", "\\\\").replace('"', '\\"')
    line = f"close {write.settlement.issue_id}"
    return f'{line} "{reason}"' if reason else line


def _close(tracker: Tracker, actor: str, group: Sequence[Write]) -> Errors:
    ids = _ids(group)
    # One call knows one reason: where they differ, say only who it was.
    reasons = {_reason(write.settlement.note) for write in group}
    reason = reasons.pop() if len(reasons) == 1 else ""
    arguments = ["close", "--json", f"--reason={reason or f'Closed by {actor}'}", "--", *ids]
    closed = rows(tracker.ask(arguments, ids=len(ids), actor=actor))
    done = {row.issue_id for row in closed if row.status == CLOSED}
    return {i: "bd close did not close it" for i in ids if i not in done}


def _update(tracker: Tracker, actor: str, group: Sequence[Write]) -> Errors:
    ids = _ids(group)
    arguments = ["update", "--json", *_fields(tracker, group[0]), "--", *ids]
    answer = tracker.ask(arguments, ids=len(ids), actor=actor)
    after = group[0].status_after
    done = {row.issue_id for row in rows_of_group(answer) if row.status == after}
    said = {refusal.issue_id: refusal.error for refusal in refusals(answer)}
    return {i: said.get(i, "bd update did not change it") for i in ids if i not in done}


def _fields(tracker: Tracker, write: Write) -> list[str]:
    abilities = tracker.abilities
    fields = []
    if abilities.compare_and_swap:
        fields += [f"--if-assignee={write.assignee}", f"--if-status={write.status}"]
    action = write.settlement.action
    if action is not Action.HAND_OVER:
        fields.append(f"--status={write.status_after}")
    if action is not Action.CLOSE:
        fields.append("--assignee=")
    if action in (Action.SET_ASIDE, Action.CLOSE) and write.settlement.note:
        note = _note(write.settlement.note)
        if abilities.append_notes:
            fields.append(f"--append-notes={note}")
        else:
            fields.append(f"--notes={write.notes}\n{note}" if write.notes else f"--notes={note}")
    return fields


def _ids(group: Sequence[Write]) -> list[IssueId]:
    return [write.settlement.issue_id for write in group]


def _reason(note: str) -> str:
    """One line: the batch reads lines."""
    line = "".join(c if c.isprintable() else " " for c in note)
    return " ".join(line.split())[:REASON_CHARS_MAX]


def _note(note: str) -> str:
    """Lines stay, other control characters (a NUL above all) do not."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in note)[:ERROR_CHARS_MAX]
