"""Mirrors ``runtime/journal.Journal``: the same gathering, writing and syncing, on a simulated
disk.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from beads_workers.core.records.issues import Issues
from beads_workers.core.records.journal import (
    CallEnded,
    CallStarted,
    Entry,
    Live,
    Record,
    Resumed,
    encode,
    encode_repeated,
)
from beads_workers.core.views.recovery import Checkpoint
from tests.simulation.agenda import Thread
from tests.simulation.disk import File, Folder
from tests.simulation.folds import DoubleRun
from tests.simulation.mutants import Mutant

if TYPE_CHECKING:
    from tests.simulation.world import World


DISK_RETRY_SECONDS = 0.5
SEGMENT_BYTES = 3000
"""So little that a segment begins while much is under way."""


class Journal:
    """``written`` is told every record with the offset of its end, once it is in the file."""

    def __init__(self, world: World, folder: Folder, written: Callable[[Entry, int], None]) -> None:
        self._world = world
        self._disk = world.disk
        self._folder = folder
        self._told = written
        self._began = world.agenda.now
        follows = world.mutant == Mutant() or world.mutant.writes_no_requeued
        self.folds = DoubleRun(world.agenda.now) if follows else None
        self._gathered: list[tuple[bytes, Entry]] = []
        self._leaving = b""
        self._left = 0
        self._torn = False
        self._unsaid: list[tuple[int, Entry]] = []
        self._written = 0
        self._synced = 0
        self._checkpoint_bytes = 0
        self._checkpoint, self._issues = Checkpoint(), Issues()
        self._call: Entry | None = None
        self._next_at = SEGMENT_BYTES
        self._retired: list[File] = []
        self._removal_due = False

    def append(self, record: Record) -> Entry:
        """Gather a record."""
        world = self._world
        elapsed = round(world.agenda.now - self._began, 6)
        entry = Entry(record, round(world.wall(), 3), elapsed)
        if isinstance(record, Live):
            return entry
        self._gathered.append((encode(entry), entry))
        self._checkpoint.apply(entry)
        self._issues.apply(entry)
        if self.folds is not None:
            self.folds.applied(entry)
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
        self._leaving, self._left, self._checkpoint_bytes = b"", 0, 0
        self._world.point("after a write")
        if self._written >= self._next_at:
            self._begin_segment()

    def _begin_segment(self) -> None:
        if self._torn:
            return
        world = self._world
        self._retired.append(self._folder.journal)
        self._folder.add_segment()
        self._removal_due = True
        world.point("before the checkpoint of a segment")
        elapsed = world.agenda.now - self._began
        counts = Resumed(len(self._folder.segments))
        now = world.wall(), elapsed
        entries = list(self._checkpoint.entries(self._issues, counts, self._call, *now))
        if self.folds is not None:
            self.folds.dumped(entries)
        self._leaving = b"".join(map(encode_repeated, entries))
        self._checkpoint_bytes = len(self._leaving)
        self._next_at = self._written + max(SEGMENT_BYTES, 4 * self._checkpoint_bytes)
        if world.mutant.drops_early:
            self._folder.remove_old()
        try:
            self._write_on()
        except OSError as error:
            assert error.errno == errno.ENOSPC
        world.point("after the checkpoint of a segment")

    def write_now(self, record: Record) -> Thread:
        """Append one record at once; waits for as long as the disk is full."""
        world = self._world
        entry = Entry(record, world.wall(), world.agenda.now - self._began)
        line = encode(entry)
        while True:
            try:
                self._write_on()
                self._write(line)
                self._told(entry, self._end())
                if isinstance(record, CallStarted | CallEnded):
                    self._call = entry if isinstance(record, CallStarted) else None
                return
            except OSError as error:
                assert error.errno == errno.ENOSPC
            yield DISK_RETRY_SECONDS

    def sync(self) -> Thread:
        """Everything flushed so far is on disk when this returns."""
        file, retired, written = self._folder.journal, list(self._retired), self._written
        length, whole = len(file.content), self._left >= self._checkpoint_bytes
        if self._world.mutant.never_syncs:
            return
        if written != self._synced:
            self._world.point("before a sync")
            yield 0.0002
            for old in retired:
                old.synced = len(old.content)
                if old in self._retired:  # Another thread may sync as well.
                    self._retired.remove(old)
                self._world.point("between two syncs")
            file.synced = max(file.synced, length)
            self._synced = written
            self._world.point("after a sync")
            if whole and self._removal_due:
                self._removal_due = False
                self._folder.remove_old()
                self._world.point("after a removal")

    @property
    def is_flushed(self) -> bool:
        """Whether all that was appended is in the file."""
        return not self._gathered and self._left == len(self._leaving)

    @property
    def synced(self) -> int:
        """The offset up to which a power cut takes nothing away."""
        for file in self._folder.segments:
            if file.synced < len(file.content):
                return file.base + file.synced
        return self._end()

    def _end(self) -> int:
        file = self._folder.journal
        return file.base + len(file.content)

    def _write_on(self) -> None:
        while self._left < len(self._leaving):
            self._end_torn_line()
            sent = self._disk.write(self._folder.journal, self._leaving[self._left :])
            self._left += sent
            self._written += sent
            rest = len(self._leaving) - self._left
            while self._unsaid and self._unsaid[0][0] <= self._left:
                end, entry = self._unsaid.pop(0)
                self._told(entry, self._end() + rest + end - len(self._leaving))

    def _write(self, line: bytes) -> None:
        self._end_torn_line()
        sent = self._disk.write(self._folder.journal, line)
        self._written += sent
        if sent < len(line):
            self._torn = True
            raise OSError(errno.ENOSPC, "the disk filled up in the middle of a line")

    def _end_torn_line(self) -> None:
        if self._torn:
            self._written += self._disk.write(self._folder.journal, b"\n")
            self._torn = False
