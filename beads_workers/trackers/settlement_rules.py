"""The rule for what a settlement may do to an issue in the state that the tracker shows. Pure.

It is the rule for trackers that are read and written in one transaction. Source: docs/SEMANTICS.md,
"Connection loss".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from beads_workers.core.base.model import FLEETS, IssueId, value
from beads_workers.core.base.ready import FINISHED
from beads_workers.core.base.source import (
    CLOSED_BY_OTHERS,
    MARKS,
    Action,
    CrashedRun,
    HeldByRun,
    IssueEdit,
    Result,
    Settlement,
    reopening,
)
from beads_workers.runtime.kernel import system

OPEN = "open"
IN_PROGRESS = "in_progress"
BLOCKED = "blocked"
CLOSED = "closed"
TOMBSTONE = "tombstone"


@value
class Ownership:
    """State of an issue in the tracker; ``assignee`` is empty if nobody holds it."""

    status: str
    assignee: str


@value
class Ruling:
    """The answer, and the state to write first; None: nothing is written."""

    result: Result
    write: Ownership | None = None
    error: str = ""


def rule(settlement: Settlement, found: Ownership | None, actor: str) -> Ruling:
    """Decide for ``actor``; ``found`` is None if the tracker has no such issue."""
    if found is None:
        return Ruling(Result.NOT_OURS, error="no such issue")
    if settlement.taken_back and found.status == CLOSED:
        return _written(Ownership(OPEN, ""))
    if settlement.action is Action.CONFIRM:
        return _confirmed(settlement, found, actor)
    if settlement.by_agent and found.status == CLOSED and _is_ours(found, actor):
        return _written(_instead(settlement.action, actor))
    if found.status in FINISHED:
        # Also without read_first: a closed issue is closed, whoever closed it.
        return Ruling(Result.FOUND_CLOSED)
    ours = _is_ours(found, actor) or (settlement.handed_over and _is_reserved(found))
    ours = ours or (settlement.shelved and found == Ownership(BLOCKED, ""))
    match settlement.action:
        case Action.CLOSE:
            return _written(Ownership(CLOSED, actor)) if ours else _left_alone(found)
        case Action.RELEASE:
            return _release(found, ours)
        case Action.QUARANTINE | Action.SHELVE | Action.ASK:
            if found == Ownership(BLOCKED, ""):
                return Ruling(Result.APPLIED)
            return _written(Ownership(BLOCKED, "")) if ours else _left_alone(found)
        case Action.HAND_OVER:
            if found == Ownership(IN_PROGRESS, ""):
                return Ruling(Result.APPLIED)  # Asked again: the first answer was lost.
            return _written(Ownership(found.status, "")) if ours else _left_alone(found)
        case Action.REOPEN:
            # ``read_first`` marks an issue of a crashed run, or of 'undo'. Only then is a claim in
            # our name released as well; otherwise it may be a newer claim.
            return _reopen(found, ours and settlement.read_first)
        case _:
            assert_never(settlement.action)


def unmarks(found: Ownership | None, result: Result) -> bool:
    """Return whether a mark that is not the settlement's own is taken off (``Settlement.mark``)."""
    return found is not None and (result is not Result.NOT_OURS or found.status != BLOCKED)


def outdated_marks(status: str, labels: Iterable[str], change: IssueEdit) -> tuple[str, ...]:
    """Return the marks of an issue that a person closes or opens: it waits for nothing more."""
    moves = change.status not in (None, BLOCKED, status)
    return tuple(each for each in labels if each in MARKS) if moves else ()


def pending(dead: CrashedRun, held: Sequence[IssueId]) -> list[Settlement]:
    """Return the settlements that a crashed run left unwritten: its closes, the other issues that
    it held or handed over, and those that it took back.

    ``held``: the ids that the tracker shows in the name of its actor, in the tracker's order.
    Closed ones are included if an agent may have closed them by itself (``dead.by_agents``).
    """
    done = dict.fromkeys(dead.unclosed)
    kept = frozenset(dead.kept)
    left = () if dead.closes_only else (*held, *dead.handed_over)
    back = dict.fromkeys(i for i in left if i not in kept)
    reopened = [key for key in dead.reopened if key not in done and key not in back]
    return [
        *dead.closes(done),
        *(dead.back(key) for key in back if key not in done),
        *(reopening(key, key in dead.answered) for key in reopened),
    ]


def is_left_by(dead: CrashedRun, issue_id: str, found: Ownership) -> bool:
    """Return whether a crashed run still holds the issue, or its agent has closed it by itself."""
    statuses = (OPEN, IN_PROGRESS, CLOSED) if issue_id in dead.by_agents else (OPEN, IN_PROGRESS)
    return found.status in statuses and is_held_by(found.assignee, dead.actor)


def is_held_by(assignee: str, actor: str) -> bool:
    """Return whether the claim is the actor's own, or that of one of its workers
    (``<actor>/W3``)."""
    return assignee == actor or assignee.startswith(f"{actor}/")


def other_run(assignee: str, actor: str = "") -> str:
    """Return the run of ours that holds the issue (``beads-workers/HOST/RUN``), unless ``actor`` is
    that run; "" for a person, and for nobody."""
    words = assignee.split("/")
    if len(words) < 3 or f"{words[0]}/" != FLEETS or (actor and is_held_by(assignee, actor)):
        return ""
    return "/".join(words[:3])


def refuse_held(issue_id: IssueId, found: Ownership) -> None:
    """Raise ``HeldByRun`` if a run of a fleet works on the issue."""
    if found.status in (OPEN, IN_PROGRESS) and (run := other_run(found.assignee)):
        raise HeldByRun(issue_id, run)


def _confirmed(settlement: Settlement, found: Ownership, actor: str) -> Ruling:
    # In the built-in tracker no agent closes its own issue (``refuse_held``), so CONFIRM takes any
    # close as somebody else's. (``rule`` looks at ``by_agent`` for all other actions.)
    if found.status in FINISHED:
        return Ruling(Result.NOT_OURS, error=CLOSED_BY_OTHERS)
    shelved = settlement.shelved and found == Ownership(BLOCKED, "")
    held = Ruling(Result.APPLIED)
    return held if shelved or _is_ours(found, actor) else _left_alone(found)


def _instead(action: Action, actor: str) -> Ownership:
    """Return the state to write for an issue that its agent has closed by itself."""
    match action:
        case Action.CLOSE:
            return Ownership(CLOSED, actor)
        case Action.QUARANTINE | Action.SHELVE | Action.ASK:
            return Ownership(BLOCKED, "")
        case _:
            return Ownership(OPEN, "")


def _is_ours(found: Ownership, actor: str) -> bool:
    return is_held_by(found.assignee, actor)


def _is_reserved(found: Ownership) -> bool:
    """Return whether the issue was handed over, and nobody claimed it since."""
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


boot_seconds: Callable[[], float] = system.clock
"""Clock for leases: a function that returns the seconds since boot, including the time asleep.

The tracker's lease goes on during sleep; the monotonic clock of Linux stands still.
"""
