"""Mirrors ``edge/journal.Journal``: the same gathering, writing and syncing, on a simulated
disk.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from beads_workers.core.journal_lines import Entry, encode
from beads_workers.core.records import Record
from tests.simulation.agenda import Thread
from tests.simulation.disk import Folder

if TYPE_CHECKING:
    from tests.simulation.world import World

DISK_RETRY_SECONDS = 0.5


class Journal:
    """``written`` is told every record with the offset of its end, once it is in the file."""

    def __init__(self, world: World, folder: Folder, written: Callable[[Entry, int], None]) -> None:
        self._world = world
        self._disk = world.disk
        self._file = folder.journal
        self._told = written
        self._began = world.agenda.now
        self._gathered: list[tuple[bytes, Entry]] = []
        self._leaving = b""
        self._left = 0
        self._torn = False
        self._unsaid: list[tuple[int, Entry]] = []
        self._written = 0
        self._synced = 0

    def append(self, record: Record) -> Entry:
        """Gather a record."""
        world = self._world
        elapsed = round(world.agenda.now - self._began, 6)
        entry = Entry(record, round(world.wall(), 3), elapsed)
        self._gathered.append((encode(entry), entry))
        return entry

    def flush(self) -> None:
        """Write what has gathered; raises ``OSError`` where the disk is full."""
        if not (self._gathered or self._leaving):
            return
        self._world.point("before a write")
        for line, entry in self._gathered:
            self._leaving += line
            self._unsaid.append((len(self._leaving), entry))
        self._gathered.clear()
        self._write_on()
        self._leaving, self._left = b"", 0
        self._world.point("after a write")

    def write_now(self, record: Record) -> Thread:
        """Append one record at once; waits for as long as the disk is full."""
        world = self._world
        entry = Entry(record, world.wall(), world.agenda.now - self._began)
        line = encode(entry)
        while True:
            try:
                self._write_on()
                self._write(line)
                self._told(entry, len(self._file.content))
                return
            except OSError as error:
                assert error.errno == errno.ENOSPC
            yield DISK_RETRY_SECONDS

    def sync(self) -> Thread:
        """Everything flushed so far is on disk when this returns."""
        written, length = self._written, len(self._file.content)
        if self._world.mutant.never_syncs:
            return
        if written != self._synced:
            self._world.point("before a sync")
            yield 0.0002
            self._file.synced = max(self._file.synced, length)
            self._synced = written
            self._world.point("after a sync")

    @property
    def synced(self) -> int:
        """The offset up to which a power cut takes nothing away."""
        return self._file.synced

    def _write_on(self) -> None:
        while self._left < len(self._leaving):
            self._end_torn_line()
            sent = self._disk.write(self._file, self._leaving[self._left :])
            self._left += sent
            self._written += sent
            rest = len(self._leaving) - self._left
            while self._unsaid and self._unsaid[0][0] <= self._left:
                end, entry = self._unsaid.pop(0)
                self._told(entry, len(self._file.content) + rest + end - len(self._leaving))

    def _write(self, line: bytes) -> None:
        self._end_torn_line()
        sent = self._disk.write(self._file, line)
        self._written += sent
        if sent < len(line):
            self._torn = True
            raise OSError(errno.ENOSPC, "the disk filled up in the middle of a line")

    def _end_torn_line(self) -> None:
        if self._torn:
            self._written += self._disk.write(self._file, b"\n")
            self._torn = False
