"""The state that parts of the orchestrator share: the time, timers, issues and commands."""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from beads_workers.core.base import limits
from beads_workers.core.base.model import value
from beads_workers.core.records.issues import ABOUT_ISSUES, Issues, Standing
from beads_workers.core.records.journal import Entry, Noted, Record
from beads_workers.core.schedule.commands import Command, Write

# --- timers --------------------------------------------------------------------------------------
# Deadlines by key. The core is told the time; it only remembers what is due when.


K = TypeVar("K", bound=Hashable)


class Timers(Generic[K]):
    """At most one deadline for a key; setting it again moves it. Seconds on the monotonic clock."""

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._pushed = 0

    def set(self, key: K, at: float) -> None:
        """Set the key's deadline to ``at``, whatever was set before."""
        self._due[key] = at
        self._pushed += 1
        heapq.heappush(self._heap, (at, self._pushed, key))
        if len(self._heap) > 2 * len(self._due) + 64:
            # Deadlines that were cancelled or moved would otherwise stay until their time had come.
            self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def set_earlier(self, key: K, at: float) -> None:
        """Set the key's deadline to ``at`` unless the key is due sooner."""
        if at < self._due.get(key, float("inf")):
            self.set(key, at)

    def cancel(self, key: K) -> None:
        """Forget the key's deadline; a key that is not set is ignored."""
        self._due.pop(key, None)

    def at(self, key: K) -> float | None:
        """Return when this key is due; None if it is not set."""
        return self._due.get(key)

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def __len__(self) -> int:
        return len(self._due)

    def __iter__(self) -> Iterator[K]:
        """Yield the keys that are set, earliest first."""
        return iter(sorted(self._due, key=self._due.__getitem__))

    def deadline(self) -> float | None:
        """Return when the next key is due; None if no key is set."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # This entry was cancelled, or moved since.
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> list[K]:
        """Return the keys that are due by now, earliest first, and forget them."""
        keys: list[K] = []
        while (at := self.deadline()) is not None and at <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._due[key]
            keys.append(key)
        return keys


# --- effects -------------------------------------------------------------------------------------
# The state that the parts of the orchestrator share: the time, the timers, the issues, and the
# commands so far.


@value
class RetryDue:
    """Timer key: an issue has cooled down."""

    issue_id: str


class Effects:
    """The shared state of one orchestrator.

    ``now`` is set before each event; commands gather until the event is over. ``now`` is on the
    clock of the run, as the times of its records are; ``boot`` is the same moment on the clock that
    goes on while the machine sleeps, ``epoch`` on the wall clock. ``issues``: what the records so
    far make of each issue.
    """

    def __init__(self, now: float, epoch: float = 0.0, boot: float | None = None) -> None:
        """``epoch``: the wall clock at ``now``; ``boot``: as in ``at``."""
        self.now = now
        self.boot = now if boot is None else boot
        self.timers = Timers[Hashable]()
        self.issues = Issues()
        self.moved = False
        """Whether a record has changed an issue since somebody set this to False."""
        self.epoch = epoch
        self._boot_epoch = epoch - self.boot
        self._commands: list[Command] = []
        self._asleep = self.boot - now

    def at(self, now: float, boot: float | None = None, wall: float | None = None) -> bool:
        """Set the time to ``now``; without ``boot``, the machine has never slept.

        ``wall``: epoch seconds, by the clock that a person may set; without it, nobody has set that
        clock. Return whether the machine has slept since the last call.
        """
        self.now, self.boot = now, now if boot is None else boot
        self.epoch = self._boot_epoch + self.boot if wall is None else wall
        before, self._asleep = self._asleep, self.boot - self.now
        return self._asleep - before >= limits.SLEEP_SECONDS_MIN

    def ask(self, command: Command) -> None:
        """Ask the edge for something, after everything that was asked before."""
        self._commands.append(command)

    def write(self, record: Record) -> None:
        """Journal a transition, which takes place here and now: ``issues`` take it in.

        The edge writes the record before it does what follows.
        """
        self._commands.append(self._taken_in(record))

    def apply(self, record: Record) -> None:
        """Take in a record that is in the journal already."""
        self._taken_in(record)

    def _taken_in(self, record: Record) -> Write:
        # The times are rounded as they are read back, so a watcher sees the same numbers as a
        # replay.
        entry = Entry(record, int(self.epoch * 1e3) / 1e3, int(self.now * 1e6) / 1e6)
        change = self.issues.apply(entry) if type(record) in ABOUT_ISSUES else None
        if change is None:
            return Write(entry)
        self.moved, issue = True, change.issue
        if issue.standing is Standing.COOLING and issue.due > self.now:
            self.timers.set(RetryDue(issue.issue_id), issue.due)
        elif change.stood is Standing.COOLING:
            self.timers.cancel(RetryDue(issue.issue_id))
        return Write(entry, change)

    def note(self, level: str, text: str, refused: int = 0) -> None:
        """Write a note for people; ``level``: ``info``, ``warning`` or ``error``."""
        self.write(Noted(level, text, refused))

    def flush(self) -> list[Command]:
        """Return all commands since the last call, in order, and forget them."""
        commands, self._commands = self._commands, []
        return commands


def jitter(key: str) -> float:
    """Return a number in 0..1 that is spread over keys and the same for the same key.

    The core has no randomness: a run can be replayed.
    """
    return zlib.crc32(key.encode("utf-8", "surrogatepass")) / 0xFFFFFFFF
