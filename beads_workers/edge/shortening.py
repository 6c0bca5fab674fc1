"""A log that grew too long loses its middle, also while somebody still writes to it.

What is kept of the end is copied down to what is kept of the beginning, and the file is cut behind
it. Its writers append (``O_APPEND``), so what they write next lands behind the copy. Needs no room
on the disk, no memory to speak of, and nothing of the file system but ``ftruncate``.
"""

from __future__ import annotations

import os
import re

from beads_workers.core.values import value

CHUNK_BYTES = 1 << 20
LINE_BYTES = 64 << 10
"""How far a line's start is looked for: what is kept of the end should begin with a whole one."""

MARK_BYTES = 128
"""Of one length, so that it can be written again with another number."""

_MARK = re.compile(rb"\n\[beads-workers: (\d{1,18}) bytes are left out here[^\n]{0,90}\n")


@value
class Cut:
    """What was at ``start`` or behind it is now ``by`` bytes further up; bytes before are gone, or
    stand before ``kept``."""

    start: int
    by: int

    @property
    def kept(self) -> int:
        """Where what is kept of the end begins."""
        return self.start - self.by


def shorten(fd: int, bytes_max: int) -> Cut | None:
    """Take the middle out of a file of more than ``bytes_max``; None where it is not that long.

    ``fd``: open for reading. A quarter of ``bytes_max`` stays of the beginning and half of it of
    the end; in between a line says how much was left out, by this and by earlier calls. What is
    written in the very microseconds before the file is cut may be lost, too. Raises ``OSError``.
    """
    size = os.fstat(fd).st_size
    if size <= bytes_max:
        return None
    # A descriptor of its own: Linux appends whatever ``pwrite`` writes through one that appends.
    file = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
    try:
        return _shorten(file, size, bytes_max)
    finally:
        os.close(file)


def _shorten(file: int, size: int, bytes_max: int) -> Cut:
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
        # It is written faster than it can be copied.
        os.pwrite(file, _mark(left_out + end - copied, bytes_max), head)
    return cut


def _copy_down(file: int, cut: Cut, copy_max: int) -> int:
    """Returns up to where the file was copied: its end, or what was reached by ``copy_max``."""
    at = cut.start
    while chunk := os.pread(file, CHUNK_BYTES, at):
        at += os.pwrite(file, chunk, at - cut.by)
        if at - cut.start >= copy_max:
            break
    return at


def _line_start(file: int, at: int) -> int:
    """The first start of a line from ``at`` on; ``at`` itself where none is near."""
    found = os.pread(file, LINE_BYTES, at - 1).find(b"\n")
    return at if found < 0 else at + found


def _mark(left_out: int, bytes_max: int) -> bytes:
    text = f"\n[beads-workers: {left_out} bytes are left out here: log_max is {bytes_max} bytes]"
    return text.encode().ljust(MARK_BYTES - 1) + b"\n"
