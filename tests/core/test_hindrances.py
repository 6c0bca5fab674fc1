"""Conditions of the machine: nothing new meanwhile, and on again when they end."""

from __future__ import annotations

from beads_workers.core.commands import Command, Write
from beads_workers.core.effects import Desk
from beads_workers.core.events import Hindered
from beads_workers.core.journal import Hindrance, HindranceOver
from beads_workers.core.lifecycle import Hindrances

FULL = Hindered("the disk", "no room", "df -h", stops=True)
SHUT = Hindered("the socket", "nobody can connect", "prlimit", stops=False)


def written(desk: Desk) -> list[Command]:
    return desk.hand_in()


def test_each_is_told_once_and_its_end_only_where_it_was_told() -> None:
    desk = Desk(0.0)
    hindrances = Hindrances(desk)
    hindrances.hindered(FULL)
    hindrances.hindered(FULL)
    hindrances.eased("the socket")
    assert written(desk) == [Write(Hindrance("the disk", "no room", "df -h", True))]
    hindrances.eased("the disk")
    hindrances.eased("the disk")
    assert written(desk) == [Write(HindranceOver("the disk"))]


def test_only_what_would_make_new_work_fail_stops_the_intake() -> None:
    hindrances = Hindrances(Desk(0.0))
    hindrances.hindered(SHUT)
    assert not hindrances.stop
    hindrances.hindered(FULL)
    assert hindrances.stop
    hindrances.eased("the disk")
    assert not hindrances.stop
