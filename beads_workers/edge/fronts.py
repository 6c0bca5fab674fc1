"""Where work comes in by itself: what the loop does with a source that is not only asked.

A front looks after the sockets of such a source, in the loop: it tells the core ``Arrived``, and
``Withdrawn``, and sends what the source has come to owe when its jobs were settled. See
docs/ARCHITECTURE.md, "Sources that push".
"""

from __future__ import annotations

import selectors
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from beads_workers.core.events import Event, RecoveryEnded, TurnEnded
from beads_workers.core.settings import FleetSettings
from beads_workers.core.source import Source
from beads_workers.edge.journal import Journal
from beads_workers.edge.lane import Answer, LaneThread, PromptLane
from beads_workers.edge.opening import sync_of
from beads_workers.edge.retention import trim_attempts
from beads_workers.sources.registry import kind_of


class Front(Protocol):
    """What the loop does with it. None of it may block, but for a moment in ``close``."""

    def deadline(self) -> float:
        """When ``tend`` is due (monotonic seconds)."""

    def tend(self, now: float) -> None:
        """Whatever time has come for; called in every turn of the loop."""

    def flush(self) -> None:
        """Send what is owed: the journal has all that led to it."""

    def cease(self) -> None:
        """The run is ending: let nobody in, and begin nothing."""

    def close(self) -> None:
        """The run is over: the last words."""


Tell = Callable[[Event], None]
Control = Callable[[], Any]
"""What answers on the fleet's control socket, for a front that is asked the same."""


def is_pushed(settings: FleetSettings) -> bool:
    """Whether the source is one that work comes to by itself."""
    return kind_of(settings.source).capabilities.pushes


def open_lane(
    settings: FleetSettings,
    folder: Path,
    source: Source,
    journal: Journal,
    recover: Callable[[], RecoveryEnded],
    post: Callable[[Answer | BaseException], None],
    tell: Callable[[TurnEnded], None],
) -> LaneThread:
    """The lane that fits the source; ``folder``: of the run. See ``edge.lane`` for the rest."""
    made = source, journal, recover, post
    if not is_pushed(settings):
        return LaneThread(*made)

    def tidy() -> None:
        trim_attempts(folder)  # Such a run may go on for months.

    if kind_of(settings.source).prompt:
        return PromptLane(*made, tell, tidy, sync_of(source))
    return LaneThread(*made, tidy)  # It asks over a network, and the loop must not wait for that.


def open_front(
    settings: FleetSettings,
    source: Source,
    selector: selectors.BaseSelector,
    tell: Tell,
    dispatching: Control,
) -> Front | None:
    """The front of a source for which ``is_pushed`` holds; raises ``OSError``. None for another.

    ``dispatching`` answers what a front is asked of the fleet itself.
    """
    make = kind_of(settings.source).ingress
    if make is None:
        return None
    front: Front = make(settings, source, selector, tell, dispatching)
    return front
