"""Finished branches that land only once a person has approved them."""

from __future__ import annotations

import pytest

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import NEEDS_APPROVAL, Action
from beads_workers.core.base.states import IssueState
from beads_workers.core.base.wire import Done
from beads_workers.core.records import journal as rec
from beads_workers.core.records import landing as ld
from beads_workers.core.records.issues import Standing
from beads_workers.core.records.landing import LAND_ASK
from beads_workers.core.requests.approve import ApprovedByPerson
from beads_workers.core.requests.reject import RejectedByPerson
from beads_workers.core.requests.retry import RetryAskedFor
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Answer
from beads_workers.core.views.recovery import recovery_state, replay
from beads_workers.core.views.status import status
from tests.core import playbook
from tests.core.playbook import Play, records
from tests.core.test_landings import (
    HEAD,
    LANDING,
    TIP,
    delivered,
    landed,
    new_play,
    orders,
    settled,
    state_of,
    work_of,
)
from tests.support.worktrees import ruled

T = ev.Ticket(1)


def awaiting() -> Play:
    """A fleet with one finished branch that awaits approval, as the tracker knows."""
    play = new_play(approve=True)
    delivered(play, "a")
    return play


def approve(play: Play, issue_id: str = "a", commit: str = HEAD) -> Answer:
    (said,) = playbook.of(play.do(ApprovedByPerson(T, ((IssueId(issue_id), commit),))), Answer)
    return said


def test_a_finished_branch_is_set_aside_and_the_lander_hears_nothing() -> None:
    play = new_play(approve=True)
    assert not orders(delivered(play, "a"))
    assert state_of(play, "a") is IssueState.SHELVED
    shown = status(play.board, 1.0)
    (row,) = shown["approvals"]
    assert (row["issue_id"], row["commit"], row["branch"]) == ("a", HEAD, "bw/a/1")
    assert (shown["queue"]["awaiting_approval"], shown["queue"]["waiting_to_land"]) == (1, 0)
    assert [need["remedy"] for need in shown["needs"]] == ["diff a; approve a"]


def test_the_tracker_is_told_that_it_awaits_approval() -> None:
    play = new_play(approve=True)
    play.working("a")
    play.do(playbook.done(1, "a", receipt={"verdict": "done", "head": HEAD, "branch": "bw/a/1"}))
    settlement = play.settlement()
    assert settlement.action is Action.SHELVE and "awaits approval" in settlement.note
    assert settlement.mark == NEEDS_APPROVAL


def test_the_mark_is_taken_off_by_the_look_before_it_lands() -> None:
    play = awaiting()
    approve(play)
    assert (play.settlement().action, play.settlement().mark) == (Action.CONFIRM, "")


def test_a_killed_run_leaves_the_mark_to_the_next_one() -> None:
    play = new_play(approve=True)
    play.working("a")
    play.do(playbook.done(1, "a", receipt={"verdict": "done", "head": HEAD, "branch": "bw/a/1"}))
    (dead,) = recovery_state(play.entries).unsettled_runs()
    assert dead.back(IssueId("a")).mark == NEEDS_APPROVAL


def test_an_approved_branch_lands_and_closes_its_issue() -> None:
    play = awaiting()
    assert approve(play).error == ""
    assert play.settlement().action is Action.CONFIRM and play.settlement().shelved
    (add,) = orders(play.answer())
    assert isinstance(add, ld.Add) and (add.commit, add.awaits) == (HEAD, False)
    play.do(landed("a"))
    settled(play)
    assert "a" not in play.core.issues.known and play.board.totals["done"] == 1


@pytest.mark.parametrize("commit", ["f" * 40, "bbbbbbb"])
def test_another_commit_than_the_one_that_was_seen_is_not_approved(commit: str) -> None:
    play = awaiting()
    assert "no branch awaits approval" in approve(play, commit=commit).error
    assert play.core.issues.known["a"].standing is Standing.AWAITS_APPROVAL


def test_a_short_name_of_the_commit_is_enough() -> None:
    assert approve(awaiting(), commit=HEAD[:7]).error == ""


def test_it_is_approved_once() -> None:
    play = awaiting()
    approve(play)
    assert approve(play).error


