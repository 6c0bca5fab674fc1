"""Where work comes in by itself: the one table that a source which is not asked is entered in.

A front looks after the sockets of such a source, in the loop: it tells the core ``Arrived``, and
``Withdrawn``, and sends what the source has come to owe when its jobs were settled. See
docs/ARCHITECTURE.md, "Sources that push".
"""

from __future__ import annotations

import selectors
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from beads_workers.core.events import Event, RecoveryEnded, TurnEnded
from beads_workers.core.settings import FleetSettings
from beads_workers.core.source import Source
from beads_workers.edge.journal import Journal
from beads_workers.edge.lane import Answer, LaneThread, PromptLane
from beads_workers.edge.opening import sync_of
from beads_workers.edge.retention import trim_attempts

if TYPE_CHECKING:
    from beads_workers.edge.dispatching import DispatcherControl


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
Control = Callable[[], "DispatcherControl"]
"""What answers dispatcherd's commands: made when it is called."""


def _rrq(
    settings: FleetSettings,
    source: Source,
    selector: selectors.BaseSelector,
    tell: Tell,
    dispatching: Control,
) -> Front:
    from beads_workers.edge.rrq_front import RrqFront
    from beads_workers.sources.rrq.addresses import from_text
    from beads_workers.sources.rrq.source import RrqSource

    assert isinstance(source, RrqSource) and settings.rrq is not None
    return RrqFront(from_text(settings.rrq.address), source.serving, selector, tell)


def _hero(
    settings: FleetSettings,
    source: Source,
    selector: selectors.BaseSelector,
    tell: Tell,
    dispatching: Control,
) -> Front:
    from beads_workers.edge.hero_front import HeroFront
    from beads_workers.sources.hero.source import HeroSource

    assert isinstance(source, HeroSource)
    return HeroFront(source, selector, tell)


def _dispatcherd(
    settings: FleetSettings,
    source: Source,
    selector: selectors.BaseSelector,
    tell: Tell,
    dispatching: Control,
) -> Front:
    from beads_workers.edge.dispatcherd.opening import open_dispatcherd
    from beads_workers.sources.dispatcherd import DispatcherdSource

    assert isinstance(source, DispatcherdSource) and settings.dispatcherd is not None
    front = open_dispatcherd(settings.dispatcherd, source, selector, tell)
    control = dispatching()
    front.answerer, control.front = control.ask, front
    return front


Open = Callable[[FleetSettings, Source, selectors.BaseSelector, Tell, Control], Front]

FRONTS: dict[str, Open] = {
    "rrq": _rrq,
    "hero": _hero,
    "dispatcherd": _dispatcherd,
}

ASKED = frozenset(("hero",))
"""Of these, the ones that are asked over a network when a turn is carried out, in its thread."""


def is_pushed(settings: FleetSettings) -> bool:
    """Whether the source is one that work comes to by itself."""
    return settings.source in FRONTS


def is_asked(settings: FleetSettings) -> bool:
    """Whether a turn may take its time, so that the loop must not wait for it."""
    return settings.source in ASKED


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

    if is_asked(settings):
        return LaneThread(*made, tidy)
    return PromptLane(*made, tell, tidy, sync_of(source))


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
    make = FRONTS.get(settings.source)
    return make and make(settings, source, selector, tell, dispatching)
