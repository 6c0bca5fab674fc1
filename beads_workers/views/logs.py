"""Logs of attempts for people: agents' lines of JSON become short lines.

An attempt's log has lines of ours (``[beads-workers] ...``), and output of its agents and of
``--verify``. A line of ours says which output follows. ``logs`` prints all lines, the dashboard
follows a ``LogFile``, the live page asks for parts (``log_part``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from beads_workers.core.base.text import as_shown, printable
from beads_workers.executors.files import output_file
from beads_workers.ui.agents import epoch_of

if TYPE_CHECKING:
    from beads_workers.agents.adapter import Adapter

OURS = "[beads-workers] "
HEAD_BYTES = 1 << 14
_WORDS = ("> ", "failed: ")
_BEGINS = re.compile(r"\[beads-workers\] agent .{1,200}, adapter (\w{1,60})(?:,|$)")

_SAID_AT = re.compile(rb'"timestamp": ?"([0-9T:.Z+-]{10,40})"')
"""Time in a line of JSON of an agent, as claude writes it."""


class How(Enum):
    """How much of a log is shown."""

    FOLDED = "folded"
    """What tools printed is folded."""
    FULL = "full"
    RAW = "raw"
    """As it is in the file."""


class ReadableLog:
    """Filter for the lines of a log, given in order and without line ends."""

    def __init__(self, adapter: Adapter | None = None, how: How = How.FOLDED) -> None:
        self._adapter = adapter
        self._full = how is How.FULL
        self._last_words: list[str] = []

    def shown(self, raw: bytes) -> list[tuple[str, float | None]]:
        """Return a line as the lines that it says, safe to show, and when its agent said it in
        epoch seconds (None: it does not say); none for a line that only programs need."""
        lines = self.line(raw.decode("utf-8", "replace").rstrip("\r\n"))
        said = _SAID_AT.search(raw) if lines and raw.startswith(b"{") else None
        at = epoch_of(said[1].decode()) if said else None
        return [(as_shown(text), at) for text in lines]

    def line(self, text: str) -> list[str]:
        """Return the line as it is shown; none for a line that only programs need."""
        if text.startswith(OURS):
            if begins := _BEGINS.match(text):
                self._adapter = _load(begins[1])
            elif text.startswith(f"{OURS}verify: "):
                self._adapter = None
            self._last_words = []
            return [text]
        if self._adapter is None or not text.startswith("{"):
            return [text]
        shown = self._adapter.readable(text, full=self._full)
        if shown and shown[0].startswith(_WORDS):
            # The result of an agent run repeats its last words.
            shown, self._last_words = ([] if shown == self._last_words else shown), shown
        return shown


def of_tail(log: Path, how: How = How.FOLDED) -> ReadableLog:
    """Return a filter for the end of a log, as if its first agent still ran.

    Raise ``OSError``.
    """
    with log.open("rb") as file:
        head = file.read(HEAD_BYTES).decode("utf-8", "replace")
    begins = _BEGINS.search(head)
    return ReadableLog(_load(begins[1]) if begins else None, how)


def _load(name: str) -> Adapter | None:
    from beads_workers.agents.adapter import load

    return load(name)


def readable_lines(log: Path, how: How = How.FOLDED) -> Iterator[str]:
    """Yield the lines of an attempt's log as ``logs`` prints them. Raise ``OSError``."""
    readable = None if how is How.RAW else ReadableLog(how=how)
    with log.open("rb") as file:
        for line in file:
            yield from printed(line, readable)


def printed(line: bytes, readable: ReadableLog | None) -> list[str]:
    """Return a line as ``logs`` prints it; ``readable``: None for the line as it is."""
    if readable is None:
        return [line.decode("utf-8", "replace").rstrip("\r\n")]
    # Output of a task must not control a terminal, also not behind a pipe.
    return [printable(text) for text, _ in readable.shown(line)]


# --- a log that grows ----------------------------------------------------------------------------

LOG_BYTES_MAX = 8 << 20
"""Largest part of a log that is shown here: its end; ``logs`` shows all of it."""

LOG_LINES_MAX = 50_000


