"""Settling what dead runs left, before anything is taken: runs in the lane's thread.

Source: docs/PROTOCOL.md, "What the next start does". First everything of the dead run must be
gone: its workers (the ``alive`` lock is free) and its last tracker process. Then the tracker is
asked what it still holds, run by run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from beads_workers.core import limits
from beads_workers.core.events import RecoveryEnded, RecoveryFailed
from beads_workers.core.journal_lines import Entry
from beads_workers.core.records import Carried
from beads_workers.core.recovery import Remains
from beads_workers.core.source import Result, Settled, Source, SourceError
from beads_workers.edge import sessions
from beads_workers.edge.journal_files import add_to
from beads_workers.edge.last_words import hear
from beads_workers.edge.listener import clear_dead
from beads_workers.edge.retention import Keep, rotate
from beads_workers.edge.run_directory import RunDirectory

GONE_SECONDS = limits.TERM_GRACE_SECONDS + 5.0
"""Workers leave within their grace; what is there after this is stuck, and carries our token."""

LOOK_SECONDS = 0.05

DEFAULT = Keep()


class Recovery:
    """``run`` is what the lane does first; ``abandon`` lets a stop overtake it."""

    def __init__(
        self,
        directory: RunDirectory,
        source: Source,
        unsettled: Sequence[Remains],
        post: Callable[[RecoveryFailed], None],
        keep: Keep = DEFAULT,
    ) -> None:
        """``keep``: what stays of older runs once nothing is owed for them."""
        self._keep = keep
        self._directory = directory
        self._source = source
        self._unsettled = unsettled
        self._post = post
        self._abandoned = threading.Event()

    def abandon(self) -> None:
        """The run ends: what is not settled stays for the next start."""
        self._abandoned.set()

    def run(self) -> RecoveryEnded:
        """Settle run after run; a tracker in trouble is asked again until it answers."""
        settled: list[Settled] = []
        heard: list[Carried] = []
        for left in self._unsettled:
            self._wait_until_gone(left)
            ends = self._hear(left)
            heard += [page for page in left.checkpoint() if page.issue_id in ends]
            settled += self._settle(left, list(ends.values()))
        # Only now: until it was settled, a run's journal was all that knew of its debts.
        rotate(self._directory, self._keep)
        return RecoveryEnded(tuple(settled), tuple(heard))

    def _hear(self, left: Remains) -> dict[str, Entry]:
        """What its workers had done at the end, by issue; ``left`` knows it from now on."""
        if self._abandoned.is_set():
            return {}  # They may not have left yet.
        return hear(left, self._directory.run(left.run_id))

    def _settle(self, left: Remains, ends: Sequence[Entry]) -> list[Settled]:
        failures = 0
        while not self._abandoned.is_set():
            try:
                settled = [s for debt in left.debts() for s in self._source.recover(debt)]
            except SourceError as error:
                delay = min(
                    limits.SOURCE_RETRY_SECONDS * 2.0**failures, limits.SOURCE_RETRY_MAX_SECONDS
                )
                failures = min(failures + 1, 10)
                self._post(RecoveryFailed(str(error), error.hint, delay))
                self._abandoned.wait(delay)
                continue
            if all(s.result is not Result.FAILED for s in settled):
                self._tell_its_journal(left.run_id, ends)
                self._directory.mark_settled(left.run_id)
            return settled
        return []

    def _tell_its_journal(self, run_id: str, ends: Sequence[Entry]) -> None:
        # For people who read it. Until nothing is owed, their words are read at each start.
        try:
            add_to(self._directory.run(run_id) / "journal.jsonl", ends)
        except OSError:
            pass  # A full disk: this run's journal has that they are closed.

    def _wait_until_gone(self, left: Remains) -> None:
        lock = self._directory.run(left.run_id) / "alive"
        deadline = time.monotonic() + GONE_SECONDS
        while self._directory.is_alive(left.run_id) and not self._abandoned.is_set():
            if time.monotonic() > deadline:
                # Stuck or stopped. Only that run's zygote and workers ever hold this file open.
                sessions.kill_holders(lock)
                deadline = time.monotonic() + GONE_SECONDS
            self._abandoned.wait(LOOK_SECONDS)
        # Where workers were killed with their orchestrator, nobody has ended their tasks.
        sessions.sweep(left.run_id, None)
        if left.socket:
            try:
                clear_dead(Path(left.socket))
            except OSError:
                pass  # Its pid is somebody else's by now, who listens there.
        for issue_id, (pid, start_time) in left.holders.items():
            self._wait_for_holder(issue_id, pid, start_time)
        if left.last_call is None:
            return
        pid, start_time = left.last_call
        # A tracker process finishes its work although its caller died; it has its own limit.
        while sessions.start_time(pid) == start_time and not self._abandoned.is_set():
            self._abandoned.wait(LOOK_SECONDS)

    def _wait_for_holder(self, issue_id: str, pid: int, start_time: int) -> None:
        # It is not ours to kill, and its issue goes to nobody while it may be at work on it.
        told_at = time.monotonic() + limits.TERM_GRACE_SECONDS
        while sessions.start_time(pid) == start_time and not self._abandoned.is_set():
            if time.monotonic() > told_at:
                told_at = time.monotonic() + limits.SOURCE_RETRY_MAX_SECONDS
                self._post(still_held(issue_id, pid))
            self._abandoned.wait(LOOK_SECONDS)


def still_held(issue_id: str, pid: int) -> RecoveryFailed:
    """What people are told while a worker of somebody else keeps a start waiting."""
    return RecoveryFailed(
        f"{issue_id} is still with a worker of an earlier run, pid {pid}: it is not ours to end",
        f"nothing is taken until it has exited; if it is stuck, end it: kill {pid}",
        limits.SOURCE_RETRY_MAX_SECONDS,
    )
