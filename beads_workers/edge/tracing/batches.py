"""Spans on their way: a queue with a bound, read from the journal, emptied in batches."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from beads_workers.core.flat import read_flat
from beads_workers.core.spans import Span, Spans
from beads_workers.core.values import value
from beads_workers.edge.journal_tail import JournalTail


@value
class Bounds:
    """``queue`` and ``batch`` in spans, ``delay_seconds`` between looks at the journal.

    Named in the environment as the standard has it; what is no number there, or too small, is not
    heard.
    """

    queue: int = 2048
    batch: int = 512
    delay_seconds: float = 1.0


def bounds(environment: Mapping[str, str]) -> Bounds:
    """What the environment says, or else the defaults."""

    def number(name: str, default: int) -> int:
        text = environment.get(name, "")
        return int(text) if text.isdecimal() and 0 < int(text) < 1 << 31 else default

    plain = Bounds()
    queue = number("OTEL_BSP_MAX_QUEUE_SIZE", plain.queue)
    batch = min(queue, number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", plain.batch))
    delay_ms = number("OTEL_BSP_SCHEDULE_DELAY", int(plain.delay_seconds * 1000))
    return Bounds(queue, batch, delay_ms / 1000)


@dataclass(slots=True)
class Account:
    """What became of the spans so far. ``error``: why the last ones were dropped."""

    exported: int = 0
    dropped: int = 0
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """For the parent."""
        return asdict(self)


def account_of(values: Any) -> Account:
    """Read it back; raises one of ``core.flat.BAD_VALUE``."""
    if not isinstance(values, Mapping) or values.keys() != {f.name for f in fields(Account)}:
        raise TypeError(values)
    return read_flat(Account, values)


Export = Callable[[Sequence[Span]], str]
"""Sends them; returns "" or why it could not."""


class Batches:
    """Of one run. One thread calls ``look`` again and again, and ``finish`` at the end; another
    calls ``send`` until that is False: a collector that does not answer is waited for there alone.
    """

    def __init__(self, journal: Path, export: Export, bounds: Bounds) -> None:
        self.account = Account()
        self._tail = JournalTail(journal)
        self._spans = Spans()
        self._export = export
        self._bounds = bounds
        self._queue: deque[Span] = deque()
        self._sending = 0
        self._ending = False
        self._changed = threading.Condition()

    def look(self) -> None:
        """Take in what the journal has got since the last time."""
        self._add(span for entry in self._tail.read() if (span := self._spans.add(entry)))

    def send(self) -> bool:
        """Wait for spans and export a batch; one that fails is dropped. False: it is over."""
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
        """The orchestrator has ended, ``at`` (epoch seconds); what still ran has no other end.

        Waits so long at most for what is not exported; the rest counts as dropped.
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
