"""The data for viewers of the live page: the newest of each topic, and all ended attempts.

One thread writes (``say``, ``begin``, ``add``), and each viewer has a thread that follows. A slow
viewer misses what was replaced meanwhile: nothing is queued. A snapshot is sent whole only once;
after that a viewer gets what has changed since its last one (``web_deltas``).
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from beads_workers.core.records import journal as rec
from beads_workers.core.records.issues import Issues
from beads_workers.core.records.journal import Entry
from beads_workers.core.views.history import CUT_OFF
from beads_workers.ui.web_deltas import Snapshots, delta

Message = dict[str, Any]

VIEWERS_MAX = 32
"""Maximum number of viewers: each has a thread and a connection; a person has two or three."""

ATTEMPTS_MAX = 3000
"""Maximum number of newest attempts in the timeline: more than a screen has columns."""

FEW_ATTEMPTS = 100
"""Number of attempts that are sent together with the rest."""

TITLE_CHARS_MAX = 80

BEAT_SECONDS = 10.0
"""Interval of messages in a silent stream, which also detect a lost viewer."""

EndedAttempt = tuple[str, str, str, int, float, float, str]
"""Worker, issue, title, number, began and ended in seconds of the run, outcome."""


def frame(event: str, data: Any) -> bytes:
    """Return one event of a stream of server-sent events; JSON has no line ends."""
    text = json.dumps(data, separators=(",", ":"))
    return f"event: {event}\ndata: {text}\n\n".encode("ascii")


def ended_attempts(issues: Issues, entries: Iterable[Entry]) -> Iterator[EndedAttempt]:
    """Yield the attempts that these records end; ``issues``: the state before them."""
    for entry in entries:
        change = issues.apply(entry)
        if change is None or (ended := change.attempt) is None:
            continue
        started, record = ended.started, entry.record
        is_end = isinstance(record, rec.Finished) and record.request_id == started.request_id
        yield (
            started.worker_id,
            started.issue_id,
            (started.title or change.issue.title)[:TITLE_CHARS_MAX],
            started.attempt,
            round(ended.elapsed, 3),
            round(entry.elapsed, 3),
            record.outcome if isinstance(record, rec.Finished) and is_end else CUT_OFF,
        )


class PageState:
    """Shared state for viewers. ``snapshot``: the newest, to look up a viewer's requests."""

    def __init__(self) -> None:
        self.snapshot: Message | None = None
        self.end_was_read = False
        """Whether a person has touched the page since the run here has ended."""
        self.decisions = 0
        """Number of requests of people so far."""
        self._changed = threading.Condition()
        self._version = 0
        self._snapshots = Snapshots()
        self._change: tuple[Message, Message, bytes] | None = None
        """The last change that was worked out: from which snapshot, to which, and its event."""
        self._topics: dict[str, tuple[int, bytes]] = {}
        """Topic -> the version of its last change, and its event."""
        self._run = 0
        """Number of runs so far: viewers of another run begin again."""
        self._rows: deque[EndedAttempt] = deque(maxlen=ATTEMPTS_MAX)
        self._added = 0
        self._viewers = 0

    # --- told ---------------------------------------------------------------------------------

    def say(self, topic: str, value: Any) -> None:
        """Replace the value of a topic."""
        event = b"" if topic == "snapshot" else frame(topic, value)
        with self._changed:
            if topic == "snapshot":
                if self.snapshot == value:
                    return
                self.snapshot = value
                self._snapshots.add(value)
            else:
                if (before := self._topics.get(topic)) is not None and before[1] == event:
                    return
                self._topics[topic] = self._version + 1, event
            self._version += 1
            self._changed.notify_all()

    def say_once(self, topic: str, value: Any) -> None:
        """Say the first value of a topic in this run; later ones are not said."""
        if topic not in self._topics:
            self.say(topic, value)

    def forget(self) -> None:
        """Forget the fleet: a viewer who comes now is told what is new, and nothing before it."""
        with self._changed:
            self._topics.pop("fleet", None)
            self.snapshot = self._snapshots.newest = None

    def begin(self) -> None:
        """Begin another run: its attempts follow, and what is said once is said anew."""
        with self._changed:
            self._topics.pop("clock", None)
            self._run += 1
            self._added = 0
            self._rows.clear()
            self._changed.notify_all()

    def add(self, rows: Sequence[EndedAttempt]) -> None:
        """Add ended attempts of this run."""
        if rows:
            with self._changed:
                self._rows.extend(rows)
                self._added += len(rows)
                self._changed.notify_all()

    # --- followed -----------------------------------------------------------------------------

    @property
    def viewers(self) -> int:
        """Number of viewers."""
        return self._viewers

    def wait_for_viewer(self, seconds: float) -> None:
        """Wait for a viewer, at most so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._viewers > 0, seconds)

    def enter(self) -> bool:
        """Register a viewer; return False if there are too many. ``leave`` follows ``True``."""
        with self._changed:
            if self._viewers >= VIEWERS_MAX:
                return False
            self._viewers += 1
            self._changed.notify_all()
            return True

    def leave(self) -> None:
        """Unregister a viewer."""
        with self._changed:
            self._viewers -= 1

    def follow(self) -> Iterator[bytes]:
        """Yield events for a viewer, without end: first all that is known, then what is new."""
        yield b"retry: 1000\n\n"
        seen, run, rows = 0, -1, 0
        known: Message | None = None
        while True:
            with self._changed:
                until = time.monotonic() + BEAT_SECONDS
                while self._version == seen and (self._run, self._added) == (run, rows):
                    if not self._changed.wait(max(0.0, until - time.monotonic())):
                        break
                events = [event for at, event in self._topics.values() if at > seen]
                attempts = self._attempts(run, rows)
                newest = self._snapshots.newest
                seen, run, rows = self._version, self._run, self._added
            if newest is not None and newest is not known:
                events.append(self._event(known, newest))
                known = newest
            if attempts is not None:
                if events and len(attempts["rows"]) > FEW_ATTEMPTS:
                    yield b"".join(events)  # A viewer can read it before the rest comes.
                    events = []
                events.append(frame("attempts", attempts))
            yield b"".join(events) or b": still here\n\n"

    def _event(self, known: Message | None, newest: Message) -> bytes:
        """Return the event that leads a viewer from the snapshot that it knows to the newest."""
        if known is None:
            return frame("snapshot", newest)
        last = self._change
        if last is None or last[0] is not known or last[1] is not newest:
            # Viewers that keep up ask for the same, one after the other.
            self._change = last = known, newest, frame("change", delta(known, newest) or {})
        return last[2]

    def _attempts(self, run: int, rows: int) -> Message | None:
        """Return the attempts for a viewer that knows ``rows`` of ``run``; None if it has all."""
        first = self._added - len(self._rows)
        anew = run != self._run or rows < first
        if not anew and rows == self._added:
            return None
        new = islice(self._rows, 0 if anew else rows - first, None)
        return {"anew": anew, "dropped": first, "rows": list(new)}
