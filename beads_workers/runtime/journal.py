"""The journal's file: appended by the loop, synced by the tracker thread.

Source: docs/OPERATIONS.md, "The journal". ``add`` only gathers; ``flush`` writes what has
gathered with one system call, before anything that depends on it is done; ``sync`` makes it
survive a power cut, and runs in the tracker thread because it costs a tenth of a millisecond.
``begin_segment`` keeps it from growing without end: ``runtime.journal_file`` reads what it leaves.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from beads_workers.core import journal as rec
from beads_workers.core import limits
from beads_workers.core.issues import Transition
from beads_workers.core.model import value
from beads_workers.core.recovery import Checkpoint, resumed
from beads_workers.core.snapshot import Board
from beads_workers.runtime.journal_file import remove_oldest, segment_path

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
DISK_RETRY_SECONDS = 0.5

LOST_SECONDS = 30.0
"""Room comes back, however long that takes. Any other error may pass too (a disk on the network, a
cable): one that lasts for so long ends the run."""


class JournalLost(OSError):
    """The journal cannot be written, and will not be: see ``lost``."""


class _Patience:
    """How long one writer goes on trying."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.since: float | None = None
        """When its trouble began; whoever has written sets it back."""

    def failed(self, error: OSError) -> None:
        """Raises ``JournalLost`` where trying again has become hopeless."""
        if error.errno in DISK_FULL:
            self.since = None
            return
        if self.since is None:
            self.since = self._clock()
        if self._clock() >= self.since + LOST_SECONDS:
            raise lost(error) from None


@value
class Size:
    """How long one run's journal may get, and its segments; older ones are removed."""

    bytes_max: int = limits.JOURNAL_BYTES_MAX

    @property
    def segment_bytes(self) -> int:
        """So that what is removed at once is a small part."""
        return self.bytes_max // 8


DEFAULT = Size()


