"""What a settlement may do to an issue, given how the tracker shows it: one pure rule.

It is the rule for trackers that are read and written in one transaction. Source:
docs/SEMANTICS.md, "Connection loss".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import assert_never

from beads_workers.core.model import FLEETS, IssueId, value
from beads_workers.core.ready import FINISHED
from beads_workers.core.source import CLOSED_BY_OTHERS, Action, CrashedRun, Result, Settlement

OPEN = "open"
IN_PROGRESS = "in_progress"
BLOCKED = "blocked"
CLOSED = "closed"
TOMBSTONE = "tombstone"


@value
class Ownership:
    """How the tracker shows an issue; ``assignee`` is empty where nobody holds it."""

    status: str
    assignee: str


@value
class Ruling:
    """The answer, and what to write first; None writes nothing."""

    result: Result
    write: Ownership | None = None
    error: str = ""


def rule(settlement: Settlement, found: Ownership | None, actor: str) -> Ruling:
    """Decide for ``actor``; ``found`` is None where the tracker has no such issue."""
    if found is None:
        return Ruling(Result.NOT_OURS, error="no such issue")
    if settlement.taken_back and found.status == CLOSED:
        return _written(Ownership(OPEN, ""))
    if settlement.action is Action.CONFIRM:
        return _confirmed(settlement, found, actor)
    if settlement.by_agent and found.status == CLOSED and _is_ours(found, actor):
        return _written(_instead(settlement.action, actor))
    if found.status in FINISHED:
        # Also without read_first: an issue that is closed is closed, whoever did it.
        return Ruling(Result.FOUND_CLOSED)
    ours = _is_ours(found, actor) or (settlement.handed_over and _is_reserved(found))
    ours = ours or (settlement.shelved and found == Ownership(BLOCKED, ""))
    match settlement.action:
        case Action.CLOSE:
            return _written(Ownership(CLOSED, actor)) if ours else _left_alone(found)
        case Action.RELEASE:
            return _release(found, ours)
        case Action.QUARANTINE | Action.SHELVE:
            if found == Ownership(BLOCKED, ""):
                return Ruling(Result.APPLIED)
            return _written(Ownership(BLOCKED, "")) if ours else _left_alone(found)
        case Action.HAND_OVER:
            if found == Ownership(IN_PROGRESS, ""):
                return Ruling(Result.APPLIED)  # Asked again: its first answer was lost.
            return _written(Ownership(found.status, "")) if ours else _left_alone(found)
        case Action.REOPEN:
            # What a crashed run held; a living one may have it in hand again by now.
            return _reopen(found, ours and settlement.read_first)
        case _:
            assert_never(settlement.action)


def pending(dead: CrashedRun, held: Sequence[IssueId]) -> list[Settlement]:
    """What a crashed run left to be written: its closes, what else it held or handed over, and what
    it took back.

    ``held``: the ids that the tracker shows in the name of its actor, in the tracker's order; of
    what is closed, those that an agent may have closed by itself (``dead.by_agents``).
    """
    done = dict.fromkeys(dead.unclosed)
    kept = frozenset(dead.kept)
    back = dict.fromkeys(i for i in (*held, *dead.handed_over) if i not in kept)
    reopened = [key for key in dead.reopened if key not in done and key not in back]
    return [
        *dead.closes(done),
        *(dead.back(key) for key in back if key not in done),
        *(Settlement(Action.REOPEN, key) for key in reopened),
    ]


def is_left_by(dead: CrashedRun, issue_id: str, found: Ownership) -> bool:
    """Whether a crashed run holds it still, or its agent has closed it by itself."""
    statuses = (OPEN, IN_PROGRESS, CLOSED) if issue_id in dead.by_agents else (OPEN, IN_PROGRESS)
    return found.status in statuses and is_held_by(found.assignee, dead.actor)


def is_held_by(assignee: str, actor: str) -> bool:
    """The actor's own claims, and those of its workers (``<actor>/W3``) where they claim."""
    return assignee == actor or assignee.startswith(f"{actor}/")


def other_run(assignee: str, actor: str = "") -> str:
    """The run of ours that holds it (``beads-workers/HOST/RUN``), unless ``actor`` is that run;
    empty for a person, and for nobody."""
    words = assignee.split("/")
    if len(words) < 3 or f"{words[0]}/" != FLEETS or (actor and is_held_by(assignee, actor)):
        return ""
    return "/".join(words[:3])


def _confirmed(settlement: Settlement, found: Ownership, actor: str) -> Ruling:
    # No agent can close an issue here: no command does.
    if found.status in FINISHED:
        return Ruling(Result.NOT_OURS, error=CLOSED_BY_OTHERS)
    shelved = settlement.shelved and found == Ownership(BLOCKED, "")
    held = Ruling(Result.APPLIED)
    return held if shelved or _is_ours(found, actor) else _left_alone(found)


def _instead(action: Action, actor: str) -> Ownership:
    """How an issue is to be shown that its agent has closed by itself."""
    match action:
        case Action.CLOSE:
            return Ownership(CLOSED, actor)
        case Action.QUARANTINE | Action.SHELVE:
            return Ownership(BLOCKED, "")
        case _:
            return Ownership(OPEN, "")


def _is_ours(found: Ownership, actor: str) -> bool:
    return is_held_by(found.assignee, actor)


def _is_reserved(found: Ownership) -> bool:
    """Handed over, and nobody claimed it since."""
    return not found.assignee and found.status in (OPEN, IN_PROGRESS)


def _written(holding: Ownership) -> Ruling:
    return Ruling(Result.APPLIED, holding)


def _release(found: Ownership, ours: bool) -> Ruling:
    if found == Ownership(OPEN, ""):
        return Ruling(Result.APPLIED)
    # A worker or an agent that marked its issue blocked or deferred meant it.
    if ours and found.status in (OPEN, IN_PROGRESS):
        return _written(Ownership(OPEN, ""))
    return _left_alone(found)


def _reopen(found: Ownership, ours: bool) -> Ruling:
    if found == Ownership(BLOCKED, ""):
        return _written(Ownership(OPEN, ""))
    return _release(found, ours)


def _left_alone(found: Ownership) -> Ruling:
    holder = f"held by {found.assignee}" if found.assignee else "held by nobody"
    return Ruling(Result.NOT_OURS, error=f"its status is {found.status}, {holder}")


# --- clock ---------------------------------------------------------------------------------------
# The clock that leases are measured on.


boot_seconds: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)
"""Seconds since boot, with the time that the machine slept.

The tracker's lease goes on meanwhile; the monotonic clock of Linux stands still.
"""
