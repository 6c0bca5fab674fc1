"""The journal's file: appended by the loop, synced by the lane.

Source: docs/PROTOCOL.md, "The journal". ``append`` only gathers; ``flush`` writes what has
gathered with one system call, before anything that depends on it is done; ``sync`` makes it
survive a power cut, and runs in the lane's thread because it costs a tenth of a millisecond.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from beads_workers.core.journal_lines import Entry, decode, encode
from beads_workers.core.records import Record

LINE_START = b'{"v":'
"""How every line begins; never within one, where a quote is escaped and objects have no ``v``."""

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
DISK_RETRY_SECONDS = 0.5


class Journal:
    """One run's journal, open for appending. ``append`` and ``flush`` belong to the loop."""

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[int, bytes | memoryview], int] = os.write,
    ) -> None:
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._clock = clock
        self._os_write = write
        self._began = clock()
        self._gathered: list[bytes] = []
        # Guards the file's end: the loop and the lane both write, and a line must stay whole.
        self._lock = threading.Lock()
        self._leaving = b""
        self._left = 0
        self._torn = False
        self._written = 0
        self._synced = 0

    def elapsed(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self._began

    def clock_at(self, elapsed: float) -> float:
        """The clock's reading (monotonic seconds) at so many seconds of the run."""
        return self._began + elapsed

    def append(self, record: Record) -> Entry:
        """Gather a record; returns it with its times."""
        # As it is read back: whoever watches sees the same numbers as whoever replays.
        entry = Entry(record, round(time.time(), 3), round(self.elapsed(), 6))
        self._gathered.append(encode(entry))
        return entry

    def flush(self) -> bytes:
        """Write what has gathered; returns the bytes.

        Raises ``OSError`` (disk full...): call again later, nothing is lost or written twice.
        """
        if not (self._gathered or self._leaving):
            return b""
        with self._lock:
            self._leaving += b"".join(self._gathered)
            self._gathered.clear()
            self._write_on()
            data, self._leaving, self._left = self._leaving, b"", 0
        return data

    def write_now(self, record: Record) -> None:
        """Append one record at once, from any thread; waits for as long as the disk is full."""
        line = encode(Entry(record, time.time(), self.elapsed()))
        while True:
            with self._lock:
                try:
                    self._write_on()  # A line that is half on disk must be ended first.
                    self._write(line)
                    return
                except OSError as error:
                    if error.errno not in DISK_FULL:
                        raise
            time.sleep(DISK_RETRY_SECONDS)

    def sync(self) -> None:
        """Everything flushed so far is on disk when this returns. Called by the lane."""
        written = self._written
        if written != self._synced:
            os.fdatasync(self._fd)
            self._synced = written

    def is_gone(self) -> bool:
        """Whether the file was deleted, or its folder: then the run has lost its memory."""
        try:
            return self.path.stat().st_ino != os.fstat(self._fd).st_ino
        except OSError:
            return True

    def close(self) -> None:
        """Sync and close."""
        self.sync()
        os.close(self._fd)

    def _write_on(self) -> None:
        while self._left < len(self._leaving):
            self._end_torn_line()
            sent = self._os_write(self._fd, memoryview(self._leaving)[self._left :])
            self._left += sent
            self._written += sent

    def _write(self, line: bytes) -> None:
        # Short lines are written whole or not at all, but for a disk that fills up in the middle;
        # the torn line is then passed over by readers, and the record written once more.
        self._end_torn_line()
        sent = self._os_write(self._fd, line)
        self._written += sent
        if sent < len(line):
            self._torn = True
            raise OSError(errno.ENOSPC, "the disk filled up in the middle of a line")

    def _end_torn_line(self) -> None:
        # There was no room for its end either; without one it would swallow the next record.
        if self._torn:
            self._written += self._os_write(self._fd, b"\n")
            self._torn = False


def read_journal(path: Path) -> Iterator[Entry]:
    """Every readable entry of a journal; a torn or foreign line is passed over.

    A disk that filled up or a power cut may leave half a line, or zeros, before a whole one.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for line in file:
            if line.endswith(b"\n") and (entry := decode(line) or _behind_damage(line)):
                yield entry


def _behind_damage(line: bytes) -> Entry | None:
    """The whole entry that a damaged line may end with."""
    at = line.rfind(LINE_START)
    return decode(line[at:]) if at > 0 else None
