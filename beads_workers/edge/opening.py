"""Which source a fleet works on: the one table that a new source is entered in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from beads_workers.core import limits
from beads_workers.core.records import CallEnded, CallStarted
from beads_workers.core.settings import FleetSettings
from beads_workers.core.source import Source
from beads_workers.edge.journal import Journal


class CallLog(Protocol):
    """Told of every process that a source starts (``sources.bd.calls.CallLog``)."""

    def started(self, pid: int, start_time: int, argv: Sequence[str]) -> None:
        """A process of the tracker runs."""

    def ended(self, pid: int) -> None:
        """It has ended."""


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


def _bd(settings: FleetSettings, actor: str, call_log: CallLog | None) -> Source:
    from beads_workers.sources.bd import BdSource

    return BdSource(
        Path(settings.tracker).parent,
        actor=actor,
        filters=settings.filters,
        listed_max=_listed_max(settings),
        call_log=call_log,
        shared=settings.shared,
    )


def _sqlite(settings: FleetSettings, actor: str, call_log: CallLog | None) -> Source:
    from beads_workers.sources.sqlite import SqliteSource

    return SqliteSource(
        Path(settings.tracker),
        actor=actor,
        filters=settings.filters,
        listed_max=_listed_max(settings),
    )


def _rrq(settings: FleetSettings, actor: str, call_log: CallLog | None) -> Source:
    from beads_workers.sources.rrq import RrqSource
    from beads_workers.sources.rrq.serving import Serving

    assert settings.rrq is not None
    return RrqSource(
        Serving(),
        actor=actor,
        place=settings.rrq.address,
        calls_functions=settings.work.command is None,
        prefix=settings.rrq.function_prefix,
        attempt_seconds=settings.work.timeout_seconds,
    )


def _hero(settings: FleetSettings, actor: str, call_log: CallLog | None) -> Source:
    from beads_workers.edge.run_directory import host_name
    from beads_workers.protocols.hero.keys import Keys
    from beads_workers.sources.hero.addresses import read_url
    from beads_workers.sources.hero.queue import Queue
    from beads_workers.sources.hero.source import HeroSource
    from beads_workers.sources.hero.stock import AHEAD_MAX

    hero = settings.hero
    assert hero is not None
    queue = Queue(
        read_url(hero.url).address,
        hero.worker,
        Keys(**hero.keys),
        hero.lease_seconds,
        hero.reply_seconds,
    )
    return HeroSource(
        queue,
        actor=actor,
        place=f"{host_name()} {settings.state_directory}",
        shared=settings.shared,
        # What lies with one fleet is out of reach for the others.
        ahead_max=max(4, settings.workers) if settings.shared else AHEAD_MAX,
        retry_seconds=hero.retry_seconds,
        attempt_seconds=settings.work.timeout_seconds,
    )


def _dispatcherd(settings: FleetSettings, actor: str, call_log: CallLog | None) -> Source:
    from beads_workers.sources.dispatcherd import DispatcherdSource
    from beads_workers.sources.dispatcherd.queue import Queue
    from beads_workers.sources.dispatcherd.spool import SPOOL_FILE

    brokers = settings.dispatcherd
    return DispatcherdSource(
        Queue(),
        Path(settings.state_directory) / SPOOL_FILE,
        actor=actor,
        place=brokers.describe() if brokers else "its brokers",
        calls_functions=settings.work.command is None,
        again=settings.policy.hand_back_after > 1,
    )


SOURCES: dict[str, Callable[[FleetSettings, str, CallLog | None], Source]] = {
    "bd": _bd,
    "sqlite": _sqlite,
    "rrq": _rrq,
    "hero": _hero,
    "dispatcherd": _dispatcherd,
}


def open_source(settings: FleetSettings, actor: str, call_log: CallLog | None = None) -> Source:
    """The source that ``settings.source`` names; it has not been asked anything yet."""
    return SOURCES[settings.source](settings, actor, call_log)


def literal_argv(source: Source) -> tuple[str, ...]:
    """How a worker that claims and closes by itself calls the tracker."""
    argv = getattr(source, "literal_argv", None)
    assert argv is not None, "checked by the command line: only bd has such workers"
    return tuple(argv)


def sync_of(source: Source) -> Callable[[], None]:
    """What brings to disk whatever the source keeps itself; any thread may call it."""
    sync: Callable[[], None] = getattr(source, "sync", lambda: None)
    return sync


def _listed_max(settings: FleetSettings) -> int:
    return max(limits.LISTED_MIN, limits.LISTED_PER_SLOT * settings.workers)
