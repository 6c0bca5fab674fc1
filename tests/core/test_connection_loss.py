"""A connection that ends: docs/SEMANTICS.md, "Connection loss" and "Attempts"."""

from __future__ import annotations

from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.policy import Policy
from beads_workers.core.base.settings import Work
from beads_workers.core.base.source import Action, Result
from beads_workers.core.records import journal as rec
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import HangUp, KillWorker, WatchOwner
from beads_workers.core.schedule.events import ConnId
from tests.core import playbook

NOTHING = dict.fromkeys(("done", "failed", "retried", "lost", "quarantined"), 0)


def with_a_task_of_our_own(**others: Any) -> playbook.Play:
    """W1 is ours, has pid 101, and works on issue a."""
    play = playbook.Play(workers=1, **others)
    play.own(1)
    assert playbook.task_of(play.answer("a"), 1) == "a"
    return play


def test_a_worker_of_ours_is_known_to_be_dead_only_when_it_is_reaped() -> None:
    play = with_a_task_of_our_own()
    gone = play.do(playbook.lost(1))
    assert playbook.of(gone, WatchOwner) == [] and playbook.records(gone, rec.Finished) == []
    play.quiet()
    (finished,) = playbook.records(play.reap(1, 137), rec.Finished)
    assert (finished.outcome, finished.charged) == ("lost", 1)
    assert play.settlement().action is Action.RELEASE
    assert play.settlement().read_first, "the worker may have closed it by itself"


def test_a_worker_that_is_reaped_before_its_connection_ends_is_dead_all_the_same() -> None:
    play = with_a_task_of_our_own()
    assert playbook.records(play.reap(1, 137), rec.Finished) == []
    assert playbook.records(play.do(playbook.lost(1)), rec.Finished)[0].outcome == "lost"


def test_what_a_dead_worker_of_ours_said_before_makes_it_no_stranger() -> None:
    play = playbook.Play(workers=1)
    play.do(ev.WorkerSpawned("W1", 101))
    play.do(ev.Connected(ConnId(1), 101, 7))
    dead = play.reap(1, 137)
    assert playbook.of(dead, HangUp) == [HangUp(ConnId(1), "its process has ended")]
    commands = play.do(playbook.ready(1))
    assert (
        playbook.records(commands, rec.WorkerJoined) == []
        and playbook.sent_messages(commands) == []
    )
    play.do(playbook.lost(1))
    assert playbook.sent_messages(play.answer("a")) == [], "nobody is there to have it"


def test_a_dead_worker_of_ours_that_is_only_accepted_now_is_no_stranger_either() -> None:
    play = playbook.Play(workers=1)
    play.do(ev.WorkerSpawned("W1", 101))
    play.reap(1, 137)
    late = play.do(ev.Connected(ConnId(1), 101, 0), playbook.ready(1))
    assert playbook.of(late, HangUp) == [HangUp(ConnId(1), "its process has ended")]
    assert playbook.records(late, rec.WorkerJoined) == []
    play.do(ev.Connected(ConnId(2), 101, 8))
    assert playbook.records(play.do(playbook.ready(2)), rec.WorkerJoined), (
        "another process has that pid now"
    )


def test_a_dead_worker_of_ours_that_waits_for_work_is_given_none() -> None:
    play = playbook.Play(workers=2)
    play.own(1)
    play.own(2)
    play.reap(1, 137)
    given = play.answer("a", "b")
    assert playbook.task_of(given, 2) == "a" and playbook.task_of(given, 1) is None


def test_spooled_results_that_are_read_after_the_reaping_still_count() -> None:
    play = with_a_task_of_our_own()
    play.reap(1, 0)
    play.do(playbook.done(1, "a"), playbook.lost(1))
    assert play.pending() == [(Action.CLOSE, "a")]


def test_the_issue_of_a_foreign_worker_waits_until_its_process_is_gone() -> None:
    play = playbook.Play(orphan_grace_seconds=None)
    play.working("a")
    assert playbook.of(play.do(playbook.lost(1)), WatchOwner) == [WatchOwner(901, 0, "a")]
    assert playbook.records(play.wait(3600.0), rec.Finished) == []
    (finished,) = playbook.records(play.do(ev.OwnerGone(901)), rec.Finished)
    assert (finished.outcome, finished.verdict) == ("lost", "requeue")


def test_the_process_of_somebody_else_says_nothing_about_a_owner() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(playbook.lost(1))
    assert playbook.records(play.do(ev.OwnerGone(555)), rec.Finished) == []
    assert playbook.records(play.join(2, pid=902), rec.Finished) == []


def test_the_same_process_re_registers_with_the_ready_of_a_new_connection() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(playbook.lost(1))
    play.connect(2, pid=901)
    assert playbook.records(play.do(playbook.ready(2)), rec.Finished)[0].outcome == "lost"


def test_connecting_alone_re_registers_nothing() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(playbook.lost(1))
    assert playbook.records(play.connect(2, pid=901), rec.Finished) == []
    assert playbook.records(play.do(playbook.done(2, "a")), rec.Finished) == [], (
        "nor does a stray DONE"
    )


