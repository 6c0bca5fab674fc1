"""The life of every issue of a run: the one fold over the journal's records.

    issues = Issues()
    transition = issues.apply(entry)     # None: the record is about no issue
    issues.known["bw-1"].state

The live core, the board, the recovery, the checkpoint, reports and exports all read this fold, and
none keeps an account of its own. The states are those of the table by which the live core checks
each of its moves (``states.ISSUE``). A journal, unlike the core, may lack lines, so a record that
the table calls impossible is believed.

An issue holds what is true of it now. Once it is closed, somebody else's, or open again without a
past, it is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.model import PRIORITY_DEFAULT, value
from beads_workers.core.base.policy import quarantine_note, question_note
from beads_workers.core.base.source import Action, Result
from beads_workers.core.base.states import IssueState, Key
from beads_workers.core.records import journal as rec
from beads_workers.core.records.journal import Entry, Resumed, Unsettled
from beads_workers.core.records.landing import (
    Add,
    GatedAhead,
    Mend,
    Pull,
    landed_note,
    refusal_text,
)
from beads_workers.core.records.receipts import Receipt, close_reason


class Standing(Key):
    """The reasons why an issue is, or is not, to be taken."""

    OPEN = "may be taken"
    COOLING = "not before a time"
    QUARANTINED = "out of attempts; a person reopens it"
    ASKED = "waits for a person's answer"
    AWAITS_APPROVAL = "its branch lands once a person has approved it"
    IN_REVIEW = "its pull request is not merged"
    ON_HOLD = "a person put it on hold"
    OCCUPIED = "a person stands in its worktree"
    UNCLOSED = "its work is done; a close is pending"


class Place(Key):
    """Where an issue is counted: each is in one place. The values are those of ``queue`` in
    ``status --json``."""

    READY = "ready"
    RUNNING = "running"
    RETRYING = "retrying"
    SETTLING = "settling"
    """Nobody's, once the tracker has answered to a write."""
    QUARANTINED = "quarantined"
    QUESTIONS = "questions"
    AWAITING_APPROVAL = "awaiting_approval"
    IN_REVIEW = "in_review"
    ON_HOLD = "on_hold"
    OCCUPIED = "occupied"
    UNCLOSED = "unclosed"
    WAITING_TO_LAND = "waiting_to_land"


WAIT_FOR_PERSON = (
    *(Place.QUARANTINED, Place.QUESTIONS, Place.AWAITING_APPROVAL, Place.IN_REVIEW),
    *(Place.ON_HOLD, Place.OCCUPIED),
)
"""Places from which only a person takes an issue."""

OUT = (Standing.QUARANTINED, Standing.ASKED)
"""Standings of issues that are blocked in the tracker until a person does something."""


@value
class RunningAttempt:
    """An attempt under way, with the two times of its record, as in ``Entry``."""

    started: rec.Started
    at: float
    elapsed: float


