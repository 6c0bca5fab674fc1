"""No worktree can be made: never charged, and neither without end nor for every issue in turn."""

from __future__ import annotations

from beads_workers.core import limits
from beads_workers.core.commands import Command
from beads_workers.core.events import ConnId, Received, ResumeAsked, Ticket
from beads_workers.core.journal import Checkpointed, DegradedBegan, DegradedEnded, Finished
from beads_workers.core.model import IssueId, OutcomeKind
from beads_workers.core.source import Action
from beads_workers.core.wire import CANNOT_PREPARE, Progress, Wait
from tests.core.playbook import Play, done, failed, ready, records, said, task_of

WHY = "no worktree: bw/{}/1.{}: a branch is in the way"


class Backlog:
    """One worker, and a tracker that gives what is not to be left out."""

    def __init__(self, *issue_ids: str, **settings: object) -> None:
        self.play = Play(**settings)  # type: ignore[arg-type]
        self.open = list(issue_ids)
        self.tries = self.seen = 0
        self.waits = False
        self.commands: list[Command] = []
        self.heard(self.play.join(1))

    def heard(self, commands: list[Command]) -> None:
        self.commands += commands

    def given(self, seconds: float = 700.0) -> str | None:
        """The next issue that the worker gets within this time; None for none."""
        end = self.play.now + seconds
        while (issue := task_of(self.commands[self.seen :], 1)) is None:
            new, self.seen = self.commands[self.seen :], len(self.commands)
            self.waits = self.waits or any(isinstance(each, Wait) for each in said(new, 1))
            if self.play.round_trip is not None:
                self._answer()
            elif self.play.now >= end:
                return None
            else:
                due = self.play.core.deadline() or end
                self.heard(self.play.wait(max(0.0, min(due, end) - self.play.now) + 0.001))
                if self.waits:
                    self.waits = False
                    self.heard(self.play.do(ready(1)))
        self.seen = len(self.commands)
        return issue

    def _answer(self) -> None:
        asked = self.play.round_trip
        assert asked is not None
        free = [i for i in self.open if i not in asked.skip]
        self.heard(self.play.answer(*free[: asked.take or 0], listed=free))

    def fails(self, issue: str, why: str = WHY, detail: str = CANNOT_PREPARE) -> Finished:
        """It gets no worktree."""
        self.tries += 1
        error, retry = why.format(issue, self.tries), OutcomeKind.RETRY
        done = self.play.do(failed(1, issue, error, outcome=retry, error_detail=detail))
        self.heard(done)
        self.heard(self.play.do(ready(1)))
        (finished,) = records(done, Finished)
        return finished


def test_the_same_reason_three_times_quarantines_it_uncharged_with_that_reason() -> None:
    here = Backlog("a")
    verdicts = []
    for _ in range(limits.UNPREPARED_MAX):
        assert here.given() == "a"
        verdicts.append(here.fails("a"))
    assert [each.verdict for each in verdicts] == ["requeue", "requeue", "quarantined"]
    assert [each.charged for each in verdicts] == [0, 0, 0]
    assert [each.unprepared for each in verdicts] == [1, 2, 0]
    assert here.play.round_trip is not None
    note = here.play.settlement()
    assert note.action is Action.QUARANTINE and "a branch is in the way" in note.note
    assert "0 attempts" not in note.note


def test_other_reasons_and_attempts_that_began_in_between_do_not_add_up() -> None:
    here = Backlog("a")
    for number, why in enumerate((WHY, WHY, "no worktree: no room", WHY, WHY)):
        assert here.given() == "a"
        assert here.fails("a", why).verdict == "requeue", number
    assert here.given() == "a"
    assert here.fails("a", "try later", detail="").verdict == "requeue"
    assert here.given() == "a"
    assert here.fails("a").verdict == "requeue"


def test_it_is_remembered_over_a_restart() -> None:
    last = WHY.format("a", 7)
    here = Backlog("a", checkpointed=[Checkpointed("a", error=last, unprepared=2)])
    assert here.given() == "a" and here.fails("a").verdict == "quarantined"


def struck() -> Backlog:
    """Three issues have had no worktree; a fourth has not been begun."""
    here = Backlog("a", "b", "c", "d")
    strike(here)
    return here


def strike(here: Backlog) -> None:
    """Each of the first three issues has had no worktree, once."""
    for each in ("a", "b", "c"):
        assert here.given(5.0) == each
        assert here.fails(each).verdict == "requeue"


def test_three_issues_pause_new_work_with_reason_and_remedy() -> None:
    here = struck()
    (began,) = records(here.commands, DegradedBegan)
    assert began.stops and "for 3 issues" in began.text and "a branch is in the way" in began.text
    assert "every 5 minutes" in began.todo
    assert here.given(limits.UNPREPARED_TRIAL_SECONDS - 1) is None


def test_one_issue_tries_every_five_minutes_another_one_each_time_and_nothing_counts() -> None:
    here = struck()
    tried = []
    for _ in range(8):
        began = here.play.now
        issue = here.given()
        assert issue is not None
        assert here.play.now - began < limits.UNPREPARED_TRIAL_SECONDS + 20
        if tried:
            assert here.play.now - began > limits.UNPREPARED_TRIAL_SECONDS - 1
        tried.append(issue)
        finished = here.fails(issue)
        assert (finished.verdict, finished.charged) == ("requeue", 0)
    assert set(tried[:3]) == {"a", "b", "d"}, "c had none when the pause began"
    assert set(tried) == {"a", "b", "c", "d"}
    assert len(records(here.commands, DegradedBegan)) == 1


def test_it_goes_on_by_itself_once_a_worktree_could_be_made() -> None:
    here = struck()
    issue = here.given()
    assert issue is not None
    here.open.remove(issue)
    ended = here.play.do(done(1, issue), ready(1))
    assert [each.what for each in records(ended, DegradedEnded)] == ["worktrees"]
    here.heard(ended)
    assert here.given(20.0) is not None


def test_that_agents_work_does_not_mean_that_their_work_can_be_committed() -> None:
    backlog = Backlog("bw-1", "bw-2", "bw-3", "bw-4")
    for _ in range(3):
        issue = backlog.given()
        assert issue is not None
        backlog.heard(backlog.play.do(Received(ConnId(1), Progress(IssueId(issue), tokens=400))))
        backlog.fails(issue, "its work cannot be committed: gpg failed to sign the data")
    assert backlog.play.core._parts.preparation.is_on
    trial = backlog.given()
    assert trial is not None
    backlog.heard(backlog.play.do(Received(ConnId(1), Progress(IssueId(trial), tokens=400))))
    assert backlog.play.core._parts.preparation.is_on


def test_a_person_may_say_that_it_is_mended() -> None:
    here = struck()
    here.heard(here.play.do(ResumeAsked(Ticket(1))))
    assert here.given(30.0) is not None


def test_a_run_until_empty_does_not_end_over_it() -> None:
    here = Backlog("a", "b", "c", until_empty=True)
    strike(here)
    here.given(limits.UNPREPARED_TRIAL_SECONDS - 1)
    assert here.play.ended is None and here.given() is not None


def test_temporary_failures_that_a_task_says_keep_their_own_rule() -> None:
    here = Backlog("a")
    for _ in range(2 * limits.UNPREPARED_MAX):
        assert here.given() == "a"
        assert here.fails("a", "exit status 75", detail="").verdict == "requeue"
