"""Our own worker processes: docs/OPERATIONS.md, "Life of a fleet"."""

from __future__ import annotations

from beads_workers.core.base import limits
from beads_workers.core.base.source import Action
from beads_workers.core.base.states import RunState
from beads_workers.core.base.wire import Shutdown
from beads_workers.core.records import journal as rec
from beads_workers.core.requests.scale import ScaleAsked
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Answer, KillWorker, Spawn
from tests.core.playbook import Play, done, lost, notes, of, ready, records, sent_messages


def crash(play: Play, number: int) -> None:
    """W{number} is started and dies at once, without a word."""
    play.do(ev.WorkerSpawned(f"W{number}", 100 + number))
    play.reap(number, 1)


def crash_out(play: Play, number: int) -> None:
    """W{number} does so until it is given up."""
    for _ in range(limits.CRASH_LOOP_MAX):
        crash(play, number)
        play.wait(limits.RESPAWN_DELAY_MAX_SECONDS)
        play.quiet()


def test_a_run_starts_the_workers_that_it_was_asked_for() -> None:
    assert of(Play(workers=3).first, Spawn) == [Spawn("W1"), Spawn("W2"), Spawn("W3")]


def test_a_worker_that_dies_is_started_again_after_half_a_second() -> None:
    play = Play(workers=1)
    play.own(1)
    play.wait(60.0)
    play.do(lost(1))
    play.reap(1, 137)
    assert of(play.wait(0.4), Spawn) == []
    assert of(play.wait(0.2), Spawn) == [Spawn("W1")]


def test_crashes_at_the_start_double_the_pause() -> None:
    play = Play(workers=1)
    pauses = []
    for _ in range(limits.CRASH_LOOP_MAX - 1):
        crash(play, 1)
        began = play.now
        while not of(play.wait(0.5), Spawn):
            pass
        pauses.append(play.now - began)
    assert pauses == [0.5, 1.0, 2.0, 4.0]


def test_five_crashes_in_a_row_give_a_worker_up_and_say_so() -> None:
    play = Play(workers=2)
    play.own(2)
    crash_out(play, 1)
    gone = [e.record for e in play.entries if isinstance(e.record, rec.WorkerGone)]
    assert [g.worker_id for g in gone] == ["W1"]
    assert of(play.wait(300.0), Spawn) == []
    assert play.core.state is RunState.RUNNING, "the other one works on"


def test_a_long_life_between_the_crashes_starts_the_count_anew() -> None:
    play = Play(workers=1)
    for _ in range(limits.CRASH_LOOP_MAX * 2):
        crash(play, 1)
        play.wait(limits.RESPAWN_DELAY_MAX_SECONDS)
        play.do(ev.WorkerSpawned("W1", 101))
        play.wait(limits.CRASH_LOOP_SECONDS)
        assert of(play.reap(1, 1) + play.wait(1.0), Spawn) == [Spawn("W1")]


def test_a_worker_that_finished_a_task_is_in_no_crash_loop() -> None:
    play = Play(workers=1)
    for number in range(limits.CRASH_LOOP_MAX * 2):
        conn = 50 + number
        while play.round_trip is None:
            play.wait(1.0)
        play.do(ev.WorkerSpawned("W1", 101))
        play.join(conn, 101)
        play.answer(f"i{number}")
        play.do(done(conn, f"i{number}"), lost(conn))
        assert of(play.reap(1, 1) + play.wait(1.0), Spawn) == [Spawn("W1")]
        play.quiet()
        play.quiet()


def test_when_every_worker_crashed_the_run_ends_with_one() -> None:
    play = Play(workers=2)
    play.quiet()
    crash_out(play, 1)
    crash_out(play, 2)
    assert play.ended == 1
    assert play.board.ended == rec.RunEnded(1, "every worker crashed at its start")


def test_it_ends_also_with_issues_in_hand_and_requeues_them() -> None:
    play = Play(workers=1)
    play.answer("a")
    for _ in range(limits.CRASH_LOOP_MAX):
        play.wait(limits.RESPAWN_DELAY_MAX_SECONDS)
        play.quiet()
        crash(play, 1)
    assert play.pending() == [(Action.RELEASE, "a")]
    play.answer()
    assert play.ended == 1


# --- scaling --------------------------------------------------------------------------------------


def test_scaling_up_starts_more_under_free_numbers() -> None:
    play = Play(workers=1)
    play.own(1)
    play.join(7)  # A foreign worker that is W2.
    commands = play.do(ScaleAsked(ev.Ticket(1), 3))
    assert of(commands, Spawn) == [Spawn("W3"), Spawn("W4")]
    assert of(commands, Answer) == [Answer(ev.Ticket(1), "workers: 1 -> 3")]


