"""Issues whose branches are in review: set aside, and closed once the forge has merged them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from beads_workers.core.base.model import IssueId
from beads_workers.core.base.source import IN_REVIEW, NEEDS_APPROVAL, Action
from beads_workers.core.base.states import IssueState
from beads_workers.core.records import journal as rec
from beads_workers.core.records import landing as ld
from beads_workers.core.records.issues import Place, Standing
from beads_workers.core.requests.reject import RejectedByPerson
from beads_workers.core.requests.retry import RetryAskedFor
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Answer
from beads_workers.core.views.recovery import recovery_state
from beads_workers.core.views.status import status
from tests.core import playbook
from tests.core.playbook import Play, records
from tests.core.test_landings import (
    HEAD,
    LANDING,
    TIP,
    landed,
    new_play,
    orders,
    refused,
    settled,
    state_of,
    work_of,
)
from tests.support.worktrees import ruled

TICKET = ev.Ticket(1)
PULL = ld.Pull(7, "https://forge/pulls/7", "e" * 40, HEAD)


def proposed(play: Play, pull: ld.Pull = PULL) -> list[rec.PullSeen]:
    """The lander says what the pull request of ``a`` is like."""
    return records(play.do(ev.LanderSaid(ld.InReview("a", 1, pull))), rec.PullSeen)


def merging(merge: str) -> Any:
    return ruled(LANDING, pulls=replace(LANDING.rules.pulls, merge=merge))


def in_review(**others: Any) -> Play:
    """A fleet with one issue in review, as the tracker knows."""
    play = new_play(**others)
    play.working("a")
    play.do(playbook.done(1, "a", receipt=work_of("a")))
    settled(play)
    proposed(play)
    settled(play)
    return play


def test_it_is_set_aside_with_its_mark_and_its_slot_is_free() -> None:
    play = new_play()
    play.working("a")
    play.do(playbook.done(1, "a", receipt=work_of("a")))
    settled(play)
    assert proposed(play) == [rec.PullSeen("a", PULL)]
    settlement = play.settlement()
    assert (settlement.action, settlement.mark) == (Action.SHELVE, IN_REVIEW)
    assert PULL.url in settlement.note
    settled(play)
    issue = play.core.issues.known["a"]
    assert (issue.state, issue.standing) == (IssueState.SHELVED, Standing.IN_REVIEW)
    assert issue.place is Place.IN_REVIEW
    shown = status(play.board, 1.0)
    (row,) = shown["landing"]["in_review"]
    assert (row["issue_id"], row["number"], row["url"]) == ("a", 7, PULL.url)
    assert (shown["queue"]["in_review"], shown["queue"]["waiting_to_land"]) == (1, 0)


def test_what_it_is_like_is_kept_and_told_once_each() -> None:
    play = in_review()
    later = replace(PULL, checks="red")
    assert proposed(play, later) == [rec.PullSeen("a", later)]
    assert play.round_trip is None, "the tracker shows it already"
    assert play.core.issues.known["a"].in_review == later


def test_merged_it_is_closed_with_the_number() -> None:
    play = in_review()
    play.do(ev.LanderSaid(ld.Landed("a", 1, TIP, pull=7)))
    settlement = play.settlement()
    assert settlement.action is Action.CLOSE and settlement.shelved
    assert settlement.note.startswith(f"merged by pull request 7 as {TIP[:12]}")
    settled(play)
    assert "a" not in play.core.issues.known and play.board.totals["done"] == 1


@pytest.mark.parametrize("news", [landed("a"), refused("a", "verify"), refused("a", "closed")])
def test_what_comes_while_the_tracker_is_told_is_not_lost(news: ev.LanderSaid) -> None:
    play = new_play()
    play.working("a")
    play.do(playbook.done(1, "a", receipt=work_of("a")))
    settled(play)
    proposed(play)
    play.do(news)
    assert state_of(play, "a") is IssueState.SHELVING
    settled(play)
    known = play.core.issues.known.get("a")
    assert known is None or known.standing in (Standing.OPEN, Standing.QUARANTINED)


def test_red_checks_go_back_to_its_agent_and_its_pull_request_is_remembered() -> None:
    play = in_review()
    play.do(refused("a", "verify"))
    assert (play.settlement().action, play.settlement().mark) == (Action.REOPEN, "")
    settled(play)
    issue = play.core.issues.known["a"]
    assert issue.retry_entry is not None and issue.retry_entry.pull == PULL
    assert issue.in_review is None and issue.standing is Standing.OPEN


def test_closed_unmerged_it_is_quarantined_and_its_mark_is_taken_off() -> None:
    play = in_review()
    play.do(ev.LanderSaid(ld.Refused("a", 1, "closed", "somebody has closed it")))
    assert (play.settlement().action, play.settlement().mark) == (Action.CONFIRM, "")
    settled(play)
    issue = play.core.issues.known["a"]
    assert issue.standing is Standing.QUARANTINED and issue.error == "somebody has closed it"


def test_the_next_run_asks_the_forge_before_the_tracker() -> None:
    play = in_review()
    kept = recovery_state(play.entries).checkpoint()
    later = new_play(checkpointed=kept)
    (add,) = orders([*later.first, *later.quiet()])
    assert isinstance(add, ld.Add) and (add.commit, add.pull) == (HEAD, PULL)
    later.do(landed("a"))
    assert later.settlement().action is Action.CLOSE


def test_a_person_may_send_it_back_and_that_is_no_repair() -> None:
    play = in_review()
    answered = play.do(RejectedByPerson(TICKET, (IssueId("a"),), "say it in Greek"))
    assert [each.text for each in answered if isinstance(each, Answer)] == ["rejected: a"]
    assert ld.CancelLanding("a") in orders(answered)
    settled(play)
    entry = play.core.issues.known["a"].retry_entry
    assert entry is not None and entry.receipt is not None and entry.pull == PULL
    assert "say it in Greek" in entry.receipt.lesson and entry.repairs == 0


def test_it_is_not_tried_again_and_a_person_is_told_what_to_do_instead() -> None:
    play = in_review()
    done = play.do(RetryAskedFor(TICKET, (IssueId("a"),)))
    (answer,) = [each for each in done if isinstance(each, Answer)]
    assert answer.not_found and "'reject' sends it back" in answer.error
    assert play.core.issues.known["a"].in_review == PULL


def test_a_killed_run_leaves_the_mark_to_the_next_one() -> None:
    play = new_play()
    play.working("a")
    play.do(playbook.done(1, "a", receipt=work_of("a")))
    settled(play)
    proposed(play)
    (dead,) = recovery_state(play.entries).unsettled_runs()
    back = dead.back(playbook.IssueId("a"))
    assert (back.action, back.mark) == (Action.SHELVE, IN_REVIEW) and PULL.url in back.note


@pytest.mark.parametrize(("merge", "waits"), [("never", False), ("checks", True), ("auto", True)])
def test_a_run_waits_for_what_no_person_has_to_merge(merge: str, waits: bool) -> None:
    play = new_play(until_empty=True, landing=merging(merge))
    play.answer(listed=["a"])
    play.join(1)
    play.answer("a")
    play.do(playbook.done(1, "a", receipt=work_of("a")))
    settled(play)
    proposed(play)
    play.do(playbook.lost(1))
    play.do(ev.LanderSaid(ld.Idle()))
    for _ in range(20):
        play.quiet()
        play.wait(10.0)
    assert (play.ended is None) == waits
    for _ in range(200):
        play.quiet()
        play.wait(10.0)
    assert play.ended == 7


def test_what_ci_obeys_awaits_an_approval() -> None:
    play = new_play()
    play.working("a")
    play.do(playbook.done(1, "a", receipt=work_of("a")))
    settled(play)
    play.do(ev.LanderSaid(ld.NeedsApproval("a", 1, "it changes .github/x, which CI obeys")))
    assert (play.settlement().action, play.settlement().mark) == (Action.SHELVE, NEEDS_APPROVAL)
    settled(play)
    assert play.core.issues.known["a"].standing is Standing.AWAITS_APPROVAL
