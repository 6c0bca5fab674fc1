"""What a settlement means for an issue as it was just seen. Pure.

Whatever it decides to write names the status and the assignee that it saw, so that ``bd`` can
refuse the write if they have changed since (compare-and-swap).
"""

from __future__ import annotations

from typing import assert_never

from beads_workers.core.source import Action, Result, Settled, Settlement
from beads_workers.core.values import value
from beads_workers.sources.bd.answers import BLOCKED, CLOSED, IN_PROGRESS, OPEN, Row


@value
class Write:
    """Write only while the issue is in ``status``, in the name of ``assignee``.

    ``notes``: what stands there already, for a ``bd`` that cannot append. ``sure``: nobody can
    have changed it, so that it may be written without naming what is expected.
    """

    settlement: Settlement
    status: str
    assignee: str
    notes: str = ""
    sure: bool = False

    @property
    def status_after(self) -> str:
        """What the issue's status is to be."""
        match self.settlement.action:
            case Action.CLOSE:
                return CLOSED
            case Action.RELEASE | Action.REOPEN:
                return OPEN
            case Action.SET_ASIDE:
                return BLOCKED
            case Action.HAND_OVER:
                return IN_PROGRESS
            case _:
                assert_never(self.settlement.action)


def held_by(assignee: str, actor: str) -> bool:
    """Whether ``actor`` or one of its workers (``actor/W3``) holds it."""
    return assignee == actor or assignee.startswith(actor + "/")


def unseen(settlement: Settlement, actor: str, *, sure: bool) -> Write:
    """For what we hold as far as we know: in progress, in our own name."""
    return Write(settlement, IN_PROGRESS, actor, sure=sure)


def decide(settlement: Settlement, seen: Row | None, actor: str) -> Write | Settled:
    """Decide for one issue; ``seen`` is None when the tracker no longer has it."""
    if seen is None:
        return Settled(settlement, Result.NOT_OURS, "the tracker has no such issue")
    if seen.status == CLOSED:
        return Settled(settlement, Result.FOUND_CLOSED)
    write = Write(settlement, seen.status, seen.assignee, seen.notes)
    if _is_as_asked(settlement.action, seen):
        return Settled(settlement, Result.APPLIED)
    if settlement.action is Action.REOPEN:
        may = _may_reopen(settlement, seen, actor)
    else:
        may = _may_write(settlement, seen, actor)
    if may:
        return write
    return Settled(settlement, Result.NOT_OURS, whose(seen))


def _may_reopen(settlement: Settlement, seen: Row, actor: str) -> bool:
    if seen.status == BLOCKED and not seen.assignee:
        return True
    # What a dead run held; a living one may have it in hand again by now.
    return settlement.read_first and _may_write(settlement, seen, actor)


def _is_as_asked(action: Action, seen: Row) -> bool:
    if seen.assignee:
        return False
    match action:
        case Action.RELEASE | Action.REOPEN:
            return seen.status == OPEN
        case Action.SET_ASIDE:
            return seen.status == BLOCKED
        case Action.HAND_OVER:
            return seen.status == IN_PROGRESS
        case Action.CLOSE:
            return False
        case _:
            assert_never(action)


def _may_write(settlement: Settlement, seen: Row, actor: str) -> bool:
    if seen.status not in (OPEN, IN_PROGRESS):
        return False
    if settlement.action is Action.HAND_OVER and seen.status == OPEN:
        return False
    if held_by(seen.assignee, actor):
        return True
    if seen.assignee:
        return False
    # In nobody's name: done work is closed wherever it stands, an open issue may be set aside,
    # and one in progress is ours only where we handed it over ourselves.
    if settlement.action is Action.CLOSE or seen.status == OPEN:
        return True
    return settlement.handed_over


def whose(seen: Row) -> str:
    """Status and holder, for people."""
    holder = f"assigned to {seen.assignee}" if seen.assignee else "assigned to nobody"
    return f"it is {seen.status}, {holder}"