@dataclass(slots=True)
class Issue:
    """One issue that is in our hands, or has a past."""

    issue_id: str
    state: IssueState = IssueState.ENQUEUED
    standing: Standing = Standing.OPEN
    claimed: rec.Claimed | None = None
    worker_id: str = ""
    # The one under way.
    attempt: RunningAttempt | None = None
    # Of the last attempt, until the tracker has answered.
    end: rec.Finished | None = None
    # The write that the tracker is to be asked for, or is being asked for.
    pending: Action | None = None
    # It may be in progress in nobody's name.
    handed_over: bool = False
    # Its past, as the next run would be told of it; None if there is nothing to tell.
    retry_entry: rec.Checkpointed | None = None
    # When it may be taken again, while it is ``COOLING``; on the clock of ``Entry.elapsed``.
    due: float = 0.0
    # Pid and start time of a worker that is not ours and has it.
    owner: tuple[int, int] | None = None
    # The records that still hold, oldest first; applied with ``retry_entry``, they give this issue.
    entries: list[Entry] = field(default_factory=list)
    # Where its work is, while the close is pending.
    landed: rec.BranchLanded | None = None

    @property
    def title(self) -> str:
        """The title, as the tracker had it at the claim."""
        described = self.claimed or self.retry_entry
        return described.title if described else ""

    @property
    def charged(self) -> int:
        """Number of attempts that count."""
        return self.retry_entry.charged if self.retry_entry else 0

    @property
    def error(self) -> str:
        """Error with which the last attempt failed."""
        return self.retry_entry.error if self.retry_entry else ""

    @property
    def is_done(self) -> bool:
        """Whether the issue's work is done, and it is to land or to be closed."""
        return self.state in _DONE

    @property
    def landing(self) -> Add | None:
        """The branch that is to land, or has landed while the issue was ``SHELVED``."""
        return self.retry_entry.landing if self.retry_entry else None

    @property
    def in_review(self) -> Pull | None:
        """The pull request that its branch has as it is; None without one."""
        return self.retry_entry.in_review if self.retry_entry else None

    @property
    def shelved(self) -> bool:
        """Whether its close is pending, and an earlier run has blocked it in nobody's name."""
        return self.state is IssueState.CLOSING and self.landing is not None

    @property
    def place(self) -> Place | None:
        """Where it is counted; None if anybody may take it, or it is over: the tracker counts the
        first."""
        if (place := _PLACES.get(self.state)) is not None:
            set_aside = _SET_ASIDE.get(_shelved(self))
            return set_aside or place if place is Place.WAITING_TO_LAND else place
        if self.state in (IssueState.CLOSED, IssueState.FOREIGN):
            return None
        kept = _KEPT.get(self.standing)
        return kept or (Place.SETTLING if self.pending is not None else None)

    @property
    def quarantine_note(self) -> str:
        """Text for the tracker on why the issue is quarantined."""
        if self.standing is Standing.ASKED and self.retry_entry is not None:
            return question_note(self.retry_entry.question)
        landing = self.landing
        return quarantine_note(self.charged, self.error, landing.branch if landing else "")

    @property
    def close_note(self) -> str:
        """Text for the tracker on why the issue is closed."""
        receipt = (self.end.receipt if self.end else None) or (
            self.retry_entry.receipt if self.retry_entry else None
        )
        if receipt is None:
            note = self.end.note if self.end else ""
        else:
            landing = self.landing
            numbered = self.end or landing or self.landed
            note = close_reason(receipt, numbered.attempt if numbered else 1)
        return landed_note(note, self.landed) if self.landed else note

    @property
    def agent(self) -> str:
        """The agent that worked on it last, while the tracker has not answered; "" for no agent."""
        if self.attempt is not None:
            return self.attempt.started.agent
        return self.end.agent if self.end is not None else ""

    @property
    def orphaned(self) -> rec.OwnerLost | rec.Inherited | None:
        """The record of the worker that has it without a connection to us; None if none has."""
        records = (entry.record for entry in reversed(self.entries))
        kinds = rec.OwnerLost | rec.Inherited
        return next((each for each in records if isinstance(each, kinds)), None)

    @property
    def lease(self) -> rec.Leased | None:
        """The lease of the attempt under way, if it may be at work on another machine."""
        for record in (entry.record for entry in reversed(self.entries)):
            if isinstance(record, rec.Leased):
                return record
            if isinstance(record, rec.Inherited):
                return record.lease
            if isinstance(record, rec.Started):
                return None
        return None

    @property
    def lost_pid(self) -> int:
        """Pid of the process that may live, while the issue is orphaned; else 0."""
        orphaned = self.orphaned
        return orphaned.pid if orphaned else 0

    @property
    def inherited(self) -> rec.Inherited | None:
        """The record of the earlier run that holds the claim; None if none does."""
        orphaned = self.orphaned
        return orphaned if isinstance(orphaned, rec.Inherited) else None

    @property
    def is_unstarted(self) -> bool:
        """Whether it is in our hands, and no attempt was made since its claim."""
        return self.claimed is not None and self.attempt is None and self.end is None

    @property
    def is_reopened(self) -> bool:
        """Whether it was quarantined once, and taken back since: the tracker may still block it."""
        if self.state is IssueState.QUARANTINING:
            return self.standing not in OUT
        return self.pending is Action.REOPEN and self.state in _NOBODYS

    @property
    def is_answered(self) -> bool:
        """Whether a comment has answered its question, and the tracker may not have opened it."""
        return self.is_reopened and self.retry_entry is not None and self.retry_entry.answered


@value
class Transition:
    """The change that a record makes."""

    # As it is now; it may be forgotten already.
    issue: Issue
    # Its state until now.
    before: IssueState
    # Its standing until now.
    stood: Standing
    # The one that is over, if one is; in a journal that lacks lines, not always with an end of its
    # own.
    attempt: RunningAttempt | None = None
    # Of the last attempt, to which the tracker now has answered.
    end: rec.Finished | None = None

    @property
    def is_handed_back(self) -> bool:
        """Whether its job failed and went back to its sender: nobody may take it."""
        return self.end is not None and self.end.verdict == "hand_back"