def test_a_vanished_worker_takes_no_slot_of_those_who_are_there() -> None:
    play = playbook.Play()
    play.join(1)
    play.join(2)
    play.answer("a")
    play.answer()
    play.do(playbook.lost(1))
    play.wait(limits.POLL_SECONDS)
    play.do(playbook.ready(2))
    assert play.asked() >= 1
    assert playbook.task_of(play.answer("b"), 2) == "b"


def test_what_the_tracker_shows_as_closed_counts_as_done() -> None:
    play = with_a_task_of_our_own()
    play.do(playbook.lost(1))
    play.quiet()
    play.reap(1)
    play.answer(results={"a": Result.FOUND_CLOSED})
    assert play.board.totals == NOTHING | {"done": 1}
    assert not play.core._parts.effects.issues.known, "nothing is left to remember of it"


def test_what_a_worker_closed_before_it_died_for_the_last_time_is_not_quarantined() -> None:
    play = with_a_task_of_our_own(policy=Policy(attempts_max=1))
    play.do(playbook.lost(1))
    play.quiet()
    play.reap(1)
    assert play.board.totals == NOTHING | {"failed": 1, "lost": 1, "quarantined": 1}
    play.answer(results={"a": Result.FOUND_CLOSED})
    assert play.board.totals == NOTHING | {"done": 1}


def test_an_attempt_that_failed_has_failed_whoever_closes_its_issue_then() -> None:
    play = playbook.Play(policy=Policy(attempts_max=1))
    play.working("a")
    play.do(playbook.failed(1, "a"))
    play.answer(results={"a": Result.FOUND_CLOSED})
    assert play.board.totals == NOTHING | {"done": 1, "failed": 1}


def test_what_is_somebody_elses_now_is_left_alone_and_said_so() -> None:
    play = with_a_task_of_our_own()
    play.do(playbook.lost(1))
    play.quiet()
    play.reap(1)
    notes = [
        n.text for n in playbook.records(play.answer(results={"a": Result.NOT_OURS}), rec.Noted)
    ]
    assert "a is not ours any more and was left alone: not_ours" in notes
    assert "a" not in play.core._parts.tasks.in_flight


def test_after_shutdown_a_lost_connection_charges_nothing() -> None:
    play = with_a_task_of_our_own()
    play.do(ev.StopAsked(), playbook.lost(1))
    (finished,) = playbook.records(play.reap(1), rec.Finished)
    assert (finished.outcome, finished.charged) == ("cancelled", 0)


def test_a_worker_without_its_connection_is_killed_after_its_grace() -> None:
    play = with_a_task_of_our_own()
    play.do(playbook.lost(1))
    grace = limits.TERM_GRACE_SECONDS + limits.LEAVE_MARGIN_SECONDS
    assert playbook.of(play.wait(grace - 0.1), KillWorker) == []
    assert playbook.of(play.wait(0.2), KillWorker) == [KillWorker("W1", 101)]
    assert playbook.of(play.wait(60.0), KillWorker) == [], "once is enough"


def test_a_worker_that_does_not_end_its_task_in_time_is_stuck_and_the_attempt_timed_out() -> None:
    play = playbook.Play(workers=1, work=Work(timeout_seconds=60.0))
    play.own(1)
    play.answer("a")
    last = 60.0 + limits.TERM_GRACE_SECONDS + limits.TIMEOUT_MARGIN_SECONDS
    assert playbook.of(play.wait(last - 0.1), KillWorker) == []
    stuck = play.wait(0.2)
    assert playbook.of(stuck, KillWorker) == [KillWorker("W1", 101)] and playbook.of(stuck, HangUp)
    play.do(playbook.lost(1))
    (finished,) = playbook.records(play.reap(1, 137), rec.Finished)
    assert (finished.outcome, finished.charged) == ("timeout", 1)


def test_a_timeout_of_the_issue_itself_goes_before_that_of_the_fleet() -> None:
    play = playbook.Play(workers=1, work=Work(timeout_seconds=6000.0))
    play.own(1)
    play.answer(playbook.job("a", timeout_seconds=1.0))
    assert playbook.of(play.wait(30.0), KillWorker)


def test_a_task_that_ended_in_time_leaves_no_deadline_behind() -> None:
    play = playbook.Play(workers=1, work=Work(timeout_seconds=60.0))
    play.own(1)
    play.answer("a")
    play.do(playbook.done(1, "a"))
    assert playbook.of(play.wait(1000.0), KillWorker) == []


# --- nobody is there any more, or nobody asked --------------------------------------------------


def test_a_reply_that_was_pending_to_a_lost_connection_goes_nowhere() -> None:
    play = playbook.Play()
    play.join(1)
    play.do(playbook.lost(1))
    assert playbook.sent_messages(play.answer("a")) == []
    assert playbook.sent_messages(play.wait(10.0)) == []


def test_a_cancel_that_nobody_asked_for_backs_off_and_charges_nothing() -> None:
    play = playbook.Play()
    play.working("a")
    finished = playbook.records(play.do(playbook.cancelled(1, "a")), rec.Finished)[0]
    assert (finished.outcome, finished.verdict, finished.charged) == ("retry", "requeue", 0)
    assert finished.delay_seconds >= 5.0
