"""A run's journal on disk: segments, appended by the loop, synced by the tracker thread.

``journal.jsonl`` is the first, ``journal.2.jsonl`` the second and so on; old ones are removed. A
segment that begins within a run repeats what still holds (``core.views.recovery.Checkpoint``). That
is all that a recovery needs; a reader of the segment before it skips what is repeated.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO

from beads_workers.core.records import journal as rec


def segment_path(journal: Path, number: int) -> Path:
    """Return the path of a segment. ``journal``: path of the first segment."""
    return journal if number == 1 else journal.with_name(f"journal.{number}.jsonl")


def segments(journal: Path) -> list[Path]:
    """Return the segments that exist, oldest first. ``journal``: path of the first segment."""
    found = {journal} if journal.exists() else set()
    found.update(path for path in journal.parent.glob("journal.*.jsonl") if _number(path) > 1)
    return sorted(found, key=_number)


def following(segment: Path) -> Path | None:
    """Return the oldest segment behind this one; None while this is the last segment."""
    found = segments(segment.with_name("journal.jsonl"))
    return next((path for path in found if _number(path) > _number(segment)), None)


def _number(segment: Path) -> int:
    number = segment.name.split(".")[1]
    # Foreign files beside the segments are ignored.
    return int(number) if re.fullmatch(r"[1-9][0-9]{0,8}", number) else int(number == "jsonl")


def read_journal(journal: Path, about: str = "") -> Iterator[rec.Entry]:
    """Yield every readable entry that is kept of a run; skip torn and foreign lines.

    ``journal``: path of the first segment, whether that still exists or not. A disk that filled up
    or a power cut may leave half a line, or zeros, before a whole one. ``about``: leave out what
    cannot be about this issue, except the records of the run itself and the last entry. Lines that
    are left out are not parsed, so a long journal is read in a tenth of the time.
    """
    yield from _read(segments(journal), json.dumps(about).encode("ascii") if about else b"")


def read_end(journal: Path) -> Iterator[rec.Entry]:
    """Yield the entries from the last whole checkpoint on: for a recovery, as good as all of
    them."""
    found = segments(journal)
    # A power cut may have removed unsynced data of a segment: the one before has it.
    broken = list(takewhile(lambda path: not _is_whole(path), reversed(found)))
    first = max(0, len(found) - len(broken) - 1)
    yield from _read(found[first:])


OF_THE_RUN = b'"run_'
"""Part of the beginning of a record of the run itself: ``run_started`` and others."""
HEAD_BYTES = 60


def _read(paths: Sequence[Path], about: bytes = b"") -> Iterator[rec.Entry]:
    has_earlier, left_out = False, b""
    for path in paths:
        try:
            file = path.open("rb")
        except FileNotFoundError:
            continue  # Removed meanwhile: the next segment repeats what matters.
        with file:
            for line in file:
                left_out = b""
                if about not in line and OF_THE_RUN not in line[:HEAD_BYTES]:
                    left_out = line
                elif (entry := entry_of(line, repeated=not has_earlier)) is not None:
                    yield entry
        has_earlier = True
    if left_out and (entry := entry_of(left_out, repeated=False)) is not None:
        yield entry


def entry_of(line: bytes, *, repeated: bool) -> rec.Entry | None:
    """Return the entry of a line with its end; None for a torn or foreign line. If not
    ``repeated``, return None for an entry that a checkpoint repeats, too."""
    if not line.endswith(b"\n"):
        return None
    if rec.is_repeated(line) and not repeated:
        return None
    if (entry := rec.decode(line)) is not None:
        return entry
    # A damaged line may end with a whole entry.
    at = line.rfind(rec.LINE_START)
    return entry_of(line[at:], repeated=repeated) if at > 0 else None


def _is_whole(path: Path) -> bool:
    return any(isinstance(entry.record, rec.CheckpointEnded) for entry in _read([path]))


def add_to(journal: Path, entries: Sequence[rec.Entry]) -> None:
    """Add entries to the journal of a dead run; they are on disk on return. Raises ``OSError``.

    No entry gets a time before the last entry of the run itself.
    """
    last = None
    for last in read_end(journal) if entries else ():  # noqa: B007 - the last one is wanted
        pass
    if last is None:
        return
    lines = [rec.encode(replace(each, elapsed=max(last.elapsed, each.elapsed))) for each in entries]
    # A recovery reads the last segment.
    with segments(journal)[-1].open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        if file.read() != b"\n":
            file.write(b"\n")  # A torn last line must not swallow the first of these.
        file.write(b"".join(lines))
        file.flush()
        os.fsync(file.fileno())


def remove_oldest(path: Path, bytes_max: int, *, keep: Path) -> None:
    """Remove the oldest segments of the journal at ``path`` until the rest fits into ``bytes_max``.

    ``keep``: this segment and those after it stay.
    """
    sizes = {segment: _size(segment) for segment in segments(path)}
    total = sum(sizes.values())
    for segment, size in sizes.items():
        if total <= bytes_max or segment == keep:
            break
        total -= size
        try:
            segment.unlink()
        except OSError:
            pass  # Gone already, or the disk is read-only.


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


# --- journal tail --------------------------------------------------------------------------------
# Reader of a growing journal: what was added since the last look, segment after segment.
#
# Everything that a follower of the control socket is told is in the file already. So a follower
# that reads the file at each message misses nothing, however slow it is.


READ_BYTES = 1 << 20


class JournalTail:
    """Reader of a growing journal. ``journal``: path of the first segment, even if it is
    removed."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._path = journal
        self._file: BinaryIO | None = None
        self._rest = b""
        self._has_earlier = False
        """Whether a segment before this one was read: what this segment repeats is known."""

    def read(self) -> Iterator[rec.Entry]:
        """Yield every readable entry that was added since the last call; do not wait for more."""
        if self._file is None and not self._open(segments(self._journal)[:1]):
            return
        while True:
            # Before the last read: nothing is added to a segment that has a successor.
            then = following(self._path)
            yield from self._added()
            if then is None:
                return
            self.close()
            self._has_earlier = True
            if not self._open([then]):
                return

    def close(self) -> None:
        """Close the file; a later ``read`` would begin again with the first segment."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, paths: list[Path]) -> bool:
        for path in paths:
            try:
                self._file = path.open("rb")
            except FileNotFoundError:
                return False  # Removed meanwhile: the next read finds the segment behind it.
            self._path, self._rest = path, b""
        return self._file is not None

    def _added(self) -> Iterator[rec.Entry]:
        assert self._file is not None, "it was opened"
        while data := self._file.read(READ_BYTES):
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                if (entry := entry_of(line + b"\n", repeated=not self._has_earlier)) is not None:
                    yield entry
