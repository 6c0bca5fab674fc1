"""Watch for writes of others to a tracker of ``bd``, by its files and without a call.

Files that a mere reader touches do not count, nor do writes of this run. ``bd`` 1.x keeps a journal
to which each write appends (``.dolt/noms``). ``bd`` 0.x has a table of events, each with its actor.
If the files are elsewhere (a server of Dolt on another machine) no write is seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from beads_workers.trackers.bd.tracker import held_by

_JOURNAL = "v" * 32
"""Dolt's name of the file to which it appends; a mere read changes its time, but adds no byte."""
_DOLT = (f"embeddeddolt/*/.dolt/noms/{_JOURNAL}", f"dolt/*/.dolt/noms/{_JOURNAL}")

_NEWEST = "SELECT coalesce(max(id), 0) FROM events"
_SINCE = "SELECT id, actor FROM events WHERE id > ? ORDER BY id"


class ChangeWatch:
    """Watch on a tracker. ``beads``: the folder ``.beads``; ``actor``: the run, whose writes do not
    count."""

    def __init__(self, beads: Path, actor: str) -> None:
        self._beads = beads
        self._actor = actor
        self._ours = 0
        """Bytes that this run has appended to the journal of Dolt."""
        self._newest: int | None = None
        self._others = 0
        self._looked: tuple[tuple[int, int], ...] = ()

    def stamp(self) -> tuple[int, int]:
        """Return a stamp that changes if somebody else has written. Never raises; costs
        microseconds if no file was touched."""
        return self._appended() - self._ours, self._events_of_others()

    @contextmanager
    def own(self) -> Iterator[None]:
        """Count all writes in the ``with`` block as ours."""
        before = self._appended()
        try:
            yield
        finally:
            self._ours += self._appended() - before

    def _appended(self) -> int:
        return sum(size for pattern in _DOLT for _, size in _states(self._beads.glob(pattern)))

    def _events_of_others(self) -> int:
        databases = sorted(self._beads.glob("*.db"))
        touched = tuple(
            _states(p for db in databases for p in (db, db.with_name(f"{db.name}-wal")))
        )
        if touched != self._looked:
            self._looked = touched
            for database in databases:
                self._count(database)
        return self._others

    def _count(self, database: Path) -> None:
        import sqlite3  # bd 1.x never needs it.

        try:
            file = sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=0.1)
            with closing(file) as events:
                if self._newest is None:
                    self._newest = int(events.execute(_NEWEST).fetchone()[0])
                for number, actor in events.execute(_SINCE, (self._newest,)).fetchall():
                    self._newest = int(number)
                    self._others += not held_by(str(actor), self._actor)
        except sqlite3.Error:
            return  # The file has another form, or is locked just now: so no write is seen.


def _states(paths: Iterable[Path]) -> Iterator[tuple[int, int]]:
    """Yield the time of change (nanoseconds) and the size (bytes) of each existing file."""
    for path in paths:
        try:
            state = path.stat()
        except OSError:
            continue
        yield state.st_mtime_ns, state.st_size
