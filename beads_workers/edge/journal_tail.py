"""A journal read as it grows: what has been added since the last look, segment after segment.

Whatever a follower of the control socket is told is in the file already, so one that reads the
file when it is told anything misses nothing, however slow it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from beads_workers.core.journal_lines import Entry
from beads_workers.edge.journal_files import entry_of, following, segments

READ_BYTES = 1 << 20


class JournalTail:
    """``journal``: the path of the first segment, whether it is still there or not."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._path = journal
        self._file: BinaryIO | None = None
        self._rest = b""
        self._told = False
        """A segment before this one was read: what this one repeats is known."""

    def read(self) -> Iterator[Entry]:
        """Every readable entry that was added since; does not wait for more."""
        if self._file is None and not self._open(segments(self._journal)[:1]):
            return
        while True:
            # Before the last look: nothing is added to a segment behind its end.
            then = following(self._path)
            yield from self._added()
            if then is None:
                return
            self.close()
            self._told = True
            if not self._open([then]):
                return

    def close(self) -> None:
        """Close the file; a later ``read`` would begin again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, paths: list[Path]) -> bool:
        for path in paths:
            try:
                self._file = path.open("rb")
            except FileNotFoundError:
                return False  # Removed meanwhile: the next look finds the one behind it.
            self._path, self._rest = path, b""
        return self._file is not None

    def _added(self) -> Iterator[Entry]:
        assert self._file is not None, "it was opened"
        while data := self._file.read(READ_BYTES):
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                if (entry := entry_of(line + b"\n", repeated=not self._told)) is not None:
                    yield entry
