"""The snapshot: a fold over the journal, read by ``status``, the summary and the dashboard.

``Board.apply`` takes every entry of a file in order, ``Board.show`` those of the live core, whose
issues it shares: both show the same. ``core.views.status`` turns a board into JSON.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.model import value
from beads_workers.core.base.states import IssueState
from beads_workers.core.base.wire import Progress, Status
from beads_workers.core.records import journal as rec
from beads_workers.core.records.issues import Issue, Issues, Place, Standing, Transition
from beads_workers.core.records.journal import Entry, Resumed
from beads_workers.core.records.landing import Add, turn
from beads_workers.core.records.receipts import Receipt
from beads_workers.core.views.agent_board import AgentBoard
from beads_workers.core.views.landing_board import LandingBoard

# --- board workers -------------------------------------------------------------------------------
# The workers of a board: a row for each, and their order.


@dataclass(slots=True)
class ShownWorker:
    """Fields of a worker in ``status`` and the dashboard: a key for each field."""

    worker_id: str
    pid: int | None = None
    state: str = "starting"
    issue_id: str | None = None
    title: str | None = None
    attempt: int | None = None
    agent: str | None = None
    # Agent and model of an attempt that an escalation gave another one.
    escalated: str | None = None
    progress: Progress | None = None
    paused: str | None = None
    status: Status | None = None
    # Where its attempts run, and the host of the one that runs; None for this machine.
    place: str | None = None
    host: str | None = None
    done: int = 0
    failed: int = 0
    own: bool = True


@dataclass(slots=True)
class WorkerRow(ShownWorker):
    """One worker."""

    # Elapsed seconds of the run at which its task began.
    since: float = 0.0
    connected: bool = False
    # Elapsed seconds of the run at which its process began.
    began: float = 0.0
    # Attempts that ended, with any outcome.
    finished: int = 0
    # Attempts that it was sent beside its task, each with the elapsed seconds of the run at that
    # time.
    prefetched: list[tuple[rec.Started, float]] = field(default_factory=list)

    def add_attempt(self, started: rec.Started, since: float) -> None:
        """Note an attempt that the worker was sent."""
        if self.issue_id is not None and self.issue_id != started.issue_id:
            self.prefetched.append((started, since))
            return
        self.state, self.since = "busy", since
        self.issue_id, self.title, self.attempt = started.issue_id, started.title, started.attempt
        self.agent, self.progress = started.agent or None, None
        self.escalated = f"{started.agent} {started.model}" if started.instead_of else None
        self.place, self.host = started.place or None, None

    def has_not(self, issue_id: str) -> None:
        """Note that the worker ended an attempt, or returned it."""
        if self.issue_id != issue_id:
            self.prefetched = [sent for sent in self.prefetched if sent[0].issue_id != issue_id]
            return
        self.issue_id = self.title = self.attempt = self.progress = None
        self.agent = self.escalated = self.host = None
        if self.prefetched:
            stopping = self.state == "stopping"
            self.add_attempt(*self.prefetched.pop(0))
            self.state = "stopping" if stopping else self.state
        elif self.state == "busy":
            self.state = "idle"

    def left(self) -> None:
        """Note that the worker's connection is over."""
        self.connected, self.state, self.prefetched = False, "stopping", []
        self.issue_id = self.title = self.attempt = self.progress = None
        self.agent = self.escalated = self.host = None
        self.paused = self.status = None


def worker_order(worker_id: str) -> tuple[int, int, str]:
    """Return a sort key: W2 before W2.2 before W10, and names from damaged journals last."""
    number, _, slot = worker_id[1:].partition(".")
    return (_small(number), _small(slot) if slot else 0, worker_id)


def _small(number: str) -> int:
    known = number.isdecimal() and len(number) < 10
    return int(number) if known else 1 << 30


# --- activity ------------------------------------------------------------------------------------
# The recent activity: the last outcomes, how many over time, and how the tracker answers.
#
# A part of the board, bounded whatever the length of the run.


