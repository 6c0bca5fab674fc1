"""The proof that nothing waits for a person for ever, and that nothing lands that was closed.

    python -m tests.proof.waits [--cases N] [--json] [--progress]

Whatever waits for a person (``KINDS``) meets whatever a person does to its issue (``ACTS``), beside
a fleet, before a start, or while a killed fleet is not started again, on real trackers. What the
act ends is said to wait no longer, cannot be approved, and its landing is withdrawn. What goes on
waiting ends by its own command.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from beads_workers.core.base.model import Filters, IssueId
from beads_workers.core.base.ready import PARENT_CHILD
from beads_workers.core.base.source import EditableSource, IssueEdit, Source
from beads_workers.core.records import landing as ld
from beads_workers.core.records.issues import Standing
from beads_workers.core.records.journal import Checkpointed
from beads_workers.core.requests.answer import AnsweredInTracker
from beads_workers.core.requests.approve import ApprovedByPerson
from beads_workers.core.requests.release import ReleaseAskedFor
from beads_workers.core.requests.retry import RetryAskedFor
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Answer, Command
from beads_workers.core.views.recovery import recovery_state
from beads_workers.runtime.journal import Journal
from beads_workers.runtime.tracker_thread import TrackerThread
from tests.contracts.trackers import NOBODY, TRACKERS, Tracker
from tests.core import playbook
from tests.core.playbook import EPOCH, Play
from tests.core.test_landings import BASE, HEAD, new_play, orders
from tests.proof.case_runner import run_cases

KINDS = {
    "question": Standing.ASKED,
    "approval": Standing.AWAITS_APPROVAL,
    "quarantine": Standing.QUARANTINED,
    "parked branch": Standing.UNCLOSED,
    "hold": Standing.ON_HOLD,
}
ACTS = ("closes", "deletes", "defers", "opens", "begins", "takes", "moves")
SITUATIONS = ("fleet", "start", "kill")
REAL = ("sqlite", "bd-1.3.0", "bd-0.44.0")
T = ev.Ticket(1)
LATER = 31.0
"""Seconds after which issues that wait are looked at again."""
TRIPS_MAX = 6


@dataclass(frozen=True, slots=True)
class Case:
    """What waits, what a person does to it, when, and where."""

    tracker: str
    kind: str
    act: str
    situation: str

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.tracker}: {self.kind}, a person {self.act} it, {self.situation}"

    @property
    def stays(self) -> bool:
        """Whether it waits all the same: below another parent, and a hold of an open issue."""
        return self.act == "moves" or (self.kind, self.act) == ("hold", "opens")


CASES = tuple(Case(*each) for each in product(REAL, KINDS, ACTS, SITUATIONS))


class Waits:
    """One case: a tracker with one issue that waits, and one fleet after another."""

    def __init__(self, case: Case, folder: Path) -> None:
        self._case = case
        self._tracker: Tracker = TRACKERS[case.tracker](folder)
        self._issue = self._tracker.create("waits")
        self._other = self._tracker.create("a parent") if case.act == "moves" else IssueId("")
        if case.kind != "hold":
            self._tracker.put(self._issue, "blocked", NOBODY)
        self._journal = Journal(folder / "journal.jsonl")
        self._sources: list[Source] = []
        self._ordered: list[ld.Order] = []
        self._play: Play

    def broken(self) -> Iterator[str]:
        """Yield what does not hold."""
        if self._case.situation == "start":
            self._act()
            self._start([self._past()])
        else:
            self._start([self._past()])
            if self._standing() is not KINDS[self._case.kind]:
                yield f"before: {self._standing()}"
            self._ordered.clear()
            if self._case.situation == "kill":
                left = recovery_state(self._play.entries).checkpoint()
                self._act()
                self._start([replace(each, not_before=0.0) for each in left])
            else:
                self._act()
                self._turn(self._play.wait(LATER))
        held = self._case.kind == "hold" and self._case.situation == "kill"
        yield from self._stays() if self._case.stays and not held else self._is_over()

    def close(self) -> None:
        """End what it has opened."""
        for source in self._sources:
            source.close()
        self._journal.close()

    def _past(self) -> Checkpointed:
        issue_id = str(self._issue)
        awaits = self._case.kind == "approval"
        add = ld.Add(issue_id, 1, "run-0", HEAD, BASE, "bw/a/1", awaits=awaits)
        found = {
            "question": Checkpointed(
                issue_id, quarantined=True, question="A or B?", asked_at=EPOCH - 100
            ),
            "quarantine": Checkpointed(issue_id, charged=3, quarantined=True, error="boom"),
            "hold": Checkpointed(issue_id, charged=1, not_before=EPOCH + 900, delay_seconds=900.0),
        }
        return found.get(self._case.kind, Checkpointed(issue_id, landing=add))

    def _source(self, actor: str) -> Source:
        self._sources.append(self._tracker.source(actor, Filters(), 200))
        return self._sources[-1]

    def _start(self, known: list[Checkpointed]) -> None:
        source = self._source(f"beads-workers/host/run-{len(self._sources)}")
        self._thread = TrackerThread(source, self._journal, ev.RecoveryEnded, lambda _: None)
        self._play = new_play(checkpointed=known, recovering=True)
        self._turn(self._play.do(ev.RecoveryEnded()))
        if self._case.kind == "hold" and known[0].not_before:
            self._turn(self._play.do(ReleaseAskedFor(T, (self._issue,))))
            self._turn(self._play.wait(LATER))

    def _turn(self, commands: list[Command]) -> list[Command]:
        """Have the real tracker answer whatever is asked of it, until nothing is."""
        for _ in range(TRIPS_MAX):
            if (asked := self._play.round_trip) is None:
                break
            commands += self._play.do(self._thread.carry_out(asked))
        self._ordered += orders(commands)
        return commands

    def _act(self) -> None:
        issue, held = self._issue, self._case.kind == "hold"
        put = self._tracker.put
        match self._case.act:
            case "closes":
                put(issue, "closed", NOBODY)
            case "defers":
                put(issue, "deferred", NOBODY)
            case "opens":
                put(issue, "open", NOBODY)
            case "begins":
                put(issue, "in_progress", "ann")
            case "takes":
                put(issue, "open" if held else "blocked", "ann")
            case "deletes":
                self._editable().delete(issue, "ann")
            case _:
                below = IssueEdit(depends_on=((self._other, PARENT_CHILD),))
                self._editable().edit(issue, below, "ann")

    def _editable(self) -> EditableSource:
        source = self._source("ann")
        assert isinstance(source, EditableSource)
        return source

    def _standing(self) -> Standing | None:
        issue = self._play.core.issues.known.get(self._issue)
        return issue.standing if issue is not None else None

    def _said(self, event: ev.Event) -> str:
        answers = playbook.of(self._turn(self._play.do(event)), Answer)
        return answers[0].error if answers else "no answer"

    def _is_over(self) -> Iterator[str]:
        if self._standing() in KINDS.values():
            yield f"it waits still: {self._standing()}"
        if any(isinstance(each, ld.Add) and not each.awaits for each in self._ordered):
            yield f"it lands: {self._ordered}"
        told = self._case.kind in ("approval", "parked branch")
        if told and ld.CancelLanding(str(self._issue)) not in self._ordered:
            yield "its landing is not withdrawn"
        if not self._said(ApprovedByPerson(T, ((self._issue, HEAD),))):
            yield "it was approved"

    def _stays(self) -> Iterator[str]:
        if self._standing() is not KINDS[self._case.kind]:
            yield f"it waits no longer: {self._standing()}"
        events: dict[str, ev.Event] = {
            "question": AnsweredInTracker(T, (self._issue,)),
            "approval": ApprovedByPerson(T, ((self._issue, HEAD),)),
        }
        if self._case.kind != "parked branch":
            said = self._said(events.get(self._case.kind, RetryAskedFor(T, (self._issue,))))
            if said:
                yield f"no command ends it: {said}"
        if self._case.kind in ("approval", "parked branch"):
            self._turn(self._play.wait(LATER))
        elif self._standing() in KINDS.values():
            yield f"its command did not end it: {self._standing()}"
        if ld.CancelLanding(str(self._issue)) in self._ordered:
            yield f"its landing is withdrawn: {self._ordered}"


def run(case: Case, folder: Path) -> list[str]:
    """What is wrong with it; nothing for a case that held."""
    waits = Waits(case, folder)
    try:
        return list(waits.broken())
    finally:
        waits.close()


def main(arguments: list[str]) -> int:
    """0 when all held."""
    return run_cases("waits", __doc__, CASES, run, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
