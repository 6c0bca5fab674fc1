"""Which source a fleet works on, and where work comes in by itself."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from beads_workers.core.events import Event, RecoveryEnded, RoundTripEnded
from beads_workers.core.journal import CallEnded, CallStarted
from beads_workers.core.settings import FleetSettings
from beads_workers.core.source import Source
from beads_workers.kinds import CallLog, Opening
from beads_workers.registry import kind_of
from beads_workers.runtime.journal import Journal
from beads_workers.runtime.retention import trim_attempts
from beads_workers.runtime.run_directory import host_name
from beads_workers.runtime.tracker_thread import Answer, PromptTrackerThread, TrackerThread

# --- opening -------------------------------------------------------------------------------------
# Opening the source that a fleet works on; what there is stands in ``sources.registry``.


class JournalCalls:
    """Notes every tracker process in the journal, so that the next start can wait for it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def started(self, pid: int, start_time: int, argv: Sequence[str]) -> None:
        """A process of the tracker runs."""
        self._journal.write_now(CallStarted(pid, start_time, tuple(argv[:4])))

    def ended(self, pid: int) -> None:
        """It has ended."""
        self._journal.write_now(CallEnded(pid))


def open_source(settings: FleetSettings, actor: str, call_log: CallLog | None = None) -> Source:
    """The source that ``settings.source`` names; it has not been asked anything yet.

    Raises ``SourceError`` where this installation has no such kind.
    """
    return kind_of(settings.source).open(Opening(settings, actor, host_name(), call_log))


def self_claiming_argv(source: Source) -> tuple[str, ...]:
    """How a worker that claims and closes by itself calls the tracker."""
    argv = getattr(source, "self_claiming_argv", None)
    assert argv is not None, "checked by the command line: only bd has such workers"
    return tuple(argv)


def sync_of(source: Source) -> Callable[[], None]:
    """What brings to disk whatever the source keeps itself; any thread may call it."""
    sync: Callable[[], None] = getattr(source, "sync", lambda: None)
    return sync


# --- fronts --------------------------------------------------------------------------------------
# Where work comes in by itself: what the loop does with a source that is not only asked.
#
# A front looks after the sockets of such a source, in the loop: it tells the core ``Arrived``, and
# ``Withdrawn``, and sends what the source has come to have pending when its jobs were settled. See
# docs/ARCHITECTURE.md, "Sources that push".


class Front(Protocol):
    """What the loop does with it. None of it may block, but for a moment in ``close``."""

    def deadline(self) -> float:
        """When ``tend`` is due (monotonic seconds)."""

    def tend(self, now: float) -> None:
        """Whatever time has come for; called in every turn of the loop."""

    def flush(self) -> None:
        """Send what is pending: the journal has all that led to it."""

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


def open_tracker_thread(
    settings: FleetSettings,
    folder: Path,
    source: Source,
    journal: Journal,
    recover: Callable[[], RecoveryEnded],
    post: Callable[[Answer | BaseException], None],
    tell: Callable[[RoundTripEnded], None],
) -> TrackerThread:
    """The tracker thread that fits the source; ``folder``: of the run. See
    ``runtime.tracker_thread`` for the rest."""
    made = source, journal, recover, post
    if not is_pushed(settings):
        return TrackerThread(*made)

    def tidy() -> None:
        trim_attempts(folder)  # Such a run may go on for months.

    if kind_of(settings.source).prompt:
        return PromptTrackerThread(*made, tell, tidy, sync_of(source))
    return TrackerThread(
        *made, tidy
    )  # It asks over a network, and the loop must not wait for that.


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
