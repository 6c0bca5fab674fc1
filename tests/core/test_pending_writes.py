"""A run that ends while writes are pending: docs/OPERATIONS.md, "Life of a fleet"."""

from __future__ import annotations

from beads_workers.core.base.source import Result, Taken
from beads_workers.core.base.states import RunState
from beads_workers.core.schedule import events as ev
from beads_workers.core.schedule.commands import Command, End
from tests.core.playbook import Play, done, lost, of


def failing_close() -> Play:
    """A fleet that stops while the tracker will not take a close."""
    play = Play()
    play.working("a")
    play.do(done(1, "a"))
    play.answer(results={"a": Result.FAILED})
    play.do(ev.StopAsked())
    play.do(lost(1))
    assert play.core.state is RunState.SETTLING
    return play


def test_what_writes_are_still_pending_at_the_end_is_said() -> None:
    play = failing_close()
    commands: list[Command] = []
    while play.ended is None:
        commands = play.wait(1.0)
        if play.round_trip is not None:
            commands += play.answer(results={"a": Result.FAILED})
    end = of(commands, End)[0]
    assert (end.pending, end.settled, end.exit_code) == (("a",), False, 7)


def test_asked_to_hurry_it_does_not_wait_for_a_tracker_that_fails() -> None:
    play = failing_close()
    play.do(ev.StopAsked(seconds=0.0))
    end = of(play.wait(0.0), End)[0]
    assert end.pending == ("a",) and not end.settled


def unanswered() -> Play:
    """A stop after a claim that nobody has heard of: all are gone, and the release is written."""
    play = Play()
    play.working("a")
    play.join(2)
    play.answer(take_error="the answer was lost")
    assert play.core._parts.round_trips.claims_unknown
    play.do(ev.StopAsked())
    play.do(lost(1), ev.OwnerGone(901))
    play.do(lost(2))
    while play.round_trip is not None and play.round_trip.settlements:
        play.answer()
    assert play.round_trip is not None and play.round_trip.take == 0
    return play


def test_a_run_asks_what_is_in_its_name_before_it_ends() -> None:
    play = unanswered()
    play.answer(taken=Taken(unsure=True))
    assert play.round_trip is not None and play.round_trip.take == 0
    end = of(play.answer(), End)[0]
    assert (end.pending, end.settled, end.exit_code) == ((), True, 0)


def test_a_run_whose_last_claim_was_never_answered_is_not_settled() -> None:
    play = unanswered()
    commands: list[Command] = []
    while play.ended is None:
        failed = play.round_trip is not None
        commands = play.answer(take_error="locked") if failed else play.wait(30.0)
    end = of(commands, End)[0]
    assert (end.pending, end.settled, end.exit_code) == ((), False, 7)


def test_nothing_is_left_only_if_the_tracker_is_sure() -> None:
    play = Play(until_empty=True)
    play.join(1)
    play.answer(taken=Taken(unsure=True))
    assert play.ended is None and play.core.state is RunState.RUNNING


def test_a_run_that_has_nothing_pending_is_settled() -> None:
    play = Play(until_empty=True)
    play.join(1)
    play.answer()
    commands = play.do(lost(1))
    assert of(commands, End) == [End(0, (), True)]