class Journal:
    """One run's journal, open for appending. ``add`` and ``flush`` belong to the loop."""

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[int, bytes | memoryview], int] = os.write,
        size: Size = DEFAULT,
        fdatasync: Callable[[int], None] = os.fdatasync,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``path``: of the first segment. Raises ``OSError``."""
        self.path = self._current = path
        self._fd = os.open(path, _APPEND, 0o600)
        self._folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._clock = clock
        self._os_write = write
        self._fdatasync = fdatasync
        self._sleep = sleep
        self._limit = size
        self._began = clock()
        self._gathered: list[bytes] = []
        # Guards the file's end: the loop and the tracker thread both write, and a line must
        # stay whole.
        self._lock = threading.Lock()
        self._leaving = b""
        self._left = 0
        self._untold = 0
        """So many bytes at the beginning of ``_leaving`` are a checkpoint: no news for anybody."""
        self._torn = False
        self._written = 0
        self._synced = -1
        self._checkpoint = Checkpoint()
        self._unfolded: list[tuple[rec.Entry, Transition | None]] = []
        self._call: rec.Entry | None = None
        self._number = 1
        self._next_at = size.segment_bytes
        """When so much is written, of all segments, another one is due."""
        self._removal_due = False
        self._retired: list[int] = []
        """Segments before this one that may not be on disk yet."""
        self._patience = _Patience(clock)
        self._renewal_of = 0
        """The segment that could not be brought to disk: another one is to take its place."""
        self.unsafe: OSError | None = None
        """Why what was written cannot be brought to disk: the tracker thread waits for that."""

    def elapsed(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self._began

    def clock_at(self, elapsed: float) -> float:
        """The clock's reading (monotonic seconds) at so many seconds of the run."""
        return self._began + elapsed

    def append(self, record: rec.Record) -> rec.Entry:
        """Gather a record that is none of the core's, as of now; returns it with its times."""
        entry = rec.Entry(
            record, time.time_ns() // 1_000_000 / 1e3, int(self.elapsed() * 1e6) / 1e6
        )
        self.add(entry)
        return entry

    def add(self, entry: rec.Entry, change: Transition | None = None) -> None:
        """Gather an entry, and what it has changed. A ``Live`` one is only folded."""
        if not isinstance(entry.record, rec.Live):
            self._gathered.append(rec.encode(entry))
        self._unfolded.append((entry, change))

    def fold(self) -> list[tuple[rec.Entry, Transition | None]]:
        """Work out what they mean for a checkpoint; returns what was added since the last time.

        Apart from ``add``, because it takes as long and somebody waits for what comes of that.
        """
        unfolded, self._unfolded = self._unfolded, []
        for entry, _ in unfolded:
            self._checkpoint.apply(entry)
        return unfolded

    def flush(self) -> bytes:
        """Write what has gathered; returns the bytes.

        Raises ``OSError`` (disk full...): call again later, nothing is lost or written twice; and
        ``JournalLost`` where that has become hopeless.
        """
        if not (self._gathered or self._leaving):
            return b""
        with self._lock:
            self._leaving += b"".join(self._gathered)
            self._gathered.clear()
            try:
                self._write_on()
            except OSError as error:
                self._patience.failed(error)
                raise
            self._patience.since = None
            data = self._leaving[self._untold :]
            self._leaving, self._left, self._untold = b"", 0, 0
        return data

    def is_long(self) -> bool:
        """Whether ``begin_segment`` is due; it may be called after a ``flush`` only."""
        return self._written >= self._next_at or self._number == self._renewal_of

    def begin_segment(self, board: Board) -> None:
        """Go on in a new file, which says first what of the old ones still holds.

        ``board``: of all that was added, and folded. Without a descriptor, or room, it is tried
        again later.
        """
        assert not self._unfolded, "the board has them all, and so has the checkpoint"
        path = segment_path(self.path, self._number + 1)
        self._next_at = self._written + self._limit.segment_bytes // 8
        with self._lock:
            if self._torn or self._leaving:
                return
            try:
                fd = os.open(path, _APPEND | os.O_EXCL, 0o600)
            except OSError:
                return
            self._retired.append(self._fd)
            self._fd, self._current, self._number = fd, path, self._number + 1
            counts = resumed(board, self._number)
            now = time.time(), self.elapsed()
            entries = self._checkpoint.entries(board.issues, counts, self._call, *now)
            self._leaving = b"".join(map(rec.encode_repeated, entries))
            self._untold = len(self._leaving)
            self._removal_due = True
            # A long checkpoint must not be most of what is written.
            due = max(self._limit.segment_bytes, 4 * self._untold)
            self._next_at = self._written + due
            try:
                self._write_on()
            except OSError:
                pass  # The next ``flush`` goes on with it, or says what is wrong.

    def write_now(self, record: rec.Record) -> None:
        """Append one record at once, from any thread; waits until it can be written.

        Raises ``JournalLost``.
        """
        entry = rec.Entry(record, time.time(), self.elapsed())
        line = rec.encode(entry)
        patience = _Patience(self._clock)
        while True:
            with self._lock:
                try:
                    self._write_on()  # A line that is half on disk must be ended first.
                    self._write(line)
                    self._note_call(entry)
                    return
                except OSError as error:
                    patience.failed(error)
            self._sleep(DISK_RETRY_SECONDS)

    def sync(self) -> None:
        """Everything flushed so far is on disk when this returns. Called by the tracker thread.

        Raises ``OSError``.
        """
        with self._lock:
            fd, retired, written = self._fd, list(self._retired), self._written
            whole = self._left >= self._untold
        if written == self._synced:
            return
        if retired or self._synced < 0:
            os.fsync(self._folder)
        for old in retired:
            self._sync_retired(old, whole=whole)
        self._fdatasync(fd)
        self._synced = written
        for old in retired:
            self._let_go(old)
        if whole and self._removal_due:
            self._removal_due = False
            self._remove_old()

    def sync_patiently(self) -> None:
        """``sync``, once that succeeds; ``unsafe`` meanwhile. Raises ``JournalLost``.

        What a file system could not bring to disk it may forget, and call the next try a success:
        so that waits for a new segment, whose checkpoint says all that matters once more.
        """
        patience = _Patience(self._clock)
        while True:
            if self._number != self._renewal_of:
                try:
                    self.sync()
                except OSError as error:
                    self.unsafe, self._renewal_of = error, self._number
                else:
                    self.unsafe, self._renewal_of = None, 0
                    return
            if self.unsafe is not None:
                patience.failed(self.unsafe)
            self._sleep(DISK_RETRY_SECONDS)

    def is_gone(self) -> bool:
        """Whether the file was deleted, or its folder: then the run has lost its memory."""
        try:
            return self._current.stat().st_ino != os.fstat(self._fd).st_ino
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False  # A disk in trouble: whoever writes to it finds out.

    def close(self) -> None:
        """Sync, as far as the disk lets us, and close."""
        with suppress(OSError):
            self.sync()
        for fd in (self._fd, self._folder):
            with suppress(OSError):  # Some file systems say only now that there is no room.
                os.close(fd)

    def _sync_retired(self, fd: int, *, whole: bool) -> None:
        try:
            self._fdatasync(fd)
        except OSError:
            # What it tells and what matters is in a whole checkpoint behind it, synced next.
            if not whole:
                raise
            self._let_go(fd)  # Another try would prove nothing.

    def _let_go(self, retired: int) -> None:
        if retired in self._retired:
            self._retired.remove(retired)
            with suppress(OSError):
                os.close(retired)

    def _remove_old(self) -> None:
        # Only now: until its checkpoint is on disk, what is before a segment may still be needed.
        remove_oldest(self.path, self._limit.bytes_max, keep=self._current)

    def _note_call(self, entry: rec.Entry) -> None:
        if isinstance(entry.record, rec.CallStarted):
            self._call = entry
        elif isinstance(entry.record, rec.CallEnded):
            self._call = None

    def _write_on(self) -> None:
        while self._left < len(self._leaving):
            if self._torn:
                self._end_torn_line()
            sent = self._os_write(self._fd, memoryview(self._leaving)[self._left :])
            self._left += sent
            self._written += sent

    def _write(self, line: bytes) -> None:
        # Short lines are written whole or not at all, but for a disk that fills up in the middle;
        # the torn line is then passed over by readers, and the record written once more.
        if self._torn:
            self._end_torn_line()
        sent = self._os_write(self._fd, line)
        self._written += sent
        if sent < len(line):
            self._torn = True
            raise OSError(errno.ENOSPC, "the disk filled up in the middle of a line")

    def _end_torn_line(self) -> None:
        # There was no room for its end either; without one it would swallow the next record.
        self._written += self._os_write(self._fd, b"\n")
        self._torn = False


def lost(error: OSError) -> JournalLost:
    """What ends a run: nothing may be done that is not on file, and nobody waits any longer."""
    text = f"the journal cannot be kept ({error.strerror}): the run ends here, its workers with it"
    return JournalLost(error.errno, f"{text}, and the next start settles what it held")


_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
