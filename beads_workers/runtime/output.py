"""Output of a step: written to a file that is kept short, with secrets masked and copies sent
on."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.model import kept, value
from beads_workers.core.base.plans import LogCopy, Plan
from beads_workers.core.base.redaction import UnsafePath, masked, parts_below
from beads_workers.core.base.scripts import LogRoot
from beads_workers.core.workers.worker_events import StepEnded
from beads_workers.runtime.kernel import system

# --- log truncation ------------------------------------------------------------------------------
# A log that grew too long loses its middle, also while somebody still writes to it.
#
# The kept end is copied down to the kept beginning, and the file is cut behind it. Its writers
# append (``O_APPEND``), so what they write next lands behind the copy. This needs no room on the
# disk, hardly any memory, and nothing of the file system but ``ftruncate``.


CHUNK_BYTES = 1 << 20
LINE_BYTES = 64 << 10
"""Bytes searched for the start of a line: the kept end should begin with a whole line."""

MARK_BYTES = 128
"""Fixed length of a mark, so that it can be written again with another number."""

_MARK = re.compile(rb"\n\[beads-workers: (\d{1,18}) bytes are left out here[^\n]{0,90}\n")


@value
class Cut:
    """Removed middle of a log. Data from ``start`` on has moved up by ``by`` bytes; data before it
    is gone, or lies before ``kept``."""

    start: int
    by: int

    @property
    def kept(self) -> int:
        """Offset at which the kept end begins."""
        return self.start - self.by


def truncate(fd: int, bytes_max: int) -> Cut | None:
    """Remove the middle of a file of more than ``bytes_max``; return None if it is not that long.

    ``fd``: open for reading. A quarter of ``bytes_max`` stays of the beginning and half of it of
    the end. A line between them says how much was left out, by this and by earlier calls. Data
    written in the microseconds before the file is cut may be lost, too. Raises ``OSError``.
    """
    size = os.fstat(fd).st_size
    if size <= bytes_max:
        return None
    # Open anew: Linux appends whatever ``pwrite`` writes through a descriptor that appends.
    file = system.opened_anew(fd, os.O_RDWR)
    try:
        return _truncate(file, size, bytes_max)
    finally:
        os.close(file)


def _truncate(file: int, size: int, bytes_max: int) -> Cut:
    head = bytes_max // 4
    earlier = _MARK.match(os.pread(file, MARK_BYTES, head))
    start = _line_start(file, size - bytes_max // 2)
    left_out = start - head
    if earlier is not None:
        left_out += int(earlier[1]) - MARK_BYTES
    os.pwrite(file, _mark(left_out, bytes_max), head)
    cut = Cut(start, start - head - MARK_BYTES)
    copied = _copy_down(file, cut, copy_max=2 * bytes_max)
    end = os.fstat(file).st_size
    os.ftruncate(file, copied - cut.by)
    if end > copied:
        # It grows faster than it can be copied.
        os.pwrite(file, _mark(left_out + end - copied, bytes_max), head)
    return cut


def _copy_down(file: int, cut: Cut, copy_max: int) -> int:
    """Return up to where the file was copied: its end, or what was reached by ``copy_max``."""
    at = cut.start
    while chunk := os.pread(file, CHUNK_BYTES, at):
        at += os.pwrite(file, chunk, at - cut.by)
        if at - cut.start >= copy_max:
            break
    return at


def _line_start(file: int, at: int) -> int:
    """Return the first start of a line from ``at`` on; ``at`` itself if none is near."""
    found = os.pread(file, LINE_BYTES, at - 1).find(b"\n")
    return at if found < 0 else at + found


def _mark(left_out: int, bytes_max: int) -> bytes:
    text = f"\n[beads-workers: {left_out} bytes are left out here: log_max is {bytes_max} bytes]"
    return text.encode().ljust(MARK_BYTES - 1) + b"\n"


# --- safe paths ----------------------------------------------------------------------------------
# Files below one folder, whatever their path says: no ``..``, no symbolic link, no foreign file.
#
# Every part of a path is opened by itself, relative to the part before it, so that nobody can put a
# link in its place between a check and its use.


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without O_NONBLOCK a pipe that somebody left there would block us for ever.
_APPEND_ONLY = os.O_WRONLY | os.O_APPEND | os.O_CREAT
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def open_to_read(root: str, path: str) -> int:
    """Return a descriptor of the file; raises ``UnsafePath``, or ``OSError`` if there is no such
    file."""
    *folders, name = parts_below(root, path)
    folder = _enter(root, folders, make=False)
    try:
        return _opened(folder, name, os.O_RDONLY)
    finally:
        os.close(folder)


def append(root: LogRoot, path: str, data: bytes) -> None:
    """Add to the log; create it and its folders, for this user alone, if they are missing.

    A log that would get too long is rotated first. Raises ``UnsafePath`` or ``OSError``.
    """
    *folders, name = parts_below(root.path, path)
    folder = _enter(root.path, folders, make=True)
    try:
        file = _opened(folder, name, _APPEND_ONLY)
        if (size := os.fstat(file).st_size) and size + len(data) > root.bytes_max:
            os.close(file)
            _rotate(folder, name, root.keep)
            file = _opened(folder, name, _APPEND_ONLY)
        try:
            written = 0
            while written < len(data):
                written += os.write(file, data[written:])
        finally:
            os.close(file)
    finally:
        os.close(folder)


def _enter(root: str, folders: list[str], *, make: bool) -> int:
    # The user named the root: the root may be a link.
    folder = os.open(root, _FOLDER)
    for name in folders:
        try:
            if make:
                try:
                    os.mkdir(name, 0o700, dir_fd=folder)
                except FileExistsError:
                    pass
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
        except OSError as error:
            raise _explained(error, name) from None
        finally:
            os.close(folder)
        folder = inner
    return folder


def _opened(folder: int, name: str, flags: int) -> int:
    try:
        file = os.open(name, flags | _FILE, 0o600, dir_fd=folder)
    except OSError as error:
        raise _explained(error, name) from None
    found = os.fstat(file)
    trouble = ""
    if not stat.S_ISREG(found.st_mode):
        trouble = "is no file"
    elif found.st_nlink != 1:
        trouble = "has another name elsewhere"
    elif found.st_uid != os.geteuid():
        trouble = "belongs to another user"
    if trouble:
        os.close(file)
        raise UnsafePath(f"{name} {trouble}")
    return file


def _explained(error: OSError, name: str) -> Exception:
    match error.errno:
        case errno.ELOOP | errno.ENOTDIR:
            return UnsafePath(f"{name} is a link, or no folder")
        case errno.ENXIO | errno.EISDIR:
            return UnsafePath(f"{name} is no file")
        case _:
            error.filename = name
            return error


def _rotate(folder: int, name: str, keep: int) -> None:
    names = [name, *(f"{name}.{number}" for number in range(1, keep + 1))]
    # From the oldest on: a rename removes the file that had the new name.
    for older, newer in reversed(list(zip(names[1:], names, strict=False))):
        try:
            os.rename(newer, older, src_dir_fd=folder, dst_dir_fd=folder)
        except FileNotFoundError:
            pass
    if not keep:
        os.unlink(name, dir_fd=folder)


# --- log tee -------------------------------------------------------------------------------------
# Output of a task, watched while it grows: secrets are masked, and a copy is sent on.


class LogTee:
    """Watcher of one step's output, which is in a file from ``start`` on. Call ``look`` as it
    grows.

    Raises ``UnsafePath`` or ``OSError`` if the copy cannot be written.
    """

    def __init__(self, plan: Plan, start: int) -> None:
        self._copy: LogCopy | None = plan.log_copy
        self._secrets = [secret.encode("utf-8", "surrogateescape") for secret in plan.secrets]
        # Number of bytes at the end that may be the beginning of a secret.
        self._held = max(map(len, self._secrets), default=1) - 1
        self._at = start
        if self._copy is not None:
            append(self._copy.root, self._copy.path, b"")

    def look(self, fd: int, bytes_max: int, *, last: bool = False) -> None:
        """Mask and copy new output, except an end that may still become a secret, unless this is
        the ``last`` look. Output that will be cut out of the log anyway is skipped.

        Raises ``OSError`` if the log cannot be read or written; a copy that cannot be written is
        given up.
        """
        size = os.fstat(fd).st_size
        begins, ends = bytes_max // 4, size - bytes_max  # More than ``truncate`` keeps of both.
        if self._at < begins < ends:
            self._go_to(fd, begins + self._held, last=False)
        self._at = max(self._at, ends)
        self._go_to(fd, size, last=last)

    def _go_to(self, fd: int, end: int, *, last: bool) -> None:
        while self._at < end:
            data = os.pread(fd, min(CHUNK_BYTES + self._held, end - self._at), self._at)
            # More may have been written after the end of this look: that is for the next look.
            whole = last and self._at + len(data) >= end
            count = len(data) if whole else len(data) - self._held
            if count <= 0:
                return
            self._mask_and_copy(fd, data, count)
            self._at += count

    def moved(self, kept: int, by: int) -> None:
        """Adjust the position after the log has lost its middle: see ``Cut``."""
        self._at = max(kept, self._at - by)

    def mask(self, data: bytes) -> bytes:
        """Return the data with all whole secrets masked."""
        return masked(data, self._secrets)

    def mask_beginning(self, data: bytes) -> bytes:
        """Mask data that was cut at its end; also drop an end in which a secret may have been
        cut."""
        return masked(data, self._secrets)[: len(data) - self._held]

    def _mask_and_copy(self, fd: int, data: bytes, count: int) -> None:
        clean = self.mask(data)
        if clean != data:
            # Open anew: Linux appends whatever ``pwrite`` writes through a descriptor that appends.
            file = system.opened_anew(fd, os.O_RDWR)
            try:
                os.pwrite(file, clean, self._at)
            finally:
                os.close(file)
        if self._copy is not None:
            try:
                append(self._copy.root, self._copy.path, clean[:count])
            except (OSError, UnsafePath):
                # Its file was replaced, or the disk is full: the log still has everything.
                self._copy = None


# --- captured output -----------------------------------------------------------------------------
# A step's stdout, if that is its result: captured, and written to its log as well.
#
# A pipe carries it, so that the log has it at once; the worker reads the pipe in its loop.


_READ_BYTES = 1 << 16
_READS_AT_ONCE = 16
"""Number of reads at a time: a program that never stops printing must leave the worker time for its
deadlines."""


class StepPipe(ABC):
    """Pipe from a step: give ``writing`` to the step, then call ``started``; watch ``fd``, and
    ``pump`` when it is readable. Raises ``OSError`` on creation."""

    def __init__(self) -> None:
        self.fd, self.writing = system.pipe()
        os.set_blocking(self.fd, False)

    @abstractmethod
    def take(self, data: bytes) -> None:
        """Handle data that the step has written."""

    def progress(self) -> Mapping[str, Any] | None:
        """Return the newest progress since the last call, for a step that reports progress."""
        return None

    def started(self) -> None:
        """Close our copy of ``writing``: the step has its own now."""
        os.close(self.writing)
        self.writing = -1

    def pump(self) -> bool:
        """Read what is there; return False once nobody can write any more."""
        for _ in range(_READS_AT_ONCE):
            try:
                data = os.read(self.fd, _READ_BYTES)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            self.take(data)
        return True

    def close(self) -> None:
        """Read the rest and close the pipe: the whole process group has ended."""
        if self.writing >= 0:
            self.started()
        self.pump()
        os.close(self.fd)


class CapturedOutput(StepPipe):
    """Captured stdout of a step, which is the step's result."""

    def __init__(self, log: int) -> None:
        super().__init__()
        self._log = log
        self._kept = bytearray()
        self._cut = 0

    def take(self, data: bytes) -> None:
        """Keep the data, up to a limit, and log it."""
        room = max(0, limits.OUTPUT_BYTES_MAX - len(self._kept))
        self._kept += data[:room]
        self._cut += max(0, len(data) - room)
        try:
            os.write(self._log, data)
        except OSError:
            pass  # A full or broken disk loses the log, but not the result.

    def end(self, tee: LogTee | None = None) -> str:
        """Close the pipe; return the captured text as JSON text: the whole process group has ended.

        ``tee`` masks secrets in the result.
        """
        self.close()
        # As a shell's $(...) does: the last line's end is not part of the result.
        words = bytes(self._kept)
        if tee is not None:
            words = tee.mask_beginning(words) if self._cut else tee.mask(words)
            self._cut += len(self._kept) - len(words)
        captured = words.decode("utf-8", "replace").removesuffix("\n")
        if self._cut:
            captured += f"\n[{self._cut} bytes more]"
        return json.dumps(captured)


