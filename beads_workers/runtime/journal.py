"""The journal's file: appended by the loop, synced by the tracker thread.

Source: docs/OPERATIONS.md, "The journal". ``add`` only gathers; ``flush`` writes what has gathered
with one system call, before anything that depends on it is done; ``sync`` makes it survive a power
cut, and runs in the tracker thread because it costs a tenth of a millisecond. ``begin_segment``
limits the journal's size: ``runtime.journal_file`` reads the segments.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from beads_workers.core.base import limits
from beads_workers.core.base.model import value
from beads_workers.core.records import journal as rec
from beads_workers.core.records.issues import Transition
from beads_workers.core.views.recovery import Checkpoint, resumed
from beads_workers.core.views.snapshot import Board
from beads_workers.runtime.journal_file import remove_oldest, segment_path
from beads_workers.runtime.kernel import system

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
DISK_RETRY_SECONDS = 0.5

LOST_SECONDS = 30.0
"""Seconds after which an error ends the run, unless the disk is full. A full disk is waited for,
however long that takes; any other error may pass too (a disk on the network, a cable)."""


class JournalLost(OSError):
    """The journal cannot be written, and will not be: see ``lost``."""


class _Patience:
    """Patience of one writer: how long it tries again after errors."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.since: float | None = None
        """When the errors began (monotonic seconds); None: the last write succeeded."""

    def failed(self, error: OSError) -> None:
        """Note an error; raise ``JournalLost`` if trying again has become hopeless."""
        if error.errno in DISK_FULL:
            self.since = None
            return
        if self.since is None:
            self.since = self._clock()
        if self._clock() >= self.since + LOST_SECONDS:
            raise lost(error) from None


@value
class Size:
    """Size limits of one run's journal and of its segments; older segments are removed."""

    bytes_max: int = limits.JOURNAL_BYTES_MAX

    @property
    def segment_bytes(self) -> int:
        """Bytes of one segment: small, so that a removal takes only a small part."""
        return self.bytes_max // 8


DEFAULT = Size()


