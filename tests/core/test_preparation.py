"""No worktree can be made: never charged, and neither without end nor for every issue in turn."""

from __future__ import annotations

from beads_workers.core.base import limits
from beads_workers.core.base.model import IssueId, OutcomeKind
from beads_workers.core.base.source import Action
from beads_workers.core.base.wire import CANNOT_PREPARE, Progress, Wait
from beads_workers.core.records.journal import Checkpointed, DegradedBegan, DegradedEnded, Finished
from beads_workers.core.schedule.commands import Command
from beads_workers.core.schedule.events import ConnId, Received, ResumeAsked, Ticket
from tests.core.playbook import Play, done, failed, ready, records, sent_messages, task_of

WHY = "no worktree: bw/{}/1.{}: a branch is in the way"


class Backlog:
    """One worker, and a tracker that gives what is not to be left out."""

    def __init__(self, *issue_ids: str, **settings: object) -> None:
        self.play = Play(**settings)  # type: ignore[arg-type]
        self.open = list(issue_ids)
        self.tries = self.seen = 0
        self.waits = False
        self.commands: list[Command] = []
        self.take(self.play.join(1))

    def take(self, commands: list[Command]) -> None:
        self.commands += commands

    def next_issue(self, seconds: float = 700.0) -> str | None:
        """The next issue that the worker gets within this time; None for none."""
        end = self.play.now + seconds
        while (issue := task_of(self.commands[self.seen :], 1)) is None:
            new, self.seen = self.commands[self.seen :], len(self.commands)
            self.waits = self.waits or any(isinstance(each, Wait) for each in sent_messages(new, 1))
            if self.play.round_trip is not None:
                self._answer()
            elif self.play.now >= end:
                return None
            else:
                due = self.play.core.deadline() or end
                self.take(self.play.wait(max(0.0, min(due, end) - self.play.now) + 0.001))
                if self.waits:
                    self.waits = False
                    self.take(self.play.do(ready(1)))
        self.seen = len(self.commands)
        return issue

    def _answer(self) -> None:
        asked = self.play.round_trip
        assert asked is not None
        free = [i for i in self.open if i not in asked.skip]
        self.take(self.play.answer(*free[: asked.take or 0], listed=free))

    def fails(self, issue: str, why: str = WHY, detail: str = CANNOT_PREPARE) -> Finished:
        """It gets no worktree."""
        self.tries += 1
        error, retry = why.format(issue, self.tries), OutcomeKind.RETRY
        done = self.play.do(failed(1, issue, error, outcome=retry, error_detail=detail))
        self.take(done)
        self.take(self.play.do(ready(1)))
        (finished,) = records(done, Finished)
        return finished


def test_the_same_reason_three_times_quarantines_it_uncharged_with_that_reason() -> None:
    backlog = Backlog("a")
    verdicts = []
    for _ in range(limits.UNPREPARED_MAX):
        assert backlog.next_issue() == "a"
        verdicts.append(backlog.fails("a"))
    assert [each.verdict for each in verdicts] == ["requeue", "requeue", "quarantined"]
    assert [each.charged for each in verdicts] == [0, 0, 0]
    assert [each.unprepared for each in verdicts] == [1, 2, 0]
    assert backlog.play.round_trip is not None
    note = backlog.play.settlement()
    assert note.action is Action.QUARANTINE and "a branch is in the way" in note.note
    assert "0 attempts" not in note.note


def test_other_reasons_and_attempts_that_began_in_between_do_not_add_up() -> None:
    backlog = Backlog("a")
    for number, why in enumerate((WHY, WHY, "no worktree: no room", WHY, WHY)):
        assert backlog.next_issue() == "a"
        assert backlog.fails("a", why).verdict == "requeue", number
    assert backlog.next_issue() == "a"
    assert backlog.fails("a", "try later", detail="").verdict == "requeue"
    assert backlog.next_issue() == "a"
    assert backlog.fails("a").verdict == "requeue"


