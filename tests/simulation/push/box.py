"""What a push source knows of its arrivals: on a disk that may forget, or far away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.push.world import PushWorld


WAITING = "waiting"
ANSWERED = "answered"


@dataclass(slots=True)
class Arrival:
    """``holder``: the actor that has it; ``withdrawn``: nobody wants it any more."""

    id: str
    number: int
    state: str = WAITING
    holder: str = ""
    withdrawn: bool = False
    answer: str = ""


class Box:
    """Every change is one step. ``forgets``: what was not synced is lost when the power is cut."""

    def __init__(self, world: PushWorld, *, forgets: bool) -> None:
        self._world = world
        self._forgets = forgets
        self._undo: list[Callable[[], object]] = []
        self.arrivals: dict[str, Arrival] = {}

    def accept(self, key: str) -> None:
        """It has come; a second time it is known already."""
        if key in self.arrivals:
            if self._world.mutant.forgets_duplicates:
                self._put(self.arrivals[key], state=WAITING, holder="")
            return
        self.arrivals[key] = Arrival(key, len(self.arrivals))
        self._undo.append(lambda: self.arrivals.pop(key, None))

    def waiting(self, skip: frozenset[str]) -> list[Arrival]:
        """What may be taken, oldest first."""
        found = (each for each in self.arrivals.values() if each.state == WAITING)
        return sorted((a for a in found if a.id not in skip), key=lambda each: each.number)

    def held_by(self, actor: str) -> list[Arrival]:
        """What that run has, or had."""
        return [a for a in self.arrivals.values() if a.holder == actor and a.state != ANSWERED]

    def held_by_others(self, actor: str) -> list[Arrival]:
        """What runs have that are over: one at a time works here, and settles what it finds."""
        return [a for a in self.arrivals.values() if a.state == "held" and a.holder != actor]

    def hold(self, arrival: Arrival, actor: str) -> None:
        """It goes to that run."""
        self._put(arrival, state="held", holder=actor)

    def requeue(self, arrival: Arrival) -> None:
        """It waits again; what nobody wants any more is answered instead."""
        if arrival.withdrawn:
            self.answer(arrival, "cancelled")
        else:
            self._put(arrival, state=WAITING, holder="")

    def answer(self, arrival: Arrival, answer: str) -> None:
        """Its terminal answer."""
        if arrival.state == ANSWERED and not self._world.mutant.answers_twice:
            return
        self._world.check.answered(arrival.id, answer)
        self._put(arrival, state=ANSWERED, holder="", answer=answer)
        self._undo.append(lambda: self._world.check.unanswered(arrival.id))

    def withdraw(self, arrival: Arrival) -> bool:
        """Nobody wants it any more. True: it is with a run, which is to be told."""
        self._put(arrival, withdrawn=True)
        if arrival.state == WAITING:
            self.answer(arrival, "cancelled")
        return arrival.state == "held"

    def sync(self) -> None:
        """What was written so far is there for good."""
        self._undo.clear()

    def cut_power(self) -> None:
        """What was not synced is gone."""
        if self._forgets:
            while self._undo:
                self._undo.pop()()

    def _put(self, arrival: Arrival, **changed: object) -> None:
        before = {name: getattr(arrival, name) for name in changed}
        for name, value in changed.items():
            setattr(arrival, name, value)

        def undo() -> None:
            for name, value in before.items():
                setattr(arrival, name, value)

        self._undo.append(undo)