@dataclass(slots=True)
class Issues:
    """``known``: issues that are in our hands or have a past, by id, in the order of their coming.

    ``replayed``: those of which the tracker told this run before it took any.
    """

    known: dict[str, Issue] = field(default_factory=dict)
    replayed: set[str] = field(default_factory=set)
    _has_taken: bool = False
    _foreign: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Connected workers that are not ours: pid and start time."""
    several: set[tuple[int, int]] = field(default_factory=set)
    """Processes of foreign workers that have had several connections at once."""
    _in_state: dict[IssueState, int] = field(default_factory=lambda: dict.fromkeys(IssueState, 0))
    """Number of issues in each state; states in which issues are forgotten do not count."""
    _standing: dict[Standing, dict[str, None]] = field(default_factory=dict)
    """Ids of the issues that are not to be taken, by the reason."""

    def apply(self, entry: Entry) -> Transition | None:
        """Take in the next entry; return None if it changes no issue."""
        fold = _FOLDS.get(type(entry.record))
        if fold is None or (change := fold(self, entry.record, entry)) is None:
            return None
        issue, before = change.issue, change.before
        if issue.state is not before:
            self._in_state[before] -= 1
            self._in_state[issue.state] += 1
        if issue.standing is not change.stood:
            self._stands(issue, change.stood)
        return change

    def count(self, *states: IssueState) -> int:
        """Return how many issues are in these states, in all of which nothing is forgotten."""
        number = 0
        for state in states:  # A dozen calls a task: a generator takes twice as long.
            number += self._in_state[state]
        return number

    def standing(self, standing: Standing) -> list[Issue]:
        """Return all issues of a standing other than ``OPEN``, the latest to reach it last."""
        return [self.known[issue_id] for issue_id in self._standing.get(standing, ())]

    def is_counted(self, issue_id: str, request_id: str) -> bool:
        """Return whether the cost of this attempt is known already.

        It is, too, if an attempt of a later run is counted: that run had read what the earlier ones
        used before it began.
        """
        issue = self.known.get(issue_id)
        past = issue.retry_entry if issue is not None else None
        if past is None or not past.counted:
            return False
        last, run_id = past.counted.rpartition(".")[0], request_id.rpartition(".")[0]
        return past.counted == request_id or last > run_id

    def with_known_cost(self, entry: rec.Checkpointed) -> rec.Checkpointed:
        """Return a dead run's word on an issue, with no less cost than is known.
        A start between the two runs that was broken off may have found more."""
        issue = self.known.get(entry.issue_id)
        past = issue.retry_entry if issue is not None else None
        if past is None or past.tokens < entry.tokens:
            return entry
        return replace(entry, money=past.money, tokens=past.tokens, counted=past.counted)

    def settled(self, issue_id: str) -> None:
        """Reduce an issue to its past: a later run has settled it with the tracker."""
        issue = self.known.get(issue_id)
        if issue is None:
            return
        before, stood = issue.state, issue.standing
        self._returned(issue)
        self._in_state[before] -= 1
        self._in_state[issue.state] += 1
        self._stands(issue, stood)

    def returned_unstarted(self, request_ids: Collection[str]) -> None:
        """Move the issues of these attempts back to claimed: workers returned them unstarted."""
        for issue in self.known.values():
            sent = issue.attempt
            if sent is not None and sent.started.request_id in request_ids:
                self._in_state[issue.state] -= 1
                self._in_state[IssueState.CLAIMED] += 1
                issue.attempt, issue.state = None, IssueState.CLAIMED

    # --- in our hands -------------------------------------------------------------------------

    def _claimed(self, claimed: rec.Claimed, entry: Entry) -> Transition:
        issue = self.known.get(claimed.issue_id)
        if issue is None:
            issue = self.known[claimed.issue_id] = Issue(claimed.issue_id)
        change = Transition(issue, issue.state, issue.standing, issue.attempt)
        self._has_taken = True
        if (retry_entry := issue.retry_entry) is not None:
            # A person opened a quarantined issue, and thereby gave it new attempts.
            # An issue that had asked goes on: whatever answers it, is among its comments.
            new = retry_entry.quarantined and not retry_entry.question
            kept = replace(
                retry_entry, not_before=0.0, quarantined=False, answered=False, occupied=""
            )
            issue.retry_entry = None if new else kept
        # Returned unstarted, it was never released; and an issue that was to be reopened is open.
        issue.pending = None
        issue.state, issue.standing = IssueState.CLAIMED, Standing.OPEN
        issue.claimed, issue.worker_id, issue.attempt, issue.end = claimed, "", None, None
        issue.entries = [entry]
        return change

    def _claim_delegated(self, delegated: rec.ClaimDelegated, entry: Entry) -> Transition:
        issue = self.of(delegated.issue_id)
        change = Transition(issue, issue.state, issue.standing)
        issue.handed_over = True
        if issue.state is IssueState.CLAIMED:
            issue.state, issue.pending = IssueState.DELEGATING, Action.HAND_OVER
            issue.worker_id = delegated.worker_id
            issue.entries.append(entry)
        return change

    def _started(self, started: rec.Started, entry: Entry) -> Transition:
        issue = self.of(started.issue_id)
        change = Transition(issue, issue.state, issue.standing, issue.attempt)
        issue.state, issue.worker_id = IssueState.RUNNING, started.worker_id
        issue.attempt = RunningAttempt(started, entry.at, entry.elapsed)
        if issue.pending is Action.HAND_OVER:
            issue.pending = None
        if self._foreign and started.worker_id in self._foreign:
            issue.owner = self._foreign[started.worker_id]
        issue.entries.append(entry)
        return change

    def _leased(self, leased: rec.Leased, entry: Entry) -> Transition:
        issue = self.of(leased.issue_id)
        issue.entries.append(entry)
        return Transition(issue, issue.state, issue.standing)

    def _owner_lost(self, lost: rec.OwnerLost, entry: Entry) -> Transition:
        issue = self.of(lost.issue_id)
        change = Transition(issue, issue.state, issue.standing)
        issue.state, issue.worker_id = IssueState.ORPHANED, lost.worker_id
        issue.entries.append(entry)
        return change

    def _inherited(self, inherited: rec.Inherited, entry: Entry) -> Transition:
        issue = self.of(inherited.issue_id)
        change = Transition(issue, issue.state, issue.standing)
        issue.state, issue.worker_id = IssueState.ORPHANED, inherited.worker_id
        issue.entries.append(entry)
        return change

    def _requeued(self, requeued: rec.Requeued, entry: Entry) -> Transition:
        issue = self.of(requeued.issue_id)
        change = Transition(issue, issue.state, issue.standing)
        issue.state = IssueState.RELEASING
        if issue.pending is not Action.HAND_OVER:
            issue.pending = Action.RELEASE  # Else the tracker has to answer to the hand-over first.
        issue.entries.append(entry)
        return change

    def _finished(self, finished: rec.Finished, entry: Entry) -> Transition:
        issue = self.of(finished.issue_id)
        change = Transition(issue, issue.state, issue.standing, issue.attempt)
        issue.state, issue.standing = _VERDICTS.get(finished.verdict, _REQUEUED)
        if issue.standing is Standing.COOLING:
            issue.due = entry.elapsed + finished.delay_seconds
            if not finished.delay_seconds:
                issue.standing = Standing.OCCUPIED if finished.occupied else Standing.OPEN
        issue.pending = Action.ASK if issue.standing is Standing.ASKED else _WRITES[issue.state]
        issue.retry_entry = _entry_after(issue, finished, entry.at)
        issue.worker_id, issue.attempt, issue.end = finished.worker_id, None, finished
        issue.owner = None
        issue.entries = [entry]
        return change

    def _branch_landed(self, landed: rec.BranchLanded, entry: Entry) -> Transition:
        issue = self.of(landed.issue_id)
        change = Transition(issue, issue.state, issue.standing)
        past, issue.retry_entry = issue.retry_entry, None
        if issue.state is not IssueState.LANDING and past is not None:
            # Of the issue's past only this counts: it is blocked in nobody's name.
            issue.retry_entry = replace(
                past, charged=0, free_in_a_row=0, error="", quarantined=False
            )
        issue.state, issue.standing = IssueState.CLOSING, Standing.OPEN
        issue.pending, issue.landed = Action.CLOSE, landed
        issue.entries.append(entry)
        return change

    def _landing_ended(self, ended: rec.LandingEnded, entry: Entry) -> Transition:
        issue = self.of(ended.issue_id)
        change = Transition(issue, issue.state, issue.standing)
        shelved = issue.state is IssueState.SHELVED
        issue.entries.append(entry)
        if ended.verdict == "shelve":
            issue.state, issue.pending = IssueState.SHELVING, Action.SHELVE
            return change
        issue.retry_entry = _entry_to_mend(issue, ended)
        if ended.verdict == _QUARANTINED:
            issue.standing = Standing.QUARANTINED
            issue.state = IssueState.QUARANTINED if shelved else IssueState.QUARANTINING
            issue.pending = None if shelved else Action.QUARANTINE
        elif ended.verdict == "mend":
            issue.state, issue.pending = IssueState.CLAIMED, None
        else:
            issue.standing = Standing.OPEN
            issue.state = IssueState.ENQUEUED if shelved else IssueState.RELEASING
            issue.pending = Action.REOPEN if shelved else Action.RELEASE
        if shelved:
            issue.entries = []
        return change

    # --- what the tracker says ----------------------------------------------------------------

    def _settled(self, settled: rec.SettledRecord, entry: Entry) -> Transition:
        issue = self.known.get(settled.issue_id) or Issue(settled.issue_id)
        change = Transition(issue, issue.state, issue.standing, issue.attempt, issue.end)
        if not self._has_taken or issue.inherited:
            self.replayed.add(settled.issue_id)
        if settled.action == _HAND_OVER:
            self._handed_over(issue, settled, entry)
        elif settled.action == _REOPEN and issue.state not in _NOBODYS:
            pass  # The reopening was asked for before it was taken or quarantined: no news.
        elif settled.action == _CONFIRM and settled.result not in _NO_MORE:
            pass
        elif settled.action == _CLOSE or settled.result in _NO_MORE:
            self._done_with(issue, settled)
        elif settled.action == _SHELVE:
            if issue.state in (IssueState.SHELVING, IssueState.SHELVED):
                issue.state, issue.standing = IssueState.SHELVED, _shelved(issue)
                issue.pending, issue.entries = None, []
                issue.claimed, issue.end, issue.worker_id = None, None, ""
        else:
            quarantining = (
                issue.state is IssueState.QUARANTINING and issue.pending is not Action.REOPEN
            )
            # A person may have asked for another try meanwhile, of an issue that we or an earlier
            # run quarantined.
            asked = quarantining and issue.standing not in OUT
            reopens = asked or (issue.pending is Action.REOPEN and settled.action != _REOPEN)
            if not reopens and issue.retry_entry == _opened_again(issue):
                issue.retry_entry = None
            self._returned(issue, Action.REOPEN if reopens else None)
        return change

    def _handed_over(self, issue: Issue, settled: rec.SettledRecord, entry: Entry) -> None:
        delegated = issue.state in (IssueState.DELEGATING, IssueState.RELEASING)
        if delegated and settled.result in _NO_MORE:
            self._done_with(issue, settled)
        elif issue.state is IssueState.DELEGATING:
            issue.state, issue.pending = IssueState.RUNNING, None
            issue.entries.append(entry)
        elif issue.state is IssueState.RELEASING:
            issue.pending = Action.RELEASE  # The worker has left meanwhile.
            issue.entries.append(entry)

    def _done_with(self, issue: Issue, settled: rec.SettledRecord) -> None:
        """Forget an issue that is closed, or not ours; a later run's quarantine stays known."""
        retry_entry, not_ours = issue.retry_entry, settled.result == _NOT_OURS
        if (
            not_ours
            and settled.action == _RELEASE
            and retry_entry is not None
            and retry_entry.quarantined
        ):
            # The issue that an earlier run was to requeue was quarantined by a later one: that
            # stays known.
            self._returned(issue)
            return
        issue.state = IssueState.FOREIGN if not_ours else IssueState.CLOSED
        issue.standing, issue.pending, issue.handed_over = Standing.OPEN, None, False
        issue.retry_entry = issue.attempt = issue.end = issue.landed = None
        issue.entries = []
        self.known.pop(issue.issue_id, None)

    def _failed(self, failed: rec.SettlementFailed, entry: Entry) -> Transition:
        issue = self.known.get(failed.issue_id) or Issue(failed.issue_id)
        change = Transition(issue, issue.state, issue.standing)
        if issue.state is IssueState.RELEASING and failed.action == _HAND_OVER:
            issue.pending = Action.RELEASE
            issue.entries.append(entry)
        return change

    # --- what people, and earlier runs, have to say --------------------------------------------

    def _put_on_hold(self, on_hold: rec.PutOnHold, entry: Entry) -> Transition:
        issue = self.of(on_hold.issue_id)
        change = Transition(issue, issue.state, issue.standing)
        issue.standing = Standing.ON_HOLD
        issue.entries.append(entry)
        return change

    def _retry_asked(self, asked: rec.RetryAsked, entry: Entry) -> Transition:
        return self._pardoned(asked.issue_id, entry, 0)

    def _refunded(self, refunded: rec.Refunded, entry: Entry) -> Transition:
        return self._pardoned(refunded.issue_id, entry, refunded.charged)

    def _pardoned(self, issue_id: str, entry: Entry, charged: int) -> Transition:
        issue = self.known.get(issue_id) or Issue(issue_id)
        change = Transition(issue, issue.state, issue.standing)
        retry_entry, asked = issue.retry_entry, type(entry.record) is rec.RetryAsked
        waits = issue.standing is Standing.ASKED and not asked  # Only a person ends that.
        if retry_entry is not None:
            counts = charged or retry_entry.free_in_a_row
            remembered = issue.is_done or waits or bool(counts and not asked)
            kept = replace(retry_entry, charged=charged, not_before=0.0, unprepared=0)
            issue.retry_entry = replace(kept, quarantined=waits) if remembered else None
            opens = retry_entry.answered and (
                issue.is_reopened or issue.state is IssueState.QUARANTINING
            )
            if asked and (issue.standing is Standing.ASKED or opens):
                # Whoever answers by a close wants it to go on as well, or retries it twice.
                issue.retry_entry = _opened_again(issue)
        if issue.standing in OUT and not waits and issue.state is not IssueState.QUARANTINING:
            issue.pending = Action.REOPEN
        if asked:
            issue.standing = Standing.OPEN
        elif issue.standing in (Standing.COOLING, Standing.QUARANTINED):
            cooled = issue.standing is Standing.COOLING and issue.due < entry.elapsed
            issue.standing = Standing.COOLING
            issue.due = issue.due if cooled else entry.elapsed
        if issue.state in _NOBODYS:
            # A refund does not lift a person's hold.
            issue.entries = [] if asked else _holds(issue)
            self._rest(issue)
        else:
            issue.entries.append(entry)
        return change

    def _answered(self, answered: rec.Answered, entry: Entry) -> Transition | None:
        issue = self.known.get(answered.issue_id)
        if issue is None or issue.standing is not Standing.ASKED or issue.retry_entry is None:
            return None
        change = Transition(issue, issue.state, issue.standing)
        issue.retry_entry = replace(
            issue.retry_entry, quarantined=False, answered=answered.commented
        )
        issue.standing = Standing.OPEN
        if issue.state in _NOBODYS:
            issue.pending, issue.entries = Action.REOPEN, []
            self._rest(issue)
        else:
            issue.entries.append(entry)
        return change

    def _vacated(self, vacated: rec.Vacated, entry: Entry) -> Transition | None:
        issue = self.known.get(vacated.issue_id)
        if issue is None or issue.standing is not Standing.OCCUPIED:
            return None
        change = Transition(issue, issue.state, issue.standing)
        issue.standing = Standing.OPEN
        if (past := issue.retry_entry) is not None:
            has_past = past != rec.Checkpointed(past.issue_id, past.title, occupied=past.occupied)
            issue.retry_entry = replace(past, occupied="") if has_past else None
        if issue.state in _NOBODYS:
            self._rest(issue)
        else:
            issue.entries.append(entry)
        return change

    def _approved(self, approved: rec.Approved, entry: Entry) -> Transition | None:
        issue = self.known.get(approved.issue_id)
        past = issue.retry_entry if issue is not None else None
        if issue is None or past is None or past.landing is None:
            return None
        change = Transition(issue, issue.state, issue.standing)
        landing = replace(past.landing, awaits=False, approved=True)
        issue.retry_entry = replace(past, landing=landing)
        if issue.state is IssueState.SHELVED:
            issue.standing = Standing.UNCLOSED
        return change

    def _approval_needed(self, needed: rec.ApprovalNeeded, entry: Entry) -> Transition | None:
        def change(past: rec.Checkpointed, add: Add) -> rec.Checkpointed:
            return replace(past, landing=replace(add, awaits=True))

        return self._with_landing(needed.issue_id, change)

    def _pull_seen(self, seen: rec.PullSeen, entry: Entry) -> Transition | None:
        return self._with_landing(seen.issue_id, lambda past, add: replace(past, pull=seen.pull))

    def _with_landing(
        self, issue_id: str, change: Callable[[rec.Checkpointed, Add], rec.Checkpointed]
    ) -> Transition | None:
        """Change what is known of an issue whose branch is to land."""
        issue = self.known.get(issue_id)
        past = issue.retry_entry if issue is not None else None
        if issue is None or past is None or past.landing is None:
            return None
        changed = Transition(issue, issue.state, issue.standing)
        issue.retry_entry = change(past, past.landing)
        if issue.state is IssueState.SHELVED:
            issue.standing = _shelved(issue)
        return changed

    def _branch_gated(self, gated: rec.BranchGated, entry: Entry) -> Transition | None:
        issue = self.known.get(gated.issue_id)
        past = issue.retry_entry if issue is not None else None
        if issue is None or past is None or past.landing is None:
            return None
        if past.landing.commit != gated.commit:
            return None
        ahead = GatedAhead(gated.issue_id, gated.commit, gated.verdict, gated.tip, gated.why)
        issue.retry_entry = replace(past, ahead=ahead)
        return Transition(issue, issue.state, issue.standing)

    def _usage_found(self, found: rec.UsageFound, entry: Entry) -> Transition | None:
        receipt = found.receipt
        if receipt is None or self.is_counted(found.issue_id, found.request_id):
            return None
        issue = self.of(found.issue_id)
        change = Transition(issue, issue.state, issue.standing)
        past = issue.retry_entry or rec.Checkpointed(issue.issue_id, title=issue.title)
        if (earlier := past.receipt) is not None:
            receipt = replace(receipt, lesson=earlier.lesson, message=earlier.message)
        issue.retry_entry = _with_cost(past, found.request_id, receipt)
        if issue.entries and issue.state not in _NOBODYS:
            issue.entries.append(entry)  # A retry that is told again forgets the cost before it.
        return change

    def _checkpointed(self, retry_entry: rec.Checkpointed, entry: Entry) -> Transition:
        old = self.known.get(retry_entry.issue_id)
        issue = self.known[retry_entry.issue_id] = Issue(
            retry_entry.issue_id, retry_entry=retry_entry
        )
        if old is None:
            change = Transition(issue, issue.state, issue.standing)
        else:
            change = Transition(issue, old.state, old.standing, old.attempt)
        if retry_entry.landing and not (retry_entry.claimed_by or retry_entry.quarantined):
            issue.state, issue.standing = IssueState.SHELVED, _shelved(issue)
        elif retry_entry.claimed_by:
            issue.state, issue.standing = IssueState.CLOSING, Standing.UNCLOSED
            issue.pending = Action.CLOSE
        elif retry_entry.quarantined:
            issue.state = IssueState.QUARANTINED
            issue.standing = Standing.ASKED if retry_entry.question else Standing.QUARANTINED
        elif (left := retry_entry.not_before - entry.at) > 0:
            # A clock that was set back makes no wait longer than it was.
            most = retry_entry.delay_seconds or limits.RETRY_AFTER_MAX_SECONDS
            issue.standing, issue.due = Standing.COOLING, entry.elapsed + min(left, most)
        elif retry_entry.occupied:
            issue.standing = Standing.OCCUPIED
        return change

    def _unsettled(self, unsettled: Unsettled, entry: Entry) -> Transition:
        issue = self.of(unsettled.issue_id)
        change = Transition(issue, issue.state, issue.standing)
        if unsettled.note and issue.state in _NOBODYS:
            issue.state, issue.pending = IssueState.QUARANTINING, Action.QUARANTINE
        if unsettled.pid:
            issue.owner = (unsettled.pid, unsettled.start_time)
        if unsettled.heard:
            self.replayed.add(unsettled.issue_id)
        if unsettled.reopened and issue.state in _NOBODYS:
            issue.pending = Action.REOPEN
        self._forget(issue)
        return change

    def _resumed(self, resumed: Resumed, entry: Entry) -> None:
        self._has_taken = self._has_taken or resumed.claims > 0

    def _joined(self, joined: rec.WorkerJoined, entry: Entry) -> None:
        if joined.own:
            self._foreign.pop(joined.worker_id, None)
            return
        owner = (joined.pid, joined.start_time)
        if owner in self._foreign.values():
            self.several.add(owner)
        self._foreign[joined.worker_id] = owner

    def _left(self, left: rec.WorkerLeft, entry: Entry) -> None:
        self._foreign.pop(left.worker_id, None)

    # --- what is remembered -------------------------------------------------------------------

    def of(self, issue_id: str) -> Issue:
        """Return the issue; in a journal that lacks its claim, a new one."""
        issue = self.known.get(issue_id)
        if issue is None:
            issue = self.known[issue_id] = Issue(issue_id)
        return issue

    def _stands(self, issue: Issue, stood: Standing) -> None:
        if stood is not Standing.OPEN:
            self._standing[stood].pop(issue.issue_id, None)
        if issue.standing is not Standing.OPEN:
            self._standing.setdefault(issue.standing, {})[issue.issue_id] = None

    def _returned(self, issue: Issue, pending: Action | None = None) -> None:
        """Take an issue out of our hands, with at most this write pending."""
        issue.claimed = issue.attempt = issue.end = issue.owner = None
        issue.pending, issue.handed_over = pending, False
        issue.entries = _holds(issue)
        if issue.retry_entry is not None and issue.retry_entry.claimed_by:
            issue.retry_entry = replace(issue.retry_entry, claimed_by="")
        self._rest(issue)

    def _rest(self, issue: Issue) -> None:
        """Make an issue nobody's; forget it if it has no past."""
        issue.worker_id = ""
        quarantined = issue.retry_entry is not None and issue.retry_entry.quarantined
        issue.state = IssueState.QUARANTINED if quarantined else IssueState.ENQUEUED
        if issue.standing in (Standing.UNCLOSED, *_SET_ASIDE):
            issue.standing = Standing.OPEN
        self._forget(issue)

    def _forget(self, issue: Issue) -> None:
        if (
            issue.state is IssueState.ENQUEUED
            and issue.standing is Standing.OPEN
            and issue.retry_entry is None
            and issue.pending is None
            and not issue.handed_over
            and issue.owner is None
        ):
            self.known.pop(issue.issue_id, None)


