"""Issues of our own tracker as envelopes, and envelopes that become issues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from beads_workers.integrations.envelopes.fold import NEVER_SAID, to_envelope, to_issue
from beads_workers.integrations.envelopes.wire import Envelope, JobState
from beads_workers.trackers.issue import BadIssue, TrackerIssue, to_job

JOB = Envelope("job-1", "jobs.mail.hello", JobState.ENQUEUED, 1672531200, ("you",), {"loud": True})
RUNNING = replace(JOB, state=JobState.RUNNING, ts_started=1672531300, attempt=2)
DONE = replace(RUNNING, state=JobState.DONE, ts_finished=1672531400, result=7)
ERROR = replace(RUNNING, state=JobState.ERROR, ts_finished=1672531400, error="boom")


def issue(job: Envelope = JOB, **changes: Any) -> TrackerIssue:
    made, useless = to_issue(job, 0)
    assert not useless
    return replace(made, **changes)


def test_what_was_handed_in_is_the_same_envelope_again() -> None:
    extra = {"tenant": {"id": 7}, "priority": 1, "title": "Say hello"}
    job = replace(JOB, extra=extra)
    made = issue(job)
    assert (made.title, made.priority) == ("Say hello", 1)
    assert to_envelope(made) == job


def test_its_function_is_what_a_worker_calls() -> None:
    call = to_job(issue(), "sqlite").call
    assert call is not None
    assert (call.path, call.args, call.kwargs) == (JOB.job_path, JOB.args, JOB.kwargs)
    routed = to_job(issue(replace(JOB, job_path="rrq.web.render")), "sqlite").call
    assert routed is not None and routed.path == "web#render"


def test_what_an_executor_is_to_be_told_stands_where_it_is_looked_for() -> None:
    trace = {"traceparent": "00-a-b-01"}
    assert (
        to_job(issue(replace(JOB, extra={"trace_context": trace})), "sqlite").original[
            "trace_context"
        ]
        == trace
    )


def test_the_order_of_a_submission_is_the_order_of_age() -> None:
    ages = [to_issue(JOB, position)[0].created_at for position in range(3)]
    assert ages == sorted(set(ages))


def test_a_command_that_is_handed_in_never_becomes_one() -> None:
    made = issue(replace(JOB, extra={"command": ["rm", "-rf", "/"], "status": "closed"}))
    assert made.command is None and made.status == "open"


def test_extra_keys_that_cannot_be_an_issues_are_kept_and_said() -> None:
    made, useless = to_issue(replace(JOB, extra={"priority": "high", "labels": 1}), 0)
    assert made.priority == 2 and made.extra["envelope"] == {"priority": "high", "labels": 1}
    assert [text.partition(":")[0] for text in useless] == ["labels", "priority"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"job_id": "a b"}, "job_id"),
        ({"job_id": "x" * 201}, "job_id"),
        ({"job_id": "../up"}, "job_id"),
        ({"job_path": "beads.issue"}, "job_path"),
        ({"job_path": "hero.script"}, "job_path"),
        ({"job_path": " "}, "job_path"),
    ],
)
def test_what_can_be_no_issue_is_refused_by_name(change: dict[str, Any], named: str) -> None:
    with pytest.raises(BadIssue, match=f"^{named}:"):
        to_issue(replace(JOB, **change), 0)


@pytest.mark.parametrize(
    ("status", "known", "state"),
    [
        ("open", None, JobState.ENQUEUED),
        ("deferred", None, JobState.ENQUEUED),
        ("in_progress", None, JobState.RUNNING),
        ("blocked", None, JobState.ERROR),
        ("closed", None, JobState.DONE),
        ("in_progress", RUNNING, JobState.RUNNING),
        ("in_progress", JOB, JobState.ENQUEUED),  # Claimed, and no worker has it yet.
        ("in_progress", DONE, JobState.DONE),  # Its close is on its way.
        ("closed", DONE, JobState.DONE),
        ("open", DONE, JobState.ENQUEUED),  # Somebody opened it again.
        ("blocked", ERROR, JobState.ERROR),
        ("open", ERROR, JobState.ENQUEUED),
        ("open", replace(ERROR, reason="cancelled"), JobState.ERROR),
        ("closed", RUNNING, JobState.DONE),  # Somebody closed it.
        ("blocked", RUNNING, JobState.ERROR),
    ],
)
def test_the_tracker_has_the_last_word_on_the_state(
    status: str, known: Envelope | None, state: JobState
) -> None:
    shown = to_envelope(issue(status=status), known)
    assert shown.state is state
    agreed = known is not None and known.state is state
    assert shown.attempt == (known.attempt if known is not None and agreed else None)


def test_a_closed_one_says_what_came_of_it_and_when() -> None:
    closed = issue(
        status="closed",
        closed_at="2026-01-02T03:04:05.999999Z",
        extra={"result": {"sent": 1}, "result_file": ""},
    )
    shown = to_envelope(closed)
    assert (shown.ts_finished, shown.result) == (1767323045, {"sent": 1})
    assert shown.result_file is None


@pytest.mark.parametrize(
    ("notes", "error"), [("", NEVER_SAID), ("one\nLast error: boom\n", "Last error: boom")]
)
def test_a_blocked_one_says_why_as_far_as_its_notes_do(notes: str, error: str) -> None:
    assert to_envelope(issue(status="blocked", notes=notes)).error == error


def test_arguments_that_the_journal_left_out_are_told_whole() -> None:
    known = replace(RUNNING, args=(), kwargs={}, omitted=("args", "kwargs"))
    shown = to_envelope(issue(status="in_progress"), known)
    assert (shown.args, shown.kwargs, shown.omitted) == (JOB.args, JOB.kwargs, ())
