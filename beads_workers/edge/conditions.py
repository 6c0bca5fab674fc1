"""What a fleet needs of the machine while it runs, looked at every other second.

Each condition that fails becomes a ``Hindered``, and ``Eased`` when it holds again. The run
directory itself is not among them: without it a run has lost its memory (``Loop``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from beads_workers.core import limits
from beads_workers.core.events import Eased, Event, Hindered
from beads_workers.core.settings import FleetSettings
from beads_workers.core.values import value
from beads_workers.edge.door import next_look


@value
class Place:
    """A folder that is needed. ``what`` names it for people; ``writes``: room is needed there."""

    what: str
    path: Path
    writes: bool = False


def places_of(settings: FleetSettings, folder: Path) -> list[Place]:
    """What a fleet needs, whose run has this ``folder``."""
    places = [Place("the run directory", folder, writes=True)]
    # One word for one disk; elsewhere, the tracker can fill up by itself.
    for what, path in (("the folder of logs", folder / "logs"), ("the tracker", settings.tracker)):
        elsewhere = Path(path).stat().st_dev != folder.stat().st_dev
        places.append(Place(what, Path(path), writes=elsewhere))
    return [*places, Place("the project's folder", Path(settings.project))]


class Conditions:
    """``look`` is called by the loop in every turn, and looks when it is due."""

    def __init__(self, places: Sequence[Place], tell: Callable[[Event], None]) -> None:
        self._places = places
        self._tell = tell
        self._next_look = 0.0
        self._standing: set[str] = set()

    def deadline(self) -> float:
        """When ``look`` is due (monotonic seconds)."""
        return self._next_look

    def look(self, now: float) -> None:
        """Tell what has changed; does nothing before ``deadline``."""
        if now < self._next_look:
            return
        self._next_look = next_look(now)
        for place in self._places:
            hindered = judge(place)
            if hindered is not None:
                self._standing.add(place.what)
                self._tell(hindered)
            elif place.what in self._standing:
                self._standing.discard(place.what)
                self._tell(Eased(place.what))


def judge(place: Place) -> Hindered | None:
    """What is wrong with a place; None where nothing is."""
    try:
        state = os.statvfs(place.path)
    except OSError as error:
        text = f"{place.what} cannot be used: {place.path}: {error.strerror}"
        return Hindered(place.what, text, f"ls -d {place.path}", stops=True)
    if not place.writes:
        return None
    # Some file systems say 0 of 0: they make room, or files, as they go.
    full = state.f_blocks and state.f_bavail * state.f_frsize < limits.ROOM_BYTES
    no_files = state.f_files and state.f_favail < limits.ROOM_FILES
    if not (full or no_files):
        return None
    lack = "no room" if full else "no more files fit"
    text = f"{place.what}: {lack} at {place.path}; nothing new is taken"
    flag = "-h" if full else "-i"
    return Hindered(place.what, text, f"df {flag} {place.path}", stops=True)