def test_a_rejected_branch_goes_back_with_the_remarks() -> None:
    play = awaiting()
    (said,) = playbook.of(play.do(RejectedByPerson(T, (IssueId("a"),), "use euros")), Answer)
    assert said.error == "" and play.settlement().action is Action.REOPEN
    settled(play)
    past = play.core.issues.known["a"].retry_entry
    assert past is not None and past.receipt is not None and past.mend is None
    assert past.receipt.lesson.endswith("use euros") and past.landing is None
    assert past.error == "a person rejects it: use euros"


def test_rejections_are_not_limited_as_repairs_are() -> None:
    play = awaiting()
    for _ in range(9):
        play.do(RejectedByPerson(T, (IssueId("a"),), "no"))
        settled(play)
        assert play.core.issues.known["a"].standing is Standing.OPEN
        play.do(playbook.ready(1))
        for _ in range(9):
            if play.round_trip is not None and play.round_trip.take:
                play.answer("a")
                break
            play.quiet()
            play.wait(5.0)
        play.do(playbook.done(1, "a", receipt={"verdict": "done", "head": HEAD, "branch": "b"}))
        settled(play)
        assert play.core.issues.known["a"].standing is Standing.AWAITS_APPROVAL


def test_a_label_asks_for_one_issue_alone() -> None:
    play = new_play()
    play.working("a", labels=(LAND_ASK,))
    play.do(playbook.done(1, "a", receipt={"verdict": "done", "head": HEAD, "branch": "bw/a/1"}))
    settled(play)
    assert play.core.issues.known["a"].standing is Standing.AWAITS_APPROVAL


def test_branches_that_await_approval_stop_neither_new_work_nor_the_end_of_the_run() -> None:
    play = new_play(approve=True, until_empty=True)
    play.answer(listed=["a"])
    play.join(1)
    play.answer("a")
    play.do(playbook.done(1, "a", receipt={"verdict": "done", "head": HEAD, "branch": "bw/a/1"}))
    play.do(playbook.lost(1))
    for _ in range(100):
        play.quiet()
        play.wait(10.0)
    assert play.ended == 7


def test_the_next_run_still_waits_and_lands_nothing_by_itself() -> None:
    kept = recovery_state(awaiting().entries).checkpoint()
    later = new_play(approve=True, checkpointed=kept)
    settled(later)
    assert later.core.issues.known["a"].standing is Standing.AWAITS_APPROVAL
    assert not any(isinstance(e.record, rec.BranchLanded) for e in later.entries)
    assert approve(later).error == ""
    (add,) = orders(later.answer())
    assert isinstance(add, ld.Add) and add.commit == HEAD


def test_an_approval_outlives_a_kill_before_the_branch_has_landed() -> None:
    play = awaiting()
    approve(play)
    later = new_play(approve=True, checkpointed=recovery_state(play.entries).checkpoint())
    found = orders([*later.first, *later.answer()])
    assert [add.issue_id for add in found if isinstance(add, ld.Add)] == ["a"]


@pytest.mark.parametrize(("approve", "labels"), [(True, ()), (False, ("x",) * 50 + (LAND_ASK,))])
def test_a_result_that_a_killed_run_had_not_read_awaits_approval_as_well(
    approve: bool, labels: tuple[str, ...]
) -> None:
    play = new_play(approve=approve)
    play.working("a", labels=labels)
    left = recovery_state(play.entries)
    (begun,) = left.begun.values()
    spooled = Done(IssueId("a"), "w", receipt=work_of("a"))
    assert replay(left, {begun.started.request_id: spooled})
    later = new_play(approve=approve, checkpointed=left.checkpoint())
    assert not orders([*later.first, *later.quiet()])
    assert later.core.issues.known["a"].standing is Standing.AWAITS_APPROVAL


def test_a_person_may_have_it_done_again_instead() -> None:
    play = awaiting()
    (said,) = playbook.of(play.do(RetryAskedFor(T, (IssueId("a"),))), Answer)
    assert said.error, "it is done: 'reject' says what is wrong"


# --- the gate ahead of approval -------------------------------------------------------------------