def with_result(ended: StepEnded, result: str, path: str) -> StepEnded:
    """Return ``ended`` with its result; a result too long for a message goes to the file at
    ``path``."""
    if len(result) <= limits.RESULT_CHARS_MAX or ended.status != 0:
        return replace(ended, result=result)
    try:
        keep_result(path, result)
    except OSError:
        # A full disk: the beginning of the result is better than nothing.
        return replace(ended, result=kept(json.loads(result)))
    return replace(ended, result_file=path)


def keep_result(path: str, result: str) -> None:
    """Write a result that is too long for a message to ``path``; raises ``OSError``."""
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)  # noqa: PTH103, PTH120
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(result)


# --- outputs -------------------------------------------------------------------------------------
# Output of a step: written straight to a file that is checked now and then and kept short.
#
# Source: docs/OPERATIONS.md, "The run directory".


TAIL_BYTES = 4096
"""Bytes at the end of a step's output that are searched for its last line."""

LOOK_SECONDS_MIN, LOOK_SECONDS_MAX = 0.1, 1.0
"""Seconds between two looks at an output: fewer while it grows fast, and soon after its start."""

_COPY_BYTES = 1 << 20
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


def failure_in(descriptor: int, folder: str, at: int = 0) -> str:
    """Return what a file says has failed, from the byte ``at`` on; paths are relative to
    ``folder``."""
    from beads_workers.core.base.failures import FailureReader  # Most steps succeed.

    reader, before = FailureReader(folder), b""
    with suppress(OSError):
        while data := os.pread(descriptor, _COPY_BYTES, at):
            if data != before:  # What prints one thing for ever says it once.
                reader.feed(data)
            at, before = at + len(data), data
    return reader.reason()


