"""What a step prints: straight into a file, which is looked at now and then and kept short.

Source: docs/PROTOCOL.md, "The run directory".
"""

from __future__ import annotations

import os

from beads_workers.core.log_paths import NotConfined
from beads_workers.core.plans import Plan
from beads_workers.edge.passing_on import PassingOn
from beads_workers.edge.shortening import shorten

TAIL_BYTES = 4096
"""How much of the end of a step's output is looked at for its last line."""

LOOK_SECONDS_MIN, LOOK_SECONDS_MAX = 0.1, 1.0
"""How long an output may grow unseen: less where it grows fast, and soon after its start."""

_COPY_BYTES = 1 << 20
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC


class Output:
    """To the attempt's log if there is one already, else to one file per worker that becomes the
    log when it holds anything.

    A new file for each task would cost more than the task, beside a journal that is synced.
    Raises ``OSError``. ``look_seconds``: how long to wait before the next ``look``.
    """

    def __init__(self, plan: Plan) -> None:
        self._becomes = self._from = ""
        try:
            self.fd = os.open(plan.log_file, _APPEND)
        except FileNotFoundError:
            self._from, self._becomes = plan.output_file, plan.log_file
            self.fd = os.open(plan.output_file, _APPEND | os.O_CREAT, 0o600)
            if os.fstat(self.fd).st_size:
                # Left by a worker of this name that was killed: kept, under a name of its own.
                os.close(self.fd)
                folder, _, name = plan.output_file.rpartition("/")
                os.rename(plan.output_file, f"{folder}/lost{name}.{os.getpid()}.log")  # noqa: PTH104
                self.fd = os.open(plan.output_file, _APPEND | os.O_CREAT, 0o600)
        # Measured before the start: the log may hold earlier steps, and this one is quick.
        self._start = self._seen = os.fstat(self.fd).st_size
        self._bytes_max = plan.log_bytes_max
        self.look_seconds = LOOK_SECONDS_MIN
        self.passing: PassingOn | None = None
        if plan.log_copy or plan.secrets:
            try:
                self.passing = PassingOn(plan, self._start)
            except (OSError, NotConfined):
                self.close()
                raise

    def again(self, plan: Plan) -> bool:
        """Whether it is now the output of ``plan``, after ``end(keep=True)``: its file is open and
        empty, and would be opened again. What an earlier attempt has printed waits for the end."""
        if self.fd < 0 or self._from != plan.output_file:
            return False
        self._becomes, self._bytes_max = plan.log_file, plan.log_bytes_max
        self._start = self._seen = 0
        self.look_seconds = LOOK_SECONDS_MIN
        return True

    def close(self) -> None:
        """It is not needed any more."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def look(self, *, last: bool = False) -> None:
        """Take the middle out of what has grown too long; who writes it goes on meanwhile.

        What it prints is passed on, where that is asked for; ``last``: it prints no more.
        """
        size = os.fstat(self.fd).st_size
        fast = size - self._seen > self._bytes_max // 16
        # A secret lies there unmasked no longer than that, and who follows a copy sees it soon.
        often = fast or self.passing is not None
        self.look_seconds = (
            LOOK_SECONDS_MIN if often else min(self.look_seconds * 2, LOOK_SECONDS_MAX)
        )
        try:
            if self.passing is not None:
                self.passing.look(self.fd, self._bytes_max, last=last)
            cut = shorten(self.fd, self._bytes_max)
        except OSError:
            cut = None  # No descriptor left: the next look finds it longer still.
        if cut is not None:
            if self.passing is not None:
                self.passing.moved(cut.kept, cut.by)
            self._start = max(cut.kept, self._start - cut.by)
            size = os.fstat(self.fd).st_size
        self._seen = size

    def end(self, *, keep: bool = False) -> str:
        """The step is over: returns how its output ends.

        ``keep``: nothing of the step lives that could still print, and the next one may print to
        the same file, if this one is empty.
        """
        if keep and self._becomes and not os.fstat(self.fd).st_size:
            return ""
        self.look(last=True)
        size = os.fstat(self.fd).st_size
        tail = os.pread(self.fd, TAIL_BYTES, max(self._start, size - TAIL_BYTES))
        if size and self._becomes:
            try:
                self._become(size)
            except OSError:
                pass  # The run directory is gone; the outcome counts all the same.
        self.close()
        return tail.decode("utf-8", "replace")

    def _become(self, size: int) -> None:
        try:
            earlier = os.open(self._becomes, _APPEND)
        except FileNotFoundError:
            os.rename(self._from, self._becomes)  # noqa: PTH104 - no Path here
            return
        # A free retry has the number, and the log, of the attempt before it.
        try:
            sent = 0
            while sent < size and (more := os.pread(self.fd, _COPY_BYTES, sent)):
                sent += os.write(earlier, more)
            shorten(earlier, self._bytes_max)
        finally:
            os.close(earlier)
        os.unlink(self._from)  # noqa: PTH108 - no Path here
