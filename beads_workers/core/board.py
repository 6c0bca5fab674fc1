"""The snapshot: a fold over the journal, read by ``status``, the summary and the dashboard.

``Board.apply`` takes every entry in order, live or from a file, so that both show the same.
``core.status`` turns a board into JSON.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from beads_workers.core import limits
from beads_workers.core import records as rec
from beads_workers.core.activity import Activity, Ended
from beads_workers.core.board_workers import WorkerRow
from beads_workers.core.checkpoint_records import Resumed
from beads_workers.core.journal_lines import Entry
from beads_workers.core.metrics.counters import Counters


@dataclass(slots=True)
class Trouble:
    """The tracker cannot be asked. Times in elapsed seconds of the run."""

    error: str
    hint: str
    since: float
    retry_at: float
    failures: int


@dataclass(slots=True)
class Board:
    """All that people are shown of one run."""

    run: rec.RunStarted | None = None
    state: str = "recovering"
    state_reason: str = ""
    ended: rec.RunEnded | None = None
    began_at: float = 0.0
    elapsed: float = 0.0
    workers: dict[str, WorkerRow] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    listed: rec.Listed = field(default_factory=rec.Listed)
    unsent: set[str] = field(default_factory=set)
    running: dict[str, str] = field(default_factory=dict)
    retrying: dict[str, float] = field(default_factory=dict)
    set_aside: dict[str, tuple[int, str]] = field(default_factory=dict)
    withheld: set[str] = field(default_factory=set)
    closing: set[str] = field(default_factory=set)
    not_closed: dict[str, str] = field(default_factory=dict)
    given_back: dict[str, None] = field(default_factory=dict)
    handed_back: set[str] = field(default_factory=set)
    """Failed, and about to go back to whoever sent them: nothing of them is remembered."""
    lost: dict[str, rec.HolderLost] = field(default_factory=dict)
    given_up: dict[str, str] = field(default_factory=dict)
    """Workers of ours that are not started again, with the reason."""
    workers_most: int = 0
    """So many workers there were, or are about to be: what is drawn keeps its height."""
    claims: int = 0
    totals: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("done", "failed", "retried", "lost", "set_aside"), 0)
    )
    activity: Activity = field(default_factory=Activity)
    counters: Counters = field(default_factory=Counters)
    trouble: Trouble | None = None
    hindrances: dict[str, rec.Hindrance] = field(default_factory=dict)
    recent_done: deque[float] = field(default_factory=lambda: deque(maxlen=200))
    notes: deque[Entry] = field(default_factory=lambda: deque(maxlen=limits.RECENT_MAX))

    def ahead(self) -> int:
        """How many were sent, and wait for their worker to end others."""
        return sum(len(row.ahead) for row in self.workers.values())

    def apply(self, entry: Entry) -> None:
        """Take in the next entry."""
        self.elapsed = entry.elapsed
        match entry.record:
            case rec.Started() as started:
                self._started(started, entry.elapsed)
            case rec.Finished() as finished:
                self._finished(finished, entry)
            case rec.Claimed(issue_id, title, _):
                self.claims += 1
                self.titles[issue_id] = title
                self.unsent.add(issue_id)
                self.given_back.pop(issue_id, None)
                self.retrying.pop(issue_id, None)
                self.set_aside.pop(issue_id, None)
                self.withheld.discard(issue_id)
            case rec.SettledRecord() as settled:
                self._settled(settled, entry.elapsed)
            case rec.TurnBegan() as turn:
                self.activity.asking.began(turn, entry.elapsed)
                self.counters.turn_began(turn, entry.elapsed)
            case rec.Spent() as spent:
                self.activity.asking.ended(spent)
                self.counters.turn_ended(entry.elapsed)
            case rec.Listed() as listed:
                self.listed = listed
            case rec.SourceTrouble() | rec.SourceRecovered() as source:
                self._source(source, entry.elapsed)
            case rec.Noted():
                self.notes.append(entry)
            case _:
                self._about_run(entry)

    def _about_run(self, entry: Entry) -> None:
        match entry.record:
            case rec.RunStarted() as run:
                self.run, self.began_at = run, entry.at - entry.elapsed
                self.workers_most = run.workers
            case rec.RunChanged(state, reason):
                self.state, self.state_reason = state, reason
            case rec.RunEnded() as ended:
                self.ended = ended
            case rec.Carried() as page:
                self._carried(page, entry)
            case rec.Requeued(issue_id):
                self.unsent.discard(issue_id)
            case rec.Withheld(issue_id):
                self.retrying.pop(issue_id, None)
                self.withheld.add(issue_id)
            case rec.RetryAsked(issue_id):
                self.set_aside.pop(issue_id, None)
                self.retrying.pop(issue_id, None)
                self.withheld.discard(issue_id)
            case rec.Hindrance() as hindrance:
                self.hindrances[hindrance.what] = hindrance
            case rec.HindranceOver(what):
                self.hindrances.pop(what, None)
            case rec.Forgiven(issue_id):
                if self.set_aside.pop(issue_id, None) is not None:
                    self.totals["set_aside"] -= 1
                    self.retrying[issue_id] = entry.elapsed
                elif issue_id in self.retrying:
                    self.retrying[issue_id] = entry.elapsed
            case Resumed() as resumed:
                self.claims = resumed.claims
                self.notes.append(replace(entry, record=rec.Noted("info", resumed.text)))
                self.totals = {name: getattr(entry.record, name) for name in self.totals}
            case rec.HolderLost() as lost:
                self.running[lost.issue_id] = lost.worker_id
                self.lost[lost.issue_id] = lost
            case _:
                self._about_worker(entry.record)

    def _about_worker(self, record: rec.Record) -> None:
        match record:
            case rec.WorkerStarted(worker_id, pid):
                row = self.workers.setdefault(worker_id, WorkerRow(worker_id))
                row.pid, row.state, row.began = pid, "starting", self.elapsed
            case rec.WorkerJoined(worker_id, pid, _, own):
                row = self.workers.setdefault(worker_id, WorkerRow(worker_id, began=self.elapsed))
                row.pid, row.own, row.connected, row.state = pid, own, True, "idle"
                self.workers_most = max(self.workers_most, len(self.workers))
            case rec.WorkerLeft(worker_id):
                if row_left := self.workers.get(worker_id):
                    row_left.left()
                    if not row_left.own:
                        del self.workers[worker_id]
            case rec.WorkerStopping(worker_id):
                if stopping := self.workers.get(worker_id):
                    stopping.state = "stopping"
            case rec.WorkerExited(worker_id):
                if row_left := self.workers.get(worker_id):
                    # It is started again, unless the run is ending or ``WorkerGone`` follows.
                    row_left.pid = None
                    row_left.state = "starting" if self._goes_on() else "stopping"
            case rec.WorkerGone(worker_id, reason):
                self.workers.pop(worker_id, None)
                if reason:
                    self.given_up[worker_id] = reason
            case _:
                pass

    def _goes_on(self) -> bool:
        return self.state in ("recovering", "running", "paused")

    def _carried(self, page: rec.Carried, entry: Entry) -> None:
        self.titles[page.issue_id] = page.title
        # It may have been carried over before word came that it is done.
        self.retrying.pop(page.issue_id, None)
        self.set_aside.pop(page.issue_id, None)
        if page.held_by:
            self.not_closed[page.issue_id] = page.error
        elif page.set_aside:
            self.set_aside[page.issue_id] = (page.charged, page.error)
        elif (left := page.not_before - entry.at) > 0:
            # As the ledger does: a clock that was set back makes no wait longer than it was.
            most = page.delay_seconds or limits.RETRY_AFTER_MAX_SECONDS
            self.retrying[page.issue_id] = entry.elapsed + min(left, most)

    def _started(self, started: rec.Started, elapsed: float) -> None:
        self.counters.started += 1
        self.unsent.discard(started.issue_id)
        self.running[started.issue_id] = started.worker_id
        row = self.workers.setdefault(started.worker_id, WorkerRow(started.worker_id))
        row.has(started, elapsed)

    def _finished(self, finished: rec.Finished, entry: Entry) -> None:
        issue_id, elapsed = finished.issue_id, entry.elapsed
        self.counters.finished(finished)
        self.running.pop(issue_id, None)
        self.lost.pop(issue_id, None)
        self.activity.last.append(Ended(finished, self.titles.get(issue_id, ""), entry.at))
        row = self.workers.get(finished.worker_id)
        success = finished.verdict == "finish"
        if row is not None:
            row.has_not(issue_id)
            row.finished += 1
            row.done += success
            row.failed += not success and finished.outcome not in ("cancelled", "retry")
        if success:
            self.closing.add(issue_id)
            self.recent_done.append(elapsed)
            self.activity.throughput.add(elapsed)
            return
        if finished.outcome in ("error", "timeout", "lost", "not_found"):
            self.totals["failed"] += 1
        if finished.outcome == "lost":
            self.totals["lost"] += 1
        if finished.verdict == "set_aside":
            self.totals["set_aside"] += 1
            self.set_aside[issue_id] = (finished.charged, finished.error)
        elif finished.verdict == "hand_back":
            self.handed_back.add(issue_id)
        elif finished.outcome != "cancelled":
            self.totals["retried"] += 1
            self.retrying[issue_id] = elapsed + finished.delay_seconds

    def _settled(self, settled: rec.SettledRecord, elapsed: float) -> None:
        issue_id = settled.issue_id
        self.counters.settlement(settled)
        self.unsent.discard(issue_id)
        self.not_closed.pop(issue_id, None)
        was_closing = issue_id in self.closing
        self.closing.discard(issue_id)
        # A reopening that finds it closed: somebody else's work, or an earlier run's.
        found_closed = settled.result == "found_closed" and settled.action != "reopen"
        if found_closed or (settled.action == "close" and was_closing):
            self.totals["done"] += settled.result != "not_ours"
        # What an earlier run was to give back was set aside by a later one: that stays known.
        kept = (settled.action, settled.result) == ("release", "not_ours")
        if settled.result in ("found_closed", "not_ours") and not (
            kept and issue_id in self.set_aside
        ):
            self.retrying.pop(issue_id, None)
            self.withheld.discard(issue_id)
            self.set_aside.pop(issue_id, None)
        if settled.action == "close" or not self._remembers(issue_id):
            self.titles.pop(issue_id, None)
        if issue_id in self.handed_back:
            self.handed_back.discard(issue_id)
        elif settled.action == "release" and settled.result == "applied":
            self.given_back[issue_id] = None

    def _remembers(self, issue_id: str) -> bool:
        return any(issue_id in kept for kept in (self.retrying, self.set_aside, self.withheld))

    def _source(self, record: rec.SourceTrouble | rec.SourceRecovered, elapsed: float) -> None:
        if isinstance(record, rec.SourceRecovered):
            self.trouble = None
            return
        self.counters.trouble()
        since = self.trouble.since if self.trouble else elapsed
        retry_at = elapsed + record.retry_in_seconds
        self.trouble = Trouble(record.error, record.hint, since, retry_at, record.failures)
