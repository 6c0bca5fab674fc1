"""What becomes of a job after each outcome."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beads_workers.core.base.model import Outcome, OutcomeKind
from beads_workers.core.base.policy import (
    AttemptHistory,
    Ended,
    Finish,
    Land,
    Policy,
    Quarantine,
    Requeue,
    fate,
    unlanded,
)

POLICY = Policy()
CHARGED = [OutcomeKind.ERROR, OutcomeKind.TIMEOUT, OutcomeKind.LOST]


def judged(
    kind: OutcomeKind, history: AttemptHistory | None = None, policy: Policy = POLICY
) -> object:
    """The verdict without jitter."""
    return fate(policy, Ended(Outcome(kind, "why"), history or AttemptHistory()))


def test_success_finishes_whatever_came_before() -> None:
    assert judged(OutcomeKind.SUCCESS, AttemptHistory(2, 7)) == Finish()


@pytest.mark.parametrize("kind", CHARGED)
def test_a_fault_charges_one_attempt_and_comes_back_after_ten_seconds(kind: OutcomeKind) -> None:
    assert judged(kind) == Requeue(10.0, AttemptHistory(charged=1))


@pytest.mark.parametrize("kind", CHARGED)
def test_the_last_attempt_quarantines_with_the_error_as_reason(kind: OutcomeKind) -> None:
    assert judged(kind, AttemptHistory(charged=1)) == Requeue(20.0, AttemptHistory(charged=2))
    assert judged(kind, AttemptHistory(charged=2)) == Quarantine("why", AttemptHistory(charged=3))


def test_one_allowed_attempt_means_no_retry() -> None:
    verdict = judged(OutcomeKind.ERROR, policy=Policy(attempts_max=1))
    assert verdict == Quarantine("why", AttemptHistory(charged=1))


def test_the_cap_holds_for_a_history_that_is_already_above_it() -> None:
    # The user may start the next run with a smaller --max-attempts.
    assert judged(OutcomeKind.ERROR, AttemptHistory(charged=9)) == Quarantine(
        "why", AttemptHistory(charged=10)
    )


@pytest.mark.parametrize(
    ("earlier", "delay"), [(0, 10), (1, 20), (2, 40), (3, 80), (4, 160), (5, 300), (6, 300)]
)
def test_the_delay_doubles_from_ten_seconds_up_to_five_minutes(earlier: int, delay: float) -> None:
    verdict = judged(OutcomeKind.ERROR, AttemptHistory(earlier), Policy(attempts_max=99))
    assert verdict == Requeue(delay, AttemptHistory(earlier + 1))


def test_a_thousand_failures_do_not_overflow_the_delay() -> None:
    verdict = judged(OutcomeKind.ERROR, AttemptHistory(1000), Policy(attempts_max=9999))
    assert verdict == Requeue(300.0, AttemptHistory(1001))


def test_a_retry_delay_of_nothing_comes_back_at_once() -> None:
    policy = Policy(retry_delay_seconds=0.0)
    assert judged(OutcomeKind.ERROR, policy=policy) == Requeue(0.0, AttemptHistory(1))


@given(jitter=st.floats(0, 1), earlier=st.integers(0, 50))
def test_jitter_spreads_over_the_last_fifth_and_never_exceeds_the_delay(
    jitter: float, earlier: int
) -> None:
    policy = Policy(attempts_max=99)
    outcome = Outcome(OutcomeKind.ERROR)
    full = fate(policy, Ended(outcome, AttemptHistory(earlier)))
    spread = fate(policy, Ended(outcome, AttemptHistory(earlier), jitter))
    assert isinstance(full, Requeue) and isinstance(spread, Requeue)
    assert full.delay_seconds * 0.8 - 1e-9 <= spread.delay_seconds <= full.delay_seconds


def test_full_jitter_takes_a_fifth_off() -> None:
    verdict = fate(POLICY, Ended(Outcome(OutcomeKind.ERROR), AttemptHistory(), 1.0))
    assert verdict == Requeue(8.0, AttemptHistory(1))


def test_cancelled_charges_nothing_waits_for_nothing_and_forgets_nothing() -> None:
    history = AttemptHistory(charged=2, free_in_a_row=5)
    assert judged(OutcomeKind.CANCELLED, history) == Requeue(0.0, history)


def test_not_found_is_quarantined_at_once() -> None:
    assert judged(OutcomeKind.NOT_FOUND) == Quarantine("why", AttemptHistory(charged=1))


def test_a_retry_without_fault_charges_nothing_but_backs_off() -> None:
    assert judged(OutcomeKind.RETRY) == Requeue(10.0, AttemptHistory(0, free_in_a_row=1))
    assert judged(OutcomeKind.RETRY, AttemptHistory(1, 2)) == Requeue(
        40.0, AttemptHistory(1, free_in_a_row=3)
    )


def test_nineteen_retries_in_a_row_are_free_and_the_twentieth_counts() -> None:
    history = AttemptHistory()
    for number in range(1, 20):
        verdict = judged(OutcomeKind.RETRY, history)
        assert isinstance(verdict, Requeue)
        history = verdict.history
        assert history == AttemptHistory(charged=0, free_in_a_row=number)
    verdict = judged(OutcomeKind.RETRY, history)
    assert verdict == Requeue(10.0, AttemptHistory(charged=1, free_in_a_row=19))


def test_from_the_twentieth_on_every_further_retry_counts_until_quarantined() -> None:
    history = AttemptHistory(charged=1, free_in_a_row=19)
    assert judged(OutcomeKind.RETRY, history) == Requeue(20.0, AttemptHistory(2, 19))
    assert judged(OutcomeKind.RETRY, AttemptHistory(2, 19)) == Quarantine(
        "why", AttemptHistory(3, 19)
    )


@pytest.mark.parametrize("kind", CHARGED)
def test_a_fault_ends_the_streak_of_free_retries(kind: OutcomeKind) -> None:
    assert judged(kind, AttemptHistory(0, 19)) == Requeue(10.0, AttemptHistory(1, 0))


def asking(seconds: float, history: AttemptHistory) -> object:
    """The verdict on a retry for which the worker named a delay."""
    return fate(POLICY, Ended(Outcome(OutcomeKind.RETRY, "", seconds), history, 0.5))


def test_a_retry_comes_exactly_when_the_worker_asked_for_it() -> None:
    assert asking(77.0, AttemptHistory()) == Requeue(77.0, AttemptHistory(0, 1))
    assert asking(0.0, AttemptHistory()) == Requeue(0.0, AttemptHistory(0, 1))


def test_a_retry_may_not_be_put_off_for_more_than_a_day() -> None:
    assert asking(1e9, AttemptHistory()) == Requeue(86_400.0, AttemptHistory(0, 1))


def test_a_retry_that_counts_still_does_not_come_sooner_than_asked() -> None:
    assert asking(500.0, AttemptHistory(0, 19)) == Requeue(500.0, AttemptHistory(1, 19))
    assert asking(1e9, AttemptHistory(0, 19)) == Requeue(86_400.0, AttemptHistory(1, 19))
    assert asking(1.0, AttemptHistory(0, 19)) == Requeue(9.0, AttemptHistory(1, 19))


@pytest.mark.parametrize("kind", list(OutcomeKind))
@given(charged=st.integers(0, 50), free=st.integers(0, 50), jitter=st.floats(0, 1))
def test_attempts_are_never_forgotten_and_never_charged_twice(
    kind: OutcomeKind, charged: int, free: int, jitter: float
) -> None:
    verdict = fate(POLICY, Ended(Outcome(kind), AttemptHistory(charged, free), jitter))
    if not isinstance(verdict, Finish):
        assert charged <= verdict.history.charged <= charged + 1
    if isinstance(verdict, Requeue):
        assert verdict.delay_seconds >= 0


def test_the_attempt_number_counts_charged_attempts_from_one() -> None:
    assert AttemptHistory().attempt == 1
    assert AttemptHistory(charged=2, free_in_a_row=9).attempt == 3


def test_what_befalls_all_issues_is_charged_to_none_and_a_success_lands_all_the_same() -> None:
    before = AttemptHistory(1, 2, 3, "why")
    failed = Ended(Outcome(OutcomeKind.ERROR, "x"), before, struck=True)
    assert fate(POLICY, failed) == Requeue(0.0, before)
    success = Ended(Outcome(OutcomeKind.SUCCESS), before, lands=True, struck=True)
    assert fate(POLICY, success) == Land(before)


@pytest.mark.parametrize(
    ("why", "repairs_left", "at_once", "verdict"),
    [
        ("", 0, True, "requeue"),
        ("conflict", 1, True, "mend"),
        ("verify", 1, False, "requeue"),
        ("verify", 0, True, "quarantined"),
        ("gate", 9, True, "quarantined"),
        ("branch", 9, True, "quarantined"),
    ],
)
def test_a_branch_that_does_not_land_is_mended_while_that_may_help(
    why: str, repairs_left: int, at_once: bool, verdict: str
) -> None:
    assert unlanded(why, repairs_left, at_once=at_once) == verdict