class Journal:
    """One run's journal, open for appending. Only the loop calls ``add`` and ``flush``."""

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[int, bytes | memoryview], int] = os.write,
        size: Size = DEFAULT,
        fdatasync: Callable[[int], None] = system.sync_data,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``path``: path of the first segment. Raises ``OSError``."""
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
        self._checkpoint_bytes = 0
        """Number of bytes at the beginning of ``_leaving`` that are a checkpoint: no news for
        followers."""
        self._torn = False
        self._written = 0
        self._synced = -1
        self._checkpoint = Checkpoint()
        self._unfolded: list[tuple[rec.Entry, Transition | None]] = []
        self._call: rec.Entry | None = None
        self._number = 1
        self._next_at = size.segment_bytes
        """Number of written bytes, of all segments, at which another segment is due."""
        self._removal_due = False
        self._retired: list[int] = []
        """Descriptors of earlier segments that may not be on disk yet."""
        self._patience = _Patience(clock)
        self._renewal_of = 0
        """Number of the segment that could not be synced and is to be replaced by another; 0:
        none."""
        self.unsafe: OSError | None = None
        """Why written data cannot be synced; None: it can. The tracker thread waits meanwhile."""

    @property
    def current(self) -> Path:
        """The file that is written now."""
        return self._current

    def elapsed(self) -> float:
        """Return the seconds since the run began."""
        return self._clock() - self._began

    def clock_at(self, elapsed: float) -> float:
        """Return the clock's reading (monotonic seconds) at so many seconds of the run."""
        return self._began + elapsed

    def append(self, record: rec.Record) -> rec.Entry:
        """Gather a record that is not the core's, as of now; return its entry with the times."""
        entry = rec.Entry(
            record, time.time_ns() // 1_000_000 / 1e3, int(self.elapsed() * 1e6) / 1e6
        )
        self.add(entry)
        return entry

    def add(self, entry: rec.Entry, change: Transition | None = None) -> None:
        """Gather an entry and the change that it made. A ``Live`` entry is folded, but not
        written."""
        if not isinstance(entry.record, rec.Live):
            self._gathered.append(rec.encode(entry))
        self._unfolded.append((entry, change))

    def fold(self) -> list[tuple[rec.Entry, Transition | None]]:
        """Apply gathered entries to the checkpoint; return the entries added since the last call.

        Separate from ``add``: it takes as long, and somebody waits for what follows ``add``.
        """
        unfolded, self._unfolded = self._unfolded, []
        for entry, _ in unfolded:
            self._checkpoint.apply(entry)
        return unfolded

    def flush(self) -> bytes:
        """Write what has gathered; return the bytes, without those of a checkpoint.

        Raises ``OSError`` (a full disk, for example): call again later, nothing is lost or written
        twice. Raises ``JournalLost`` if trying again has become hopeless.
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
            data = self._leaving[self._checkpoint_bytes :]
            self._leaving, self._left, self._checkpoint_bytes = b"", 0, 0
        return data

    def is_long(self) -> bool:
        """Return whether ``begin_segment`` is due; call that only after a ``flush``."""
        return self._written >= self._next_at or self._number == self._renewal_of

    def begin_segment(self, board: Board) -> None:
        """Go on in a new file, which first repeats what still holds of the old files.

        ``board``: the board with everything added and folded. Without a descriptor, or room, a
        later call tries again.
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
            self._checkpoint_bytes = len(self._leaving)
            self._removal_due = True
            # A long checkpoint must not be most of what is written.
            due = max(self._limit.segment_bytes, 4 * self._checkpoint_bytes)
            self._next_at = self._written + due
            try:
                self._write_on()
            except OSError:
                pass  # The next ``flush`` goes on with it, or reports the error.

    def write_now(self, record: rec.Record) -> None:
        """Append one record at once, from any thread; wait until it can be written.

        Raises ``JournalLost``.
        """
        entry = rec.Entry(record, time.time(), self.elapsed())
        line = rec.encode(entry)
        patience = _Patience(self._clock)
        while True:
            with self._lock:
                try:
                    self._write_on()  # A half-written line must be ended first.
                    self._write(line)
                    if isinstance(entry.record, rec.CallStarted):
                        self._call = entry
                    elif isinstance(entry.record, rec.CallEnded):
                        self._call = None
                    return
                except OSError as error:
                    patience.failed(error)
            self._sleep(DISK_RETRY_SECONDS)

    def sync(self) -> None:
        """Bring everything flushed so far to disk. Called by the tracker thread.

        Raises ``OSError``.
        """
        with self._lock:
            fd, retired, written = self._fd, list(self._retired), self._written
            complete = self._left >= self._checkpoint_bytes
        if written == self._synced:
            return
        if retired or self._synced < 0:
            os.fsync(self._folder)
        for old in retired:
            try:
                self._fdatasync(old)
            except OSError:
                # The whole checkpoint behind it, synced next, repeats all that matters.
                if not complete:
                    raise
                self._let_go(old)  # Another try would prove nothing.
        self._fdatasync(fd)
        self._synced = written
        for old in retired:
            self._let_go(old)
        if complete and self._removal_due:
            self._removal_due = False
            self._remove_old()

    def sync_patiently(self) -> None:
        """Repeat ``sync`` until it succeeds; ``unsafe`` is set meanwhile. Raises ``JournalLost``.

        A file system may forget data that it could not bring to disk, and report success at the
        next try. So the next try waits for a new segment, whose checkpoint repeats all that
        matters.
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
        """Return whether the file or its folder was deleted: then the run has lost its memory."""
        try:
            return self._current.stat().st_ino != os.fstat(self._fd).st_ino
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False  # A failing disk: the next write reports it.

    def close(self) -> None:
        """Sync, if the disk lets us, and close the file."""
        with suppress(OSError):
            self.sync()
        for fd in (self._fd, self._folder):
            with suppress(OSError):  # Some file systems report only now that there is no room.
                os.close(fd)

    def _let_go(self, retired: int) -> None:
        if retired in self._retired:
            self._retired.remove(retired)
            with suppress(OSError):
                os.close(retired)

    def _remove_old(self) -> None:
        # Only now: until its checkpoint is on disk, the segments before it may still be needed.
        remove_oldest(self.path, self._limit.bytes_max, keep=self._current)

    def _write_on(self) -> None:
        while self._left < len(self._leaving):
            if self._torn:
                self._end_torn_line()
            sent = self._os_write(self._fd, memoryview(self._leaving)[self._left :])
            self._left += sent
            self._written += sent

    def _write(self, line: bytes) -> None:
        # A short line is written whole or not at all, unless the disk fills up in the middle.
        # Readers then skip the torn line, and the record is written once more.
        if self._torn:
            self._end_torn_line()
        sent = self._os_write(self._fd, line)
        self._written += sent
        if sent < len(line):
            self._torn = True
            raise OSError(errno.ENOSPC, "the disk filled up in the middle of a line")

    def _end_torn_line(self) -> None:
        # There was no room for its newline either; without one it would swallow the next record.
        self._written += self._os_write(self._fd, b"\n")
        self._torn = False


def lost(error: OSError) -> JournalLost:
    """Return the error that ends a run: nothing may be done without the journal, and the wait is
    over."""
    text = f"the journal cannot be kept ({error.strerror}): the run ends here, its workers with it"
    return JournalLost(error.errno, f"{text}, and the next start settles what it held")


_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
