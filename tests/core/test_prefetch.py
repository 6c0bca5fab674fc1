"""TASKs that a worker keeps for later: handed out, requeued, and never charged unbegun."""

from __future__ import annotations

import pytest

from beads_workers.core.base import limits, wire
from beads_workers.core.base.model import IssueId, Outcome, OutcomeKind
from beads_workers.core.base.plans import Plan
from beads_workers.core.base.settings import Work
from beads_workers.core.base.source import Action
from beads_workers.core.records import journal as rec
from beads_workers.core.requests.release import ReleaseAskedFor
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Command
from beads_workers.core.schedule.events import ConnId
from beads_workers.core.views.status import status
from beads_workers.core.workers import worker_events as wev
from beads_workers.core.workers.worker import WorkerHalf
from tests.core.playbook import Play, done, lost, notes, records, sent_messages, unstarted
from tests.core.test_worker import CONNECTED, LOST, OK, RUN, SHUTDOWN, TERM, Keeper, task

PREFETCH_COUNT = 3


def asks(conn: int) -> ev.Received:
    """READY of a worker that prefetches three."""
    ready = wire.Ready(
        "w", "1.1", frozenset({wire.GROUPED, wire.CANCEL}), prefetch_count=PREFETCH_COUNT
    )
    return ev.Received(ConnId(conn), ready)


def tasks(commands: list[Command], conn: int | None = None) -> list[str]:
    """The issues of all TASKs that are sent."""
    return [m.issue_id for m in sent_messages(commands, conn) if isinstance(m, wire.Task)]


def hurried(*more: str, workers: int = 0) -> Play:
    """Worker 1 has done one task in no time, and has the first of ``more`` and prefetches
    others."""
    play = Play(workers)
    play.own(1) if workers else play.connect(1)
    play.do(asks(1))
    assert tasks(play.answer("first")) == ["first"]
    play.do(done(1, "first"), asks(1))
    commands = play.answer(*more)
    assert tasks(commands) == [more[0]]
    play.quiet()
    return play


def full() -> Play:
    """Worker 1 works on b, and c, d and e are queued on it; f waits here."""
    play = hurried("a", "b", "c", "d", "e", "f")
    assert tasks(play.do(done(1, "a"), asks(1))) == ["b", "c", "d", "e"]
    play.quiet()
    return play


def free(commands: list[Command]) -> dict[str, tuple[str, int, int, float]]:
    """How attempts ended, and what that costs."""
    ends = records(commands, rec.Finished)
    return {r.issue_id: (r.outcome, r.charged, r.free_in_a_row, r.delay_seconds) for r in ends}


# --- what is handed out -------------------------------------------------------------------------


def test_no_task_is_prefetched_before_it_is_known_how_long_one_takes() -> None:
    play = Play()
    play.connect(1)
    play.do(asks(1))
    assert tasks(play.answer("a")) == ["a"]


def test_short_tasks_are_prefetched_up_to_the_count_each_with_its_record_first() -> None:
    play = full()
    begun = [e.record.issue_id for e in play.entries if isinstance(e.record, rec.Started)]
    assert begun == ["first", "a", "b", "c", "d", "e"]
    assert play.board.workers["W1"].issue_id == "b"
    queue = status(play.board, 0.0)["queue"]
    assert (queue["running"], queue["ready"]) == (1, 4), "only one of them runs"


def test_a_worker_that_has_used_up_half_gets_more_and_needs_not_ask() -> None:
    play = full()
    assert tasks(play.do(done(1, "b"))) == [], "for one alone it is not woken up"
    assert tasks(play.do(done(1, "c"))) == ["f"]
    row = play.board.workers["W1"]
    assert (row.state, row.issue_id, [s.issue_id for s, _ in row.prefetched]) == (
        "busy", "d", ["e", "f"],
    )  # fmt: skip


def test_long_tasks_are_not_prefetched() -> None:
    play = Play()
    play.connect(1)
    play.do(asks(1))
    play.answer("a")
    play.now += 0.5
    play.do(done(1, "a"), asks(1))
    assert tasks(play.answer("b", "c", "d")) == ["b"]
    play.now += 0.5
    assert tasks(play.do(done(1, "b"), asks(1))) == ["c"]


def test_who_waits_for_work_comes_before_who_keeps_some_for_later() -> None:
    play = hurried("a", "b")
    play.connect(2)
    play.do(asks(2))
    assert tasks(play.do(done(1, "a"))) == []
    assert tasks(play.do(asks(1)), 1) + tasks(play.quiet()) in (["b"], [])


def test_ready_that_has_crossed_a_task_for_later_is_no_mistake() -> None:
    play = full()
    assert not notes(play.do(asks(1)), "error")
    assert tasks(play.do(asks(1))) == []


