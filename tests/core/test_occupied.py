"""A person stands in the worktree of an issue: it waits uncharged, and goes on when they leave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import OCCUPIED, IssueId, OutcomeKind
from beads_workers.core.records.issues import Issues, Standing
from beads_workers.core.records.journal import Checkpointed, Entry, Finished
from beads_workers.core.requests.release import ReleaseAskedFor
from beads_workers.core.requests.retry import RetryAskedFor
from beads_workers.core.requests.why import gather
from beads_workers.core.schedule.commands import AwaitDeparture
from beads_workers.core.schedule.events import Ticket, WorktreeLeft
from beads_workers.core.views.snapshot import Board
from beads_workers.core.views.status import needs
from beads_workers.ui.lines import line
from tests.core.playbook import failed, lost, of, ready, records
from tests.core.test_preparation import Backlog

WHO = "you stand in its worktree (pid 123, bash)"
FOLDER = "/worktrees/a.1"


def own_worker(*issue_ids: str, **settings: Any) -> Backlog:
    """A fleet with one worker of its own."""
    backlog = Backlog(*issue_ids, workers=1, **settings)
    backlog.play.do(lost(1))
    backlog.take(backlog.play.own(1))
    return backlog


def ends(backlog: Backlog, issue: str, error: str, **fields: Any) -> Finished:
    """The attempt under way fails."""
    commands = backlog.play.do(failed(1, issue, error, **fields))
    backlog.take(commands)
    backlog.take(backlog.play.do(ready(1)))
    (finished,) = records(commands, Finished)
    return finished


def stands(backlog: Backlog, issue: str = "a") -> Finished:
    """The next attempt finds a person there."""
    assert backlog.next_issue() == issue
    detail = f"{OCCUPIED}{FOLDER}"
    return ends(backlog, issue, WHO, outcome=OutcomeKind.CANCELLED, error_detail=detail)


def standing(backlog: Backlog, issue: str = "a") -> Standing:
    return backlog.play.core.issues.known[issue].standing


def test_it_waits_without_another_look_at_the_tracker_and_goes_on_when_they_leave() -> None:
    backlog = own_worker("a")
    stands(backlog)
    assert of(backlog.commands, AwaitDeparture) == [AwaitDeparture(IssueId("a"), FOLDER)]
    assert standing(backlog) is Standing.OCCUPIED
    assert backlog.next_issue(10_000.0) is None
    backlog.take(backlog.play.do(WorktreeLeft(IssueId("a"))))
    assert backlog.next_issue(5.0) == "a"


def test_it_is_never_charged_nor_quarantined() -> None:
    backlog = own_worker("a")
    for _ in range(2 * limits.UNPREPARED_MAX):
        ended = stands(backlog)
        assert (ended.verdict, ended.charged, ended.unprepared) == ("requeue", 0, 0)
        backlog.take(backlog.play.do(WorktreeLeft(IssueId("a"))))


def test_people_in_many_worktrees_stop_no_other_issue() -> None:
    names = "abcdef"
    backlog = own_worker(*names)
    for each in names[:-1]:
        stands(backlog, each)
    assert len(names) > limits.UNPREPARED_ISSUES and backlog.next_issue(5.0) == names[-1]


def test_a_worker_that_is_not_ours_cannot_hold_back_an_issue_without_end() -> None:
    backlog = Backlog("a")
    ended = stands(backlog)
    assert (ended.outcome, ended.free_in_a_row, ended.occupied) == ("retry", 1, "")


def test_what_was_known_of_the_issue_still_holds() -> None:
    backlog = own_worker("a")
    assert backlog.next_issue() == "a"
    ends(backlog, "a", "boom")
    before = backlog.play.core.issues.known["a"].retry_entry
    assert before is not None and (before.charged, before.error) == (1, "boom")
    stands(backlog)
    backlog.play.answer()
    after = backlog.play.core.issues.known["a"].retry_entry
    assert after is not None and after.occupied == WHO
    assert replace(after, occupied="") == replace(before, not_before=0.0)


def test_people_see_who_stands_there_and_what_to_do() -> None:
    backlog = own_worker("a")
    ended = stands(backlog)
    shown = line(Entry(ended, 0.0, 0.0)) or ""
    assert shown.endswith(f"W1 waits    a: {WHO}; leave that folder, and it goes on")
    backlog.play.answer()
    assert (f"a waits: {WHO}", "leave that folder, and it goes on") in list(
        needs(backlog.play.board)
    )
    (facts,) = gather(backlog.play.core._parts, [IssueId("a")]).issues
    assert (facts.standing, facts.error) == ("occupied", WHO)
    backlog.take(backlog.play.do(WorktreeLeft(IssueId("a"))))
    assert not list(needs(backlog.play.board))


@pytest.mark.parametrize("released", [False, True])
def test_a_person_may_have_it_tried_or_released_meanwhile(released: bool) -> None:
    backlog = own_worker("a")
    stands(backlog)
    backlog.play.answer()
    asked = ReleaseAskedFor if released else RetryAskedFor
    backlog.take(backlog.play.do(asked(Ticket(1), (IssueId("a"),))))
    assert standing(backlog) is Standing.ON_HOLD if released else backlog.next_issue(5.0) == "a"
    backlog.take(backlog.play.do(WorktreeLeft(IssueId("a"))))
    if released:
        assert standing(backlog) is Standing.ON_HOLD, "they left, which is no word of a person"


def test_a_run_until_empty_does_not_wait_for_them_and_says_that_something_is_left() -> None:
    backlog = own_worker("a", until_empty=True)
    stands(backlog)
    assert backlog.next_issue(100.0) is None
    backlog.play.do(lost(1))
    backlog.play.reap(1)
    assert backlog.play.ended == 7


def test_a_later_segment_of_the_journal_knows_it_and_the_next_run_looks_for_itself() -> None:
    backlog = own_worker("a")
    stands(backlog)
    backlog.play.answer()
    entry = backlog.play.core.issues.known["a"].retry_entry
    assert isinstance(entry, Checkpointed)
    repeated = Issues()
    repeated.apply(Entry(entry, 0.0, 0.0))
    assert repeated.known["a"].standing is Standing.OCCUPIED
    board = Board(issues=repeated)
    assert list(needs(board))
