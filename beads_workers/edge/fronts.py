"""Where work comes in by itself: the one table that a source which is not asked is entered in.

A front looks after the sockets of such a source, in the loop: it tells the core ``Arrived``, and
``Withdrawn``, and sends what the source has come to owe when its jobs were settled. See
docs/ARCHITECTURE.md, "Sources that push".
"""

from __future__ import annotations

import selectors
from collections.abc import Callable
from typing import Protocol

from beads_workers.core.events import Event
from beads_workers.core.settings import FleetSettings
from beads_workers.core.source import Source


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


def _rrq(
    settings: FleetSettings, source: Source, selector: selectors.BaseSelector, tell: Tell
) -> Front:
    from beads_workers.edge.rrq_front import RrqFront
    from beads_workers.sources.rrq.addresses import from_text
    from beads_workers.sources.rrq.source import RrqSource

    assert isinstance(source, RrqSource) and settings.rrq is not None
    return RrqFront(from_text(settings.rrq.address), source.serving, selector, tell)


FRONTS: dict[str, Callable[[FleetSettings, Source, selectors.BaseSelector, Tell], Front]] = {
    "rrq": _rrq
}


def is_pushed(settings: FleetSettings) -> bool:
    """Whether the source is one that work comes to by itself."""
    return settings.source in FRONTS


def open_front(
    settings: FleetSettings, source: Source, selector: selectors.BaseSelector, tell: Tell
) -> Front:
    """The front of a source for which ``is_pushed`` holds. Raises ``OSError``."""
    return FRONTS[settings.source](settings, source, selector, tell)
