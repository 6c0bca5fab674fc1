"""The state that a crashed run left, from its journal alone, and what the next run takes over."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from beads_workers.core.base import limits
from beads_workers.core.base.framing import Line, LineReader, ProtocolError
from beads_workers.core.base.model import (
    PRIORITY_DEFAULT,
    IssueId,
    Outcome,
    OutcomeKind,
    kept,
    note_of,
)
from beads_workers.core.base.source import CrashedRun
from beads_workers.core.base.states import IssueState
from beads_workers.core.base.wire import RETURNED_UNSTARTED, Done, Failed, parse
from beads_workers.core.records import journal as rec
from beads_workers.core.records.issues import OUT, Issue, Issues, RunningAttempt, Standing
from beads_workers.core.records.journal import (
    Checkpointed,
    Entry,
    Finished,
    Inherited,
    Resumed,
    Unsettled,
)
from beads_workers.core.records.landing import awaits_approval, shelve_note
from beads_workers.core.records.receipts import close_reason, read_receipt
from beads_workers.core.views.snapshot import Board


@dataclass(slots=True)
class RecoveryState:
    """The state that a run left, from its journal alone."""

    run_id: str = ""
    actor: str = ""
    socket: str = ""
    issues: Issues = field(default_factory=Issues)
    # Pid and start time of a tracker process whose end was not recorded.
    last_call: tuple[int, int] | None = None
    # The checkpoint was complete, so that older runs add nothing to ``retry_entries``.
    has_checkpoint: bool = False
    lands: bool = False
    approves: bool = False
    ended: rec.RunEnded | None = None
    # Every issue that the run claimed, whatever became of it.
    taken: set[str] = field(default_factory=set)

    def apply(self, entry: Entry) -> None:
        """Take in the next entry of this run's journal."""
        self.issues.apply(entry)
        match entry.record:
            case rec.RunStarted() as run:
                self.run_id, self.actor, self.socket = run.run_id, run.actor, run.socket
                self.lands, self.approves = run.lands, run.approves
            case rec.CheckpointEnded():
                self.has_checkpoint = True
            case rec.Claimed(issue_id=issue_id):
                self.taken.add(issue_id)
            case rec.CallStarted(pid=pid, start_time=start_time):
                self.last_call = (pid, start_time)
            case rec.CallEnded():
                self.last_call = None
            case rec.RunEnded() as ended:
                self.ended = ended
            case _:
                pass

    @property
    def replayed(self) -> set[str]:
        """Issues that this run heard of before it took any: earlier settlements are replayed."""
        return self.issues.replayed

    @property
    def retry_entries(self) -> dict[str, Checkpointed]:
        """Checkpoint entries of unfinished issues with a past."""
        return {
            i.issue_id: replace(i.retry_entry, claimed_by="") for i in self._all() if i.retry_entry
        }

    @property
    def unclosed(self) -> dict[str, str]:
        """Done and unclosed issues, with the actors in whose names they are held."""
        return {i.issue_id: self._owner(i) for i in self._in(IssueState.CLOSING)}

    @property
    def quarantined(self) -> dict[str, str]:
        """Quarantined issues with their notes, which the tracker does not have yet."""
        quarantining = self._in(IssueState.QUARANTINING)
        return {i.issue_id: i.quarantine_note for i in quarantining if i.standing in OUT}

    @property
    def asked(self) -> list[str]:
        """Issues that wait for an answer, which the tracker does not know yet."""
        quarantining = self._in(IssueState.QUARANTINING)
        return [i.issue_id for i in quarantining if i.standing is Standing.ASKED]

    @property
    def to_land(self) -> dict[str, str]:
        """Issues that are done, and have not landed, with the notes for the tracker."""
        waiting = (*self._in(IssueState.LANDING), *self._in(IssueState.SHELVING))
        return {i.issue_id: shelve_note(i.landing, i.in_review) for i in waiting}

    @property
    def reopened(self) -> list[str]:
        """Issues that were quarantined and taken back since, by a person or after a spawn storm."""
        return [i.issue_id for i in self._all() if i.is_reopened]

    @property
    def handed_over(self) -> list[str]:
        """Issues that may be in progress in nobody's name."""
        return [i.issue_id for i in self._all() if i.handed_over]

    @property
    def owners(self) -> dict[str, tuple[int, int]]:
        """Pid and start time of the workers that were not ours, and had these issues to the end."""
        return {i.issue_id: i.owner for i in self._all() if i.owner}

    @property
    def leased(self) -> frozenset[IssueId]:
        """Issues whose attempts may be at work on other machines."""
        return frozenset(IssueId(i.issue_id) for i in self._all() if i.attempt and i.lease)

    @property
    def begun(self) -> dict[str, RunningAttempt]:
        """Attempts that are with a worker, and not at their end."""
        return {i.issue_id: i.attempt for i in self._all() if i.attempt}

    @property
    def unread(self) -> list[rec.Started | Finished]:
        """Attempts whose cost no record tells: of agents, under way or just ended."""
        begun = [i.attempt.started for i in self._all() if i.attempt and i.attempt.started.agent]
        ended = [i.end for i in self._all() if i.end and not i.end.receipt]
        known = self.issues.is_counted
        return [*begun, *(e for e in ended if not known(e.issue_id, e.request_id))]

    def inherited(self, issue_ids: Collection[str]) -> tuple[Inherited, ...]:
        """Return the records for the next run about these ``owners``, which live on, and these that
        are ``leased``."""
        return tuple(self._inherited(i) for i in self._all() if i.issue_id in issue_ids)

    def _inherited(self, issue: Issue) -> Inherited:
        lease = issue.lease
        assert issue.owner is not None or lease is not None, "somebody has it"
        pid, start_time = issue.owner or (0, 0)
        lost = next((e for e in reversed(issue.entries) if type(e.record) is rec.OwnerLost), None)
        orphaned = issue.orphaned
        return Inherited(
            issue.issue_id,
            self.run_id,
            issue.worker_id,
            pid,
            start_time,
            issue.title,
            issue.claimed.priority if issue.claimed else PRIORITY_DEFAULT,
            lost_at=lost.at if lost else 0.0,
            told_to_stop=bool(orphaned and orphaned.told_to_stop),
            several=bool(orphaned and orphaned.several) or issue.owner in self.issues.several,
            lease=lease,
        )

    def unsettled_runs(self, kept: Collection[str] = ()) -> list[CrashedRun]:
        """Return the runs to settle with the tracker, one per actor, this run's own last.

        ``kept``: issues that are to be left alone for now.
        """
        by_actor: dict[str, list[IssueId]] = {self.actor: []}
        for issue_id, actor in self.unclosed.items():
            by_actor.setdefault(actor, []).append(IssueId(issue_id))
        own = by_actor.pop(self.actor)
        unsettled_runs = [
            CrashedRun(actor, tuple(ids), closes_only=True) for actor, ids in by_actor.items()
        ]
        ends = {IssueId(i.issue_id): i.end for i in self._all() if i.end}
        last = CrashedRun(
            self.actor,
            tuple(own),
            _sorted(self.handed_over),
            tuple((IssueId(i), note) for i, note in self.quarantined.items()),
            _sorted(self.reopened),
            tuple((i, self._outcome(end)) for i, end in ends.items()),
            tuple(IssueId(i.issue_id) for i in self._all() if i.is_unstarted),
            _sorted(self.begun),
            _sorted(i for i, end in ends.items() if end.verdict == "hand_back"),
            _sorted(kept),
            _sorted(i.issue_id for i in self._all() if i.agent),
            tuple((IssueId(i), note) for i, note in self.to_land.items()),
            _sorted(i.issue_id for i in self._all() if i.shelved),
            asked=_sorted(self.asked),
            answered=_sorted(i.issue_id for i in self._all() if i.is_answered),
            awaiting=_sorted(i.issue_id for i in self._all() if i.landing and i.landing.awaits),
            in_review=_sorted(i.issue_id for i in self._all() if i.in_review),
        )
        return [*unsettled_runs, last]

    def returned_unstarted(self, request_ids: Collection[str]) -> None:
        """Move the issues of these attempts back to claimed: workers returned them unstarted."""
        self.issues.returned_unstarted(request_ids)

    def settled_elsewhere(self, issue_ids: Iterable[str]) -> None:
        """Reduce issues to their past that the tracker has settled, for this run or a later one.

        A person may have changed them since, and a write that is made twice would undo that.
        """
        for issue_id in issue_ids:
            self.issues.settled(issue_id)

    def settled_of_earlier_runs(self) -> set[str]:
        """Return the issues for which no earlier run has anything pending.
        The tracker told this run what became of them, or gave them to it."""
        return self.replayed | self.taken | self.own_pending()

    def own_pending(self) -> set[str]:
        """Return the issues for which this run has writes pending itself: it had them last."""
        own = (i for i, actor in self.unclosed.items() if actor == self.actor)
        return {*own, *self.quarantined, *self.handed_over, *self.reopened, *self.to_land}

    def take_over(self, before: RecoveryState) -> None:
        """Add what the run before knew of issues, unless our own checkpoint is whole.

        A run that died while it wrote its checkpoint must not lose what it was carrying over.
        """
        if not self.has_checkpoint:
            for retry_entry in before.checkpoint():
                if retry_entry.issue_id not in self.issues.known:
                    self.issues.apply(Entry(retry_entry, 0.0, 0.0))

    def checkpoint(self) -> list[Checkpointed]:
        """Return the entries that the next run carries over."""
        retry_entries = []
        for issue in self._all():
            if issue.state is IssueState.CLOSING:
                retry_entry = issue.retry_entry or Checkpointed(issue.issue_id)
                retry_entries.append(replace(retry_entry, claimed_by=self._owner(issue)))
            elif issue.retry_entry:
                # The next run finds out by itself who stands in a worktree.
                retry_entries.append(replace(issue.retry_entry, occupied=""))
        return retry_entries

    def _all(self) -> Iterable[Issue]:
        return self.issues.known.values()

    def _in(self, state: IssueState) -> Iterator[Issue]:
        return (issue for issue in self._all() if issue.state is state)

    def _owner(self, done: Issue) -> str:
        return (done.retry_entry.claimed_by if done.retry_entry else "") or self.actor

    def _outcome(self, end: Finished) -> Outcome:
        return replace(outcome_of(end), note=self.issues.known[end.issue_id].close_note)