def test_one_more_and_one_less_start_from_what_is_wanted() -> None:
    play = Play(workers=1)
    play.own(1)
    up = play.do(ScaleAsked(ev.Ticket(1), 2, relative=True))
    assert of(up, Answer) == [Answer(ev.Ticket(1), "workers: 1 -> 3")]
    down = play.do(ScaleAsked(ev.Ticket(2), -1, relative=True))
    assert of(down, Answer) == [Answer(ev.Ticket(2), "workers: 3 -> 2")]
    none = play.do(ScaleAsked(ev.Ticket(3), -9, relative=True))
    assert of(none, Answer) == [Answer(ev.Ticket(3), "workers: 2 -> 0")]


def test_one_more_than_can_connect_is_refused() -> None:
    play = Play(workers=1)
    play.own(1)
    asked = play.do(ScaleAsked(ev.Ticket(1), limits.LISTEN_BACKLOG, relative=True))
    (refusal,) = of(asked, Answer)
    assert "too many" in refusal.error
    assert of(asked, Spawn) == []


def test_scaling_down_sends_the_idle_home_first_and_lets_the_busy_finish() -> None:
    play = Play(workers=2)
    play.own(1)
    play.quiet()
    play.own(2)
    play.wait(limits.POLL_SECONDS)
    play.do(ready(1))
    play.answer("a")
    down = play.do(ScaleAsked(ev.Ticket(1), 1))
    assert sent_messages(down, 2) == [Shutdown("user_requested")] and sent_messages(down, 1) == []
    down = play.do(ScaleAsked(ev.Ticket(2), 0))
    assert sent_messages(down, 1) == [], "it is busy"
    play.do(done(1, "a"))
    assert sent_messages(play.do(ready(1)), 1) == [Shutdown("user_requested")]


def test_a_fleet_that_was_scaled_to_nothing_goes_on_without_workers() -> None:
    play = Play(workers=1)
    play.own(1)
    play.quiet()
    play.do(ScaleAsked(ev.Ticket(1), 0), lost(1))
    assert records(play.reap(1), rec.WorkerGone)
    play.quiet()
    assert play.core.state is RunState.RUNNING
    assert of(play.do(ScaleAsked(ev.Ticket(2), 1)), Spawn) == [Spawn("W1")]


def test_one_that_was_being_started_when_it_was_dismissed_is_sent_home_at_its_ready() -> None:
    play = Play(workers=1)
    play.do(ScaleAsked(ev.Ticket(1), 0))
    assert sent_messages(play.own(1), 1) == [Shutdown("user_requested")]


def test_a_scaled_down_worker_is_not_started_again() -> None:
    play = Play(workers=1)
    play.own(1)
    play.quiet()
    play.do(ScaleAsked(ev.Ticket(1), 0), lost(1))
    assert of(play.reap(1) + play.wait(100.0), Spawn) == []


def test_a_fleet_that_ends_refuses_to_be_scaled() -> None:
    play = Play(workers=1)
    play.own(1)
    play.answer("a")
    play.do(ev.StopAsked(drain=True))
    commands = play.do(ScaleAsked(ev.Ticket(1), 4))
    assert of(commands, Answer) == [Answer(ev.Ticket(1), error="the fleet is draining")]
    assert of(commands, Spawn) == [] and notes(commands, "error") == []


def test_a_worker_that_was_still_being_started_is_told_to_leave_like_all_others() -> None:
    play = Play(workers=1)
    play.do(ev.StopAsked())
    assert play.ended is None
    assert sent_messages(play.own(1), 1) == [Shutdown("user_requested")]


def test_a_worker_that_was_still_being_started_is_killed_at_the_deadline() -> None:
    play = Play(workers=1)
    play.do(ev.StopAsked())
    play.wait(limits.STOP_SECONDS)
    play.do(ev.WorkerSpawned("W1", 101))
    assert of(play.wait(1.0), KillWorker) == [KillWorker("W1", 101)]


def test_a_fleet_of_agents_in_one_checkout_is_not_scaled_beyond_one() -> None:
    play = Play(workers=1, workers_max=1)
    play.own(1)
    commands = play.do(ScaleAsked(ev.Ticket(1), 2))
    (refusal,) = of(commands, Answer)
    assert "--worktree" in refusal.error and "--shared-checkout" in refusal.error
    assert of(commands, Spawn) == []
    (down,) = of(play.do(ScaleAsked(ev.Ticket(2), 0)), Answer)
    assert down.error == ""
    (up,) = of(play.do(ScaleAsked(ev.Ticket(3), 1)), Answer)
    assert up.error == ""
