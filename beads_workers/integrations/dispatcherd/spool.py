"""The file that keeps what was read and is not over: it outlives the orchestrator.

One JSON object a line, appended: ``{"n", "id", "at", "c", "m"}`` for a task (number, name here,
epoch seconds, channel, message) and ``{"d": [numbers]}`` for those that are over. It is begun anew
when nothing is left, or most of it is over. Only one orchestrator at a time uses it: that of its
state directory.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beads_workers.core.framing import ProtocolError, as_integer, as_number, parse_object
from beads_workers.core.model import IssueId
from beads_workers.integrations.dispatcherd.queue import QueuedTask
from beads_workers.integrations.dispatcherd.wire import TaskCall, from_fields, to_fields

SPOOL_FILE = "dispatcherd.jsonl"
"""In the state directory, beside its runs."""

ANEW_BYTES = 1 << 20
"""With nothing left in it, a file of this size is emptied."""
REWRITE_BYTES = 32 << 20
"""What is over takes so much room, and more than what is not, before the rest is written anew."""


@dataclass(slots=True)
class Restored:
    """What a file holds. ``last``: the highest number in it; ``damaged``: lines that say nothing,
    the end of a line that was being written when its writer died not counted."""

    entries: dict[int, QueuedTask] = field(default_factory=dict)
    last: int = 0
    damaged: int = 0


def read_spool(content: bytes) -> Restored:
    """What is not over, oldest first."""
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
    """Its line."""
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
    """What an earlier run left there, and is not touched; nothing, where there is no file."""
    try:
        return read_spool(path.read_bytes())
    except FileNotFoundError:
        return Restored()


class Spool:
    """For one writer. Every method may raise ``OSError``: then nothing was written."""

    def __init__(self, path: Path, left: Restored) -> None:
        """Begin the file (0600) anew with what ``look_at`` has found in it; one with lines that
        say nothing is kept beside it."""
        self.path = path
        self._size = self._live = 0
        self._sizes: dict[int, int] = {}
        # Somebody else's thread brings it to disk.
        self._lock = threading.Lock()
        self._fd = -1
        if left.damaged:
            os.link(path, _free_name(path))
        self._rewrite(left.entries.values())

    def append(self, entries: Sequence[QueuedTask], over: Sequence[int] = ()) -> None:
        """Both in one write; ``over``: numbers."""
        lines = [write_entry(entry) for entry in entries]
        if over:
            lines.append(_ENCODER.encode({"d": list(over)}).encode("ascii") + b"\n")
        self._write(b"".join(lines))
        for entry, line in zip(entries, lines, strict=False):
            self._sizes[entry.number] = len(line)
            self._live += len(line)
        for number in over:
            self._live -= self._sizes.pop(number, 0)

    @property
    def wants_rewriting(self) -> bool:
        """Whether most of it is over."""
        if not self._sizes:
            return self._size >= ANEW_BYTES
        dead = self._size - self._live
        return dead >= REWRITE_BYTES and dead > self._live

    def rewrite(self, entries: Iterable[QueuedTask]) -> None:
        """Begin anew with these: all that are on file and not over."""
        if self._sizes:
            self._rewrite([e for e in entries if e.number in self._sizes])
        else:
            os.ftruncate(self._fd, 0)
            self._size = self._live = 0

    def sync(self) -> None:
        """Bring it to disk; from any thread, and until after the end."""
        with self._lock:
            if self._fd < 0:
                return
            fd = os.dup(self._fd)
        # Without the lock: whoever writes never waits for the disk.
        try:
            os.fdatasync(fd)
        except OSError:
            pass  # It is called again soon; a disk that fails is told of by the journal.
        finally:
            os.close(fd)

    def close(self) -> None:
        """It is on disk then, and not written to any more."""
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
    """A power cut must not bring the old file back, to which nothing is written any more."""
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
