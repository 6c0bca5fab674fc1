"""The log of a job, read where its path leads below the root, and never elsewhere."""

from __future__ import annotations

import os
from types import TracebackType

from beads_workers.edge.confined import open_to_read

_CHUNK_BYTES = 1 << 16
TAIL_BYTES_MAX = 16 << 20
"""The last lines are looked for in so much of the end."""


class JobLog:
    """One log, open for reading; follows it when it is rotated.

    Raises ``NotConfined``, or ``OSError`` where it is not there, when made. Use it as a context.
    """

    def __init__(self, root: str, path: str) -> None:
        self._root, self._path = root, path
        self._file = open_to_read(root, path)

    def __enter__(self) -> JobLog:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The file is not needed any more."""
        os.close(self._file)

    def to_last(self, lines: int) -> None:
        """Skip all but the last so many lines."""
        size = os.fstat(self._file).st_size
        at, seen, end = size, b"", max(0, size - TAIL_BYTES_MAX)
        # The end of the last line begins none.
        while at > end and seen.rstrip(b"\n").count(b"\n") < lines:
            step = min(_CHUNK_BYTES, at - end)
            at -= step
            seen = os.pread(self._file, step, at) + seen
        kept = seen.split(b"\n")
        last = lines + 1 if seen.endswith(b"\n") else lines
        left_out = len(b"\n".join(kept[:-last])) + 1 if len(kept) > last else 0
        os.lseek(self._file, at + left_out, os.SEEK_SET)

    def read(self) -> bytes:
        """What comes next, at most 64 KiB; empty: nothing more for now."""
        if data := os.read(self._file, _CHUNK_BYTES):
            return data
        newer = open_to_read(self._root, self._path)
        if os.path.sameopenfile(newer, self._file):
            os.close(newer)
            return b""
        os.close(self._file)
        self._file = newer
        return os.read(self._file, _CHUNK_BYTES)
