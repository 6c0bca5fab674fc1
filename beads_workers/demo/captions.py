"""Captions of ``demo`` about its own run: one at a time, for long enough to be read.

A caption is a function of the snapshots so far, so it says nothing that the fleet has not reported.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from beads_workers.core.base.text import printable
from beads_workers.demo import backlog
from beads_workers.demo.backlog import BACKLOG, RELEASE, Item, ItemFate, of_fate

Snapshot = Mapping[str, Any]
Scene = Callable[[Snapshot], str | None]
"""Returns its caption from the first snapshot on that shows the scene; None before."""

HOLD_SECONDS_MIN = 2.5
READING_CHARACTERS_PER_SECOND = 28.0
NOTICING_SECONDS = 0.8
"""Time until a new caption is noticed."""
WIDTH = 77
"""Width of a caption: one line of a narrow terminal, with a mark before it."""


class Narrator:
    """Returns the caption to show: call it with every snapshot, in order.

    Each scene is told once, in the order in which they happened. A caption stays for as long as it
    takes to read, by the clock of the run (``uptime_seconds``).
    """

    def __init__(self) -> None:
        self._pending = list(scenes())
        self._waiting: deque[str] = deque()
        self._shown = ""
        self._stands_until = 0.0

    def __call__(self, snapshot: Snapshot, age: float = 0.0) -> str:
        """Return the caption for this moment, ``age`` seconds of the run after the snapshot."""
        for scene in list(self._pending):
            if (text := scene(snapshot)) is not None:
                self._pending.remove(scene)
                self._waiting.append(printable(text, WIDTH))
        now = snapshot["uptime_seconds"] + age
        if self._waiting and now >= self._stands_until:
            self._shown = self._waiting.popleft()
            self._stands_until = now + hold_seconds(self._shown)
        return self._shown


def hold_seconds(text: str) -> float:
    """Return how long a caption has to stay to be read."""
    reading = NOTICING_SECONDS + len(text) / READING_CHARACTERS_PER_SECOND
    return max(HOLD_SECONDS_MIN, reading)


def scenes() -> Iterator[Scene]:
    """Yield all scenes."""
    yield _opening
    yield _waiting_for_others
    yield _Attempt(of_fate(ItemFate.FLAKY)[0], "error", _failed)
    yield _Attempt(of_fate(ItemFate.BUSY)[0], "retry", _not_now)
    yield _Attempt(of_fate(ItemFate.KILLED)[0], "lost", _killed)
    yield _Attempt(of_fate(ItemFate.KILLED)[0], "success", _after_the_kill, number=2)
    yield _Attempt(of_fate(ItemFate.STUCK)[0], "timeout", _timed_out)
    yield _quarantined
    yield _gathered
    yield _release


class _Attempt:
    """The scene of an issue's attempt with this number and outcome."""

    def __init__(
        self, item: Item, outcome: str, tell: Callable[[Snapshot], str], number: int = 1
    ) -> None:
        self._wanted = item.issue_id, outcome, number
        self._tell = tell

    def __call__(self, snapshot: Snapshot) -> str | None:
        for ended in snapshot["outcomes"]:
            if (ended["issue_id"], ended["outcome"], ended["attempt"]) == self._wanted:
                return self._tell(ended)
        return None


def _opening(snapshot: Snapshot) -> str | None:
    return (
        f"{len(BACKLOG)} issues, {backlog.WORKERS} workers."
        " Urgent ones (P0) go first, each to one worker only."
    )


def _waiting_for_others(snapshot: Snapshot) -> str | None:
    blocked = snapshot["queue"]["blocked"]
    if not blocked:
        return None
    return f"{blocked} issues are blocked. Each is ready once all that it waits for is closed."


def _failed(ended: Snapshot) -> str:
    return (
        f"{ended['issue_id']} failed in {ended['worker_id']}. The attempt counts;"
        f" the next one is in {ended['retry_in_seconds']:.0f} s."
    )


def _not_now(ended: Snapshot) -> str:
    return f"{ended['issue_id']} said 'not now' (exit 75). It is tried again, at no charge."


def _killed(ended: Snapshot) -> str:
    return (
        f"{ended['worker_id']} was just killed (kill -9)."
        f" {ended['issue_id']} goes back; another worker takes it."
    )


def _after_the_kill(ended: Snapshot) -> str:
    return (
        f"{ended['worker_id']} has done {ended['issue_id']}, which the killed worker had begun."
        " Nothing is lost."
    )


def _timed_out(ended: Snapshot) -> str:
    return (
        f"{ended['issue_id']} ran past {backlog.TIMEOUT_SECONDS:.0f} s and ignored TERM:"
        " KILL ended all it had started."
    )


def _quarantined(snapshot: Snapshot) -> str | None:
    for row in snapshot["quarantined"]:
        return (
            f"{row['issue_id']} failed {row['attempts']} times: quarantined with its reason,"
            " it holds nobody up."
        )
    return None


def _gathered(snapshot: Snapshot) -> str | None:
    gathering = BACKLOG[RELEASE.needs[0] - 1]
    if not _runs(snapshot, gathering):
        return None
    return (
        f"{gathering.issue_id} waited for {len(gathering.needs)} others."
        " The last one is closed, so it starts now."
    )


def _release(snapshot: Snapshot) -> str | None:
    if not _runs(snapshot, RELEASE):
        return None
    calls = snapshot["source_calls"]
    return (
        f"The last one is {RELEASE.issue_id}."
        f" The tracker was asked {calls['count']} times, {calls['seconds']:.2f} s in all."
    )


def _runs(snapshot: Snapshot, item: Item) -> bool:
    return any(worker["issue_id"] == item.issue_id for worker in snapshot["workers"])
