"""The conversation with workers: docs/PROTOCOL.md, "Conversation" and "Connections and time"."""

from __future__ import annotations

from collections import Counter

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.policy import Policy
from beads_workers.core.base.source import Action, Result
from beads_workers.core.base.wire import GROUPED, Ready, Shutdown, Task, Wait
from beads_workers.core.records import journal as rec
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import HangUp, RoundTrip, Send
from beads_workers.core.schedule.events import ConnId
from tests.core import playbook

# --- one READY, one reply -------------------------------------------------------------------------


def test_a_ready_is_answered_with_the_task_that_the_tracker_gives() -> None:
    play = playbook.Play()
    assert playbook.sent_messages(play.join(1)) == []
    (task,) = playbook.sent_messages(play.answer(playbook.job("a", priority=1)), 1)
    assert isinstance(task, Task)
    assert (task.issue_id, task.priority, task.title) == ("a", 1, "title of a")


def test_done_and_failed_are_not_answered() -> None:
    play = playbook.Play()
    play.working("a", "b")
    assert playbook.sent_messages(play.do(playbook.done(1, "a"))) == []
    assert playbook.sent_messages(play.do(playbook.failed(2, "b"))) == []


def test_the_ready_after_a_done_gets_the_next_issue_and_waits_for_no_close() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(playbook.done(1, "a"))
    assert play.pending() == [(Action.CLOSE, "a")]
    assert play.asked() >= 1
    assert playbook.sent_messages(play.do(playbook.ready(1))) == []
    assert playbook.task_of(play.answer("b"), 1) == "b"


def test_the_most_urgent_issue_goes_out_first_and_the_older_claim_among_equals() -> None:
    play = playbook.Play(workers=3)
    for number in (1, 2, 3):
        play.do(ev.WorkerSpawned(f"W{number}", 100 + number))
    play.answer(playbook.job("late", 3), playbook.job("first", 2), playbook.job("second", 2))
    assert [playbook.task_of(play.join(n, 100 + n)) for n in (1, 2, 3)] == [
        "first",
        "second",
        "late",
    ]


def test_a_second_ready_before_the_reply_brings_no_second_reply() -> None:
    play = playbook.Play()
    play.join(1)
    again = play.do(playbook.ready(1))
    assert (
        playbook.sent_messages(again) == [] and "READY again" in playbook.notes(again, "error")[0]
    )
    assert [type(m) for m in playbook.sent_messages(play.answer("a"))] == [Task]


def test_ready_with_a_task_brings_the_same_task_again_and_an_error() -> None:
    play = playbook.Play()
    first = playbook.sent_messages(play.working("a"))
    again = play.do(playbook.ready(1))
    assert playbook.sent_messages(again) == first
    assert "while it has a" in playbook.notes(again, "error")[0]
    assert playbook.records(again, rec.Started) == []


def test_a_flood_of_readies_with_a_task_does_not_fill_the_journal() -> None:
    play = playbook.Play()
    play.working("a")
    errors = [n for _ in range(200) for n in playbook.notes(play.do(playbook.ready(1)), "error")]
    assert 0 < len(errors) <= limits.BAD_LINES_SHOWN


# --- messages in the wrong state ------------------------------------------------------------------


def test_done_for_nothing_is_answered_with_a_short_wait_and_changes_nothing() -> None:
    play = playbook.Play()
    play.working("a")
    stray = play.do(playbook.done(1, "b"))
    assert playbook.sent_messages(stray) == [Wait(1)]
    assert playbook.records(stray, rec.Finished) == []
    assert playbook.of(play.do(playbook.done(1, "a")), RoundTrip), "the real one still counts"


def test_the_wait_after_a_stray_uses_up_no_ready() -> None:
    play = playbook.Play()
    play.join(1)
    assert playbook.sent_messages(play.do(playbook.done(1, "z"))) == [Wait(1)]
    assert playbook.task_of(play.answer("a"), 1) == "a"


