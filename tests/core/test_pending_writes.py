"""A run that ends while writes are pending: docs/OPERATIONS.md, "Life of a fleet"."""

from __future__ import annotations

from beads_workers.core import events as ev
from beads_workers.core.commands import Command, End
from beads_workers.core.source import Result
from beads_workers.core.states import RunState
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


def test_a_run_whose_last_claim_was_not_answered_is_not_settled() -> None:
    play = Play()
    play.working("a")
    play.join(2)
    play.answer(take_error="the answer was lost")
    assert play.core._parts.round_trips.claims_unknown
    play.do(ev.StopAsked())
    play.do(lost(1), ev.OwnerGone(901))
    # The release is answered: the tracker is well, and what that claim has won is as unknown.
    commands: list[Command] = []
    while play.ended is None:
        commands = play.answer() if play.round_trip is not None else play.do(lost(2))
    assert of(commands, End)[0].pending == () and not of(commands, End)[0].settled


def test_a_run_that_has_nothing_pending_is_settled() -> None:
    play = Play(until_empty=True)
    play.join(1)
    play.answer()
    commands = play.do(lost(1))
    assert of(commands, End) == [End(0, (), True)]