def _sorted(issue_ids: Iterable[str]) -> tuple[IssueId, ...]:
    return tuple(IssueId(issue_id) for issue_id in sorted(issue_ids))


def recovery_state(entries: Iterable[Entry]) -> RecoveryState:
    """Fold one journal; what the run before it left is added by ``take_over``."""
    left = RecoveryState()
    for entry in entries:
        left.apply(entry)
    return left


def outcome_of(finished: rec.Finished) -> Outcome:
    """Return the outcome of an attempt, as far as its record tells."""
    try:
        kind = OutcomeKind(finished.outcome)
    except ValueError:
        kind = OutcomeKind.ERROR  # A kind of another version is no success.
    receipt = finished.receipt
    return Outcome(
        kind,
        finished.error,
        note=close_reason(receipt, finished.attempt) if receipt else finished.note,
        result=finished.result,
        result_file=finished.result_file,
    )


# --- earlier runs --------------------------------------------------------------------------------
# Earlier runs, told by their journals: which have writes pending, and what the next run is told.


def host_of(actor: str) -> str:
    """Return the machine in a run's actor; empty if the actor names none."""
    parts = actor.split("/")
    return parts[1] if len(parts) == 3 and parts[0] == "beads-workers" else ""


def left_over(
    run_ids: Sequence[str],
    is_settled: Callable[[str], bool],
    read: Callable[[str], RecoveryState | None],
) -> tuple[list[RecoveryState], RecoveryState]:
    """Return the runs with writes pending, oldest first, and the fold over all for the next run.

    ``run_ids``: oldest first; ``read`` returns None for a run that is not to be looked at. A run
    whose checkpoint is whole carries all that came before it. So older runs are read only if they
    are unsettled, and then those in between, which may have settled them.
    """
    known: list[RecoveryState] = []
    settled: set[str] = set()
    passed: list[str] = []
    complete = False
    for run_id in reversed(run_ids):
        if complete and is_settled(run_id):
            passed.append(run_id)
            continue
        left = read(run_id)
        if left is None:
            continue
        for later in filter(None, map(read, passed)):
            settled |= later.settled_of_earlier_runs()
        passed.clear()
        left.settled_elsewhere(settled)
        settled |= left.settled_of_earlier_runs()
        known.append(left)
        complete = complete or left.has_checkpoint
    last = RecoveryState()
    for left in reversed(known):
        left.take_over(last)
        last = left
    return [left for left in reversed(known) if not is_settled(left.run_id)], last