def _opened_again(issue: Issue) -> rec.Checkpointed:
    """Return a clean history of an issue that is opened even if it was closed."""
    title = issue.retry_entry.title if issue.retry_entry else ""
    return rec.Checkpointed(issue.issue_id, title=title, answered=True)


def _shelved(issue: Issue) -> Standing:
    if issue.landing is not None and issue.landing.awaits:
        return Standing.AWAITS_APPROVAL
    return Standing.IN_REVIEW if issue.in_review else Standing.UNCLOSED


def _holds(issue: Issue) -> list[Entry]:
    """Return the records that still hold once an issue is out of our hands."""
    return [each for each in issue.entries if type(each.record) is rec.PutOnHold]


def _entry_after(issue: Issue, finished: rec.Finished, at: float) -> rec.Checkpointed | None:
    """Return what is to be remembered after an attempt."""
    if finished.verdict == _FINISH:
        return None
    if finished.verdict == _LAND:
        return _entry_to_land(issue, finished, at)
    quarantined, delay = finished.verdict in (_QUARANTINED, _ASKED), finished.delay_seconds
    before = issue.retry_entry or rec.Checkpointed(issue.issue_id)
    if finished.occupied:
        # Nothing was begun: everything else that is known still holds.
        return replace(before, title=issue.title, occupied=finished.error)
    if finished.receipt is None and before.counted and before.counted == finished.request_id:
        return before  # A checkpoint repeats it before the end whose cost it has.
    receipt = finished.receipt or before.receipt
    if not (
        quarantined
        or finished.charged
        or finished.free_in_a_row
        or finished.unprepared
        or delay
        or receipt
        or before.question
    ):
        return None  # Requeued without fault, and without anything to go on with.
    if finished.receipt is not None:
        before = _with_cost(before, finished.request_id, finished.receipt)
    described = issue.claimed or issue.retry_entry
    trace = issue.retry_entry.traceparent if issue.retry_entry else ""
    started = issue.attempt.started if issue.attempt else None
    if started is not None and started.traceparent and not started.trace_parent:
        trace = started.traceparent
    return rec.Checkpointed(
        issue.issue_id,
        title=described.title if described else "",
        charged=finished.charged,
        free_in_a_row=finished.free_in_a_row,
        unprepared=finished.unprepared,
        not_before=at + delay if delay else 0.0,
        quarantined=quarantined,
        error=finished.error,
        delay_seconds=delay,
        path=described.path if described else "",
        arguments=described.arguments if described else None,
        enqueued_at=described.enqueued_at if described else 0.0,
        outcome=finished.outcome,
        traceparent=trace,
        receipt=receipt,
        money=before.money,
        tokens=before.tokens,
        counted=before.counted,
        pull=before.pull,
        **_question(finished, before, at),
    )


