"""What a dead run left, told by its journal alone: a reader of ``core.issues``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from beads_workers.core import records as rec
from beads_workers.core.issues import Attempt, Issue, Issues, Standing
from beads_workers.core.jobs import IssueId
from beads_workers.core.journal_lines import Entry
from beads_workers.core.outcomes import Outcome, OutcomeKind
from beads_workers.core.policy import set_aside_note
from beads_workers.core.records import Carried
from beads_workers.core.source import DeadRun
from beads_workers.core.states import IssueState


@dataclass(slots=True)
class Remains:
    """``last_call``: pid and start time of a tracker process whose end was not recorded.
    ``whole``: the checkpoint was complete, so that older runs add nothing to ``pages``.
    """

    run_id: str = ""
    actor: str = ""
    socket: str = ""
    issues: Issues = field(default_factory=Issues)
    last_call: tuple[int, int] | None = None
    whole: bool = False
    ended: rec.RunEnded | None = None

    def apply(self, entry: Entry) -> None:
        """Take in the next entry of this run's journal."""
        self.issues.apply(entry)
        match entry.record:
            case rec.RunStarted(run_id=run_id, actor=actor, socket=socket):
                self.run_id, self.actor, self.socket = run_id, actor, socket
            case rec.CheckpointEnded():
                self.whole = True
            case rec.CallStarted(pid=pid, start_time=start_time):
                self.last_call = (pid, start_time)
            case rec.CallEnded():
                self.last_call = None
            case rec.RunEnded() as ended:
                self.ended = ended
            case _:
                pass

    @property
    def heard(self) -> set[str]:
        """Issues of which this run heard before it took any: what earlier runs owed is paid."""
        return self.issues.heard

    @property
    def pages(self) -> dict[str, Carried]:
        """Unfinished issues with a past."""
        return {i.issue_id: replace(i.page, held_by="") for i in self._all() if i.page}

    @property
    def done_not_closed(self) -> dict[str, str]:
        """The actors in whose names they are held."""
        return {i.issue_id: self._holder(i) for i in self._in(IssueState.CLOSING)}

    @property
    def set_aside(self) -> dict[str, str]:
        """The notes of their last failures, which the tracker does not have yet."""
        shelving = self._in(IssueState.SHELVING)
        return {
            i.issue_id: set_aside_note(i.charged, i.error)
            for i in shelving
            if i.standing is Standing.SET_ASIDE
        }

    @property
    def reopened(self) -> list[str]:
        """Set aside once, and taken back since, by a person or after a spawn storm."""
        return [i.issue_id for i in self._all() if i.is_reopened]

    @property
    def handed_over(self) -> list[str]:
        """What may be in progress in nobody's name."""
        return [i.issue_id for i in self._all() if i.handed_over]

    @property
    def holders(self) -> dict[str, tuple[int, int]]:
        """Pid and start time of the workers that were not ours, and had these to the end."""
        return {i.issue_id: i.holder for i in self._all() if i.holder}

    @property
    def begun(self) -> dict[str, Attempt]:
        """With a worker, and not at their end."""
        return {i.issue_id: i.attempt for i in self._all() if i.attempt}

    def debts(self) -> list[DeadRun]:
        """What is to be settled with the tracker, one per actor, this run's own last."""
        by_actor: dict[str, list[IssueId]] = {self.actor: []}
        for issue_id, actor in self.done_not_closed.items():
            by_actor.setdefault(actor, []).append(IssueId(issue_id))
        own = by_actor.pop(self.actor)
        debts = [DeadRun(actor, tuple(ids)) for actor, ids in by_actor.items()]
        untold = {IssueId(i.issue_id): i.end for i in self._all() if i.end}
        last = DeadRun(
            self.actor,
            tuple(own),
            _sorted(self.handed_over),
            tuple((IssueId(i), note) for i, note in self.set_aside.items()),
            _sorted(self.reopened),
            tuple((i, outcome_of(end)) for i, end in untold.items()),
            tuple(IssueId(i.issue_id) for i in self._all() if i.is_unbegun),
            _sorted(self.begun),
            _sorted(i for i, end in untold.items() if end.verdict == "hand_back"),
        )
        return [*debts, last]

    def never_began(self, request_ids: Collection[str]) -> None:
        """Workers have left word: of these attempts they had not begun any."""
        self.issues.not_begun(request_ids)

    def is_paid(self, issue_ids: Iterable[str]) -> None:
        """The tracker has said what became of these, to this run or a later one: nothing is owed.

        A person may have changed them since, and a debt that is paid twice would undo that.
        """
        for issue_id in issue_ids:
            self.issues.paid(issue_id)

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
            for page in before.checkpoint():
                if page.issue_id not in self.issues.known:
                    self.issues.apply(Entry(page, 0.0, 0.0))

    def checkpoint(self) -> list[Carried]:
        """What the next run carries over."""
        pages = []
        for issue in self._all():
            if issue.state is IssueState.CLOSING:
                page = issue.page or Carried(issue.issue_id)
                pages.append(replace(page, held_by=self._holder(issue)))
            elif issue.page:
                pages.append(issue.page)
        return pages

    def _all(self) -> Iterable[Issue]:
        return self.issues.known.values()

    def _in(self, state: IssueState) -> Iterator[Issue]:
        return (issue for issue in self._all() if issue.state is state)

    def _holder(self, done: Issue) -> str:
        return done.page.held_by if done.page else self.actor


def _sorted(issue_ids: Iterable[str]) -> tuple[IssueId, ...]:
    return tuple(IssueId(issue_id) for issue_id in sorted(issue_ids))


def remains(entries: Iterable[Entry]) -> Remains:
    """Fold one journal; what the run before it left is added by ``take_over``."""
    left = Remains()
    for entry in entries:
        left.apply(entry)
    return left


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