def test_done_twice_counts_once() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(playbook.done(1, "a"))
    assert playbook.sent_messages(play.do(playbook.done(1, "a"))) == [Wait(1)]
    play.answer()
    assert play.board.totals["done"] == 1


def test_what_a_worker_has_is_a_matter_of_its_connection_not_of_its_name() -> None:
    play = playbook.Play()
    play.working("a", "b")
    assert playbook.sent_messages(play.do(playbook.done(2, "a")), 2) == [Wait(1)]
    assert playbook.records(play.do(playbook.done(1, "a")), rec.Finished)[0].worker_id == "W1"


def test_a_thousand_wrong_lines_end_a_connection_and_the_log_shows_the_first_twenty() -> None:
    play = playbook.Play()
    play.join(1)
    bad = ev.Misread(ConnId(1), "no JSON", "xxx")
    commands = [c for _ in range(limits.BAD_LINES_MAX - 1) for c in play.do(bad)]
    assert playbook.of(commands, HangUp) == []
    assert len(playbook.notes(commands, "warning")) == limits.BAD_LINES_SHOWN
    end = play.do(bad)
    cause = "1000 wrong lines within 60 s, the last one: no JSON"
    assert playbook.of(end, HangUp) == [HangUp(ConnId(1), cause)]
    assert playbook.notes(end, "warning") == [f"W1: connection closed: {cause}"]


@pytest.mark.parametrize(
    ("version", "v1"), [("1.1", False), ("1.7", False), ("1", True), ("2.0", True)]
)
def test_a_later_minor_version_is_answered_in_1_1_and_another_one_in_1(
    version: str, v1: bool
) -> None:
    play = playbook.Play()
    play.do(ev.Connected(ConnId(1), 101))
    play.do(ev.Received(ConnId(1), Ready("w", version, frozenset({GROUPED}))))
    (sent,) = playbook.of(play.answer("a"), Send)
    assert isinstance(sent.message, Task) and sent.v1 is v1


def test_wrong_lines_count_within_a_minute_and_not_over_the_life_of_a_connection() -> None:
    play = playbook.Play()
    play.working("a")
    bad = ev.Misread(ConnId(1), "no JSON", "xxx")
    warnings: list[str] = []
    for _ in range(3):
        commands = [c for _ in range(limits.BAD_LINES_MAX - 1) for c in play.do(bad)]
        assert playbook.of(commands, HangUp) == []
        warnings += playbook.notes(commands, "warning")
        play.wait(limits.BAD_LINES_SECONDS)
    assert len(warnings) == limits.BAD_LINES_SHOWN
    assert playbook.records(play.do(playbook.done(1, "a")), rec.Finished)[0].outcome == "success"


def test_unknown_types_are_ignored_for_ever_and_each_is_named_once() -> None:
    play = playbook.Play()
    play.working("a")
    warnings: list[str] = []
    for number in range(3 * limits.BAD_LINES_MAX):
        kind = ("NEWS", "TELEMETRY")[number % 2]
        commands = play.do(ev.Unknown(ConnId(1), kind, f'{{"type":"{kind}"}}'))
        assert playbook.of(commands, HangUp) == []
        warnings += playbook.notes(commands, "warning")
    assert warnings == [
        'W1: ignored an unknown message: {"type":"NEWS"}',
        'W1: ignored an unknown message: {"type":"TELEMETRY"}',
    ]
    assert playbook.records(play.do(playbook.done(1, "a")), rec.Finished)[0].outcome == "success"


def test_a_flood_of_ever_new_types_does_not_fill_the_journal() -> None:
    play = playbook.Play()
    play.join(1)
    floods = (play.do(ev.Unknown(ConnId(1), f"T{n}", "{}")) for n in range(200))
    assert len([t for c in floods for t in playbook.notes(c, "warning")]) == limits.BAD_LINES_SHOWN


def test_strays_between_the_wrong_lines_do_not_save_a_flooding_peer() -> None:
    play = playbook.Play()
    play.join(1)
    bad = ev.Misread(ConnId(1), "no JSON", "xxx")
    for _ in range(limits.BAD_LINES_MAX - 1):
        play.do(bad)
    play.do(playbook.done(1, "nothing"))
    assert len(playbook.of(play.do(bad), HangUp)) == 1


