"""A group of settlements: look where needed, write, and see what became of what was refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from beads_workers.core.jobs import IssueId
from beads_workers.core.source import Action, DeadRun, Result, Settled, Settlement, SourceError
from beads_workers.sources.bd import writing
from beads_workers.sources.bd.answers import Row, is_safe_id
from beads_workers.sources.bd.tracker import Tracker
from beads_workers.sources.bd.verdicts import Write, decide, held_by, unseen


@dataclass(slots=True)
class Group:
    """Settlements of different issues, all for ``actor``. ``answers`` fills up as they end.

    ``shared``: somebody else may write at any moment, also right after a look.
    """

    tracker: Tracker
    actor: str
    settlements: Sequence[Settlement]
    shared: bool = False
    answers: dict[IssueId, Settled] = field(default_factory=dict)
    _trouble: SourceError | None = None

    def settle(
        self, known: Mapping[IssueId, bool], seen: Mapping[IssueId, Row] | None = None
    ) -> list[Settled]:
        """One answer each, in order; raises ``SourceError`` when nothing at all is known.

        ``known`` need no look: they are in progress in our name, for sure or as far as we know.
        ``seen``: a look that was just taken, at all of them.
        """
        writes = [
            unseen(s, self.actor, sure=known[s.issue_id])
            for s in self.settlements
            if s.issue_id in known
        ]
        writes += self._decide([s for s in self.settlements if s.issue_id not in known], seen)
        errors = writing.apply(self.tracker, self.actor, writes)
        self._applied(writes, errors)
        if errors:
            self._again([w.settlement for w in writes if w.settlement.issue_id in errors], errors)
        answers = [self.answers[s.issue_id] for s in self.settlements]
        if self._trouble and all(a.result is Result.FAILED for a in answers):
            raise self._trouble
        return answers

    def _again(self, settlements: Sequence[Settlement], errors: writing.Errors) -> None:
        """A group is refused for the sake of one, or one was lost: see what holds, then singly."""
        # What was only refused for what is open below it is ours still: its work is done.
        writes = [
            replace(write, sure=not self.shared and held_by(write.assignee, self.actor))
            for write in self._decide(settlements, None, errors)
        ]
        errors = writing.apply(self.tracker, self.actor, writes, alone=True)
        self._applied(writes, errors)
        for write in writes:
            error = errors.get(write.settlement.issue_id)
            if error is not None:
                self._answer(Settled(write.settlement, Result.FAILED, error))

    def _decide(
        self,
        settlements: Sequence[Settlement],
        seen: Mapping[IssueId, Row] | None,
        errors: Mapping[IssueId, str] | None = None,
    ) -> list[Write]:
        if settlements and seen is None:
            try:
                seen = self.tracker.look([s.issue_id for s in settlements])
            except SourceError as trouble:
                self._trouble = trouble
                for one in settlements:
                    error = (errors or {}).get(one.issue_id, str(trouble))
                    self._answer(Settled(one, Result.FAILED, error))
                return []
        writes = []
        for one in settlements:
            verdict = decide(one, (seen or {}).get(one.issue_id), self.actor)
            if isinstance(verdict, Write):
                writes.append(verdict)
            else:
                self._answer(verdict)
        return writes

    def _applied(self, writes: Iterable[Write], errors: writing.Errors) -> None:
        for write in writes:
            if write.settlement.issue_id not in errors:
                self._answer(Settled(write.settlement, Result.APPLIED))

    def _answer(self, settled: Settled) -> None:
        self.answers[settled.settlement.issue_id] = settled


def rounds(settlements: Sequence[Settlement]) -> list[list[Settlement]]:
    """Split so that each round names an issue once; later words about an issue come later."""
    found: list[list[Settlement]] = []
    for settlement in settlements:
        for group in found:
            if all(other.issue_id != settlement.issue_id for other in group):
                group.append(settlement)
                break
        else:
            found.append([settlement])
    return found


def owed(dead: DeadRun, held: Sequence[IssueId]) -> list[Settlement]:
    """What the tracker is owed for a dead run, each issue once."""
    closes = dict.fromkeys(i for i in dead.done_not_closed if is_safe_id(i))
    back = dict.fromkeys([*held, *(i for i in dead.handed_over if is_safe_id(i))])
    reopened = [i for i in dead.reopened if is_safe_id(i)]
    return [
        *dead.closes(closes),
        *(dead.back(i) for i in back if i not in closes),
        *(Settlement(Action.REOPEN, i) for i in reopened if i not in closes and i not in back),
    ]
