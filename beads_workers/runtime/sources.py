"""Opening of the source that a fleet works on, and of the ingress of a push source."""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from beads_workers.core.base.settings import NO_LOGIN_AT, FleetSettings, Landing
from beads_workers.core.base.source import Source
from beads_workers.core.records.journal import CallEnded, CallStarted
from beads_workers.core.schedule.events import Event, RecoveryEnded, RoundTripEnded
from beads_workers.kinds import CallLog, Opening
from beads_workers.registry import kind_of, need
from beads_workers.runtime.journal import Journal
from beads_workers.runtime.retention import trim_attempts
from beads_workers.runtime.run_directory import host_name
from beads_workers.runtime.tracker_thread import News, PromptTrackerThread, Release, TrackerThread

if TYPE_CHECKING:
    from beads_workers.runtime.tracker_sync import TrackerSync


class JournalCalls:
    """Call log that notes every tracker process in the journal, so that the next start can wait for
    it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def started(self, pid: int, start_time: int, argv: Sequence[str]) -> None:
        """Note that a process of the tracker has started."""
        self._journal.write_now(CallStarted(pid, start_time, tuple(argv[:4])))

    def ended(self, pid: int) -> None:
        """Note that the process has ended."""
        self._journal.write_now(CallEnded(pid))


def open_source(settings: FleetSettings, actor: str, call_log: CallLog | None = None) -> Source:
    """Open the source that ``settings.source`` names; it has not been asked anything yet.

    Raises ``SourceError`` if this installation has no such kind.
    """
    return kind_of(settings.source).open(Opening(settings, actor, host_name(), call_log))


def open_sync(settings: FleetSettings, folder: Path, calls: CallLog) -> TrackerSync | None:
    """Return the lines of ``[tracker]``, if there are any."""
    if not (settings.tracking.before or settings.tracking.after):
        return None
    from beads_workers.runtime.tracker_sync import TrackerSync

    return TrackerSync(settings.tracking, settings.project, folder / "sync.log", calls)


def secrets_of(settings: FleetSettings) -> tuple[str, ...]:
    """Return the variables with tokens of the source, and of the forge of pull requests."""
    found = kind_of(settings.source).secrets
    secrets = () if found is None else found(settings.source_options)
    if settings.landing is None or not settings.landing.forge:
        return secrets
    both = (*secrets, *need("pull_requests").secrets(settings.landing.forge))
    hosts = dict.fromkeys(e for e in both if e.startswith(f"{NO_LOGIN_AT}="))
    at = " ".join(each.partition("=")[2] for each in hosts)
    return *dict.fromkeys(each for each in both if each not in hosts), f"{NO_LOGIN_AT}={at}"


def logins_of(landing: Landing | None) -> Mapping[str, str]:
    """Return the logins of the forge of pull requests: variables of this process."""
    if landing is None or not landing.forge:
        return {}
    found: Mapping[str, str] = need("pull_requests").logins(landing.forge, os.environ)
    return found


def self_claiming_argv(source: Source) -> tuple[str, ...]:
    """Return the command by which a worker that claims and closes by itself calls the tracker."""
    argv = getattr(source, "self_claiming_argv", None)
    assert argv is not None, "checked by the command line: only bd has such workers"
    return tuple(argv)


def sync_of(source: Source) -> Callable[[], None]:
    """Return the function that brings the source's own data to disk; any thread may call it."""
    sync: Callable[[], None] = getattr(source, "sync", lambda: None)
    return sync


# --- ingress -------------------------------------------------------------------------------------
# The ingress of a push source, as the loop sees it.
#
# An ingress handles the sockets of a push source, in the loop. It tells the core ``Arrived`` and
# ``Withdrawn``, and sends what the source has pending once its jobs are settled. See
# docs/ARCHITECTURE.md, "Push sources".


class Ingress(Protocol):
    """The loop's view of an ingress. No method may block, except for a moment in ``close``."""

    def deadline(self) -> float:
        """Return when ``tick`` is due (monotonic seconds)."""

    def tick(self, now: float) -> None:
        """Do what is due by the clock; called in every turn of the loop."""

    def open(self) -> None:
        """Start serving: called when the first worker is there, and for later workers as well."""

    def flush(self) -> None:
        """Send what is pending: the journal has all that led to it."""

    def stop_accepting(self) -> None:
        """Accept no new connections and begin nothing: the run is ending."""

    def close(self) -> None:
        """Send the last messages and close: the run is over."""


Tell = Callable[[Event], None]
Control = Callable[[], Any]
"""Getter of the fleet's control plane; an ingress that receives the same requests uses it."""


def is_push(settings: FleetSettings) -> bool:
    """Return whether the fleet's source is a push source."""
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
    lines: TrackerSync | None,
) -> TrackerThread:
    """Return the tracker thread that fits the source. ``folder``: the folder of the run. See
    ``runtime.tracker_thread`` for the rest."""
    made = source, journal, recover, post
    before = None if lines is None else lines.before_taking
    if not is_push(settings):
        return TrackerThread(*made, release=release, conclude=conclude, before_taking=before)

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
    """Open the ingress of a push source; return None for a pull source. Raises ``OSError``.

    ``dispatching`` returns the control plane, for requests to the fleet itself.
    """
    make = kind_of(settings.source).ingress
    if make is None:
        return None
    ingress: Ingress = make(settings, source, selector, tell, dispatching)
    return ingress
