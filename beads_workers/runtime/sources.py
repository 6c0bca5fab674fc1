"""Opening the source that a fleet works on, and the ingress of a push source."""

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
from beads_workers.runtime.tracker_thread import News, PromptTrackerThread, Release, TrackerThread


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


# --- ingress -------------------------------------------------------------------------------------
# The ingress of a push source, as the loop sees it.
#
# An ingress looks after the sockets of a push source, in the loop: it tells the core ``Arrived``,
# and ``Withdrawn``, and sends what the source has come to have pending when its jobs were settled.
# See docs/ARCHITECTURE.md, "Push sources".


class Ingress(Protocol):
    """What the loop does with it. None of it may block, but for a moment in ``close``."""

    def deadline(self) -> float:
        """When ``tick`` is due (monotonic seconds)."""

    def tick(self, now: float) -> None:
        """Whatever time has come for; called in every turn of the loop."""

    def open(self) -> None:
        """A worker is there: called at the first one, and for others as well."""

    def flush(self) -> None:
        """Send what is pending: the journal has all that led to it."""

    def stop_accepting(self) -> None:
        """The run is ending: let nobody in, and begin nothing."""

    def close(self) -> None:
        """The run is over: the last words."""


Tell = Callable[[Event], None]
Control = Callable[[], Any]
"""Answers the fleet's control socket; an ingress that receives the same requests uses it."""


def is_push(settings: FleetSettings) -> bool:
    """Whether it is a push source."""
    return kind_of(settings.source).capabilities.push


def open_tracker_thread(
    settings: FleetSettings,
    folder: Path,
    source: Source,
    journal: Journal,
    recover: Callable[[], RecoveryEnded],
    post: Callable[[News], None],
    tell: Callable[[RoundTripEnded], None],
    release: Release,
    conclude: Callable[[], None],
) -> TrackerThread:
    """The tracker thread that fits the source; ``folder``: of the run. See
    ``runtime.tracker_thread`` for the rest."""
    made = source, journal, recover, post
    if not is_push(settings):
        return TrackerThread(*made, release=release, conclude=conclude)

    def tidy() -> None:
        trim_attempts(folder)  # Such a run may go on for months.

    if kind_of(settings.source).prompt:
        return PromptTrackerThread(*made, tell, tidy, sync_of(source), conclude)
    # It asks over a network, and the loop must not wait for that.
    return TrackerThread(*made, tidy, conclude=conclude)


def open_ingress(
    settings: FleetSettings,
    source: Source,
    selector: selectors.BaseSelector,
    tell: Tell,
    dispatching: Control,
) -> Ingress | None:
    """The ingress of a push source; raises ``OSError``. None for a pull source.

    ``dispatching`` answers what an ingress is asked of the fleet itself.
    """
    make = kind_of(settings.source).ingress
    if make is None:
        return None
    ingress: Ingress = make(settings, source, selector, tell, dispatching)
    return ingress
