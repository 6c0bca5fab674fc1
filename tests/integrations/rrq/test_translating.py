"""What an executor answered, as the end of an attempt."""

from __future__ import annotations

import pytest

from beads_workers.core.base import limits
from beads_workers.core.base.model import Outcome, OutcomeKind
from beads_workers.integrations.rrq.executor_process import to_outcome
from beads_workers.integrations.rrq.wire import ErrorInfo, RequestStatus
from beads_workers.integrations.rrq.wire import RequestOutcome as Answer


def outcome_of(
    status: RequestStatus, error: ErrorInfo | None = None, after: float | None = None
) -> Outcome:
    return to_outcome(Answer(status, "r1", "j1", {"a": 1}, error, after))


def test_a_success_keeps_its_result() -> None:
    assert outcome_of(RequestStatus.SUCCESS) == Outcome(OutcomeKind.SUCCESS, result='{"a": 1}')


def test_a_retry_keeps_its_delay() -> None:
    assert outcome_of(RequestStatus.RETRY, ErrorInfo("busy"), 2.5) == Outcome(
        OutcomeKind.RETRY, "busy", 2.5
    )
    assert outcome_of(RequestStatus.RETRY).retry_after_seconds is None


def test_a_timeout_is_one() -> None:
    assert outcome_of(RequestStatus.TIMEOUT) == Outcome(
        OutcomeKind.TIMEOUT, "the executor timed out"
    )
    assert outcome_of(RequestStatus.TIMEOUT, ErrorInfo("slow", "timeout")).error == "timeout: slow"


@pytest.mark.parametrize(
    "error",
    [
        ErrorInfo("f", "handler_not_found"),
        ErrorInfo("no", code="unsupported_version"),
        ErrorInfo("Unsupported protocol version"),
    ],
)
def test_what_no_further_attempt_can_change_is_not_found(error: ErrorInfo) -> None:
    assert outcome_of(RequestStatus.ERROR, error).kind is OutcomeKind.NOT_FOUND


def test_any_other_error_is_one_in_a_line_of_bounded_length() -> None:
    assert outcome_of(RequestStatus.ERROR) == Outcome(OutcomeKind.ERROR, "failed without a word")
    assert outcome_of(RequestStatus.ERROR, ErrorInfo("a\n b", "T")) == Outcome(
        OutcomeKind.ERROR, "T: a b"
    )
    long = outcome_of(RequestStatus.ERROR, ErrorInfo("x" * 100_000))
    assert len(long.error) == limits.ERROR_CHARS_MAX
    quoted = outcome_of(RequestStatus.ERROR, ErrorInfo("Unsupported protocol version", "HttpError"))
    assert quoted.kind is OutcomeKind.ERROR
