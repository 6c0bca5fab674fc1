"""What a worker is given to do for an issue of ours."""

from __future__ import annotations

import json

import pytest

from beads_workers.core.base.traces import headers_of
from beads_workers.trackers.issue import (
    BadIssue,
    Dependency,
    TrackerIssue,
    checked_id,
    to_job,
    to_object,
)

ISSUE = TrackerIssue(
    "bw-1",
    "A title",
    labels=("x",),
    created_at="2026-01-01T00:00:00Z",
    dependencies=(Dependency("bw-2"),),
    extra={"job_path": "shop.work", "args": [1], "own": None},
)


def test_the_whole_issue_is_there_for_whoever_looks() -> None:
    job = to_job(ISSUE, "embedded")
    assert job.original and job.original == to_object(ISSUE)
    assert json.loads(json.dumps(dict(job.original))) == to_object(ISSUE)
    assert job.original["own"] is None and "notes" not in job.original


@pytest.mark.parametrize(
    ("job_id", "why"),
    [
        ("-x", "'-x' begins with '-'"),
        (".x", "'.x' begins with '.'"),
        ("x" * 201, "has 201 characters; 200 are allowed"),
        ("a b", "'a b' holds more than letters, digits and . _ : -"),
    ],
)
def test_an_id_is_refused_with_what_is_wrong_with_it(job_id: str, why: str) -> None:
    assert checked_id("x" * 200, "id") == "x" * 200
    with pytest.raises(BadIssue) as refused:
        checked_id(job_id, "job_id")
    assert str(refused.value).endswith(why)


def test_a_function_is_named_by_its_path_before_a_label() -> None:
    called = to_job(ISSUE, "embedded").call
    assert called is not None and (called.path, called.args) == ("shop.work", (1,))


def test_a_label_calls_a_function_with_the_issue() -> None:
    issue = TrackerIssue("bw-1", "A title", labels=("x", "call:shop.look"))
    called = to_job(issue, "embedded").call
    assert called is not None and called.path == "shop.look"
    assert json.dumps(called.kwargs) == json.dumps({"issue": to_object(issue)})


def test_an_issue_may_have_a_trace_context_in_its_own_fields() -> None:
    headers = {"traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01"}
    assert (
        headers_of(to_job(TrackerIssue("a", "b", extra={"trace_context": headers}), "s")) == headers
    )
    assert headers_of(to_job(TrackerIssue("a", "b", extra={"trace_context": "none"}), "s")) == {}


@pytest.mark.parametrize(
    ("labels", "seconds"),
    [
        (("timeout:2h",), 7200.0),
        (("shop", "timeout:90", "timeout:1h"), 90.0),
        (("timeout:soon", "timeout:0", "timeout:", "timeout:99999999999d", "timeout:5m"), 300.0),
        (("timeouts:5m",), None),
    ],
)
def test_a_label_says_how_long_an_attempt_may_take(
    labels: tuple[str, ...], seconds: float | None
) -> None:
    issue = TrackerIssue(id="a-1", title="A", labels=labels)
    assert to_job(issue, "sqlite").timeout_seconds == seconds
    tracker_issue = TrackerIssue(id="a-1", title="A", labels=labels, timeout_seconds=7.0)
    assert to_job(tracker_issue, "sqlite").timeout_seconds == 7.0