# --- checkpoint ----------------------------------------------------------------------------------
# The beginning of a further segment of a journal, so that older segments can be thrown away.
#
# Of issues it is the dump of ``core.records.issues``: their entries, and the records that still
# hold. Of workers, the tracker and the run it repeats the last record of each kind, kept while the
# run goes on. A fold of the segment alone knows what all segments tell.


Key = tuple[str, str]
"""Subject of a record: a later record with the same key makes it void."""

_OF_WORKER = ("worker_started", "worker_joined")


class Checkpoint:
    """Collects every entry but those of calls with ``apply``; ``entries`` is then the
    checkpoint."""

    def __init__(self) -> None:
        self._holding: dict[Key, Entry] = {}

    def apply(self, entry: Entry) -> None:
        """Take in the next entry; what it says of issues is for ``Issues``."""
        if type(entry.record) not in _KEPT:
            return
        match entry.record:
            case rec.WorkerStarted(worker_id):
                self._drop(worker_id, *_OF_WORKER, "worker_gone")
                self._hold("worker_started", worker_id, entry)
            case rec.WorkerJoined(worker_id):
                self._hold("worker_joined", worker_id, entry)
            case rec.WorkerLeft(worker_id):
                self._drop(worker_id, "worker_joined")
            case rec.WorkerExited(worker_id):
                self._drop(worker_id, *_OF_WORKER)
            case rec.WorkerGone(worker_id, reason):
                self._drop(worker_id, *_OF_WORKER)
                if reason:
                    self._hold("worker_gone", worker_id, entry)
            case _:
                self._about_run(entry)

    def _about_run(self, entry: Entry) -> None:
        match entry.record:
            case rec.RunStarted() | rec.RunChanged() | rec.Listed() | rec.Spent():
                self._hold(type(entry.record).__name__, "", entry)
            case rec.SourceTrouble():
                self._hold("trouble", "", entry)
            case rec.SourceRecovered():
                self._drop("", "trouble")
            case rec.DegradedBegan(what):
                self._hold("degraded_began", what, entry)
            case rec.DegradedEnded(what):
                self._drop(what, "degraded_began")
            case rec.AccountClosed(account, _, _, _, model):
                self._hold("account_closed", f"{account} {model}", entry)
            case rec.AccountOpened(account, _, model):
                self._drop(f"{account} {model}", "account_closed")
            case _:
                pass

    def _hold(self, what: str, whose: str, entry: Entry) -> None:
        # The record moves to the end: entries are repeated in the order of their times.
        self._holding.pop((what, whose), None)
        self._holding[what, whose] = entry

    def _drop(self, whose: str, *whats: str) -> None:
        for what in whats:
            self._holding.pop((what, whose), None)

    def entries(
        self, issues: Issues, resumed: Resumed, call: Entry | None, at: float, elapsed: float
    ) -> Iterator[Entry]:
        """Yield the checkpoint. ``issues``: of all that was applied here.
        ``call``: the tracker's process that runs just now; the times are now."""
        holding = dict(self._holding)
        known = issues.known.values()
        run = holding.pop((rec.RunStarted.__name__, ""), None)
        if run is not None:
            yield run
            # The present work of issues comes after what was known of them before.
            yield from _retry_entries((i for i in known if i.entries), run.at, run.elapsed)
        current = [entry for issue in known for entry in issue.entries]
        yield from sorted([*holding.values(), *current], key=attrgetter("elapsed"))
        yield from _retry_entries((i for i in known if not i.entries), at, elapsed)
        for issue in known:
            if issue.handed_over and not _tells(issue, rec.ClaimDelegated):
                yield Entry(rec.ClaimDelegated(issue.issue_id, ""), at, elapsed)
        for unsettled in _unsettled(issues):
            yield Entry(unsettled, at, elapsed)
        if call is not None:
            yield call
        yield Entry(resumed, at, elapsed)
        yield Entry(rec.CheckpointEnded(), at, elapsed)


