"""The account of a chaos: a fold over the journals of all its runs, and the log of its tasks.

The journals say what the orchestrators knew, the log what really ran; the tracker decides. If the
three disagree, a promise was broken.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from beads_workers.core.base.source import Action, Result
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry

CHARGING = ("error", "timeout", "lost", "not_found", "retry")
"""Outcomes that may be charged; a ``retry`` only after many in a row."""

Attempt = tuple[str, str, str, int]
"""Run, issue, worker, number: the same again if an attempt was requeued uncharged."""


@dataclass(slots=True)
class Life:
    """One issue over all runs."""

    charged: int = 0
    # A journal has a success.
    done: bool = False
    # The verdict of its last attempt.
    verdict: str = ""
    closes: int = 0
    found_closed: int = 0
    running: bool = False
    # Why its branch did not land.
    refused: str = ""
    outcomes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ChaosAccount:
    """All runs, in their order. The lists collect events that must never happen."""

    killed: Collection[int] = ()
    cap: int = 3
    lives: dict[str, Life] = field(default_factory=lambda: defaultdict(Life))
    started: Counter[Attempt] = field(default_factory=Counter)
    sockets: list[str] = field(default_factory=list)
    run_again: list[str] = field(default_factory=list)
    at_once: list[str] = field(default_factory=list)
    charges: list[str] = field(default_factory=list)
    run_ids: list[str] = field(default_factory=list)
    """Runs that wrote at least their first line: other runs have done nothing."""
    _run_id: str = ""
    _pids: dict[str, int] = field(default_factory=dict)

    def read(self, run_id: str, entries: Iterable[Entry]) -> None:
        """Take in one run; the oldest run first."""
        self._run_id = run_id
        self._pids.clear()
        for life in self.lives.values():
            life.running = False  # The worker died with the run before.
        for entry in entries:
            self._add(entry.record)

    def _add(self, record: rec.Record) -> None:
        match record:
            case rec.RunStarted(socket=socket, control_socket=control):
                self.run_ids.append(self._run_id)
                self.sockets += [socket, control]
            case rec.Checkpointed() as retry_entry:
                self._checkpointed(retry_entry)
            case rec.WorkerStarted(worker_id, pid) | rec.WorkerJoined(worker_id, pid):
                # A worker whose orchestrator was killed right after READY joins the next one as a
                # stranger.
                self._pids[worker_id] = pid
            case rec.Started() as began:
                self._started(began)
            case rec.Finished() as finished:
                self._finished(finished)
            case rec.LandingEnded() as ended:
                self._landing_ended(ended)
            case rec.SettledRecord(issue_id, Action.CLOSE.value, Result.APPLIED.value):
                self.lives[issue_id].closes += 1
            case rec.SettledRecord(issue_id, _, Result.FOUND_CLOSED.value):
                self.lives[issue_id].found_closed += 1
            case _:
                pass

    def _checkpointed(self, retry_entry: rec.Checkpointed) -> None:
        known = self.lives[retry_entry.issue_id].charged
        if retry_entry.charged != known and not retry_entry.claimed_by:
            self.charges.append(
                f"{retry_entry.issue_id}: {known} charged, and {retry_entry.charged} carried over"
            )

    def _started(self, began: rec.Started) -> None:
        life = self.lives[began.issue_id]
        if life.done:
            self.run_again.append(f"{began.issue_id} (attempt {began.attempt}, {self._run_id})")
        if life.running:
            self.at_once.append(f"{began.issue_id} ({began.worker_id}, {self._run_id})")
        life.running = True
        key = (self._run_id, began.issue_id, began.worker_id, began.attempt)
        self.started[key] += 1

    def _finished(self, finished: rec.Finished) -> None:
        life = self.lives[finished.issue_id]
        life.running = False
        life.verdict = finished.verdict
        life.outcomes.append(finished.outcome)
        life.done = life.done or finished.verdict in ("finish", "land")
        if finished.verdict in ("finish", "land"):
            return
        more = finished.charged - life.charged
        if more not in (0, 1) or (more and finished.outcome not in CHARGING):
            self.charges.append(
                f"{finished.issue_id}: {finished.outcome} took it from {life.charged} charged"
                f" attempts to {finished.charged}"
            )
        elif more and finished.outcome == "lost":
            self._lost(finished)
        life.charged = finished.charged
        if life.charged > self.cap:
            self.charges.append(f"{finished.issue_id}: {life.charged} charged attempts")

    def _landing_ended(self, ended: rec.LandingEnded) -> None:
        life = self.lives[ended.issue_id]
        if ended.verdict != "shelve":
            life.done, life.verdict, life.refused = False, ended.verdict, ended.why

    def _lost(self, finished: rec.Finished) -> None:
        if self._pids.get(finished.worker_id) not in self.killed:
            self.charges.append(f"{finished.issue_id}: {finished.worker_id} was lost, not killed")


@dataclass(slots=True)
class TaskLog:
    """The log of the tasks. ``done``: how often a command of an issue succeeded."""

    begun: Counter[Attempt] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    overlaps: list[str] = field(default_factory=list)

    def add(self, line: bytes) -> None:
        """Add one whole line."""
        fields = json.loads(line)
        issue_id = fields["issue"]
        match fields["word"]:
            case "begin":
                self.begun[(fields["run"], issue_id, fields["worker"], fields["attempt"])] += 1
            case "done":
                self.done[issue_id] += 1
            case "overlap":
                self.overlaps.append(f"{issue_id} (pid {fields['pid']})")
            case _:
                pass

    @property
    def attempts(self) -> int:
        """Number of commands that began."""
        return self.begun.total()


def read_log(file: Path) -> TaskLog:
    """Return the log of all tasks of a chaos; without a file, an empty one."""
    log = TaskLog()
    try:
        lines = file.read_bytes().splitlines()
    except FileNotFoundError:
        return log
    for line in lines:
        log.add(line)
    return log


def unasked(account: ChaosAccount, log: TaskLog) -> Iterator[str]:
    """Yield commands that ran more often than the journals say."""
    for attempt, count in log.begun.items():
        if count > account.started[attempt]:
            run_id, issue_id, worker_id, number = attempt
            yield f"{issue_id} (attempt {number}, {worker_id}, {run_id})"