def test_it_is_remembered_over_a_restart() -> None:
    last = WHY.format("a", 7)
    backlog = Backlog("a", checkpointed=[Checkpointed("a", error=last, unprepared=2)])
    assert backlog.next_issue() == "a" and backlog.fails("a").verdict == "quarantined"


def struck() -> Backlog:
    """Three issues have had no worktree; a fourth has not been begun."""
    backlog = Backlog("a", "b", "c", "d")
    strike(backlog)
    return backlog


def strike(backlog: Backlog) -> None:
    """Each of the first three issues has had no worktree, once."""
    for each in ("a", "b", "c"):
        assert backlog.next_issue(5.0) == each
        assert backlog.fails(each).verdict == "requeue"


def test_three_issues_pause_new_work_with_reason_and_remedy() -> None:
    backlog = struck()
    (began,) = records(backlog.commands, DegradedBegan)
    assert began.stops and "for 3 issues" in began.text and "a branch is in the way" in began.text
    assert "every 5 minutes" in began.todo
    assert backlog.next_issue(limits.UNPREPARED_TRIAL_SECONDS - 1) is None


def test_one_issue_tries_every_five_minutes_another_one_each_time_and_nothing_counts() -> None:
    backlog = struck()
    tried = []
    for _ in range(8):
        began = backlog.play.now
        issue = backlog.next_issue()
        assert issue is not None
        assert backlog.play.now - began < limits.UNPREPARED_TRIAL_SECONDS + 20
        if tried:
            assert backlog.play.now - began > limits.UNPREPARED_TRIAL_SECONDS - 1
        tried.append(issue)
        finished = backlog.fails(issue)
        assert (finished.verdict, finished.charged) == ("requeue", 0)
    assert set(tried[:3]) == {"a", "b", "d"}, "c had none when the pause began"
    assert set(tried) == {"a", "b", "c", "d"}
    assert len(records(backlog.commands, DegradedBegan)) == 1


def test_it_goes_on_by_itself_once_a_worktree_could_be_made() -> None:
    backlog = struck()
    issue = backlog.next_issue()
    assert issue is not None
    backlog.open.remove(issue)
    ended = backlog.play.do(done(1, issue), ready(1))
    assert [each.what for each in records(ended, DegradedEnded)] == ["worktrees"]
    backlog.take(ended)
    assert backlog.next_issue(20.0) is not None


def test_that_agents_work_does_not_mean_that_their_work_can_be_committed() -> None:
    backlog = Backlog("bw-1", "bw-2", "bw-3", "bw-4")
    for _ in range(3):
        issue = backlog.next_issue()
        assert issue is not None
        backlog.take(backlog.play.do(Received(ConnId(1), Progress(IssueId(issue), tokens=400))))
        backlog.fails(issue, "its work cannot be committed: gpg failed to sign the data")
    assert backlog.play.core._parts.preparation.is_on
    trial = backlog.next_issue()
    assert trial is not None
    backlog.take(backlog.play.do(Received(ConnId(1), Progress(IssueId(trial), tokens=400))))
    assert backlog.play.core._parts.preparation.is_on


def test_a_person_may_say_that_it_is_mended() -> None:
    backlog = struck()
    backlog.take(backlog.play.do(ResumeAsked(Ticket(1))))
    assert backlog.next_issue(30.0) is not None


def test_a_run_until_empty_does_not_end_over_it() -> None:
    backlog = Backlog("a", "b", "c", until_empty=True)
    strike(backlog)
    backlog.next_issue(limits.UNPREPARED_TRIAL_SECONDS - 1)
    assert backlog.play.ended is None and backlog.next_issue() is not None


def test_temporary_failures_that_a_task_says_keep_their_own_rule() -> None:
    backlog = Backlog("a")
    for _ in range(2 * limits.UNPREPARED_MAX):
        assert backlog.next_issue() == "a"
        assert backlog.fails("a", "exit status 75", detail="").verdict == "requeue"