class ProgressFile:
    """File in which a step may report its progress, beside its output: the last line counts.

    ``is_used``: this step has written to it, so that its output is no progress. Each worker has one
    file; what was written before this object was created is another step's.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._known = self._state()
        self._reported = b""
        self.is_used = False

    def news(self) -> bytes:
        """Return the end of the file if it has changed since the last call; otherwise nothing."""
        if (state := self._state()) == self._known:
            return b""
        try:
            fd = os.open(self._path, os.O_RDONLY | _FILE)
        except OSError:
            return b""
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return b""
            data = os.pread(fd, TAIL_BYTES, max(0, os.fstat(fd).st_size - TAIL_BYTES))
        except OSError:
            return b""
        finally:
            os.close(fd)
        if not data:
            return b""  # It is being written.
        self._known, self.is_used = state, True
        before, self._reported = self._reported, data
        return b"" if data == before else data

    def _state(self) -> tuple[int, int, int] | None:
        # Not the time alone: a file's clock ticks only every few milliseconds.
        try:
            found = os.stat(self._path, follow_symlinks=False)  # noqa: PTH116
        except OSError:
            return None  # Most write none.
        return found.st_ino, found.st_size, found.st_mtime_ns


class AttemptOutput:
    """Output of an attempt: to its log if there is one already, else to one file per worker, which
    becomes the log once it holds anything.

    A new file for each task would cost more than the task, beside a journal that is synced. Raises
    ``OSError``. ``look_seconds``: seconds to wait before the next ``look``.
    """

    def __init__(self, plan: Plan) -> None:
        self._becomes = self._from = ""
        try:
            self.fd = os.open(plan.log_file, _APPEND)
        except FileNotFoundError:
            self._from, self._becomes = plan.output_file, plan.log_file
            self.fd = os.open(plan.output_file, _APPEND | os.O_CREAT, 0o600)
            if os.fstat(self.fd).st_size:
                # Left by a killed worker of this name: kept, under a name of its own.
                os.close(self.fd)
                folder, _, name = plan.output_file.rpartition("/")
                os.rename(plan.output_file, f"{folder}/lost{name}.{os.getpid()}.log")  # noqa: PTH104
                self.fd = os.open(plan.output_file, _APPEND | os.O_CREAT, 0o600)
        # Measured before the start: the log may hold earlier steps, and this one is quick.
        self._start = self._seen = self._reported = os.fstat(self.fd).st_size
        self._bytes_max = plan.log_bytes_max
        self._progress = ProgressFile(plan.progress_file)
        self.look_seconds = LOOK_SECONDS_MIN
        self.tee: LogTee | None = None
        if plan.log_copy or plan.secrets:
            try:
                self.tee = LogTee(plan, self._start)
            except (OSError, UnsafePath):
                self.close()
                raise

    def reuse(self, plan: Plan) -> bool:
        """Reuse this output for ``plan``, after ``end(keep=True)``, and return True if its open,
        empty file is the one that ``plan`` would open. Output of an earlier attempt with this
        number is joined at the end."""
        if self.fd < 0 or self._from != plan.output_file:
            return False
        self._becomes, self._bytes_max = plan.log_file, plan.log_bytes_max
        self._start = self._seen = self._reported = 0
        self._progress = ProgressFile(plan.progress_file)
        self.look_seconds = LOOK_SECONDS_MIN
        return True

    def close(self) -> None:
        """Close the file: it is no longer needed."""
        if self.fd >= 0:
            with suppress(OSError):  # Some file systems report only now that there was no room.
                os.close(self.fd)
            self.fd = -1

    def look(self, *, last: bool = False) -> None:
        """Remove the middle of an output that has grown too long; its writer goes on meanwhile.

        Mask and copy new output if that is asked for; ``last``: the writer has ended. Raises
        ``OSError`` if the file cannot be examined at all.
        """
        size = os.fstat(self.fd).st_size
        fast = size - self._seen > self._bytes_max // 16
        # So no secret stays unmasked for longer, and a follower of a copy sees output soon.
        often = fast or self.tee is not None
        self.look_seconds = (
            LOOK_SECONDS_MIN if often else min(self.look_seconds * 2, LOOK_SECONDS_MAX)
        )
        try:
            if self.tee is not None:
                self.tee.look(self.fd, self._bytes_max, last=last)
            cut = truncate(self.fd, self._bytes_max)
        except OSError:
            cut = None  # No descriptor left: the next look finds it longer still.
        if cut is not None:
            if self.tee is not None:
                self.tee.moved(cut.kept, cut.by)
            self._start = max(cut.kept, self._start - cut.by)
            size = os.fstat(self.fd).st_size
        self._seen = size

    def news(self) -> str:
        """Return the last text written to ``BW_PROGRESS``, else whole lines of the output, if
        ``look`` has seen more since the last call.

        Secrets are masked; a line whose beginning is too far back is left out.
        """
        if written := self._progress.news():
            shown = self.tee.mask(written) if self.tee is not None else written
            return shown.decode("utf-8", "replace")
        if self._seen == self._reported or self._progress.is_used:
            return ""
        self._reported = self._seen
        begin = max(self._start, self._seen - TAIL_BYTES)
        data = os.pread(self.fd, self._seen - begin, begin).replace(b"\r", b"\n")
        first = 0 if begin == self._start else data.find(b"\n") + 1
        whole = data[first : data.rfind(b"\n") + 1]
        shown = self.tee.mask(whole) if self.tee is not None else whole
        return shown.decode("utf-8", "replace")

    def said(self, folder: str) -> str:
        """Return what the output says has failed, of all that is kept of it; paths are relative
        to ``folder``."""
        with suppress(OSError):  # As in ``end``.
            self.look(last=True)
            return failure_in(self.fd, folder, self._start)
        return ""

    def end(self, *, keep: bool = False) -> str:
        """End the output of a step; return its last bytes as text.

        ``keep``: no process of the step is left that could still print. The next step may then use
        the same file, if this one is empty.
        """
        tail = b""
        try:
            if keep and self._becomes and not os.fstat(self.fd).st_size:
                return ""
            self.look(last=True)
            size = os.fstat(self.fd).st_size
            tail = os.pread(self.fd, TAIL_BYTES, max(self._start, size - TAIL_BYTES))
            if size and self._becomes:
                self._become(size)
        except OSError:
            pass  # The run directory is gone, or its disk fails; the outcome counts all the same.
        self.close()
        return tail.decode("utf-8", "replace")

    def _become(self, size: int) -> None:
        try:
            earlier = os.open(self._becomes, _APPEND)
        except FileNotFoundError:
            os.rename(self._from, self._becomes)  # noqa: PTH104 - no Path here
            return
        # A free retry has the number, and so the log, of the attempt before it.
        try:
            sent = 0
            while sent < size and (more := os.pread(self.fd, _COPY_BYTES, sent)):
                sent += os.write(earlier, more)
            truncate(earlier, self._bytes_max)
        finally:
            os.close(earlier)
        os.unlink(self._from)  # noqa: PTH108 - no Path here
