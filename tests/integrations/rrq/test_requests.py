"""From a TASK to a request: the executor, the function, the arguments, the context."""

from __future__ import annotations

from typing import Any

import pytest

from beads_workers.core.base.model import OutcomeKind
from beads_workers.core.base.plans import NotRunnable, Plan
from beads_workers.core.base.settings import Executor, Work, WorkerSettings
from beads_workers.core.base.wire import Task
from beads_workers.executors.command import plan
from beads_workers.integrations.rrq import wire
from beads_workers.integrations.rrq.requests import find, to_request

OLD, NEW = Executor("old", ("serve",)), Executor("new", ("serve",), "rrq2")
NOW = 1_800_000_000.0


def settings(*executors: Executor, **work: Any) -> WorkerSettings:
    return WorkerSettings(
        "W1", "/s", 1, "/project", "run", "/run", "actor", Work(executors=executors, **work)
    )


def task(path: str | None = "f", **fields: Any) -> Task:
    payload: dict[str, Any] = {"issue": {"id": "bw-1", **fields.pop("issue", {})}}
    if path is not None:
        payload["callable"] = path
    payload |= {"args": fields.pop("args", []), "kwargs": fields.pop("kwargs", {})}
    return Task("bw-1", 2, "title", "text", "task", (), 3, payload=payload, **fields)


def request_of(asked: Task, executor: Executor = OLD) -> wire.Request:
    planned = plan(asked, settings(executor))
    assert isinstance(planned, Plan) and planned.steps[0].call is not None
    return to_request(asked, planned.steps[0].call, executor, "r1", "W1.2", NOW)


def refused(asked: Task, *executors: Executor, **work: Any) -> str:
    planned = plan(asked, settings(*executors, **work))
    assert isinstance(planned, NotRunnable) and planned.outcome is OutcomeKind.NOT_FOUND
    return planned.error


def test_a_request_says_all_that_is_known() -> None:
    issue = {
        "created_at": "2026-01-02T03:04:05Z",
        "trace_context": {"traceparent": "00-1-2-01", "more": 3},
        "correlation_context": {"a": "b"},
    }
    asked = task("f", args=[1], kwargs={"b": None}, issue=issue, timeout_seconds=60.0)
    assert request_of(asked) == wire.Request(
        "r1", "bw-1", "f",
        wire.RequestContext(
            "bw-1", 3, 1767323045.0, "default", NOW + 60.0, {"traceparent": "00-1-2-01"},
            {"a": "b"}, "W1.2",
        ),
        (1,), {"b": None}, wire.V1,
    )  # fmt: skip


def test_what_is_not_known_is_left_out() -> None:
    for created in ("yesterday", 5, None):
        context = request_of(task(issue={"created_at": created, "trace_context": "x"})).context
        assert context == wire.RequestContext("bw-1", 3, NOW, "default", worker_id="W1.2")


def test_only_the_function_is_sent_of_what_names_an_executor_too() -> None:
    assert request_of(task("new#a#b"), NEW).function_name == "a#b"
    assert request_of(task("new#f"), NEW).protocol_version == wire.V2


def test_the_first_executor_is_meant_where_none_is_named() -> None:
    assert find("", (OLD, NEW)) is OLD
    assert find("new", (OLD, NEW)) is NEW


@pytest.mark.parametrize("path", ["old#", "none#f", "#", "none#"])
def test_an_unknown_executor_or_no_function_is_refused(path: str) -> None:
    assert refused(task(path), OLD)


def test_version_2_has_no_positional_arguments() -> None:
    assert "no positional arguments" in refused(task(args=[1]), NEW)
    assert isinstance(plan(task(args=[1]), settings(OLD)), Plan)


def test_an_issue_without_a_function_gets_the_fleets_with_the_whole_issue() -> None:
    assert "names no function" in refused(task(None), OLD)
    planned = plan(task(None), settings(OLD, NEW, function="new#do"))
    assert isinstance(planned, Plan) and planned.steps[0].call is not None
    assert planned.steps[0].call.path == "new#do"
    assert planned.steps[0].call.kwargs == {"issue": {"id": "bw-1"}}


def test_an_issues_own_command_is_not_run_by_a_fleet_of_executors() -> None:
    asked = Task("bw-1", 2, "t", "", "task", (), 1, payload={"command": ["rm", "-rf", "/"]})
    assert "names no function" in refused(asked, OLD)
