"""Conditions of the machine: nothing new meanwhile, and on again when they end."""

from __future__ import annotations

from beads_workers.core.records.journal import DegradedBegan, DegradedEnded, Record
from beads_workers.core.schedule.commands import Write
from beads_workers.core.schedule.effects import Effects
from beads_workers.core.schedule.events import Degraded
from beads_workers.core.schedule.supervisor import DegradedConditions

FULL = Degraded("the disk", "no room", "df -h", stops=True)
SHUT = Degraded("the socket", "nobody can connect", "prlimit", stops=False)


def written(effects: Effects) -> list[Record]:
    return [command.record for command in effects.flush() if isinstance(command, Write)]


def test_each_is_told_once_and_its_end_only_where_it_was_told() -> None:
    effects = Effects(0.0)
    conditions = DegradedConditions(effects)
    conditions.degraded(FULL)
    conditions.degraded(FULL)
    conditions.recovered("the socket")
    assert written(effects) == [DegradedBegan("the disk", "no room", "df -h", True)]
    conditions.recovered("the disk")
    conditions.recovered("the disk")
    assert written(effects) == [DegradedEnded("the disk")]


def test_only_what_would_make_new_work_fail_stops_claiming() -> None:
    conditions = DegradedConditions(Effects(0.0))
    conditions.degraded(SHUT)
    assert not conditions.stop
    conditions.degraded(FULL)
    assert conditions.stop
    conditions.recovered("the disk")
    assert not conditions.stop


def test_only_the_last_that_stops_claiming_is_worth_hurrying_for() -> None:
    conditions = DegradedConditions(Effects(0.0))
    other = Degraded("the tracker", "gone", "ls", stops=True)
    for each in (SHUT, FULL, other):
        conditions.degraded(each)
    ended = [conditions.recovered(each.what) for each in (SHUT, FULL, other, other)]
    assert ended == [False, False, True, False]
