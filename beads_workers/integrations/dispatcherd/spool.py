"""The spool: the file of tasks that were read and are not over; it outlives the orchestrator.

One JSON object a line, appended: ``{"n", "id", "at", "c", "m"}`` for a task (number, name here,
epoch seconds, channel, message) and ``{"d": [numbers]}`` for finished tasks. The file is rewritten
when nothing is left, or most of it is over. Only one orchestrator at a time uses the file: that of
its state directory.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beads_workers.core.base.framing import ProtocolError, as_integer, as_number, parse_object
from beads_workers.core.base.model import IssueId
from beads_workers.integrations.dispatcherd.queue import QueuedTask
from beads_workers.integrations.dispatcherd.wire import TaskCall, from_fields, to_fields
from beads_workers.runtime.kernel import system

SPOOL_FILE = "dispatcherd.jsonl"
"""Name of the file in the state directory, beside its runs."""

ANEW_BYTES = 1 << 20
"""Size from which a file without unfinished tasks is emptied."""
REWRITE_BYTES = 32 << 20
"""Size of finished tasks, if more than half of the file, from which the file is rewritten."""


@dataclass(slots=True)
class Restored:
    """Content of a file. ``last``: the highest number; ``damaged``: number of unreadable lines.

    An incomplete last line, left by a writer that died, does not count as damaged.
    """

    entries: dict[int, QueuedTask] = field(default_factory=dict)
    last: int = 0
    damaged: int = 0


def read_spool(content: bytes) -> Restored:
    """Return the unfinished tasks, oldest first."""
    found = Restored()
    whole, _, _ = content.rpartition(b"\n")
    for line in whole.split(b"\n") if whole else ():
        try:
            _read_line(line, found)
        except ProtocolError:
            found.damaged += 1
    return found


def _read_line(line: bytes, found: Restored) -> None:
    fields = parse_object(line)
    over = fields.get("d")
    if isinstance(over, list):
        for number in over:
            if type(number) is int:
                found.entries.pop(number, None)
        return
    entry = _entry(fields, len(line))
    found.entries[entry.number] = entry
    found.last = max(found.last, entry.number)


def _entry(fields: dict[str, Any], size: int) -> QueuedTask:
    number, at = as_integer(fields.get("n")), as_number(fields.get("at"))
    issue_id, channel, message = fields.get("id"), fields.get("c"), fields.get("m")
    if number is None or number < 1 or at is None or not isinstance(message, dict):
        raise ProtocolError("no task")
    if not isinstance(issue_id, str) or not issue_id or not isinstance(channel, str):
        raise ProtocolError("no name or channel")
    task = from_fields(message)
    if not isinstance(task, TaskCall):
        raise ProtocolError("a control request, which is never kept")
    return QueuedTask(number, IssueId(issue_id), task, channel, at, size)


def write_entry(entry: QueuedTask) -> bytes:
    """Return the line of a task."""
    fields = {
        "n": entry.number,
        "id": entry.issue_id,
        "at": entry.received_at,
        "c": entry.channel,
        "m": to_fields(entry.task),
    }
    return _ENCODER.encode(fields).encode("ascii") + b"\n"


_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def look_at(path: Path) -> Restored:
    """Return what an earlier run left in the file, which is not changed; nothing without a file."""
    try:
        return read_spool(path.read_bytes())
    except FileNotFoundError:
        return Restored()


class Spool:
    """The file, for one writer. Every method may raise ``OSError``: then nothing was written."""

    def __init__(self, path: Path, left: Restored) -> None:
        """Rewrite the file (0600) with the unfinished tasks that ``look_at`` found in it.

        A file with unreadable lines is also kept under another name.
        """
        self.path = path
        self._size = self._live = 0
        self._sizes: dict[int, int] = {}
        # ``sync`` is called in another thread.
        self._lock = threading.Lock()
        self._fd = -1
        if left.damaged:
            os.link(path, _free_name(path))
        self._rewrite(left.entries.values())

    def append(self, entries: Sequence[QueuedTask], finished: Sequence[int] = ()) -> None:
        """Append both in one write; ``finished``: numbers."""
        lines = [write_entry(entry) for entry in entries]
        if finished:
            lines.append(_ENCODER.encode({"d": list(finished)}).encode("ascii") + b"\n")
        self._write(b"".join(lines))
        for entry, line in zip(entries, lines, strict=False):
            self._sizes[entry.number] = len(line)
            self._live += len(line)
        for number in finished:
            self._live -= self._sizes.pop(number, 0)

    @property
    def wants_rewriting(self) -> bool:
        """Whether most of the file is over."""
        if not self._sizes:
            return self._size >= ANEW_BYTES
        dead = self._size - self._live
        return dead >= REWRITE_BYTES and dead > self._live

    def rewrite(self, entries: Iterable[QueuedTask]) -> None:
        """Rewrite the file with these entries: all that are in the spool and not over."""
        if self._sizes:
            self._rewrite([e for e in entries if e.number in self._sizes])
        else:
            os.ftruncate(self._fd, 0)
            self._size = self._live = 0

    def sync(self) -> None:
        """Flush the file to disk; may be called in any thread, also after ``close``."""
        with self._lock:
            if self._fd < 0:
                return
            fd = os.dup(self._fd)
        # Without the lock: writers never wait for the disk.
        try:
            system.sync_data(fd)
        except OSError:
            pass  # ``sync`` is called again soon; the journal reports a failing disk.
        finally:
            os.close(fd)

    def close(self) -> None:
        """Flush the file to disk, and close it."""
        self.sync()
        with self._lock:
            os.close(self._fd)
            self._fd = -1

    def _write(self, content: bytes) -> None:
        left = memoryview(content)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(content)

    def _rewrite(self, entries: Iterable[QueuedTask]) -> None:
        lines = {entry.number: write_entry(entry) for entry in entries}
        fresh = self.path.with_name(self.path.name + ".new")
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(fresh, flags, 0o600)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(b"".join(lines.values()))
            os.fsync(fd)
            os.replace(fresh, self.path)  # noqa: PTH105 - as the other calls here
        except OSError:
            os.close(fd)
            raise
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = fd
        self._sizes = {number: len(line) for number, line in lines.items()}
        self._size = self._live = sum(self._sizes.values())
        _sync_folder(self.path.parent)


def _sync_folder(folder: Path) -> None:
    """Flush a folder: a power cut must not bring back the old file, which is not written any
    more."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _free_name(path: Path) -> Path:
    number = 1
    while (name := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    return name