def _question(finished: rec.Finished, before: rec.Checkpointed, at: float) -> dict[str, Any]:
    """Return the fields about questions: an answered one is kept until there is work."""
    if finished.verdict == _QUARANTINED:
        return {}
    if finished.verdict == _ASKED:
        question = (finished.receipt.question if finished.receipt else "") or finished.error
        return {"question": question, "asked_at": at, "questions": finished.questions}
    return {
        "question": before.question,
        "asked_at": before.asked_at,
        "questions": finished.questions,
    }


def _entry_to_land(issue: Issue, finished: rec.Finished, at: float) -> rec.Checkpointed:
    """Return the entry of an issue with a branch to land.
    What was known of it holds again if the branch does not land."""
    before = issue.retry_entry or rec.Checkpointed(issue.issue_id, title=issue.title)
    receipt = finished.receipt
    assert receipt is not None, "only a branch lands, which a receipt names"
    before = _with_cost(before, finished.request_id, receipt)
    known = issue.landing
    if known is not None and (known.commit, known.attempt) == (receipt.head, finished.attempt):
        return before  # In a checkpoint it comes before the end that it was made of.
    add = Add(
        issue.issue_id,
        finished.attempt,
        finished.request_id.rpartition(".")[0],
        receipt.head,
        receipt.base,
        receipt.branch,
        issue.title,
        receipt.message,
        issue.claimed.priority if issue.claimed else PRIORITY_DEFAULT,
        round(at, 3),
        before.repairs,
        issue.claimed.issue_type if issue.claimed else "task",
        issue.claimed.labels if issue.claimed else (),
        awaits=finished.awaits,
        money=round(before.money, 4),
    )
    return replace(
        before,
        receipt=finished.receipt,
        outcome=finished.outcome,
        mend=None,
        landing=add,
        ahead=None,
        question="",
    )


