"""The whole history of a run: every attempt, worker, issue and trouble, with its times.

``fold`` below makes it from a journal, ``ui.findings`` draws conclusions from it. All times are
seconds of the run (``elapsed`` of the journal) unless a name says otherwise; ``History.began_at``
turns them into epoch seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from beads_workers.core.base.model import value
from beads_workers.core.base.source import Action
from beads_workers.core.base.states import IssueState
from beads_workers.core.records import issues as reducer
from beads_workers.core.records import journal as rec
from beads_workers.core.records.issues import Standing, Transition
from beads_workers.core.records.journal import Entry, Resumed
from beads_workers.core.records.landing import Pull, ahead_text, refusal_text
from beads_workers.core.records.money import is_cut
from beads_workers.core.records.receipts import INDEPENDENT, Receipt
from beads_workers.core.views.landing_board import BEGAN, LandingBoard
from beads_workers.core.views.snapshot import Board, worker_order

RUNNING = "running"
CUT_OFF = "cut_off"
OUTCOMES = (
    "success",
    "error",
    "timeout",
    "lost",
    "not_found",
    "question",
    "retry",
    "cancelled",
    CUT_OFF,
    RUNNING,
)
"""Outcomes of an attempt, in the order in which people look for them. They are the values of
``OutcomeKind``, an attempt whose orchestrator died under it, and one that still runs."""

FAILURES = ("error", "timeout", "lost", "not_found")
"""Outcomes that are somebody's fault, and count."""


class Fate(Enum):
    """The fate of an issue in a run. The values are those of ``report --json``."""

    CLOSED = "closed"
    QUARANTINED = "quarantined"
    ASKED = "asked"
    """It waits for a person's answer."""
    AWAITS_APPROVAL = "awaits_approval"
    """Done, and its branch awaits a person's approval."""
    IN_REVIEW = "in_review"
    """Done, and its pull request is not merged (yet)."""
    UNCLOSED = "unclosed"
    """Done, but the tracker has not closed it (yet); the next start does."""
    WAITING_TO_LAND = "waiting_to_land"
    """Done, and its branch has not landed (yet); the next start sees to that."""
    REQUEUED = "requeued"
    """Open again, for anybody to take."""
    UNFINISHED = "unfinished"
    """Still ours at the end of the history: it runs, or the run was killed."""
    NOT_OURS = "not_ours"
    """Somebody else holds it, closed it for another reason, or deleted it."""


@value
class Attempt:
    """One try at one issue."""

    request_id: str
    issue_id: str
    title: str
    priority: int
    worker_id: str
    # The number from 1, as it was told to the worker.
    attempt: int
    began: float
    # None if no end was recorded.
    ended: float | None
    # How long it occupied a worker, on our clock, up to the end of the history.
    seconds: float
    outcome: str
    verdict: str = ""
    error: str = ""
    # As the worker measured it.
    worker_ms: int = 0
    # This and ``delay_seconds``: what came after it, as in ``journal.Finished``.
    charged: int = 0
    delay_seconds: float = 0.0
    # This and ``model``: who worked; "" for a command.
    agent: str = ""
    model: str = ""
    # The agent's own report.
    receipt: Receipt | None = None
    # The last progress that it reported.
    last_progress: str = ""
    # The agent was ended while it worked; its usage lacks at most the answer that it was writing.
    was_cut: bool = False

    def with_usage(self, found: Receipt | None) -> Attempt:
        """Return the attempt with the usage that was found of it, if it reported none itself."""
        if found is None or self.receipt is not None:
            return self
        return replace(self, receipt=found, was_cut=is_cut(found, ""))


@value
class WorkerSpan:
    """One life of a worker. ``status``: its exit status, None while it lives or if it is not ours.

    ``dismissed``: it ended after the whole fleet was told to stop, by itself or killed.
    """

    worker_id: str
    pid: int
    own: bool
    began: float
    ended: float | None
    status: int | None = None
    reason: str = ""
    dismissed: bool = False

    @property
    def died(self) -> bool:
        """Whether the worker ended otherwise than by leaving, when nobody wanted it to."""
        return bool(self.status) and not self.dismissed


@value
class Interval:
    """A stretch of time: the tracker could not be asked, the fleet was paused, or an account was
    closed."""

    began: float
    # None if it lasts to the end of the history.
    ended: float | None
    text: str = ""
    remedy: str = ""
    # Failures in a row.
    count: int = 1
    # Of the agent whose account it was.
    name: str = ""


