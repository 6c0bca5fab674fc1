"""Conditions of the machine: nothing new meanwhile, and on again when they end."""

from __future__ import annotations

from beads_workers.core.commands import Command, Write
from beads_workers.core.effects import Effects
from beads_workers.core.events import Hindered
from beads_workers.core.journal import Hindrance, HindranceOver
from beads_workers.core.lifecycle import Hindrances

FULL = Hindered("the disk", "no room", "df -h", stops=True)
SHUT = Hindered("the socket", "nobody can connect", "prlimit", stops=False)


def written(effects: Effects) -> list[Command]:
    return effects.flush()


def test_each_is_told_once_and_its_end_only_where_it_was_told() -> None:
    effects = Effects(0.0)
    hindrances = Hindrances(effects)
    hindrances.hindered(FULL)
    hindrances.hindered(FULL)
    hindrances.eased("the socket")
    assert written(effects) == [Write(Hindrance("the disk", "no room", "df -h", True))]
    hindrances.eased("the disk")
    hindrances.eased("the disk")
    assert written(effects) == [Write(HindranceOver("the disk"))]


def test_only_what_would_make_new_work_fail_stops_the_intake() -> None:
    hindrances = Hindrances(Effects(0.0))
    hindrances.hindered(SHUT)
    assert not hindrances.stop
    hindrances.hindered(FULL)
    assert hindrances.stop
    hindrances.eased("the disk")
    assert not hindrances.stop