# --- holding and waiting --------------------------------------------------------------------------


def test_a_waiting_ready_is_answered_with_wait_after_three_seconds_and_not_again() -> None:
    play = playbook.Play()
    play.join(1)
    assert playbook.sent_messages(play.wait(2.9)) == []
    (reply,) = playbook.sent_messages(play.wait(0.2), 1)
    assert isinstance(reply, Wait)
    assert playbook.sent_messages(play.wait(30.0)) == []
    assert playbook.sent_messages(play.answer("a")) == [], "what came too late stays in the backlog"
    assert playbook.task_of(play.do(playbook.ready(1))) == "a"


def idle() -> playbook.Play:
    """One worker, for whom there is nothing."""
    play = playbook.Play(poll_seconds=3600.0)
    play.join(1)
    play.quiet()
    return play


def test_who_finds_nothing_is_held_for_25_s_at_most_and_then_told_to_wait() -> None:
    play = idle()
    assert limits.IDLE_SECONDS_MAX <= 25.0, "a socket of somebody else gives up after 30"
    assert (
        playbook.sent_messages(play.wait(limits.IDLE_SECONDS_MAX * 0.8 - limits.IDLE_BEAT_SECONDS))
        == []
    )
    assert playbook.sent_messages(
        play.wait(limits.IDLE_SECONDS_MAX * 0.2 + limits.IDLE_BEAT_SECONDS)
    ) == [Wait(1)]
    assert (
        playbook.sent_messages(play.wait(1.0)) == []
        and playbook.sent_messages(play.do(playbook.ready(1))) == []
    )


def test_being_asked_again_holds_nobody_longer() -> None:
    play = playbook.Play()
    play.join(1)
    play.quiet()
    sent = []
    for _ in range(int(limits.IDLE_SECONDS_MAX)):
        sent += playbook.sent_messages(play.wait(1.0)) + playbook.sent_messages(play.quiet())
    assert sent == [Wait(1)], "the source was asked every five seconds"


def test_who_is_held_has_what_comes_at_once() -> None:
    play = idle()
    play.wait(limits.IDLE_SECONDS_MAX * 0.8 - limits.IDLE_BEAT_SECONDS)
    play.do(ev.Arrived())
    assert playbook.task_of(play.answer("a"), 1) == "a"
    play.do(playbook.done(1, "a"))
    play.answer()
    assert playbook.sent_messages(play.wait(300.0)) == [], "it has not said READY"


def test_a_hundred_who_are_held_together_are_told_in_groups() -> None:
    play = playbook.Play(workers=100, poll_seconds=3600.0)
    for number in range(1, 101):
        play.own(number)
    play.quiet()
    began, ends = play.now, Counter[float]()
    for _ in range(int(limits.OWN_IDLE_SECONDS_MAX)):
        ends[play.now] += len(playbook.sent_messages(play.wait(1.0)))
    assert ends.total() == 100 and min(at for at in ends if ends[at]) - began >= 40.0
    counts = [count for count in ends.values() if count]
    assert 3 <= len(counts) <= 5 and max(counts) < 50


def test_the_end_of_a_retry_finds_whoever_is_held() -> None:
    play = playbook.Play(policy=Policy(retry_delay_seconds=2.4), poll_seconds=3600.0)
    play.working("a")
    play.do(playbook.failed(1, "a"))
    play.answer()
    assert playbook.sent_messages(play.do(playbook.ready(1))) == []
    play.quiet()
    assert playbook.sent_messages(play.wait(2.5)) == [] and play.round_trip is not None
    assert playbook.task_of(play.answer("a"), 1) == "a"


def test_a_close_that_has_to_be_tried_again_later_leaves_a_ready_held() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(playbook.done(1, "a"))
    play.answer(results={"a": Result.FAILED})
    assert playbook.sent_messages(play.do(playbook.ready(1))) == []
    assert playbook.sent_messages(play.quiet() + play.wait(limits.HOLD_SECONDS)) == []