@value
class LandingHistory:
    """The landing of an issue's work on the integration branch, if it came there."""

    # The attempt's branch.
    branch: str = ""
    # The commit that landed; "" while it has not.
    commit: str = ""
    # When it landed, in seconds of the history.
    landed: float | None = None
    # Whether a gate has passed with it inside.
    verified: bool = False
    independent: bool = False
    # It was in the branch already.
    nothing_new: bool = False
    # How often it went back to its agent.
    repairs: int = 0
    # How often it was refused.
    refused: int = 0
    # Why it was refused last.
    error: str = ""
    # Gates that ran with it inside; others may have been in them.
    gate_runs: int = 0
    # How long these gates took together.
    gate_seconds: float = 0.0
    # The gate's verdict ahead of approval, for people.
    ahead: str = ""
    # Its pull request, while that is open.
    pull: Pull | None = None


@dataclass(slots=True)
class IssueHistory:
    """One issue."""

    issue_id: str
    title: str = ""
    priority: int = 2
    fate: Fate = Fate.UNFINISHED
    attempts: int = 0
    # Attempts that count, earlier runs included.
    charged: int = 0
    # Of all its attempts.
    seconds: float = 0.0
    # The last one it failed with.
    error: str = ""
    closed: float | None = None
    # This run only remembered it, or settled what an earlier one had done.
    earlier: bool = True
    # None if nothing of it was to land.
    landing: LandingHistory | None = None


@value
class Note:
    """Something that the run wrote down for people. ``level``: info, warning or error."""

    at: float
    level: str
    text: str


@value
class History:
    """The whole history of a run, or of a night: ``core.views.nights`` adds up those of its
    runs."""

    # What the run said of itself as it began.
    start: rec.RunStarted
    began_at: float
    # How long the history is.
    seconds: float
    # ``running``, ``ended`` (by itself) or ``killed`` (it ended without a word).
    state: str
    # This and ``reason`` go with ``ended``.
    exit_code: int | None
    reason: str
    # Nothing of it is pending, because a later start has seen to that.
    settled: bool
    attempts: tuple[Attempt, ...]
    workers: tuple[WorkerSpan, ...]
    issues: tuple[IssueHistory, ...]
    outages: tuple[Interval, ...]
    pauses: tuple[Interval, ...]
    notes: tuple[Note, ...]
    # This and ``tracker_seconds``: what asking the tracker has cost.
    tracker_calls: int
    tracker_seconds: float
    # The sums of what landed; None if nothing was to land.
    landing: LandingBoard | None = None
    # Sums of the time before ``dropped_seconds``, which the journal was too long to keep.
    dropped: Resumed | None = None
    dropped_seconds: float = 0.0
    # When agents' accounts were closed.
    limits: tuple[Interval, ...] = ()
    # Waits for the time of ``--start-at``.
    waits: tuple[Interval, ...] = ()
    # Usage that this run found of attempts of earlier runs, by request id.
    found: Mapping[str, Receipt] = field(default_factory=dict)
    # How many issues were ready or blocked at the end, of which no attempt was made.
    not_begun: int = 0
    # The runs of a night, the oldest first; empty for a single run.
    runs: tuple[History, ...] = ()

    def of_issue(self, issue_id: str) -> list[Attempt]:
        """Return the issue's attempts, in order."""
        return [attempt for attempt in self.attempts if attempt.issue_id == issue_id]

    def with_fate(self, *fates: Fate) -> tuple[IssueHistory, ...]:
        """Return the issues that this run had in its hands and that met one of these fates."""
        return tuple(i for i in self.issues if i.fate in fates and not i.earlier)


def as_of_now(history: History, over: Mapping[str, str]) -> History:
    """Return the history with the issues that wait no longer, for the reasons in ``over``."""
    gone = [i for i in history.issues if i.issue_id in over]
    now = {i.issue_id: replace(i, fate=Fate.NOT_OURS, error=over[i.issue_id]) for i in gone}
    return replace(history, issues=tuple(now.get(i.issue_id, i) for i in history.issues))


# --- history fold --------------------------------------------------------------------------------
# Makes a ``History`` from a journal's entries, of a run in any state: the board keeps all of it.
#
# ``core.records.issues`` tells what state an issue is in; here is what it went through. An entry
# out of place (a journal with torn lines) is taken as far as it makes sense, never refused: a bad
# night needs its report most.


def fold(
    entries: Iterable[Entry], *, alive: bool = False, now: float | None = None, settled: bool = True
) -> History | None:
    """Return the history of one run; None if not even its first record is there.

    ``alive``: its orchestrator lives; then the history ends at ``now`` (epoch seconds), else with
    the last entry. ``settled``: whether nothing of it is pending.
    """
    account = _WholeRun()
    for entry in entries:
        account.apply(entry)
    return account.close(alive=alive, now=now, settled=settled)


