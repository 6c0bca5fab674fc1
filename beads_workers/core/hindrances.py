"""Conditions of the machine that stand in the way, told by the edge for as long as they last.

Nothing that runs is ended for them: they only keep new work from being taken, where they would
make it fail. A run does not end as empty meanwhile.
"""

from __future__ import annotations

from beads_workers.core.desk import Desk
from beads_workers.core.events import Hindered
from beads_workers.core.records import Hindrance, HindranceOver


class Hindrances:
    """``stop``: nothing new is to be taken, and no worker to be started."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._standing: dict[str, Hindered] = {}

    @property
    def stop(self) -> bool:
        """Whether any of them keeps new work from being taken."""
        return any(each.stops for each in self._standing.values())

    def hindered(self, event: Hindered) -> None:
        """A condition holds from now on; the same once more changes nothing."""
        if self._standing.get(event.what) == event:
            return
        self._standing[event.what] = event
        self._desk.write(Hindrance(event.what, event.text, event.todo, event.stops))

    def eased(self, what: str) -> None:
        """A condition is over."""
        if self._standing.pop(what, None) is not None:
            self._desk.write(HindranceOver(what))
