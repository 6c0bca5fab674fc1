"""``on_duplicate``: which tasks are the same work, and which of them may run beside each other.

Two tasks are the same work with an equal path and equal arguments. It is active while it is queued
or taken; what is delayed counts only from when its time has come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum

from beads_workers.protocols.dispatcherd.messages import OnDuplicate
from beads_workers.sources.dispatcherd.entries import Entry


class Fate(Enum):
    """What becomes of a task that has arrived."""

    QUEUE = "queue"
    BLOCK = "block"
    DISCARD = "discard"


class Duplicates:
    """Ask ``judge`` for each that arrives, say ``ended`` for each that was active."""

    def __init__(self) -> None:
        # Most queues never see anything but ``parallel``: then nothing is looked at or kept.
        self._active: dict[str, int] | None = None
        self._blocked: dict[str, deque[Entry]] = {}

    def judge(self, entry: Entry, active: Iterable[Entry]) -> Fate:
        """What becomes of it; it is remembered as that. ``active``: all that are, without it."""
        rule = entry.task.duplicates
        if rule is OnDuplicate.PARALLEL:
            self._begin(entry)
            return Fate.QUEUE
        if self._active is None:
            self._active = {}
            for other in active:
                self._begin(other)
        key = entry.same_work()
        waits = key in self._blocked
        if rule is OnDuplicate.DISCARD and (waits or key in self._active):
            return Fate.DISCARD
        if rule is OnDuplicate.QUEUE_ONE and waits:
            return Fate.DISCARD
        if key in self._active:
            self._blocked.setdefault(key, deque()).append(entry)
            return Fate.BLOCK
        self._begin(entry)
        return Fate.QUEUE

    def ended(self, entry: Entry) -> Entry | None:
        """It is active no more; returns the one whose turn this makes it, which then is."""
        if self._active is None:
            return None
        key = entry.same_work()
        left = self._active[key] - 1
        if left:
            self._active[key] = left
            return None
        del self._active[key]
        waiting = self._blocked.get(key)
        if not waiting:
            return None
        following = waiting.popleft()
        if not waiting:
            del self._blocked[key]
        self._begin(following)
        return following

    def unblock(self, entry: Entry) -> None:
        """It was blocked, and is not wanted any more."""
        key = entry.same_work()
        self._blocked[key].remove(entry)
        if not self._blocked[key]:
            del self._blocked[key]

    def blocked(self) -> Iterator[Entry]:
        """All that wait for another one, by kind."""
        for waiting in self._blocked.values():
            yield from waiting

    def _begin(self, entry: Entry) -> None:
        if self._active is not None:
            key = entry.same_work()
            self._active[key] = self._active.get(key, 0) + 1
