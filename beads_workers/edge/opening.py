"""Opening the source that a fleet works on; what there is stands in ``sources.registry``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from beads_workers.core.records import CallEnded, CallStarted
from beads_workers.core.settings import FleetSettings
from beads_workers.core.source import Source
from beads_workers.edge.journal import Journal
from beads_workers.edge.run_directory import host_name
from beads_workers.sources.kind import CallLog, Opening
from beads_workers.sources.registry import kind_of


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


def literal_argv(source: Source) -> tuple[str, ...]:
    """How a worker that claims and closes by itself calls the tracker."""
    argv = getattr(source, "literal_argv", None)
    assert argv is not None, "checked by the command line: only bd has such workers"
    return tuple(argv)


def sync_of(source: Source) -> Callable[[], None]:
    """What brings to disk whatever the source keeps itself; any thread may call it."""
    sync: Callable[[], None] = getattr(source, "sync", lambda: None)
    return sync
