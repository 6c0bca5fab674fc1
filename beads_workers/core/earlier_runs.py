"""Earlier runs, told by their journals: which are owed something, and what is carried on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from beads_workers.core.recovery import Remains


def host_of(actor: str) -> str:
    """The machine in a run's actor; empty where it names none."""
    parts = actor.split("/")
    return parts[1] if len(parts) == 3 and parts[0] == "beads-workers" else ""


def left_over(
    run_ids: Sequence[str], is_settled: Callable[[str], bool], read: Callable[[str], Remains | None]
) -> tuple[list[Remains], Remains]:
    """What unsettled runs are owed, oldest first, and the fold over all: what the next one carries.

    ``run_ids``: oldest first; ``read`` gives None for a run that is not to be looked at. One whose
    checkpoint is whole carries all that came before it, so older ones are read only where they
    are unsettled, and then those in between, which may have paid for them.
    """
    known: list[Remains] = []
    heard: set[str] = set()
    passed: list[str] = []
    whole = False
    for run_id in reversed(run_ids):
        if whole and is_settled(run_id):
            passed.append(run_id)
            continue
        left = read(run_id)
        if left is None:
            continue
        for later in filter(None, map(read, passed)):
            heard |= later.heard | later.own_debts()
        passed.clear()
        left.is_paid(heard)
        heard |= left.heard | left.own_debts()
        known.append(left)
        whole = whole or left.whole
    last = Remains()
    for left in reversed(known):
        left.take_over(last)
        last = left
    return [left for left in reversed(known) if not is_settled(left.run_id)], last