def _entry_to_mend(issue: Issue, ended: rec.LandingEnded) -> rec.Checkpointed:
    """Return the entry of an issue whose branch did not land: its next attempt is told why."""
    before = issue.retry_entry or rec.Checkpointed(issue.issue_id, title=issue.title)
    if not ended.why:
        return replace(before, landing=None)
    receipt = before.receipt
    if receipt is not None:
        lesson = f"{REMARKS}\n\n{ended.text}" if ended.why == REJECTED else ended.text
        receipt = replace(receipt, lesson=lesson[: limits.LESSON_CHARS_MAX], verified=False)
    quarantined = ended.verdict == _QUARANTINED
    return replace(
        before,
        # The branch may land all the same, if gates are flaky.
        landing=before.landing if quarantined else None,
        error=refusal_text(ended.why, ended.files, ended.against, ended.text),
        receipt=receipt,
        quarantined=quarantined,
        repairs=ended.repairs,
        mend=None if ended.why == REJECTED else Mend(ended.why, ended.tip, ended.files),
    )


def _with_cost(past: rec.Checkpointed, request_id: str, receipt: Receipt) -> rec.Checkpointed:
    """Return the entry with this attempt's cost, added once: a checkpoint may repeat an end."""
    if past.counted == request_id:
        return past
    return replace(
        past,
        receipt=receipt,
        money=past.money + (receipt.money or 0.0),
        tokens=past.tokens + receipt.tokens.total,
        counted=request_id,
    )


