"""What a dead run left, told by its journal alone: a fold over its records."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from beads_workers.core import records as rec
from beads_workers.core.checkpoint_records import Owing, Resumed
from beads_workers.core.jobs import IssueId
from beads_workers.core.journal_lines import Entry
from beads_workers.core.outcomes import Outcome, OutcomeKind
from beads_workers.core.policy import set_aside_note
from beads_workers.core.records import Carried
from beads_workers.core.source import Action, DeadRun, Result
from beads_workers.core.values import value


@value
class Begun:
    """An attempt with its record's two times, as in ``Entry``."""

    started: rec.Started
    at: float
    elapsed: float


@dataclass(slots=True)
class Remains:
    """``pages``: unfinished issues with a past. ``last_call``: pid and start time of a tracker
    process whose end was not recorded. ``whole``: the checkpoint was complete, so that older
    runs add nothing to ``pages``.
    """

    run_id: str = ""
    actor: str = ""
    socket: str = ""
    pages: dict[str, Carried] = field(default_factory=dict)
    done_not_closed: dict[str, str] = field(default_factory=dict)
    """Issue id -> the actor in whose name it is held."""
    handed_over: set[str] = field(default_factory=set)
    set_aside: dict[str, str] = field(default_factory=dict)
    """Issue id -> the note of its last failure, until the tracker has it."""
    reopened: set[str] = field(default_factory=set)
    """Set aside once, and taken back since, by a person or after a spawn storm: no longer blocked
    as soon as the tracker has heard of it."""
    holders: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Issue id -> pid and start time of a worker that was not ours, and had it to the end."""
    last_call: tuple[int, int] | None = None
    heard: set[str] = field(default_factory=set)
    """Issues of which this run heard before it took any: what earlier runs owed for them is paid.
    """
    whole: bool = False
    ended: rec.RunEnded | None = None
    begun: dict[str, Begun] = field(default_factory=dict)
    """With a worker, and not at their end, by issue id."""
    untold: dict[str, rec.Finished] = field(default_factory=dict)
    """The ends of the last attempts of which the source was not told."""
    claims: dict[str, rec.Claimed] = field(default_factory=dict)
    """What is in the run's hands, and not at its end."""
    _has_taken: bool = False
    _foreign: dict[str, tuple[int, int]] = field(default_factory=dict)
    _traces: dict[str, str] = field(default_factory=dict)
    """Issue id -> the context of an attempt that runs, and began a trace."""

    def apply(self, entry: Entry) -> None:
        """Take in the next entry of this run's journal."""
        _apply(self, entry)

    def debts(self) -> list[DeadRun]:
        """What is to be settled with the tracker, one per actor, this run's own last."""
        by_actor: dict[str, list[IssueId]] = {self.actor: []}
        for issue_id, actor in self.done_not_closed.items():
            by_actor.setdefault(actor, []).append(IssueId(issue_id))
        own = by_actor.pop(self.actor)
        debts = [DeadRun(actor, tuple(ids)) for actor, ids in by_actor.items()]
        handed_over = tuple(IssueId(i) for i in sorted(self.handed_over))
        set_aside = tuple((IssueId(i), note) for i, note in self.set_aside.items())
        reopened = tuple(IssueId(i) for i in sorted(self.reopened))
        outcomes = tuple((IssueId(i), outcome_of(end)) for i, end in self.untold.items())
        unbegun = tuple(IssueId(i) for i in self.claims if i not in self.begun)
        last = DeadRun(self.actor, tuple(own), handed_over, set_aside, reopened, outcomes, unbegun)
        begun = tuple(IssueId(i) for i in sorted(self.begun))
        back = (i for i, end in self.untold.items() if end.verdict == "hand_back")
        handed_back = tuple(IssueId(i) for i in sorted(back))
        return [*debts, replace(last, begun=begun, handed_back=handed_back)]

    def never_began(self, request_ids: Collection[str]) -> None:
        """Workers have left word: of these attempts they had not begun any."""
        sent = self.begun.items()
        self.begun = {i: each for i, each in sent if each.started.request_id not in request_ids}

    def is_paid(self, issue_ids: Iterable[str]) -> None:
        """The tracker has said what became of these, to this run or a later one: nothing is owed.

        A person may have changed them since, and a debt that is paid twice would undo that.
        """
        for issue_id in issue_ids:
            self.done_not_closed.pop(issue_id, None)
            self.set_aside.pop(issue_id, None)
            self.handed_over.discard(issue_id)
            self.reopened.discard(issue_id)
            self.begun.pop(issue_id, None)
            self.untold.pop(issue_id, None)

    def own_debts(self) -> set[str]:
        """Issues for which this run owes something itself: it had them last, so no earlier run
        owes anything for them."""
        own = (i for i, actor in self.done_not_closed.items() if actor == self.actor)
        return {*own, *self.set_aside, *self.handed_over, *self.reopened}

    def take_over(self, before: Remains) -> None:
        """Add what the run before knew of issues, unless our own checkpoint says it all.

        A run that died while it wrote its checkpoint must not lose what it was carrying over.
        """
        if not self.whole:
            self.pages = {**before.pages, **self.pages}
            self.done_not_closed = {**before.done_not_closed, **self.done_not_closed}

    def checkpoint(self) -> list[Carried]:
        """What the next run carries over."""
        pages = dict(self.pages)
        for issue_id, actor in self.done_not_closed.items():
            page = pages.get(issue_id, Carried(issue_id))
            pages[issue_id] = replace(page, held_by=actor)
        return list(pages.values())