@dataclass(slots=True)
class _WholeRun(Board):
    """A board that forgets nothing: every attempt, life of a worker, trouble and pause."""

    histories: dict[str, IssueHistory] = field(default_factory=dict)
    endless: list[reducer.RunningAttempt] = field(default_factory=list)
    """Attempts whose end was lost with a part of the journal."""
    attempts: list[Attempt] = field(default_factory=list)
    living: dict[str, WorkerSpan] = field(default_factory=dict)
    lives: list[WorkerSpan] = field(default_factory=list)
    outage: Interval | None = None
    outages: list[Interval] = field(default_factory=list)
    pause: Interval | None = None
    pauses: list[Interval] = field(default_factory=list)
    wait: Interval | None = None
    waits: list[Interval] = field(default_factory=list)
    closed: dict[tuple[str, str], Interval] = field(default_factory=dict)
    """Closed accounts, by account and model."""
    limits: list[Interval] = field(default_factory=list)
    found: dict[str, Receipt] = field(default_factory=dict)
    all_notes: list[Note] = field(default_factory=list)
    dropped: tuple[Resumed | None, float] = (None, 0.0)

    def show(self, entry: Entry, change: Transition | None) -> None:
        """Take in the next entry."""
        # Two threads write: an entry may stand a little after one that is younger.
        before = self.elapsed
        Board.show(self, entry, change)
        self.elapsed = now = max(before, entry.elapsed)
        if change is not None:
            self._came_through(entry.record, change, now)
            return
        match entry.record:
            case rec.Noted(level, text):
                self.all_notes.append(Note(now, level, text))
            case rec.GateRan():
                self._gate(entry.record)
            case rec.RunChanged(state, reason):
                self._run_changed(state, reason, now)
            case Resumed() as dropped:
                self.dropped = dropped, now
            case rec.SourceTrouble() as failure:
                old = self.outage or Interval(now, None, failure.error, failure.hint)
                self.outage = replace(old, count=max(old.count, failure.failures))
            case rec.SourceRecovered() if self.outage is not None:
                self.outages.append(replace(self.outage, ended=now))
                self.outage = None
            case rec.AccountClosed() as account:
                was = self.closed.get((account.account, account.model)) or Interval(now, None)
                named = replace(was, text=account.why, remedy=account.todo, name=account.agent)
                self.closed[account.account, account.model] = named
            case rec.AccountOpened(account_id, _, model):
                if (closed := self.closed.pop((account_id, model), None)) is not None:
                    self.limits.append(replace(closed, ended=now))
            case rec.WorkerStarted(worker_id, pid):
                self._worker_ended(worker_id, now)
                self.living[worker_id] = WorkerSpan(worker_id, pid, True, now, None)
            case rec.WorkerJoined(worker_id, pid, _, own):
                if worker_id not in self.living:
                    self.living[worker_id] = WorkerSpan(worker_id, pid, own, now, None)
            case rec.WorkerLeft(worker_id, reason):
                if (span := self.living.get(worker_id)) and not span.own:
                    self._worker_ended(worker_id, now, reason=reason)
            case rec.WorkerExited(worker_id, pid, status):
                if (span := self.living.get(worker_id)) and span.pid == pid:
                    self._worker_ended(worker_id, now, status=status)
            case rec.WorkerGone(worker_id, reason):
                self._worker_ended(worker_id, now, reason=reason)

    def _run_changed(self, state: str, reason: str, now: float) -> None:
        if state == "paused":
            self.pause = self.pause or Interval(now, None, reason)
        elif state == "waiting":
            self.wait = self.wait or Interval(now, None, reason)
        elif self.pause is not None:
            self.pauses.append(replace(self.pause, ended=now))
            self.pause = None
        if state != "waiting" and self.wait is not None:
            self.waits.append(replace(self.wait, ended=now))
            self.wait = None

    def _worker_ended(
        self, worker_id: str, now: float, *, status: int | None = None, reason: str = ""
    ) -> None:
        span = self.living.pop(worker_id, None)
        if span is not None:
            dismissed = self.state in ("stopping", "settling", "ended")
            self.lives.append(
                replace(span, ended=now, status=status, reason=reason, dismissed=dismissed)
            )

    def _came_through(self, record: rec.Record, change: Transition, now: float) -> None:
        if isinstance(record, rec.UsageFound) and record.receipt is not None:
            receipt = record.receipt if record.whole else replace(record.receipt, was_cut=True)
            self.found[record.request_id] = receipt
        issue_id = change.issue.issue_id
        issue = self.histories.get(issue_id)
        if issue is None:
            if not isinstance(record, _KNOWN_BY):
                return
            issue = self.histories[issue_id] = IssueHistory(issue_id)
            issue.earlier = not isinstance(record, rec.Finished)
        ended = change.attempt
        match record:
            case rec.Started() | rec.Claimed():
                issue.title, issue.priority = record.title or issue.title, record.priority
                issue.closed, issue.earlier = None, False
            case rec.Finished():
                if record.verdict not in ("finish", "land"):
                    issue.charged, issue.error = record.charged, record.error or issue.error
                if ended is not None and ended.started.request_id == record.request_id:
                    self.attempts.append(self._attempt(ended, now, record))
                    ended = None
            case rec.SettledRecord() if change.issue.state is IssueState.CLOSED:
                # A reopening that finds it closed: somebody else's work, or an earlier run's.
                issue.earlier = issue.earlier or record.action == "reopen"
                issue.closed = now
            case rec.SettledRecord(_, Action.REOPEN.value) if issue.closed is not None:
                self._taken_back(issue)
            case rec.SettledRecord(_, Action.CONFIRM.value, error=error) if issue.landing:
                issue.error, issue.landing = error, replace(issue.landing, error=error)
            case rec.Checkpointed():
                self.histories[issue_id] = issue = IssueHistory(
                    issue_id, record.title, charged=record.charged, error=record.error
                )
            case rec.Refunded():
                issue.charged = record.charged
            case rec.BranchLanded() | rec.LandingEnded():
                _land(issue, record, now)
            case _:
                pass
        if ended is not None:
            self.endless.append(ended)
        if (add := change.issue.landing) is not None:
            past = change.issue.retry_entry
            ahead = ahead_text(past.ahead) if past is not None and add.awaits else ""
            before = issue.landing or LandingHistory()
            pull = change.issue.in_review
            issue.landing = replace(before, branch=add.branch, ahead=ahead, pull=pull)
        issue.fate = _fate(change.issue)

    def _taken_back(self, issue: IssueHistory) -> None:
        """Count an issue neither as closed nor as landed any more: ``undo`` has opened it."""
        before, issue.closed = issue.landing, None
        if before is not None and before.commit:
            board = self.landings
            board.landed -= 1
            board.nothing_new -= before.nothing_new
            board.independent -= before.independent
            board.unverified -= not (before.verified or before.nothing_new)
            issue.landing = replace(before, commit="", landed=None)

    def _gate(self, record: rec.GateRan) -> None:
        if record.kept or record.state == BEGAN:
            return
        for issue_id in record.issues:
            if (issue := self.histories.get(issue_id)) is not None:
                before = issue.landing or LandingHistory()
                issue.landing = replace(
                    before,
                    gate_runs=before.gate_runs + 1,
                    gate_seconds=before.gate_seconds + record.seconds,
                )

    def _attempt(
        self, begun: reducer.RunningAttempt, until: float, end: rec.Finished | str
    ) -> Attempt:
        started, began = begun.started, begun.elapsed
        issue = self.histories[started.issue_id]
        issue.attempts += 1
        issue.seconds += until - began
        attempt = Attempt(
            started.request_id,
            started.issue_id,
            started.title or issue.title,
            started.priority,
            started.worker_id,
            started.attempt,
            began,
            None,
            until - began,
            end if isinstance(end, str) else end.outcome,
            agent=started.agent,
            model=started.model,
        )
        if isinstance(end, str):
            return attempt
        return replace(
            attempt,
            ended=until,
            verdict=end.verdict,
            error=end.error,
            worker_ms=end.duration_ms,
            charged=end.charged,
            delay_seconds=end.delay_seconds,
            receipt=end.receipt,
            last_progress=end.reached,
            was_cut=end.receipt is not None and is_cut(end.receipt, end.outcome),
        )

    def close(self, *, alive: bool, now: float | None, settled: bool) -> History | None:
        """Return the history, including what has no end in it."""
        run = self.run
        if run is None:
            return None
        state = "ended" if self.ended else "running" if alive else "killed"
        until = self.elapsed
        if state == "running" and now is not None:
            until = max(until, now - self.began_at)
        if state == "killed" and settled:
            for issue in self.histories.values():
                # A later start has seen to it: nothing is pending, or in this run's hands.
                issue.fate = _SETTLED.get(issue.fate, issue.fate)
        end = RUNNING if state == "running" else CUT_OFF
        workers = [*self.lives, *self.living.values()]
        workers.sort(key=lambda span: (*worker_order(span.worker_id), span.began))
        under_way = (issue.attempt for issue in self.issues.known.values() if issue.attempt)
        for begun in (*self.endless, *under_way):
            self.attempts.append(self._attempt(begun, until, end))
        attempts = [a.with_usage(self.found.pop(a.request_id, None)) for a in self.attempts]
        return History(
            start=run,
            began_at=self.began_at,
            seconds=until,
            state=state,
            exit_code=self.ended.exit_code if self.ended else None,
            reason=self.ended.reason if self.ended else "",
            settled=settled,
            attempts=tuple(sorted(attempts, key=lambda a: a.began)),
            workers=tuple(workers),
            issues=tuple(self.histories.values()),
            outages=(*self.outages, *([self.outage] if self.outage else [])),
            pauses=(*self.pauses, *([self.pause] if self.pause else [])),
            notes=tuple(self.all_notes),
            tracker_calls=self.activity.asking.spent.calls,
            tracker_seconds=self.activity.asking.spent.seconds,
            landing=self.landings if self._has_landings() else None,
            dropped=self.dropped[0],
            dropped_seconds=self.dropped[1],
            waits=(*self.waits, *([self.wait] if self.wait else [])),
            limits=tuple(sorted((*self.limits, *self.closed.values()), key=lambda i: i.began)),
            found=self.found,
            not_begun=self._not_begun(),
        )

    def _not_begun(self) -> int:
        tried = {attempt.issue_id for attempt in self.attempts}
        back = sum(issue_id not in tried for issue_id in self.unlisted)
        return back + sum(self.listed.by_priority) + self.listed.blocked

    def _has_landings(self) -> bool:
        return bool(self.landings.branch) or any(i.landing for i in self.histories.values())