# Four records of each issue come through here: the value of a member costs more than a name.
_HAND_OVER, _CLOSE = Action.HAND_OVER.value, Action.CLOSE.value
_SHELVE, _CONFIRM = Action.SHELVE.value, Action.CONFIRM.value
_RELEASE, _REOPEN = Action.RELEASE.value, Action.REOPEN.value
_NOT_OURS = Result.NOT_OURS.value
_NO_MORE = (Result.FOUND_CLOSED.value, _NOT_OURS)
REJECTED = "rejected"
"""``LandingEnded.why`` of a branch that a person rejects."""
REMARKS = "the reviewer, a person, has remarks"
"""First line of the lesson then: the next attempt gets the rest as a review's remarks."""
_FINISH, _LAND, _QUARANTINED, _ASKED = "finish", "land", "quarantined", "asked"

_DONE = (
    IssueState.LANDING,
    IssueState.SHELVING,
    IssueState.SHELVED,
    IssueState.CLOSING,
)
_NOBODYS = (IssueState.ENQUEUED, IssueState.QUARANTINED)
_PLACES = {
    IssueState.CLAIMED: Place.READY,
    IssueState.DELEGATING: Place.READY,
    IssueState.RUNNING: Place.RUNNING,
    IssueState.ORPHANED: Place.RUNNING,
    IssueState.LANDING: Place.WAITING_TO_LAND,
    IssueState.SHELVING: Place.WAITING_TO_LAND,
    IssueState.SHELVED: Place.WAITING_TO_LAND,
    IssueState.CLOSING: Place.UNCLOSED,
}
_SET_ASIDE = {
    Standing.AWAITS_APPROVAL: Place.AWAITING_APPROVAL,
    Standing.IN_REVIEW: Place.IN_REVIEW,
}
_KEPT = {
    Standing.COOLING: Place.RETRYING,
    Standing.QUARANTINED: Place.QUARANTINED,
    Standing.ASKED: Place.QUESTIONS,
    Standing.ON_HOLD: Place.ON_HOLD,
    Standing.OCCUPIED: Place.OCCUPIED,
}
"""Places of issues that nobody works on, by why they are not taken."""
_REQUEUED = (IssueState.RELEASING, Standing.COOLING)
_VERDICTS = {
    _FINISH: (IssueState.CLOSING, Standing.OPEN),
    _LAND: (IssueState.LANDING, Standing.OPEN),
    _QUARANTINED: (IssueState.QUARANTINING, Standing.QUARANTINED),
    _ASKED: (IssueState.QUARANTINING, Standing.ASKED),
    "requeue": _REQUEUED,
    "hand_back": (IssueState.RELEASING, Standing.OPEN),
}
_WRITES = {
    IssueState.LANDING: None,
    IssueState.CLOSING: Action.CLOSE,
    IssueState.RELEASING: Action.RELEASE,
    IssueState.QUARANTINING: Action.QUARANTINE,
}