def test_a_paused_fleet_prefetches_nothing() -> None:
    play = full()
    play.do(ev.PauseAsked(ev.Ticket(1)))
    assert tasks(play.do(done(1, "b"))) == []


# --- what comes back ----------------------------------------------------------------------------


def test_a_worker_that_dies_is_charged_for_what_it_had_begun_and_for_nothing_else() -> None:
    play = full()
    play.do(lost(1))
    assert tasks(play.join(2)) == ["f"], "nobody gets what a living process may still have"
    commands = play.do(ev.OwnerGone(901))
    ended = {r.issue_id: (r.outcome, r.charged) for r in records(commands, rec.Finished)}
    assert ended == {
        "b": ("lost", 1), "c": ("cancelled", 0), "d": ("cancelled", 0), "e": ("cancelled", 0),
    }  # fmt: skip
    # They stay claimed, and go to who is there; only what was begun goes back to the tracker.
    assert [r.issue_id for r in records(commands, rec.Claimed)] == ["c", "d", "e"]
    play.quiet()
    play.wait(limits.LINGER_SECONDS_MAX)
    assert [each for each in play.pending() if each[0] is Action.RELEASE] == [(Action.RELEASE, "b")]


def test_what_is_taken_back_and_begun_again_is_the_same_attempt_under_another_request() -> None:
    play = full()
    play.do(lost(1), ev.OwnerGone(901))
    play.quiet()
    play.connect(2)
    commands = play.do(asks(2))
    tasks = [m for m in sent_messages(commands, 2) if isinstance(m, wire.Task)]
    requests = {e.record.request_id for e in play.entries if isinstance(e.record, rec.Started)}
    assert tasks[0].attempt == 1 and tasks[0].request_id in requests


def test_what_is_queued_behind_a_long_task_is_revoked() -> None:
    play = full()
    commands = play.wait(2 * limits.REVOKE_SECONDS)
    assert sent_messages(commands, 1) == [
        wire.Cancel(IssueId(i), wire.REVOKED) for i in ("c", "d", "e")
    ]
    back = play.do(unstarted(1, "c"), unstarted(1, "d"), unstarted(1, "e"))
    assert not tasks(back) and not records(back, rec.SettledRecord)
    assert play.board.workers["W1"].issue_id == "b"
    assert not sent_messages(play.wait(2 * limits.REVOKE_SECONDS), 1), "only once"
    play.connect(2)
    assert tasks(play.do(asks(2)))[0] in {"c", "f"}


def test_a_revocation_that_comes_too_late_changes_nothing() -> None:
    play = full()
    play.wait(2 * limits.REVOKE_SECONDS)
    play.do(done(1, "b"), unstarted(1, "d"), unstarted(1, "e"))
    assert play.board.workers["W1"].issue_id == "c"
    commands = play.do(done(1, "c"))
    assert [r.verdict for r in records(commands, rec.Finished)] == ["finish"]


def test_an_answer_for_an_earlier_time_is_none_for_this_one() -> None:
    play = full()
    commands = play.do(unstarted(1, "c", "another"))
    assert not records(commands, rec.Finished) and notes(commands, "error")


def test_a_stop_requeues_what_was_not_begun() -> None:
    play = full()
    assert wire.Shutdown("user_requested") in sent_messages(play.do(ev.StopAsked()), 1)
    commands = play.do(*(unstarted(1, i) for i in "cde"))
    assert free(commands) == dict.fromkeys("cde", ("cancelled", 0, 0, 0.0))
    play.do(ev.Received(ConnId(1), wire.Failed(IssueId("b"), "w", "", 0, OutcomeKind.CANCELLED)))
    play.do(lost(1))
    pending = dict.fromkeys("bcdef", Action.RELEASE)
    while play.round_trip is not None:
        for action, issue_id in play.pending():
            assert pending.pop(issue_id, action) is action
        play.quiet()
    assert not pending and play.ended == 0


@pytest.mark.parametrize("dies", [True, False])
def test_what_was_not_begun_costs_nothing_in_a_fleet_that_drains_either(dies: bool) -> None:
    play = full()
    play.do(ev.StopAsked(drain=True))
    if dies:
        commands = play.do(lost(1), ev.OwnerGone(901))
    else:
        commands = play.do(*(unstarted(1, i) for i in "cde"), done(1, "b", is_stopping=True))
    ended = {i: end for i, end in free(commands).items() if i != "b"}
    assert ended == dict.fromkeys("cde", ("cancelled", 0, 0, 0.0))