def _land(issue: IssueHistory, record: rec.BranchLanded | rec.LandingEnded, now: float) -> None:
    before = issue.landing or LandingHistory()
    if isinstance(record, rec.BranchLanded):
        issue.earlier = False  # The work may be an earlier run's; it landed in this one.
        issue.landing = replace(
            before,
            commit=record.commit,
            landed=now,
            verified=bool(record.verified or record.pull),
            independent=INDEPENDENT in record.verified,
            nothing_new=record.contained,
        )
    elif record.why:
        error = refusal_text(record.why, record.files, record.against, record.text)
        mends = record.verdict == "mend"
        issue.error, issue.earlier = error, False
        issue.landing = replace(
            before,
            commit="",
            landed=None,
            repairs=before.repairs + mends,
            refused=before.refused + 1,
            error=error,
        )


_KNOWN_BY = (
    *(rec.Claimed, rec.Started, rec.Finished, rec.SettledRecord, rec.Checkpointed),
    *(rec.BranchLanded, rec.LandingEnded),
)
"""Records that an issue's history may begin with; others about an unknown issue are ignored."""

_SETTLED = {Fate.UNCLOSED: Fate.CLOSED, Fate.UNFINISHED: Fate.REQUEUED}
"""Fates in a killed run, once a later start has settled it."""