def test_who_is_held_is_shut_down_at_once() -> None:
    play = idle()
    assert playbook.sent_messages(play.do(ev.StopAsked()), 1) == [Shutdown("user_requested")]
    assert playbook.sent_messages(play.wait(5.0)) == []


def test_who_is_held_is_shut_down_at_once_by_a_drain() -> None:
    play = idle()
    assert [type(m) for m in playbook.sent_messages(play.do(ev.StopAsked(drain=True)), 1)] == [
        Shutdown
    ]


def test_being_held_does_not_put_off_the_end_of_an_idle_fleet() -> None:
    play = playbook.Play(idle_timeout_seconds=15.0)
    play.join(1)
    play.quiet()
    for _ in range(14):
        assert playbook.sent_messages(play.wait(1.0)) == [] and play.quiet() is not None
    assert [type(m) for m in playbook.sent_messages(play.wait(1.0) + play.quiet(), 1)] == [Shutdown]


# --- who is who -----------------------------------------------------------------------------------


def test_our_workers_have_their_number_and_others_get_the_next_free_one() -> None:
    play = playbook.Play(workers=2)
    play.own(2)
    joined = playbook.records(play.join(7, pid=777), rec.WorkerJoined)
    assert [(j.worker_id, j.own) for j in joined] == [("W3", False)]
    assert playbook.records(play.own(1), rec.WorkerJoined)[0].worker_id == "W1"


def test_a_number_is_free_again_when_its_worker_has_left() -> None:
    play = playbook.Play()
    play.join(1)
    play.join(2)
    play.do(playbook.lost(1))
    assert playbook.records(play.join(3), rec.WorkerJoined)[0].worker_id == "W1"


def test_replies_carry_the_number_that_we_gave_whatever_the_worker_calls_itself() -> None:
    play = playbook.Play()
    play.connect(1)
    play.do(playbook.ready(1, called="w-77"))
    assert [c.worker_id for c in playbook.of(play.answer("a"), Send)] == ["W1"]


def test_only_a_ready_that_opts_in_is_answered_in_version_1_1() -> None:
    play = playbook.Play()
    play.join(1, v1=True)
    assert [c.v1 for c in playbook.of(play.answer("a"), Send)] == [True]
    play.do(playbook.done(1, "a"), playbook.ready(1))
    assert [c.v1 for c in playbook.of(play.answer("b"), Send)] == [False]


def test_features_without_the_version_mean_nothing() -> None:
    play = playbook.Play(self_claiming=True)
    play.connect(1)
    play.do(ev.Received(ConnId(1), Ready("w", "2", frozenset({"grouped"}))))
    play.answer("a")
    assert play.pending() == [(Action.HAND_OVER, "a")]


# --- first words, last words ----------------------------------------------------------------------


def test_who_says_nothing_valid_in_ten_seconds_is_hung_up_on() -> None:
    play = playbook.Play()
    play.connect(1)
    play.do(ev.Misread(ConnId(1), "no JSON", "GET / HTTP/1.1"))
    assert playbook.of(play.wait(9.9), HangUp) == []
    assert playbook.of(play.wait(0.2), HangUp) == [HangUp(ConnId(1), "said nothing valid")]


def test_after_its_first_word_silence_ends_no_connection() -> None:
    play = playbook.Play()
    play.working("a")
    assert playbook.of(play.wait(100.0), HangUp) == []


def test_during_a_drain_a_ready_is_answered_with_shutdown() -> None:
    play = playbook.Play()
    play.working("a", "b")
    play.do(ev.StopAsked(drain=True), playbook.done(1, "a"))
    assert playbook.sent_messages(play.do(playbook.ready(1))) == [Shutdown("user_requested")]


def test_a_message_of_a_connection_that_is_gone_is_ignored() -> None:
    play = playbook.Play()
    play.working("a")
    play.do(playbook.lost(1))
    assert play.do(playbook.done(1, "a")) == []