_FOLDS: dict[type[rec.Record], Callable[[Issues, Any, Entry], Transition | None]] = {
    rec.Claimed: Issues._claimed,
    rec.ClaimDelegated: Issues._claim_delegated,
    rec.Started: Issues._started,
    rec.Leased: Issues._leased,
    rec.OwnerLost: Issues._owner_lost,
    rec.Inherited: Issues._inherited,
    rec.Requeued: Issues._requeued,
    rec.Finished: Issues._finished,
    rec.BranchLanded: Issues._branch_landed,
    rec.LandingEnded: Issues._landing_ended,
    rec.SettledRecord: Issues._settled,
    rec.SettlementFailed: Issues._failed,
    rec.PutOnHold: Issues._put_on_hold,
    rec.RetryAsked: Issues._retry_asked,
    rec.Refunded: Issues._refunded,
    rec.Answered: Issues._answered,
    rec.Vacated: Issues._vacated,
    rec.BranchGated: Issues._branch_gated,
    rec.Approved: Issues._approved,
    rec.ApprovalNeeded: Issues._approval_needed,
    rec.PullSeen: Issues._pull_seen,
    rec.Checkpointed: Issues._checkpointed,
    rec.UsageFound: Issues._usage_found,
    Unsettled: Issues._unsettled,
    rec.WorkerJoined: Issues._joined,
    rec.WorkerLeft: Issues._left,
    Resumed: Issues._resumed,
}

ABOUT_ISSUES = frozenset(_FOLDS)
"""The kinds of records that may change an issue."""
