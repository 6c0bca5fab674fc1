"""What is counted over a run: attempts, durations, settlements, visits to the tracker."""

from __future__ import annotations

import pytest

from beads_workers.core.base.policy import Policy
from beads_workers.core.records.journal import RoundTripBegan
from beads_workers.core.views.snapshot import BUCKETS, Durations, kind_of
from tests.core.playbook import Play, done, failed


@pytest.mark.parametrize(
    ("round_trip", "kind"),
    [
        (RoundTripBegan(settle=3), "settle"),
        (RoundTripBegan(renew=1), "renew"),
        (RoundTripBegan(take=5), "take"),
        (RoundTripBegan(take=0), "list"),
        (RoundTripBegan(settle=1, renew=2, take=0), "settle+renew+list"),
        (RoundTripBegan(), "nothing"),
    ],
)
def test_a_turn_is_called_by_what_it_is_for(round_trip: RoundTripBegan, kind: str) -> None:
    assert kind_of(round_trip) == kind


def test_a_duration_lies_in_the_bucket_whose_bound_it_does_not_exceed() -> None:
    durations = Durations()
    for seconds in (0.0, 0.005, 0.0051, 14400, 14401):
        durations.add(seconds)
    assert durations.counts[0] == 2
    assert durations.counts[1] == 1
    assert durations.counts[-2:] == [1, 1]
    assert sum(durations.counts) == 5 and len(durations.counts) == len(BUCKETS) + 1


def test_attempts_are_counted_by_outcome_and_by_what_became_of_the_job() -> None:
    play = Play(policy=Policy(attempts_max=1))
    play.working("a", "b")
    play.do(done(1, "a", duration_ms=1500), failed(2, "b", duration_ms=20))
    counters = play.board.counters
    assert counters.started == 2
    assert counters.attempts == {("success", "finish"): 1, ("error", "quarantined"): 1}
    assert counters.durations["success"].seconds == 1.5
    assert counters.durations["error"].seconds == 0.02


def test_settlements_are_counted_by_what_the_tracker_was_told_and_answered() -> None:
    play = Play()
    play.working("a")
    play.do(done(1, "a"))
    play.quiet()
    play.wait(1)
    play.quiet()
    assert play.board.counters.settled == {("close", "applied"): 1}


def test_a_visit_that_fails_is_counted_under_its_kind_and_takes_its_time() -> None:
    play = Play()
    play.join(1)
    began = play.now
    play.now += 2.0
    play.answer(take_error="no disk")
    trips = play.board.counters.trips["take"]
    assert (trips.count, trips.seconds, trips.failures) == (1, pytest.approx(2.0), 1)
    assert play.now == began + 2.0


def test_asking_about_earlier_runs_is_a_kind_of_its_own() -> None:
    from beads_workers.core.schedule.events import RecoveryFailed

    play = Play(recovering=True)
    play.do(RecoveryFailed("no bd", "", 1.0))
    assert play.board.counters.trips["recover"].failures == 1
