"""Planted bugs: each breaks one promise, and a checker must find that out."""

from __future__ import annotations

from dataclasses import dataclass

from beads_workers.core.events import Event, Misread
from beads_workers.core.orchestrator import Orchestrator


@dataclass(frozen=True, slots=True)
class Mutant:
    """Nothing is broken, unless a field says so. ``caught_by``: the numbers of its invariants.

    ``push``: it is planted in worlds with a push source, of this ``kind``.
    """

    caught_by: tuple[int, ...] = ()
    blind_swap: bool = False
    error_is_empty: bool = False
    acts_first: bool = False
    calls_first: bool = False
    never_syncs: bool = False
    drops_early: bool = False
    forgets_attempts: bool = False
    is_deaf: bool = False
    leaves_tasks: bool = False
    settles_unasked: bool = False
    ignores_lock: bool = False
    writes_no_requeued: bool = False
    push: bool = False
    kind: str = ""
    answers_twice: bool = False
    loses_answers: bool = False
    acknowledges_early: bool = False
    forgets_duplicates: bool = False
    forgets_in_flight: bool = False
    orchestrator: type[Orchestrator] = Orchestrator


class NoOwnerCheck(Orchestrator):
    """Hands an issue on as soon as its worker's connection is lost."""

    def handle(self, event: Event, now: float, *args, **named) -> list:  # type: ignore
        """As ever, but what is orphaned is settled at once."""
        commands = super().handle(event, now, *args, **named)
        if self._parts.tasks.orphaned():
            for in_flight in self._parts.tasks.orphaned():
                self._connections.end_orphaned(in_flight)
            commands += self._after_events()
        return commands


class FallsOverJunk(Orchestrator):
    """Takes it for granted that whoever talks to it sends messages."""

    def handle(self, event: Event, now: float, *args, **named) -> list:  # type: ignore
        """As ever, but for what cannot be read."""
        assert not isinstance(event, Misread), event
        return super().handle(event, now, *args, **named)


class NeverOnTime(Orchestrator):
    """Does nothing for whose time has come."""

    def deadline(self) -> float | None:
        """Nothing is ever due."""
        return None


MUTANTS = {
    "no-compare-and-swap": Mutant((1,), blind_swap=True),
    "no-owner-check": Mutant((1,), orchestrator=NoOwnerCheck),
    "no-sync": Mutant((3,), never_syncs=True),
    "old-segments-dropped-early": Mutant((1, 2, 3, 5), drops_early=True),
    "act-before-journal": Mutant((3,), acts_first=True),
    "call-before-journal": Mutant((3,), calls_first=True),
    "error-is-empty": Mutant((4,), error_is_empty=True),
    "attempts-forgotten": Mutant((5,), forgets_attempts=True),
    "result-spool-unread": Mutant((1,), is_deaf=True),
    "leaked-task": Mutant((1, 6), leaves_tasks=True),
    "settled-unasked": Mutant((2,), settles_unasked=True),
    "falls-over-junk": Mutant((8,), orchestrator=FallsOverJunk),
    "nothing-due": Mutant((9,), orchestrator=NeverOnTime),
    "no-lock": Mutant((7,), ignores_lock=True),
    "a-transition-without-its-record": Mutant((12,), writes_no_requeued=True),
    "answers-twice": Mutant((10,), push=True, kind="rrq", answers_twice=True),
    "acknowledges-early": Mutant((11,), push=True, kind="spool", acknowledges_early=True),
    "runs-duplicates": Mutant((1, 10), push=True, kind="queue", forgets_duplicates=True),
    "forgets-what-a-dead-run-had": Mutant((11,), push=True, kind="spool", forgets_in_flight=True),
    "loses-answers": Mutant((11,), push=True, kind="rrq", loses_answers=True),
}