class LogFile:
    """A log that may grow. Lines are kept, so that only new data is read. Raises ``OSError`` if it
    cannot be read."""

    def __init__(self, path: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
        self.path = path
        self.lines: list[str] = []
        self.first = 0
        """Number of lines that were dropped."""
        self.times: list[float | None] = []
        """When each line came: as the agent says, or when it was read; None for a line that was
        there when the log was opened."""
        self._opened = False
        self._rest = b""
        self._at = max(0, path.stat().st_size - bytes_max)
        self._cut = self._at > 0
        self._readable = of_tail(path)

    def read(self, now: float) -> None:
        """Read the data that was added. ``now``: epoch seconds."""
        with self.path.open("rb") as file:
            file.seek(self._at)
            data = file.read(LOG_BYTES_MAX)
        self._at += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        if self._cut and whole:
            self._cut = False
            del whole[0]
        for line in whole:
            for text, said in self._readable.shown(line):
                self.lines.append(text)
                self.times.append(now if said is None and self._opened else said)
        self._opened = True
        if (dropped := len(self.lines) - LOG_LINES_MAX) > 0:
            self.first += dropped
            del self.lines[:dropped], self.times[:dropped]

    def goes_on_with(self, before: LogFile) -> None:
        """Take over the times of lines that this file has as well: it is the same log, renamed."""
        if before.first == self.first and self.lines[: len(before.lines)] == before.lines:
            self.times[: len(before.times)] = before.times

    def shrank(self) -> bool:
        """Return whether the file was replaced or cut."""
        return self.path.stat().st_size < self._at

    @property
    def shown(self) -> list[str]:
        """The lines, and the last line if it is incomplete."""
        begun = begun_line(self._rest[:4096])
        return [*self.lines, begun] if begun else self.lines


def begun_line(data: bytes) -> str:
    """Return an incomplete last line as it is shown; "" for one of JSON."""
    return "" if data.startswith(b"{") else as_shown(data.decode("utf-8", "replace"))


# --- a part of a log -----------------------------------------------------------------------------

LOG_PART_BYTES = 128 << 10
"""Size of a part of a log that a page gets at once: its end first, then what is before or after."""

LINE_CHARS_MAX = 4000


def opened(path: Path) -> BinaryIO:
    """Open a log, and nothing that a link leads to."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags), "rb")


def log_part(
    file: BinaryIO, path: Path, *, before: int | None = None, after: int | None = None
) -> dict[str, Any]:
    """Return the end of a log; or what is just ``before`` a place, or what came ``after`` it.

    ``begin``, ``end``: the places of the part, in bytes. ``lines``: whole lines, without noise of
    agents; ``times``: when each was said in epoch seconds, or None. ``begun``: the last line if it
    is incomplete yet, which is in no part. ``anew``: the log is another one than before.
    """
    size = os.fstat(file.fileno()).st_size
    anew = after is not None and after > size
    if anew:
        after = None
    if after is not None:
        begin, end = after, min(size, after + LOG_PART_BYTES)
    else:
        end = size if before is None else min(size, before)
        begin = max(0, end - LOG_PART_BYTES)
    file.seek(begin)
    data = file.read(end - begin)
    if begin and after is None and (cut := data.find(b"\n") + 1):
        begin, data = begin + cut, data[cut:]
    whole, newline, begun = data.rpartition(b"\n")
    if not newline and len(data) >= LOG_PART_BYTES:
        whole, newline, begun = data, b"\n", b""  # One line longer than a part: cut.
    readable = of_tail(path) if begin else ReadableLog()
    read = map(readable.shown, whole.split(b"\n") if newline else ())
    shown = list(chain.from_iterable(read))
    return {
        "begin": begin,
        "end": begin + len(data) - len(begun) if newline else begin,
        "size": size,
        "lines": [text[:LINE_CHARS_MAX] for text, _ in shown],
        "times": [said for _, said in shown],
        "begun": begun_line(begun)[:LINE_CHARS_MAX] if end == size and before is None else "",
        "anew": anew,
    }


# --- left outputs --------------------------------------------------------------------------------
# Output of attempts that were killed together with their workers. It never became a log: it is in
# the worker's output file until the next worker of that name renames it.


CLOCK_SECONDS = 0.05
"""Tolerance: the kernel stamps files with its last tick, and the journal rounds times."""


def left_outputs(folder: Path, worker_id: str, began: float, ended: float) -> list[Path]:
    """Return output files below the run's ``folder`` of an attempt between these epoch seconds.

    No file names its attempt. But it was last written while the attempt ran, and a worker runs one
    attempt at a time.
    """
    output = Path(output_file(str(folder), worker_id))
    found = []
    for path in (*sorted(output.parent.glob(f"lost{output.name}.*.log")), output):
        try:
            status = path.lstat()
        except OSError:
            continue
        if status.st_size and began - CLOCK_SECONDS <= status.st_mtime <= ended + CLOCK_SECONDS:
            found.append(path)
    return found