def test_what_a_person_takes_away_is_taken_from_those_who_keep_it() -> None:
    play = full()
    commands = play.do(ReleaseAskedFor(ev.Ticket(1), (IssueId("d"),)))
    assert sent_messages(commands, 1) == [wire.Cancel(IssueId("d"), "released")]
    commands = play.do(unstarted(1, "d"))
    assert records(commands, rec.PutOnHold)
    play.wait(limits.LINGER_SECONDS_MAX)
    assert (Action.RELEASE, "d") in play.pending()


def test_a_worker_that_stops_by_itself_requeues_what_it_keeps() -> None:
    play = full()
    commands = play.do(*(unstarted(1, i) for i in "cde"), done(1, "b", is_stopping=True), asks(1))
    assert wire.Shutdown("user_requested") in sent_messages(commands, 1)
    assert [r.issue_id for r in records(commands, rec.Claimed)] == ["c", "d", "e"]


# --- the worker's half --------------------------------------------------------------------------


def test_tasks_that_came_early_are_run_in_their_order_and_ready_is_said_at_the_end() -> None:
    keeper = Keeper()
    keeper.tell(task("a"), task("b"), task("c"))
    assert keeper.messages(OK) == [("Done", "a")]
    (answer, run) = keeper.tell(OK)
    assert isinstance(answer, wev.SendMessage) and isinstance(answer.message, wire.Done)
    assert isinstance(run, wev.RunStep) and run.step.argv == ("c",), "answered before the next"
    assert keeper.messages(OK) == [("Done", "c"), ("Ready", "")]


def test_one_task_too_many_is_refused() -> None:
    keeper = Keeper()
    keeper.tell(*(task(f"t{n}") for n in range(1 + limits.PREFETCH_MAX)))
    assert keeper.messages(task("more")) == [("Failed", "more")]


def test_a_task_that_comes_twice_is_kept_once() -> None:
    keeper = Keeper()
    keeper.tell(task("a", request_id="1"), task("b", request_id="2"), task("b", request_id="2"))
    assert keeper.messages(OK, OK) == [("Done", "a"), ("Done", "b"), ("Ready", "")]


@pytest.mark.parametrize("why", [wire.REVOKED, "released"])
def test_what_is_kept_and_cancelled_comes_back_as_it_went(why: str) -> None:
    keeper = Keeper()
    keeper.tell(task("a"), task("b", request_id="r-2"))
    (command,) = keeper.tell(wev.MessageReceived(wire.Cancel(IssueId("b"), why)))
    assert isinstance(command, wev.SendMessage)
    back = command.message
    assert (
        isinstance(back, wire.Failed)
        and back.error_detail == wire.RETURNED_UNSTARTED
        and back.error == why
    )
    assert back.request_id == "r-2" and back == wire.parse(wire.encode(back, "W1", 1.0, v1=False))
    assert keeper.messages(OK) == [("Done", "a"), ("Ready", "")]


def test_what_has_started_is_not_revoked() -> None:
    keeper = Keeper()
    keeper.tell(task("a"))
    assert keeper.tell(wev.MessageReceived(wire.Cancel(IssueId("a"), wire.REVOKED))) == []
    assert keeper.tell(wev.MessageReceived(wire.Cancel(IssueId("a"), "released"))) == [TERM]


def test_a_stop_sends_back_what_is_kept_and_ends_what_runs() -> None:
    keeper = Keeper()
    keeper.tell(task("a"), task("b"), task("c"))
    commands = keeper.tell(SHUTDOWN)
    assert commands[-1] == TERM and len(commands) == 3
    assert keeper.messages(wev.StepEnded(-15)) == [("Failed", "a")]


def test_a_lost_connection_leaves_nothing_to_begin() -> None:
    keeper = Keeper()
    keeper.tell(task("a"), task("b"))
    keeper.tell(LOST)
    assert not [c for c in keeper.tell(OK) if isinstance(c, wev.RunStep)]


def test_a_task_that_wants_its_worker_to_end_sends_the_others_back_first() -> None:
    keeper = Keeper()
    keeper.tell(task("a"), task("b"))
    over = wev.StepAnswered(Outcome(OutcomeKind.SUCCESS), is_stopping=True)
    assert keeper.messages(over) == [("Failed", "b"), ("Done", "a"), ("Ready", "")]


@pytest.mark.parametrize(
    "work",
    [
        Work(command=("x",)),
        Work(allow_modules=("m",), verify="true"),
        Work(allow_modules=("m",), bd_argv=("bd",)),
    ],
)
def test_only_who_calls_functions_and_nothing_else_prefetches(work: Work) -> None:
    half = WorkerHalf("W1", work, lambda _: Plan((RUN,), "i", "", "l", "o"), heartbeat_seconds=None)
    (command,) = half.handle(CONNECTED, 0.0)
    assert isinstance(command, wev.SendMessage) and isinstance(command.message, wire.Ready)
    assert command.message.prefetch_count == 0
