"""``--start-at`` and ``--until``: what people write, and a run that heeds the wall clock."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from beads_workers.core.base.states import RunState
from beads_workers.core.base.wire import Shutdown
from beads_workers.core.records import journal as rec
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.hours import ENDED, moment, read_moment, written
from beads_workers.core.views.status import status
from tests.core import playbook
from tests.core.playbook import EPOCH, Play

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> float:
    """A local time in Berlin, with its offset where it comes twice."""
    there = datetime.fromisoformat(text)
    return (there if there.tzinfo else there.replace(tzinfo=BERLIN)).timestamp()


@pytest.mark.parametrize(
    ("text", "now", "then"),
    [
        ("07:00", "2026-11-27 22:30", "2026-11-28 07:00"),
        ("23:00", "2026-11-27 22:30", "2026-11-27 23:00"),
        ("7:05:30", "2026-12-31 22:30", "2027-01-01 07:05:30"),
        # Right then, the next one is tomorrow's.
        ("07:00", "2026-11-27 07:00", "2026-11-28 07:00"),
        # The night is an hour shorter, or longer: it is the clock on the wall that counts.
        ("07:00", "2026-03-28 22:00", "2026-03-29 07:00+02:00"),
        ("07:00", "2026-10-24 22:00", "2026-10-25 07:00+01:00"),
        # 02:30 does not come that night: clocks go from 02:00 to 03:00.
        ("02:30", "2026-03-28 22:00", "2026-03-29 03:30+02:00"),
        ("02:30", "2026-03-29 03:45+02:00", "2026-03-30 02:30+02:00"),
        # It comes twice: the first time, and once that has passed, the second.
        ("02:30", "2026-10-24 22:00", "2026-10-25 02:30+02:00"),
        ("02:30", "2026-10-25 02:45+02:00", "2026-10-25 02:30+01:00"),
        ("02:30", "2026-10-25 02:45+01:00", "2026-10-26 02:30+01:00"),
        # A duration is no clock.
        ("8h", "2026-03-28 23:00", "2026-03-29 08:00+02:00"),
        ("2027-01-31 07:00", "2026-11-27 22:30", "2027-01-31 07:00+01:00"),
        ("2027-01-31T07:00:00-05:00", "2026-11-27 22:30", "2027-01-31 13:00+01:00"),
    ],
)
def test_a_moment_is_the_next_one_on_the_wall_clock(text: str, now: str, then: str) -> None:
    assert moment(read_moment(text), at(now), BERLIN) == at(then)


def test_a_written_moment_means_the_same_whenever_and_wherever_it_is_read() -> None:
    end = at("2026-10-25 02:30+01:00") + 0.25
    for zone in (BERLIN, UTC, ZoneInfo("America/New_York")):
        assert moment(read_moment(written(end)), end + 5000.0, zone) == end


@pytest.mark.parametrize("value", ["24:00", "soon", "07:60", "", "400d", "2027-02-30 07:00"])
def test_what_is_no_moment_is_refused_with_the_forms(value: str) -> None:
    with pytest.raises(ValueError, match="07:00"):
        read_moment(value)


@pytest.mark.parametrize(
    ("value", "forms"),
    [("7", "7h or 07:00"), (22, "22h or 22:00"), (" 90.5 ", "90.5s, 90.5m or 90.5h")],
)
def test_a_bare_number_is_refused_with_its_readings(value: object, forms: str) -> None:
    with pytest.raises(ValueError, match=re.escape(forms)):
        read_moment(value)


def test_a_time_of_toml_is_a_moment() -> None:
    assert read_moment(time(7, 0)) == "07:00:00"


def test_before_its_time_a_run_begins_nothing_and_shows_what_is_to_come() -> None:
    play = Play(start_at=EPOCH + 3600.0)
    play.join(1)
    assert play.core.state is RunState.WAITING
    assert play.round_trip is not None and play.round_trip.take == 0
    play.answer(listed=["a", "b"])
    shown = status(play.board, 600.0)
    assert (shown["state"], shown["queue"]["ready"]) == ("waiting", 2)
    assert shown["hours"]["begins_in_seconds"] == 3000.0
    play.wait(3599.0)
    assert play.core.state is RunState.WAITING and play.round_trip is None
    play.wait(1.0)
    assert play.core.state is RunState.RUNNING
    play.answer("a")
    assert playbook.task_of(play.do(playbook.ready(1)), 1) == "a", "it was told to wait"
    assert status(play.board, 3601.0)["hours"]["begins_at"] is None


def test_a_person_begins_before_the_time_and_then_it_has_no_meaning_any_more() -> None:
    play = Play(start_at=EPOCH + 3600.0)
    play.quiet()
    assert play.do(ev.ResumeAsked(ev.Ticket(1)))
    assert play.core.state is RunState.RUNNING
    play.quiet()
    play.do(ev.PauseAsked(ev.Ticket(2)))
    play.wait(7200.0)
    assert play.core.state is RunState.PAUSED, "a pause by hand is ended by hand"


def test_a_pause_by_hand_outlives_the_time_to_begin() -> None:
    play = Play(start_at=EPOCH + 60.0)
    play.do(ev.PauseAsked(ev.Ticket(1)))
    play.wait(120.0)
    assert play.core.state is RunState.PAUSED


def test_a_run_that_waits_is_stopped_at_once() -> None:
    play = Play(start_at=EPOCH + 3600.0)
    play.quiet()
    play.do(ev.StopAsked())
    play.quiet()
    assert play.ended == 0


def test_a_machine_that_slept_begins_within_a_minute_of_its_waking() -> None:
    play = Play(start_at=EPOCH + 8 * 3600.0)
    play.quiet()
    play.sleep(9 * 3600.0)
    play.wait(60.0)
    assert play.core.state is RunState.RUNNING


def test_the_time_for_the_run_counts_from_its_beginning() -> None:
    play = Play(start_at=EPOCH + 3600.0, runtime_max_seconds=60.0)
    play.quiet()
    play.wait(3630.0)
    assert play.core.state is RunState.RUNNING
    play.quiet()
    play.wait(60.0)
    assert play.core.state is not RunState.RUNNING


def test_after_its_end_nothing_begins_and_what_runs_comes_to_its_own_end() -> None:
    play = Play(until=EPOCH + 3600.0)
    play.working("a")
    play.join(2)
    play.wait(3600.0)
    assert play.core.state is RunState.DRAINING
    assert playbook.sent_messages(play.quiet(), 1) == [], "its attempt may finish"
    commands = play.do(playbook.done(1, "a"))
    assert Shutdown("idle_timeout") in playbook.sent_messages(commands, 1)
    play.do(playbook.lost(1), playbook.lost(2))
    while play.ended is None:
        play.quiet()
    assert play.ended == 0
    assert play.entries[-1].record == rec.RunEnded(0, ENDED)


@pytest.mark.parametrize("paused", [False, True])
def test_a_run_without_anything_at_hand_ends_then(paused: bool) -> None:
    play = Play(until=EPOCH + 60.0)
    play.quiet()
    if paused:
        play.do(ev.PauseAsked(ev.Ticket(1)))
    play.wait(59.0)
    assert play.ended is None
    play.wait(1.0)
    play.quiet()
    assert play.ended == 0


def test_a_run_whose_end_has_passed_before_it_began_takes_nothing() -> None:
    play = Play(until=EPOCH - 1.0)
    play.join(1)
    while play.ended is None:
        assert play.round_trip is None or not play.round_trip.take
        play.quiet()
        play.do(playbook.lost(1))
    assert play.ended == 0


def test_workers_that_all_crash_are_told_before_the_time_to_begin() -> None:
    play = Play(workers=1, start_at=EPOCH + 8 * 3600.0)
    for _ in range(10):
        if play.core.state is not RunState.WAITING:
            break
        play.do(ev.WorkerSpawned("W1", 101))
        play.reap(1, status=1)
        play.quiet()
        play.wait(timedelta(minutes=1).total_seconds())
    assert play.core.state is not RunState.WAITING
    assert play.ended is None or play.ended == 1


def test_a_bare_number_is_asked_back_in_a_short_line() -> None:
    for text in ("7", "123", "9" * 60):
        with pytest.raises(ValueError, match="a time of day, or have a unit") as refused:
            read_moment(text)
        assert len(str(refused.value)) < 120
