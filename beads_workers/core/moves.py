"""What every state table is made of: moves, totality, and the look-up."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

from beads_workers.core.values import value

S = TypeVar("S", bound=Enum)
T = TypeVar("T", bound=Enum)
R = TypeVar("R", bound=Enum)


class Key(Enum):
    """Base of states and stimuli: every message looks some up, a dozen times.

    A member is equal to itself only, so its identity will do for a hash; ``Enum`` would hash its
    name, in Python code.
    """

    __hash__ = object.__hash__


@value
class Move(Generic[S, R]):
    """Where a stimulus leads, and what is done on the way; ``bug``: nothing, it cannot be."""

    to: S
    reaction: R
    bug: bool = False


Table = Mapping[tuple[S, T], Move[S, R]]


class ImpossibleMove(AssertionError):
    """A bug of ours: a pair that the table calls impossible."""


def step(table: Table[S, T, R], state: S, stimulus: T) -> Move[S, R]:
    """Look up a move; raises ``ImpossibleMove`` for what the table rules out."""
    move = table[state, stimulus]
    if move.bug:
        raise ImpossibleMove(f"{stimulus} in {state}")
    return move


def total(
    table: dict[tuple[S, T], Move[S, R]], states: type[S], stimuli: type[T], bug: R
) -> Table[S, T, R]:
    """Every pair that is not listed is a bug of ours, said explicitly."""
    return {
        (state, stimulus): table.get((state, stimulus), Move(state, bug, bug=True))
        for state in states
        for stimulus in stimuli
    }
