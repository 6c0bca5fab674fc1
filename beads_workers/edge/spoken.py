"""What a step prints to its stdout, where that is its result: kept, and written to its log as well.

A pipe carries it, so that the log has it at once; the worker reads it in its loop.
"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace

from beads_workers.core import limits
from beads_workers.core.outcomes import kept
from beads_workers.core.worker_events import StepEnded
from beads_workers.edge.passing_on import PassingOn

_READ_BYTES = 1 << 16
_READS_AT_ONCE = 16
"""A program that never stops printing must leave the worker time for its deadlines."""


class Spoken:
    """Give ``writing`` to the step, then call ``started``; watch ``fd``, and ``pump`` when it has
    something. Raises ``OSError`` when made."""

    def __init__(self, log: int) -> None:
        self._log = log
        self.fd, self.writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.fd, False)
        self._kept = bytearray()
        self._cut = 0

    def started(self) -> None:
        """The step has it now: whoever holds it besides us can speak."""
        os.close(self.writing)
        self.writing = -1

    def pump(self) -> bool:
        """Take what is there; False: nobody can print any more."""
        for _ in range(_READS_AT_ONCE):
            try:
                data = os.read(self.fd, _READ_BYTES)
            except BlockingIOError:
                return True
            if not data:
                return False
            room = max(0, limits.OUTPUT_BYTES_MAX - len(self._kept))
            self._kept += data[:room]
            self._cut += max(0, len(data) - room)
            self._log_it(data)
        return True

    def end(self, passing: PassingOn | None = None) -> str:
        """All of its process group have ended: the JSON text of what it said, a text.

        ``passing`` masks what is no result for anybody.
        """
        if self.writing >= 0:
            self.started()
        self.pump()
        os.close(self.fd)
        # What a shell's $(...) would give: the last line's end is no part of a result.
        words = bytes(self._kept)
        if passing is not None:
            words = passing.mask_beginning(words) if self._cut else passing.mask(words)
            self._cut += len(self._kept) - len(words)
        said = words.decode("utf-8", "replace").removesuffix("\n")
        if self._cut:
            said += f"\n[{self._cut} bytes more]"
        return json.dumps(said)

    def _log_it(self, data: bytes) -> None:
        try:
            os.write(self._log, data)
        except OSError as error:
            # A full disk takes the log, and leaves the result.
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise


def with_result(ended: StepEnded, result: str, path: str) -> StepEnded:
    """``ended`` with what it said, in the file at ``path`` where that is too long for a message."""
    if len(result) <= limits.RESULT_CHARS_MAX or ended.status != 0:
        return replace(ended, result=result)
    try:
        keep_result(path, result)
    except OSError:
        # A machine that is full: the beginning of it is better than nothing.
        return replace(ended, result=kept(json.loads(result)))
    return replace(ended, result_file=path)


def keep_result(path: str, result: str) -> None:
    """Put a result that is too long for a message there; raises ``OSError``."""
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)  # noqa: PTH103, PTH120
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(result)
