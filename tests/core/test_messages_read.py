"""What is refused and what is forgiven in each message on the way in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from beads_workers.core.base.framing import ProtocolError
from beads_workers.core.base.model import IssueId, OutcomeKind
from beads_workers.core.base.wire import Done, Failed, Ready, Shutdown, Task, Wait, parse

NOW = 1733423456.789


def line(type_: str, **fields: Any) -> bytes:
    """A line of the text's own shape; a field given as ``...`` is left out."""
    base = {"type": type_, "worker_id": "W1", "timestamp": NOW}
    return json.dumps({k: v for k, v in (base | fields).items() if v is not ...}).encode()


# --- READY ------------------------------------------------------------------------------------


@pytest.mark.parametrize("worker_id", ["W1", "w-7", "my worker", "é🐝", "\x1b[31m"])
def test_a_worker_may_call_itself_anything(worker_id: str) -> None:
    assert parse(line("READY", worker_id=worker_id)) == Ready(worker_id)


@pytest.mark.parametrize("worker_id", [..., None, "", 1, True, ["W1"], {}])
def test_ready_needs_a_worker_id_that_is_text(worker_id: object) -> None:
    with pytest.raises(ProtocolError, match="no worker_id"):
        parse(line("READY", worker_id=worker_id))


@pytest.mark.parametrize("timestamp", [..., None, "1733423456.789", True, False, [], {}])
def test_ready_needs_a_timestamp_that_is_a_number(timestamp: object) -> None:
    with pytest.raises(ProtocolError, match="no timestamp"):
        parse(line("READY", timestamp=timestamp))


@pytest.mark.parametrize("timestamp", [0, -1, 1733423456, 1.5, 1733423456.123456789, 1e300])
def test_a_timestamp_is_any_number_and_is_not_compared_with_a_clock(timestamp: float) -> None:
    assert parse(line("READY", timestamp=timestamp)) == Ready("W1")


@pytest.mark.parametrize("version", [None, 1.1, 11, True, ["1.1"], {}])
def test_a_version_that_is_not_text_is_version_1(version: object) -> None:
    assert parse(line("READY", version=version)) == Ready("W1", "1")


def test_features_that_make_no_sense_are_left_out() -> None:
    assert parse(line("READY", version="1.1", features="grouped")) == Ready("W1", "1.1")
    mixed = parse(line("READY", version="1.1", features=["grouped", 1, None, ["cancel"], "new"]))
    assert mixed == Ready("W1", "1.1", frozenset({"grouped", "new"}))


# --- DONE and FAILED: the issue decides, the rest is forgiven ---------------------------------


@pytest.mark.parametrize("type_", ["DONE", "FAILED", "CANCEL", "TASK"])
@pytest.mark.parametrize("issue_id", [..., None, "", 1, True, ["x"], {}])
def test_without_an_issue_id_nothing_is_decided(type_: str, issue_id: object) -> None:
    with pytest.raises(ProtocolError, match="no issue_id"):
        parse(line(type_, issue_id=issue_id, priority=1, title="t"))


@pytest.mark.parametrize(
    ("given_", "read", "warned"),
    [
        (0, 0, False),
        (15234, 15234, False),
        (15234.0, 15234, False),
        (12.75, 12, True),
        (-1, None, True),
        (-0.5, 0, True),
        ("15234", None, True),
        (True, None, True),
        (None, None, True),
        (..., None, True),
        ([], None, True),
        (10**400, None, True),
        ((1 << 53) + 1, (1 << 53) + 1, False),
    ],
)
@pytest.mark.parametrize("type_", ["DONE", "FAILED"])
def test_a_strange_duration_is_a_warning_and_not_a_refusal(
    type_: str, given_: object, read: int | None, warned: bool
) -> None:
    message = parse(line(type_, issue_id="x", error="e", duration_ms=given_))
    assert isinstance(message, Done | Failed)
    assert message.issue_id == "x"
    assert message.duration_ms == read
    assert bool(message.warnings) is warned


@pytest.mark.parametrize("field", ["worker_id", "timestamp"])
@pytest.mark.parametrize("type_", ["DONE", "FAILED"])
def test_done_and_failed_without_a_sender_or_timestamp_still_count(type_: str, field: str) -> None:
    message = parse(line(type_, issue_id="x", error="e", duration_ms=1, **{field: ...}))
    assert isinstance(message, Done | Failed)
    assert message.warnings == (f"no {field}",)


@pytest.mark.parametrize("error", [..., None, 5, ["boom"], {"message": "boom"}])
def test_failed_without_an_error_text_still_failed(error: object) -> None:
    message = parse(line("FAILED", issue_id="x", error=error, duration_ms=1))
    assert isinstance(message, Failed)
    assert message.error == "the worker gave no reason"
    assert message.warnings == ("FAILED without an error text",)


def test_an_empty_error_is_an_error_text() -> None:
    assert parse(line("FAILED", issue_id="x", error="", duration_ms=1)) == Failed(
        IssueId("x"), "W1", "", 1
    )


def test_an_endless_error_is_cut_and_its_nul_bytes_replaced() -> None:
    message = parse(line("FAILED", issue_id="x", error="a\0" + "b" * 5000, duration_ms=1))
    assert isinstance(message, Failed)
    assert message.error == "a\ufffd" + "b" * 1998


@pytest.mark.parametrize("name", ["error", "retry", "timeout", "cancelled", "not_found"])
def test_failed_may_name_its_outcome(name: str) -> None:
    message = parse(line("FAILED", issue_id="x", error="e", duration_ms=1, outcome=name))
    assert isinstance(message, Failed)
    assert message.outcome is OutcomeKind(name) and not message.warnings