_KEPT = frozenset(
    {
        rec.WorkerStarted,
        rec.WorkerJoined,
        rec.WorkerLeft,
        rec.WorkerExited,
        rec.WorkerGone,
        rec.RunStarted,
        rec.RunChanged,
        rec.Listed,
        rec.Spent,
        rec.SourceTrouble,
        rec.SourceRecovered,
        rec.AccountClosed,
        rec.AccountOpened,
        rec.DegradedBegan,
        rec.DegradedEnded,
    }
)


def _retry_entries(issues: Iterable[Issue], at: float, elapsed: float) -> Iterator[Entry]:
    return (Entry(issue.retry_entry, at, elapsed) for issue in issues if issue.retry_entry)


def _tells(issue: Issue, kind: type[rec.Record]) -> bool:
    return any(isinstance(entry.record, kind) for entry in issue.entries)


def _unsettled(issues: Issues) -> Iterator[Unsettled]:
    """Yield the facts about issues that no other record tells."""
    for issue in issues.known.values():
        pid, start_time = issue.owner or (0, 0)
        reopened, replayed = (
            issue.is_reopened and not issue.entries,
            issue.issue_id in issues.replayed,
        )
        if pid or reopened or replayed:
            yield Unsettled(issue.issue_id, "", pid, start_time, reopened, replayed)
    for issue_id in sorted(issues.replayed - issues.known.keys()):
        yield Unsettled(issue_id, heard=True)


