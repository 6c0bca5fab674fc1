"""What becomes of a job after an attempt."""

from __future__ import annotations

import pytest

from beads_workers.core.base.model import Outcome, OutcomeKind
from beads_workers.integrations.hero.source import RETRY_SECONDS_MAX, Ends, JobRequeue, judge
from beads_workers.integrations.hero.wire import JobStatus

ERROR = Outcome(OutcomeKind.ERROR, "boom")


@pytest.mark.parametrize(
    ("result", "output"),
    [('"hello"', "hello"), ("", ""), ('{"a": 1}', '{"a": 1}'), ("42", "42"), ('"\\u00e9"', "é")],
)
def test_a_success_ends_it_with_its_output(result: str, output: str) -> None:
    outcome = Outcome(OutcomeKind.SUCCESS, result=result)
    assert judge(outcome, 1, 1) == Ends(JobStatus.FINISHED, output)
    assert judge(outcome, 1, 1, stopped=True) == Ends(JobStatus.FINISHED, output), "it was done"


@pytest.mark.parametrize(
    ("kind", "said", "error"),
    [
        (OutcomeKind.ERROR, "boom", "boom"),
        (OutcomeKind.ERROR, "", "failed without a word"),
        (OutcomeKind.TIMEOUT, "timed out after 3 s", "timeout"),
        (OutcomeKind.LOST, "its worker, pid 7, died", "lost"),
        (OutcomeKind.CANCELLED, "worker shut down", "lost"),
        (OutcomeKind.NOT_FOUND, "no such context: 'x'", "no such context: 'x'"),
        (OutcomeKind.RETRY, "busy", "busy"),
    ],
)
def test_the_last_attempt_ends_it_with_an_error(kind: OutcomeKind, said: str, error: str) -> None:
    assert judge(Outcome(kind, said), 3, 3) == Ends(JobStatus.ERROR, error)
    stopped = judge(Outcome(kind, said), 1, 3, stopped=True)
    assert stopped == Ends(JobStatus.ERROR, "stopped_by_request")


def test_before_the_last_one_there_is_another_each_twice_as_late() -> None:
    assert judge(ERROR, 1, 9) == JobRequeue(1.0)
    assert judge(ERROR, 3, 9, retry_seconds=2.0) == JobRequeue(8.0)
    assert judge(ERROR, 99, 1000) == JobRequeue(RETRY_SECONDS_MAX)


def test_what_was_cut_short_need_not_wait() -> None:
    assert judge(Outcome(OutcomeKind.LOST), 1, 2) == JobRequeue(0.0)
    assert judge(Outcome(OutcomeKind.CANCELLED), 1, 2) == JobRequeue(0.0)


def test_one_that_asks_for_a_later_attempt_gets_it_then() -> None:
    assert judge(Outcome(OutcomeKind.RETRY, "x", 7.0), 1, 2) == JobRequeue(7.0)


def test_what_no_attempt_would_change_is_not_tried_again() -> None:
    refused = Outcome(OutcomeKind.NOT_FOUND, "refused: eval")
    assert judge(refused, 1, 5) == Ends(JobStatus.ERROR, "refused: eval")


def test_what_was_never_begun_is_no_attempt() -> None:
    assert judge(None, 1, 1) == JobRequeue(never=True)
    assert judge(None, 1, 1, stopped=True) == Ends(JobStatus.ERROR, "stopped_by_request")
