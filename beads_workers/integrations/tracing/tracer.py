"""The orchestrator's side of the process that exports spans, and the queue of spans."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from beads_workers.core.base.framing import Line, LineReader, ProtocolError, parse_object
from beads_workers.core.base.model import value
from beads_workers.core.base.plain import BAD_VALUE, from_plain
from beads_workers.core.base.text import counted, printable
from beads_workers.core.schedule.events import Event, Warned
from beads_workers.integrations.tracing.spans import Span, Spans
from beads_workers.runtime.journal_file import JournalTail
from beads_workers.runtime.processes import say

# --- batches -------------------------------------------------------------------------------------
# Spans on their way: a bounded queue, read from the journal, emptied in batches.


@value
class Bounds:
    """Bounds of the queue of spans.

    The environment variables have their standard names; invalid or too small values are ignored.
    """

    # ``queue`` and ``batch`` are in spans.
    queue: int = 2048
    batch: int = 512
    # The time between two reads of the journal.
    delay_seconds: float = 1.0


def bounds(environment: Mapping[str, str]) -> Bounds:
    """Return the bounds of the environment, or else the defaults."""

    def number(name: str, default: int) -> int:
        text = environment.get(name, "")
        return int(text) if text.isdecimal() and 0 < int(text) < 1 << 31 else default

    plain = Bounds()
    queue = number("OTEL_BSP_MAX_QUEUE_SIZE", plain.queue)
    batch = min(queue, number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", plain.batch))
    delay_ms = number("OTEL_BSP_SCHEDULE_DELAY", int(plain.delay_seconds * 1000))
    return Bounds(queue, batch, delay_ms / 1000)


@dataclass(slots=True)
class ExportStatus:
    """Counts of spans so far. ``error``: why the last ones were dropped."""

    exported: int = 0
    dropped: int = 0
    error: str = ""


def account_of(values: Any) -> ExportStatus:
    """Return the status from plain values; raise one of ``core.records.journal.BAD_VALUE``."""
    if not isinstance(values, Mapping) or values.keys() != {f.name for f in fields(ExportStatus)}:
        raise TypeError(values)
    return from_plain(ExportStatus, values)


Export = Callable[[Sequence[Span]], str]
"""Exports spans; returns "" or the reason for a failure."""


class Batches:
    """The batches of one run.

    One thread calls ``look`` again and again, and ``finish`` at the end. Another thread calls
    ``send`` until that returns False: only that thread waits for a slow collector.
    """

    def __init__(self, journal: Path, export: Export, bounds: Bounds) -> None:
        self.account = ExportStatus()
        self._tail = JournalTail(journal)
        self._spans = Spans()
        self._export = export
        self._bounds = bounds
        self._queue: deque[Span] = deque()
        self._sending = 0
        self._ending = False
        self._changed = threading.Condition()

    def look(self) -> None:
        """Read the new entries of the journal."""
        self._add(span for entry in self._tail.read() for span in self._spans.add(entry))

    def send(self) -> bool:
        """Wait for spans and export a batch; drop it if that fails. Return False at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._ending)
            self._sending = min(len(self._queue), self._bounds.batch)
            batch = [self._queue.popleft() for _ in range(self._sending)]
        if not batch:
            return False
        failed = self._export(batch)
        with self._changed:
            self._sending = 0
            if failed:
                self._drop(len(batch), failed)
            else:
                self.account.exported += len(batch)
            self._changed.notify_all()
        return True

    def finish(self, at: float, seconds: float) -> None:
        """End the unfinished spans: the orchestrator has ended, ``at`` (epoch seconds).

        Waits ``seconds`` at most for spans that are not exported; the rest counts as dropped.
        """
        self.look()
        self._add(self._spans.left(at))
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not (self._queue or self._sending), seconds)
            if left := len(self._queue) + self._sending:
                self._drop(left, "the run has ended, and the collector did not answer in time")
                self._queue.clear()

    def _add(self, spans: Iterable[Span]) -> None:
        for span in spans:
            with self._changed:
                if len(self._queue) >= self._bounds.queue:
                    self._drop(1, "more ended than could be exported")
                    continue
                self._queue.append(span)
                self._changed.notify_all()

    def _drop(self, count: int, why: str) -> None:
        self.account.dropped += count
        self.account.error = why


# --- tracer --------------------------------------------------------------------------------------
# The orchestrator's side of the process that exports spans: starts it, reads from it, waits for it.


MODULE = "beads_workers.integrations.tracing.export"

LAST_SECONDS = 5.0
"""Longest time for the last spans at the end of the run; then the process is killed."""

LINE_BYTES_MAX = 4096


def start_tracer(
    journal: Path, selector: selectors.BaseSelector, tell: Callable[[Event], None]
) -> Tracer | None:
    """Start the process; return None if that fails, which costs spans, but no work."""

    def warn(text: str) -> None:
        tell(Warned(text))

    try:
        return Tracer(journal, selector, warn)
    except OSError as error:
        warn(f"spans are not exported: {error}")
        return None


class Tracer:
    """The process that exports spans.

    ``warn`` is called the first time that spans are dropped or the process dies. The constructor
    raises ``OSError`` if the process cannot be started.
    """

    def __init__(
        self, journal: Path, selector: selectors.BaseSelector, warn: Callable[[str], None]
    ) -> None:
        self.account = ExportStatus()
        self._warn: Callable[[str], None] | None = warn
        self._selector: selectors.BaseSelector | None = selector
        self._reader = LineReader(LINE_BYTES_MAX)
        self._process = subprocess.Popen(
            # -P: nothing in the project's folder is imported.
            [sys.executable, "-P", "-m", MODULE, str(journal)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._stdout = self._process.stdout
        os.set_blocking(self._stdout.fileno(), False)
        selector.register(self._stdout, selectors.EVENT_READ, lambda mask: self._receive())

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def finish(self) -> None:
        """Wait for the last spans, no longer than ``LAST_SECONDS``: the journal is complete."""
        self._forget()
        os.set_blocking(self._stdout.fileno(), True)
        try:
            # This also closes its stdin.
            rest, _ = self._process.communicate(timeout=LAST_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            rest, _ = self._process.communicate()
        self._take_in(rest)
        text = f"{counted(self.account.exported, 'span')} exported"
        if self.account.dropped:
            text += f", {self.account.dropped} dropped: {printable(self.account.error)}"
        say("tracing", text)

    def _receive(self) -> None:
        try:
            received = os.read(self._stdout.fileno(), LINE_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        if received:
            self._take_in(received)
            return
        self._forget()
        self._complain("spans are not exported any more: the process for that has died")

    def _take_in(self, received: bytes) -> None:
        for framed in self._reader.feed(received):
            if not isinstance(framed, Line):
                continue
            try:
                self.account = account_of(parse_object(framed.text))
            except (ProtocolError, *BAD_VALUE):
                continue
        if self.account.dropped:
            count = counted(self.account.dropped, "span")
            self._complain(f"{count} could not be exported: {printable(self.account.error)}")

    def _complain(self, text: str) -> None:
        if self._warn is not None:
            warn, self._warn = self._warn, None
            warn(text)

    def _forget(self) -> None:
        if self._selector is not None:
            self._selector.unregister(self._stdout)
            self._selector = None