def remains(entries: Iterable[Entry]) -> Remains:
    """Fold one journal; what the run before it left is added by ``take_over``."""
    left = Remains()
    for entry in entries:
        left.apply(entry)
    return left


def _apply(left: Remains, entry: Entry) -> None:
    match entry.record:
        case rec.RunStarted(run_id=run_id, actor=actor, socket=socket):
            left.run_id, left.actor, left.socket = run_id, actor, socket
        case rec.Carried() as page:
            left.pages[page.issue_id] = replace(page, held_by="")
            if page.held_by:
                left.done_not_closed[page.issue_id] = page.held_by
        case rec.CheckpointEnded():
            left.whole = True
        case rec.Claimed(issue_id=issue_id) as claimed:
            left._has_taken = True
            left.claims[issue_id] = claimed
            left.begun.pop(issue_id, None)
            left.untold.pop(issue_id, None)
            left.reopened.discard(issue_id)
            known = left.pages.get(issue_id)
            if known is not None and known.set_aside:
                del left.pages[issue_id]
        case rec.WorkerJoined(worker_id=worker_id, own=True):
            left._foreign.pop(worker_id, None)
        case rec.WorkerJoined(worker_id=worker_id, pid=pid, start_time=start_time):
            left._foreign[worker_id] = (pid, start_time)
        case rec.Started(issue_id=issue_id, worker_id=worker_id) as started:
            left.begun[issue_id] = Begun(started, entry.at, entry.elapsed)
            if worker_id in left._foreign:
                left.holders[issue_id] = left._foreign[worker_id]
            if started.traceparent and not started.trace_parent:
                left._traces[issue_id] = started.traceparent
        case rec.HandingOver(issue_id=issue_id):
            left.handed_over.add(issue_id)
        case rec.Finished() as finished:
            _finished(left, finished, entry.at)
        case rec.SettledRecord() as settled:
            _settled(left, settled)
        case rec.Forgiven(issue_id, charged):
            _forgiven(left, issue_id, charged)
        case rec.RetryAsked(issue_id=issue_id):
            _forgiven(left, issue_id, 0)
            left.pages.pop(issue_id, None)
        case rec.CallStarted(pid=pid, start_time=start_time):
            left.last_call = (pid, start_time)
        case rec.CallEnded():
            left.last_call = None
        case rec.RunEnded() as ended:
            left.ended = ended
        case Resumed(claims=claims):
            left._has_taken = left._has_taken or claims > 0
        case Owing() as owing:
            _owing(left, owing)
        case _:
            pass