@value
class EndedAttempt:
    """An attempt that ended: its record, the issue's title, when (epoch seconds), and its agent's
    receipt."""

    finished: rec.Finished
    title: str
    at: float
    receipt: Receipt | None


@dataclass(slots=True)
class Throughput:
    """Issues done per bucket of the whole run, which gets coarser as the run gets longer."""

    bucket_seconds: float = limits.BUCKET_SECONDS
    done: list[int] = field(default_factory=list)

    def add(self, elapsed: float) -> None:
        """Count one more done issue."""
        while elapsed >= self.bucket_seconds * limits.BUCKETS_MAX:
            self._merge()
        index = int(elapsed // self.bucket_seconds)
        self.done += [0] * (index + 1 - len(self.done))
        self.done[index] += 1

    def _merge(self) -> None:
        pairs = [*self.done, 0] if len(self.done) % 2 else self.done
        self.done = [a + b for a, b in zip(pairs[::2], pairs[1::2], strict=True)]
        self.bucket_seconds *= 2


@dataclass(slots=True)
class Asking:
    """The round trip that is under way, and how long the last calls took (seconds each)."""

    round_trip: rec.RoundTripBegan | None = None
    since: float = 0.0
    spent: rec.Spent = field(default_factory=lambda: rec.Spent(0, 0.0))
    each: deque[float] = field(default_factory=lambda: deque(maxlen=limits.RECENT_MAX))

    def began(self, round_trip: rec.RoundTripBegan, elapsed: float) -> None:
        """Note that a round trip begins."""
        self.round_trip, self.since = round_trip, elapsed

    def ended(self, spent: rec.Spent) -> None:
        """Note that the tracker has answered, or failed to."""
        calls = spent.calls - self.spent.calls
        if calls > 0:
            self.each.append((spent.seconds - self.spent.seconds) / calls)
        self.round_trip, self.spent = None, spent

    def typical_seconds(self) -> float | None:
        """Return the median of the last calls; None before the first."""
        return sorted(self.each)[len(self.each) // 2] if self.each else None


@dataclass(slots=True)
class Activity:
    """The recent activity of a run; see the comment above."""

    last: deque[EndedAttempt] = field(default_factory=lambda: deque(maxlen=limits.RECENT_MAX))
    throughput: Throughput = field(default_factory=Throughput)
    asking: Asking = field(default_factory=Asking)


# --- counters ------------------------------------------------------------------------------------
# Counts over a whole run for ``metrics``: a part of the board, bounded by its labels.
#
# Every label is of a closed set: outcomes, verdicts, the tracker's requests, and its answers.


BUCKETS = (0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600, 14400)
"""Upper bounds in seconds: from functions that take milliseconds to agents that take hours."""

RECOVER = "recover"
"""Kind of the visits that ask the tracker about earlier runs, before anything else."""


@dataclass(slots=True)
class Durations:
    """A histogram. ``counts``: one for each of ``BUCKETS``, and one for all that is longer."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one more duration."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds


@dataclass(slots=True)
class TripTimes:
    """Visits to the tracker of one kind: how many, how long, and how many came to nothing."""

    count: int = 0
    seconds: float = 0.0
    failures: int = 0


@dataclass(slots=True)
class Counters:
    """Counts over a whole run; see the comment above. No count ever decreases."""

    started: int = 0
    attempts: dict[tuple[str, str], int] = field(default_factory=dict)
    """Number of attempts by outcome and verdict."""
    durations: dict[str, Durations] = field(default_factory=lambda: {"success": Durations()})
    """Durations of attempts by outcome."""
    settled: dict[tuple[str, str], int] = field(default_factory=dict)
    """Number of settlements by action and result."""
    trips: dict[str, TripTimes] = field(default_factory=dict)
    """Visits to the tracker by kind, see ``kind_of``."""
    refused: int = 0
    """Number of publishers' messages that were not taken."""
    _kind: str = RECOVER
    _since: float = 0.0

    def finished(self, finished: rec.Finished) -> None:
        """Count an attempt that has ended."""
        key = finished.outcome, finished.verdict
        self.attempts[key] = self.attempts.get(key, 0) + 1
        durations = self.durations.get(finished.outcome)
        if durations is None:
            durations = self.durations[finished.outcome] = Durations()
        durations.add(finished.duration_ms / 1000)

    def settlement(self, settled: rec.SettledRecord) -> None:
        """Count the tracker's answer to a settlement."""
        key = settled.action, settled.result
        self.settled[key] = self.settled.get(key, 0) + 1

    def round_trip_began(self, round_trip: rec.RoundTripBegan, elapsed: float) -> None:
        """Note that a round trip begins."""
        self._kind, self._since = kind_of(round_trip), elapsed

    def round_trip_ended(self, elapsed: float) -> None:
        """Count a round trip; if it failed, ``trouble`` follows."""
        trips = self.trips.setdefault(self._kind, TripTimes())
        trips.count += 1
        trips.seconds += elapsed - self._since

    def trouble(self) -> None:
        """Count a visit that did not reach the tracker, or got no answer."""
        self.trips.setdefault(self._kind, TripTimes()).failures += 1


def kind_of(round_trip: rec.RoundTripBegan) -> str:
    """Return a round trip's purpose: ``settle``, ``renew``, ``take`` or ``list``, joined by +."""
    parts = [
        "settle" if round_trip.settle else "",
        "renew" if round_trip.renew else "",
        "" if round_trip.take is None else "take" if round_trip.take else "list",
    ]
    return "+".join(part for part in parts if part) or "nothing"


# --- board ---------------------------------------------------------------------------------------
# ``core.records.issues`` tells the state of each issue; here it is counted. ``core.views.status``
# turns a board into JSON.


@dataclass(slots=True)
class ShownTrouble:
    """A failure to ask the tracker. Times in elapsed seconds of the run."""

    error: str
    hint: str
    since: float
    retry_at: float
    failures: int


_TO_LAND = (IssueState.LANDING, IssueState.SHELVING, IssueState.SHELVED)


@dataclass(slots=True)
class Board:
    """Everything that people are shown of one run."""

    run: rec.RunStarted | None = None
    state: str = "recovering"
    state_reason: str = ""
    state_until: float = 0.0
    """Epoch seconds at which the state ends by itself; 0 if it does not."""
    ended: rec.RunEnded | None = None
    began_at: float = 0.0
    elapsed: float = 0.0
    workers: dict[str, WorkerRow] = field(default_factory=dict)
    issues: Issues = field(default_factory=Issues)
    listed: rec.Listed = field(default_factory=rec.Listed)
    requeued: dict[str, None] = field(default_factory=dict)
    unlisted: dict[str, float] = field(default_factory=dict)
    """Issues that may be taken, of which the last listing cannot have told, and since when; 0 if
    the tracker knew it before any listing that follows."""
    listed_from: float = 0.0
    """When the last listing was asked for, in elapsed seconds of the run."""
    closings: int = 0
    """Number of issues that were closed in this run, those that an earlier one had done among
    them."""
    given_up: dict[str, str] = field(default_factory=dict)
    """Workers of ours that are not started again, with the reason."""
    workers_peak: int = 0
    """Highest number of workers so far, or about to be: a drawn table keeps its height."""
    claims: int = 0
    totals: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("done", "failed", "retried", "lost", "quarantined"), 0
        )
    )
    activity: Activity = field(default_factory=Activity)
    counters: Counters = field(default_factory=Counters)
    trouble: ShownTrouble | None = None
    degraded: dict[str, rec.DegradedBegan] = field(default_factory=dict)
    agents: AgentBoard = field(default_factory=AgentBoard)
    landings: LandingBoard = field(default_factory=LandingBoard)
    recent_done: deque[float] = field(default_factory=lambda: deque(maxlen=200))
    notes: deque[Entry] = field(default_factory=lambda: deque(maxlen=limits.RECENT_MAX))
    places_seen: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """What was last heard of other machines, by the names of places."""

    def prefetched(self) -> int:
        """Return how many tasks were sent, and wait for their worker to end others."""
        return sum(len(row.prefetched) for row in self.workers.values())

    def places(self) -> Counter[Place]:
        """Return how many of the issues that this run knows are where. What the tracker listed as
        ready or blocked is not among them, and what came back since is.

        The sum changes only with an answer of the tracker's."""
        places = Counter(
            place
            for issue in self.issues.known.values()
            if (place := issue.place) is not None and not self._is_listed(issue, place)
        )
        prefetched = self.prefetched()
        places[Place.READY] += len(self.unlisted) + prefetched
        places[Place.RUNNING] -= prefetched
        return places

    def _is_listed(self, issue: Issue, place: Place) -> bool:
        """Return whether the last listing counts it: it had cooled down by then."""
        listed = issue.state is IssueState.ENQUEUED and issue.due < self.listed_from
        return listed and place is Place.RETRYING

    @property
    def unsent(self) -> int:
        """Number of issues that are claimed, and with no worker yet."""
        return self.issues.count(IssueState.CLAIMED, IssueState.DELEGATING)

    @property
    def orphaned(self) -> list[Issue]:
        """Issues whose worker is disconnected and may live."""
        if not self.issues.count(IssueState.ORPHANED):
            return []
        return [i for i in self.issues.known.values() if i.state is IssueState.ORPHANED]

    @property
    def retrying(self) -> dict[str, float]:
        """Due times of issues that wait for a retry, in elapsed seconds of the run."""
        return {i.issue_id: i.due for i in self.issues.standing(Standing.COOLING)}

    @property
    def quarantined(self) -> dict[str, tuple[int, str]]:
        """Quarantined issues, with the number of their attempts and the last error."""
        found = self.issues.standing(Standing.QUARANTINED)
        return {i.issue_id: (i.charged, i.error) for i in found}

    @property
    def questions(self) -> list[Issue]:
        """Issues that wait for a person's answer, the longest waiting first."""
        return self.issues.standing(Standing.ASKED)

    @property
    def awaiting(self) -> list[Issue]:
        """Done issues whose branches await a person's approval."""
        return self.issues.standing(Standing.AWAITS_APPROVAL)

    @property
    def waiting_to_land(self) -> list[Issue]:
        """Done issues with a branch that is to land, by priority, then by their ends."""
        if not self.issues.count(*_TO_LAND):
            return []
        known = self.issues.known.values()
        found = [issue for issue in known if issue.place is Place.WAITING_TO_LAND]
        return sorted(found, key=lambda issue: turn(issue.landing or Add("", 0, "", "", "")))

    @property
    def refused(self) -> list[Issue]:
        """Issues that are quarantined because their branches do not land as they are."""
        found = self.issues.standing(Standing.QUARANTINED)
        return [issue for issue in found if issue.retry_entry and issue.retry_entry.mend]

    @property
    def unclosed(self) -> list[Issue]:
        """Issues that an earlier run did, without telling the tracker."""
        found = self.issues.standing(Standing.UNCLOSED)
        return [issue for issue in found if issue.place is Place.UNCLOSED]

    @property
    def unclosed_count(self) -> int:
        """Number of issues that are done, by whatever run, and not closed."""
        return self.issues.count(IssueState.CLOSING)

    def title(self, issue_id: str) -> str:
        """Return the title of an issue that is in our hands, or has a past; else ""."""
        issue = self.issues.known.get(issue_id)
        return issue.title if issue else ""

    def apply(self, entry: Entry) -> None:
        """Take in the next entry of a journal."""
        self.show(entry, self.issues.apply(entry))

    def show(self, entry: Entry, change: Transition | None) -> None:
        """Take in an entry that ``issues`` have applied already, and the change that it made."""
        self.elapsed = entry.elapsed
        if change is not None:
            self._about_issue(entry, change)
            return
        match entry.record:
            case rec.RoundTripBegan() as round_trip:
                self.activity.asking.began(round_trip, entry.elapsed)
                self.counters.round_trip_began(round_trip, entry.elapsed)
            case rec.Spent() as spent:
                self.activity.asking.ended(spent)
                self.counters.round_trip_ended(entry.elapsed)
            case rec.Listed() as listed:
                self.listed = listed
                # A push source tells of no round trips: they take a moment.
                self.listed_from = self.activity.asking.since or entry.elapsed
                self.unlisted = {i: at for i, at in self.unlisted.items() if at > self.listed_from}
            case rec.SourceTrouble() | rec.SourceRecovered() as source:
                self._source(source, entry.elapsed)
            case rec.Noted():
                self.counters.refused += entry.record.refused
                self.notes.append(entry)
            case _:
                self._about_run(entry)

    def _about_issue(self, entry: Entry, change: Transition) -> None:
        self._came_back(entry, change)
        match entry.record:
            case rec.Started() as started:
                self.counters.started += 1
                row = self.workers.setdefault(started.worker_id, WorkerRow(started.worker_id))
                row.add_attempt(started, entry.elapsed)
                self.agents.started(started)
            case rec.Leased(host=host):
                if row_there := self.workers.get(change.issue.worker_id):
                    row_there.host = host
            case rec.Finished() as finished:
                self.agents.finished(finished)
                self._finished(finished, change.issue.title, entry)
            case rec.Checkpointed(issue_id):
                self.requeued.pop(issue_id, None)  # It was done elsewhere.
            case rec.Claimed(issue_id):
                self.claims += 1
                self.requeued.pop(issue_id, None)
            case rec.SettledRecord() as settled:
                self._settled(settled, change, entry.elapsed)
            case rec.UsageFound():
                self.agents.apply(entry.record)
            case rec.BranchLanded() | rec.LandingEnded():
                self._landed(entry, change)
            case rec.Refunded() if change.stood is Standing.QUARANTINED:
                self.totals["quarantined"] -= 1
            case _:
                pass

    def _about_run(self, entry: Entry) -> None:
        match entry.record:
            case rec.RunStarted() as run:
                self.run, self.began_at = run, entry.at - entry.elapsed
                self.workers_peak = run.workers
                self.agents.run_started(run)
            case rec.RunChanged(state, reason, until):
                self.state, self.state_reason, self.state_until = state, reason, until
            case rec.RunEnded() as ended:
                self.ended = ended
            case rec.AccountClosed() | rec.AccountOpened():
                self.agents.apply(entry.record)
            case rec.GateRan() | rec.LandingTip():
                self.landings.apply(entry)
            case rec.DegradedBegan() as condition:
                self.degraded[condition.what] = condition
            case rec.DegradedEnded(what):
                self.degraded.pop(what, None)
            case rec.PlaceHeard(name, seen):
                self.places_seen[name] = seen
            case Resumed() as resumed:
                self.claims, self.closings = resumed.claims, resumed.closed
                self.notes.append(replace(entry, record=rec.Noted("info", resumed.text)))
                self.totals = {name: getattr(entry.record, name) for name in self.totals}
                if resumed.spent and resumed.found:
                    self.agents.ledger.resumed(resumed.spent, resumed.found)
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
                self.workers_peak = max(self.workers_peak, len(self.workers))
            case rec.WorkerLeft(worker_id):
                if row_left := self.workers.get(worker_id):
                    row_left.left()
                    if not row_left.own:
                        del self.workers[worker_id]
            case rec.AsideHeard(worker_id, Progress() as progress):
                if (row_said := self.workers.get(worker_id)) and (
                    row_said.issue_id == progress.issue_id
                ):
                    row_said.progress = progress
                    self.agents.add_progress(progress)
            case rec.StatusHeard(worker_id, status):
                if row_status := self.workers.get(worker_id):
                    row_status.status = status
            case rec.WorkerPaused(worker_id, reason):
                if row_paused := self.workers.get(worker_id):
                    row_paused.paused = reason
            case rec.WorkerResumed(worker_id):
                if row_paused := self.workers.get(worker_id):
                    row_paused.paused = None
            case rec.WorkerStopping(worker_id):
                if stopping := self.workers.get(worker_id):
                    stopping.state = "stopping"
            case rec.WorkerExited(worker_id):
                if row_left := self.workers.get(worker_id):
                    # The worker is started again, unless the run is ending or ``WorkerGone``
                    # follows.
                    row_left.pid = None
                    row_left.state = "starting" if self._goes_on() else "stopping"
            case rec.WorkerGone(worker_id, reason):
                self.workers.pop(worker_id, None)
                if reason:
                    self.given_up[worker_id] = reason
            case _:
                pass

    def _goes_on(self) -> bool:
        return self.state in ("recovering", "waiting", "running", "paused")

    def _finished(self, finished: rec.Finished, title: str, entry: Entry) -> None:
        issue_id = finished.issue_id
        self.counters.finished(finished)
        receipt = finished.receipt
        self.activity.last.append(EndedAttempt(finished, title, entry.at, receipt))
        row = self.workers.get(finished.worker_id)
        success = finished.verdict in ("finish", "land")
        if row is not None:
            row.has_not(issue_id)
            row.finished += 1
            row.done += success
            row.failed += not success and finished.outcome not in ("cancelled", "retry", "question")
        if success:
            return
        if finished.outcome in ("error", "timeout", "lost", "not_found"):
            self.totals["failed"] += 1
        if finished.outcome == "lost":
            self.totals["lost"] += 1
        if finished.verdict == "quarantined":
            self.totals["quarantined"] += 1
        elif finished.verdict not in ("hand_back", "asked") and finished.outcome != "cancelled":
            self.totals["retried"] += 1

    def _landed(self, entry: Entry, change: Transition) -> None:
        self.landings.apply(entry, change)
        if isinstance(entry.record, rec.LandingEnded) and entry.record.verdict == "quarantined":
            self.totals["quarantined"] += 1

    def _settled(self, settled: rec.SettledRecord, change: Transition, elapsed: float) -> None:
        self.counters.settlement(settled)
        done = change.before is IssueState.CLOSING and change.stood is not Standing.UNCLOSED
        # A reopening that finds it closed: somebody else's work, or an earlier run's.
        found_closed = settled.result == "found_closed" and settled.action != "reopen"
        if found_closed or (settled.action == "close" and done):
            self.totals["done"] += settled.result != "not_ours"
            self.recent_done.append(elapsed)
            self.activity.throughput.add(elapsed)
        if found_closed and change.end is not None:
            self._done_after_all(change.end, change.stood)
        released = settled.action == "release" and settled.result == "applied"
        if released and not change.is_handed_back:
            self.requeued[settled.issue_id] = None
        self.closings += change.issue.state is IssueState.CLOSED and settled.action != "reopen"

    def _came_back(self, entry: Entry, change: Transition) -> None:
        """Note an issue that may be taken from now on, or may not any more."""
        issue, place = change.issue, change.issue.place
        settled = isinstance(entry.record, rec.SettledRecord)
        cooled = change.stood is Standing.COOLING and issue.due < self.listed_from
        was_open = change.before is IssueState.ENQUEUED and (
            change.stood is Standing.OPEN or cooled
        )
        is_open = issue.state is IssueState.ENQUEUED and not change.is_handed_back
        if not is_open or (place is not None and not self._is_listed(issue, place)):
            self.unlisted.pop(issue.issue_id, None)
        elif settled or not was_open:
            # A round trip settles before it lists.
            self.unlisted[issue.issue_id] = 0.0 if settled else entry.elapsed

    def _done_after_all(self, end: rec.Finished, stood: Standing) -> None:
        """Correct the totals: a worker that died without a word had done the issue.
        Nothing is tried again, and nothing is out of the backlog."""
        if end.outcome == "lost":
            self.totals["failed"] -= 1
            self.totals["lost"] -= 1
            self.totals["retried"] -= end.verdict == "requeue"
        self.totals["quarantined"] -= stood is Standing.QUARANTINED

    def _source(self, record: rec.SourceTrouble | rec.SourceRecovered, elapsed: float) -> None:
        if isinstance(record, rec.SourceRecovered):
            self.trouble = None
            return
        self.counters.trouble()
        since = self.trouble.since if self.trouble else elapsed
        retry_at = elapsed + record.retry_in_seconds
        self.trouble = ShownTrouble(record.error, record.hint, since, retry_at, record.failures)
