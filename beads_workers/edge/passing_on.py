"""What a task prints, seen while it grows: secrets are masked, and a copy is passed on."""

from __future__ import annotations

import os

from beads_workers.core.log_paths import NotConfined
from beads_workers.core.plans import LogCopy, Plan
from beads_workers.core.secrets import masked
from beads_workers.edge.confined import append

CHUNK_BYTES = 1 << 20


class PassingOn:
    """For one step, whose output is in a file from ``start`` on. Call ``look`` while it grows.

    Raises ``NotConfined`` or ``OSError`` where its copy cannot be written.
    """

    def __init__(self, plan: Plan, start: int) -> None:
        self._copy: LogCopy | None = plan.log_copy
        self._secrets = [secret.encode("utf-8", "surrogateescape") for secret in plan.secrets]
        # So many bytes at the end may be the beginning of a secret.
        self._held = max(map(len, self._secrets), default=1) - 1
        self._at = start
        if self._copy is not None:
            append(self._copy.root, self._copy.path, b"")

    def look(self, fd: int, bytes_max: int, *, last: bool = False) -> None:
        """Mask and pass on what is new, but for what may still become a secret, unless it is the
        ``last`` look. What will be cut out of the log anyway is passed over.

        Raises ``OSError`` where the log cannot be read or written; a copy that cannot is given up.
        """
        size = os.fstat(fd).st_size
        begins, ends = bytes_max // 4, size - bytes_max  # More than ``shorten`` keeps of both.
        if self._at < begins < ends:
            self._go_to(fd, begins + self._held, last=False)
        self._at = max(self._at, ends)
        self._go_to(fd, size, last=last)

    def _go_to(self, fd: int, end: int, *, last: bool) -> None:
        while self._at < end:
            data = os.pread(fd, min(CHUNK_BYTES + self._held, end - self._at), self._at)
            # Behind the end of this look more may have been written: that is for the next one.
            whole = last and self._at + len(data) >= end
            count = len(data) if whole else len(data) - self._held
            if count <= 0:
                return
            self._mask_and_copy(fd, data, count)
            self._at += count

    def moved(self, kept: int, by: int) -> None:
        """The log has lost its middle: see ``shortening.Cut``."""
        self._at = max(kept, self._at - by)

    def mask(self, data: bytes) -> bytes:
        """Without secrets, whole ones."""
        return masked(data, self._secrets)

    def mask_beginning(self, data: bytes) -> bytes:
        """The same for what was cut: somewhat less of it, where a secret may have been cut, too."""
        return masked(data, self._secrets)[: len(data) - self._held]

    def _mask_and_copy(self, fd: int, data: bytes, count: int) -> None:
        clean = self.mask(data)
        if clean != data:
            # Of its own: Linux appends whatever ``pwrite`` writes through one that appends.
            file = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
            try:
                os.pwrite(file, clean, self._at)
            finally:
                os.close(file)
        if self._copy is not None:
            try:
                append(self._copy.root, self._copy.path, clean[:count])
            except (OSError, NotConfined):
                # Somebody took its place, or the disk is full: the log has it all the same.
                self._copy = None