def _finished(left: Remains, finished: rec.Finished, at: float) -> None:
    issue_id = finished.issue_id
    left.holders.pop(issue_id, None)
    left.begun.pop(issue_id, None)
    left.untold[issue_id] = finished
    before = left.pages.get(issue_id)
    described = left.claims.pop(issue_id, None) or before
    trace = left._traces.pop(issue_id, before.traceparent if before else "")
    if finished.verdict == "finish":
        left.pages.pop(issue_id, None)
        left.done_not_closed[issue_id] = left.actor
        return
    set_aside = finished.verdict == "set_aside"
    left.reopened.discard(issue_id)
    if set_aside:
        left.set_aside[issue_id] = set_aside_note(finished.charged, finished.error)
    if not (set_aside or finished.charged or finished.free_in_a_row or finished.delay_seconds):
        left.pages.pop(issue_id, None)  # Given back without fault: nothing to remember.
        return
    left.pages[issue_id] = Carried(
        issue_id,
        title=described.title if described else "",
        charged=finished.charged,
        free_in_a_row=finished.free_in_a_row,
        not_before=at + finished.delay_seconds if finished.delay_seconds else 0.0,
        set_aside=set_aside,
        error=finished.error,
        delay_seconds=finished.delay_seconds,
        path=described.path if described else "",
        arguments=described.arguments if described else "",
        enqueued_at=described.enqueued_at if described else 0.0,
        outcome=finished.outcome,
        traceparent=trace,
    )


def outcome_of(finished: rec.Finished) -> Outcome:
    """How an attempt went, as far as its record says."""
    try:
        kind = OutcomeKind(finished.outcome)
    except ValueError:
        kind = OutcomeKind.ERROR  # Of another version: whatever it is, it is no success.
    return Outcome(
        kind,
        finished.error,
        note=finished.note,
        result=finished.result,
        result_file=finished.result_file,
    )


def _owing(left: Remains, owing: Owing) -> None:
    if owing.note:
        left.set_aside[owing.issue_id] = owing.note
    if owing.pid:
        left.holders[owing.issue_id] = (owing.pid, owing.start_time)
    if owing.reopened:
        left.reopened.add(owing.issue_id)
    if owing.heard:
        left.heard.add(owing.issue_id)


def _forgiven(left: Remains, issue_id: str, charged: int) -> None:
    left.set_aside.pop(issue_id, None)
    page = left.pages.pop(issue_id, None)
    if page is not None and page.set_aside:
        left.reopened.add(issue_id)
    if page is not None and (charged or page.free_in_a_row):
        left.pages[issue_id] = replace(page, charged=charged, set_aside=False, not_before=0.0)


# Four records of each job come through here: the value of a member takes longer than a comparison.
_HAND_OVER, _CLOSE, _APPLIED = Action.HAND_OVER.value, Action.CLOSE.value, Result.APPLIED.value
_NO_MORE = (Result.FOUND_CLOSED.value, Result.NOT_OURS.value)


def _settled(left: Remains, settled: rec.SettledRecord) -> None:
    issue_id = settled.issue_id
    left.untold.pop(issue_id, None)
    left.begun.pop(issue_id, None)
    if settled.action != _HAND_OVER or settled.result in _NO_MORE:
        left.claims.pop(issue_id, None)
    if not left._has_taken:
        left.heard.add(issue_id)
    closed = settled.action == _CLOSE and settled.result == _APPLIED
    if settled.result in _NO_MORE or closed:
        page = left.pages.get(issue_id)
        kept = settled.action == Action.RELEASE.value and settled.result == Result.NOT_OURS.value
        if not (kept and page is not None and page.set_aside):
            # What an earlier run was to give back was set aside by a later one: that stays known.
            left.pages.pop(issue_id, None)
        left.is_paid((issue_id,))
    elif settled.action == Action.REOPEN.value and settled.result != Result.FAILED.value:
        left.reopened.discard(issue_id)
        left.handed_over.discard(issue_id)
    elif settled.action == Action.RELEASE.value or settled.action == Action.SET_ASIDE.value:
        left.handed_over.discard(issue_id)
        if settled.result != Result.FAILED.value:
            left.set_aside.pop(issue_id, None)