_FATES = {
    IssueState.ENQUEUED: Fate.REQUEUED,
    IssueState.LANDING: Fate.WAITING_TO_LAND,
    IssueState.SHELVING: Fate.WAITING_TO_LAND,
    IssueState.SHELVED: Fate.WAITING_TO_LAND,
    IssueState.CLOSING: Fate.UNCLOSED,
    IssueState.CLOSED: Fate.CLOSED,
    IssueState.FOREIGN: Fate.NOT_OURS,
}


_SET_ASIDE = (IssueState.SHELVING, IssueState.SHELVED)


def _fate(issue: reducer.Issue) -> Fate:
    if issue.state in (IssueState.QUARANTINING, IssueState.QUARANTINED):
        # An issue that a person has reopened meanwhile is for anybody to take.
        out = {Standing.QUARANTINED: Fate.QUARANTINED, Standing.ASKED: Fate.ASKED}
        return out.get(issue.standing, Fate.REQUEUED)
    if issue.landing is not None and issue.landing.awaits and issue.state in _SET_ASIDE:
        return Fate.AWAITS_APPROVAL
    if issue.in_review is not None and issue.state in _SET_ASIDE:
        return Fate.IN_REVIEW
    # Until the tracker has answered, an issue that is to be requeued is ours.
    return _FATES.get(issue.state, Fate.UNFINISHED)