def gated(play: Play, verdict: str = "green", commit: str = HEAD) -> list[rec.BranchGated]:
    """The lander says that a gate has a verdict on the branch of ``a``."""
    news = ld.GatedAhead("a", commit, verdict, TIP, "" if verdict == "green" else "it was killed")
    return records(play.do(ev.LanderSaid(news)), rec.BranchGated)


def to_gate() -> tuple[Play, list[ld.Order]]:
    """A fleet with a gate and a branch that awaits approval, and what its lander was told."""
    play = new_play(approve=True, verify="make test")
    play.working("a")
    play.do(playbook.done(1, "a", receipt=work_of("a")))
    return play, orders(play.answer())


def test_the_lander_gates_it_once_the_tracker_knows_that_it_waits() -> None:
    play, told = to_gate()
    assert told == [play.core.issues.known["a"].landing]
    assert isinstance(told[0], ld.Add) and told[0].awaits


def test_its_verdict_is_shown_with_it_and_outlives_the_run() -> None:
    play, _ = to_gate()
    assert status(play.board, 1.0)["approvals"][0]["gate"] is None
    assert gated(play) and not gated(play, commit="f" * 40), "that is another branch"
    (row,) = status(play.board, 1.0)["approvals"]
    assert row["gate"]["text"] == f"verify passes on {TIP[:12]}"
    later = new_play(
        approve=True, verify="make test", checkpointed=recovery_state(play.entries).checkpoint()
    )
    assert status(later.board, 1.0)["approvals"] == [row]
    assert not orders([*later.first, *later.quiet()]), "it was gated"


def test_a_killed_run_leaves_the_gate_to_the_next_one() -> None:
    play, _ = to_gate()
    kept = recovery_state(play.entries).checkpoint()
    later = new_play(approve=True, verify="make test", checkpointed=kept)
    (add,) = orders([*later.first, *later.quiet()])
    assert isinstance(add, ld.Add) and add.awaits


def test_what_is_red_goes_back_to_its_agent_and_is_gated_anew() -> None:
    play, _ = to_gate()
    gated(play, "none")
    play.do(ev.LanderSaid(ld.Refused("a", 1, "verify", "1 failed")))
    assert play.settlement().action is Action.REOPEN and play.settlement().mark == ""
    settled(play)
    past = play.core.issues.known["a"].retry_entry
    assert past is not None and past.mend is not None and past.repairs == 1


def test_what_nobody_mends_is_quarantined_and_its_label_is_taken_off() -> None:
    play = new_play(approve=True, verify="make test", landing=ruled(LANDING, repairs_max=0))
    play.working("a")
    play.do(playbook.done(1, "a", receipt=work_of("a")))
    settled(play)
    play.do(ev.LanderSaid(ld.Refused("a", 1, "verify", "1 failed")))
    assert play.core.issues.known["a"].standing is Standing.QUARANTINED
    assert (play.settlement().action, play.settlement().mark) == (Action.CONFIRM, "")
    settled(play)
    assert play.core.issues.known["a"].standing is Standing.QUARANTINED


def test_a_verdict_on_what_was_approved_meanwhile_changes_nothing() -> None:
    play, _ = to_gate()
    approve(play)
    assert not gated(play)


def test_a_run_ends_when_the_gates_ahead_of_approval_have_ended() -> None:
    play = new_play(approve=True, verify="make test", until_empty=True)
    play.answer(listed=["a"])
    play.join(1)
    play.answer("a")
    play.do(playbook.done(1, "a", receipt=work_of("a")))
    play.do(playbook.lost(1))
    for _ in range(100):
        play.quiet()
        play.wait(10.0)
    assert play.ended is None
    gated(play)
    play.do(ev.LanderSaid(ld.Idle()))
    for _ in range(10):
        play.quiet()
        play.wait(10.0)
    assert play.ended == 7


def test_approving_writes_who_was_approved_before_anything_lands() -> None:
    play = awaiting()
    commands = play.do(ApprovedByPerson(T, ((IssueId("a"), HEAD),)))
    (approved,) = records(commands, rec.Approved)
    assert (approved.issue_id, approved.commit) == ("a", HEAD)