def resumed(board: Board, segment: int) -> Resumed:
    """Return the counts of a run so far."""
    ledger = board.agents.ledger
    spent, found = replace(ledger.total), replace(ledger.found_earlier)
    return Resumed(
        segment, board.claims, **board.totals, closed=board.closings, spent=spent, found=found
    )


# --- spool replay --------------------------------------------------------------------------------
# Results that the workers of a crashed run spooled, made into what its journal lacks.
#
# Source: docs/SEMANTICS.md, "Result spool". Anybody who can write into the run's directory can have
# written them: they change nothing but what became of an attempt that its run had begun.


MEASURED_SECONDS_MAX = 86_400.0
"""Maximum time that a crashed run is taken to have lived on."""

SpooledResults = Mapping[str, Done | Failed]
"""By request id: the last answer to that attempt."""


def read_spool(chunks: Iterable[bytes], wanted: Collection[str]) -> SpooledResults:
    """Return the first answer to each ``wanted`` attempt, in whatever pieces the file is read."""
    found: dict[str, Done | Failed] = {}
    reader = LineReader(limits.WORD_BYTES_MAX)
    for chunk in chunks:
        for framed in reader.feed(chunk):
            answer = _word(framed.text) if isinstance(framed, Line) else None
            if answer is not None and answer.request_id in wanted:
                found.setdefault(answer.request_id, answer)
    return found


def replay(left: RecoveryState, words: SpooledResults) -> dict[str, Entry]:
    """Apply these answers to ``left``; return the entries that its journal lacks, by issue.

    A success is as good as one that was read in time. An attempt that was returned unstarted leaves
    its run nothing to give up. A failure that nobody heard is not here, and its task runs again.
    """
    ends: dict[str, Entry] = {}
    unstarted: set[str] = set()
    for issue_id, begun in left.begun.items():
        answer = words.get(begun.started.request_id)
        if answer is None or answer.issue_id != issue_id:
            continue
        if isinstance(answer, Done):
            ends[issue_id] = _end(left, begun, answer)
            left.apply(ends[issue_id])
        else:
            unstarted.add(answer.request_id)
    left.returned_unstarted(unstarted)
    return ends


def _word(line: bytes) -> Done | Failed | None:
    try:
        answer = parse(line)
    except ProtocolError:
        return None
    if isinstance(answer, Done):
        return answer
    return (
        answer if isinstance(answer, Failed) and answer.error_detail == RETURNED_UNSTARTED else None
    )


def _end(left: RecoveryState, begun: RunningAttempt, done: Done) -> Entry:
    started, milliseconds = begun.started, done.duration_ms or 0
    receipt = read_receipt(done.receipt)
    lands = left.lands and receipt is not None and bool(receipt.head)
    claimed = left.issues.known[started.issue_id].claimed
    finished = Finished(
        started.issue_id,
        started.worker_id,
        started.attempt,
        started.request_id,
        OutcomeKind.SUCCESS.value,
        "land" if lands else "finish",
        duration_ms=milliseconds,
        note=note_of(done.result),
        result=kept(done.result, of_function=bool(claimed and claimed.path)),
        result_file=done.result_file,
        receipt=receipt,
        agent=started.agent,
        awaits=lands and awaits_approval(claimed.labels if claimed else (), approves=left.approves),
    )
    # As its worker measured it; the worker may report any value.
    seconds = min(milliseconds / 1000, MEASURED_SECONDS_MAX)
    return Entry(finished, begun.at + seconds, begun.elapsed + seconds)