@pytest.mark.parametrize("name", ["success", "lost", "limited", "", None, 1, True, ["error"]])
def test_an_outcome_that_a_failed_cannot_have_is_an_error_with_a_warning(name: object) -> None:
    message = parse(line("FAILED", issue_id="x", error="e", duration_ms=1, outcome=name))
    assert isinstance(message, Failed)
    assert message.outcome is OutcomeKind.ERROR and len(message.warnings) == 1


@pytest.mark.parametrize(
    ("asked", "read", "warned"),
    [(0, 0.0, False), (90, 90.0, False), (1.5, 1.5, False), (1e7, 86_400.0, False),
     (-1, None, True), ("60", None, True), (True, None, True), (None, None, False)],
)  # fmt: skip
def test_a_retry_is_asked_for_in_seconds_up_to_a_day(
    asked: object, read: float | None, warned: bool
) -> None:
    message = parse(
        line("FAILED", issue_id="x", error="e", duration_ms=1, retry_after_seconds=asked)
    )
    assert isinstance(message, Failed)
    assert message.retry_after_seconds == read
    assert bool(message.warnings) is warned


# --- TASK, WAIT, SHUTDOWN: what a worker reads ------------------------------------------------


@pytest.mark.parametrize("priority", [..., None, -1, 5, 2.5, "2", True, False, [], 10**400])
def test_a_task_needs_a_priority_from_0_to_4(priority: object) -> None:
    with pytest.raises(ProtocolError, match="priority"):
        parse(line("TASK", issue_id="x", title="t", priority=priority))


@pytest.mark.parametrize("priority", [0, 4, 2.0])
def test_an_integral_float_is_an_integer(priority: float) -> None:
    message = parse(line("TASK", issue_id="x", title="t", priority=priority))
    assert isinstance(message, Task)
    assert message.priority == priority and isinstance(message.priority, int)


@pytest.mark.parametrize("title", [..., None, 1, ["t"]])
def test_a_task_needs_a_title_that_is_text(title: object) -> None:
    with pytest.raises(ProtocolError, match="title"):
        parse(line("TASK", issue_id="x", priority=1, title=title))


@pytest.mark.parametrize("field", ["worker_id", "timestamp"])
@pytest.mark.parametrize("type_", ["TASK", "WAIT"])
def test_a_task_and_a_wait_need_their_base_fields(type_: str, field: str) -> None:
    fields = {"issue_id": "x", "priority": 1, "title": "t", "wait_seconds": 1, field: ...}
    with pytest.raises(ProtocolError, match=f"no {field}"):
        parse(line(type_, **fields))


def test_additions_to_a_task_that_make_no_sense_are_left_out() -> None:
    message = parse(
        line(
            "TASK", issue_id="x", priority=1, title="t", description=1, issue_type=None,
            labels=["a", 2], attempt="3", timeout_seconds="soon", payload=[1], payload_file=7,
            version="1.1", full_title=3, claims=None,
        )
    )  # fmt: skip
    assert message == Task(IssueId("x"), 1, "t", labels=("a",))


@pytest.mark.parametrize(
    ("version", "v1"),
    [("1.1", False), ("1.2", False), ("1.10", False), ("1.0", True), ("1", True), (1.1, True),
     (None, True), ("2.0", True), ("1.1.1", True), ("1.1\n", True), ("1." + "9" * 99, True)],
)  # fmt: skip
def test_a_task_of_a_later_minor_version_is_1_1_and_any_other_is_1(
    version: object, v1: bool
) -> None:
    message = parse(line("TASK", issue_id="x", priority=1, title="t", version=version))
    assert isinstance(message, Task) and message.v1 is v1


@pytest.mark.parametrize(("attempt", "read"), [(0, 1), (-3, 1), (2, 2), (2.0, 2), (True, 1)])
def test_the_attempt_of_a_task_is_one_at_least(attempt: object, read: int) -> None:
    message = parse(line("TASK", issue_id="x", priority=1, title="t", attempt=attempt))
    assert isinstance(message, Task) and message.attempt == read


@pytest.mark.parametrize(("timeout", "read"), [(0, None), (-5, None), (7, 7.0), (0.5, 0.5)])
def test_a_timeout_that_would_end_a_task_before_it_starts_is_none(
    timeout: float, read: float | None
) -> None:
    message = parse(line("TASK", issue_id="x", priority=1, title="t", timeout_seconds=timeout))
    assert isinstance(message, Task) and message.timeout_seconds == read


@pytest.mark.parametrize(
    ("seconds", "read"), [(0, 1), (1, 1), (30, 30), (30.0, 30), (3600, 3600), (10**9, 3600)]
)
def test_a_wait_is_brought_into_its_range(seconds: float, read: int) -> None:
    assert parse(line("WAIT", wait_seconds=seconds)) == Wait(read)


@pytest.mark.parametrize("seconds", [..., None, -1, 1.5, "30", True, [], 10**400])
def test_a_wait_needs_whole_seconds(seconds: object) -> None:
    with pytest.raises(ProtocolError, match="wait_seconds"):
        parse(line("WAIT", wait_seconds=seconds))


@pytest.mark.parametrize("reason", ["user_requested", "error", "idle_timeout", "something new"])
def test_a_shutdown_says_why(reason: str) -> None:
    assert parse(line("SHUTDOWN", reason=reason)) == Shutdown(reason)


def test_a_shutdown_without_anything_is_still_obeyed() -> None:
    assert parse(b'{"type":"SHUTDOWN"}') == Shutdown("user_requested")
