"""From a TASK to a request: the executor, the function and its arguments.

Source: docs/RRQ.md, "RRQ executors".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from beads_workers.core.base import limits
from beads_workers.core.base.model import Call
from beads_workers.core.base.plans import NotRunnable, Plan, Step, StepKind
from beads_workers.core.base.settings import Executor, WorkerSettings
from beads_workers.core.base.times import read_time
from beads_workers.core.base.wire import Task
from beads_workers.integrations.rrq import wire

NO_FUNCTION = (
    "the issue names no function (job_path, or a label call:NAME), and the fleet has none for such"
    " (--function)"
)
QUEUE = "default"
"""Queue name in requests: there is only one queue."""


def plan(task: Task, call: Call | None, settings: WorkerSettings) -> Plan | NotRunnable:
    """Return a plan of one step, a call; no program is started and no file is read."""
    work = settings.work
    if call is None and work.function is not None:
        call = Call(
            work.function, kwargs={"issue": task.payload.get("issue") or _issue_fields(task)}
        )
    if call is None:
        return NotRunnable(NO_FUNCTION)
    name, function = route(call.path)
    executor = find(name, work.executors)
    if executor is None:
        known = ", ".join(each.name for each in work.executors)
        return NotRunnable(f"no executor {name[:80]!r} for {function[:80]!r}; known: {known}")
    if not function:
        return NotRunnable(f"{call.path[:80]!r} names no function of the executor")
    if call.args and version_of(executor) == wire.V2:
        return NotRunnable(
            f"{executor.name} speaks version 2 of the protocol, which has no positional arguments:"
            " name them in kwargs"
        )
    return Plan((Step(StepKind.RUN, (), call=call),), "", "", "", "")


def route(path: str) -> tuple[str, str]:
    """Return executor and function of ``executor#function``; the executor is "" if any will do."""
    name, separator, function = path.partition("#")
    return (name, function) if separator else ("", path)


def find(name: str, executors: Sequence[Executor]) -> Executor | None:
    """Return the executor with that name; the first one for ""."""
    if not name:
        return executors[0]
    return next((each for each in executors if each.name == name), None)


def version_of(executor: Executor) -> str:
    """Return the version of RRQ's protocol that the executor speaks."""
    return wire.V2 if executor.protocol == "rrq2" else wire.V1


def to_request(
    task: Task, call: Call, executor: Executor, request_id: str, worker_id: str, epoch: float
) -> wire.Request:
    """Return the request for a task. ``epoch``: the time now, in seconds since 1970."""
    issue = task.payload.get("issue")
    original: Mapping[str, Any] = issue if isinstance(issue, Mapping) else {}
    version = version_of(executor)
    _, function = route(call.path)
    context = wire.RequestContext(
        job_id=task.issue_id,
        attempt=task.attempt,
        enqueue_time=_created(original, epoch),
        queue_name=QUEUE,
        deadline=epoch + task.timeout_seconds if task.timeout_seconds else None,
        trace_context=_headers(task.payload, "trace_context")
        or _headers(original, "trace_context"),
        correlation_context=_headers(original, "correlation_context"),
        worker_id=worker_id,
    )
    return wire.Request(
        request_id, task.issue_id, function, context, call.args, call.kwargs, version
    )


def error_lines(answer: wire.RequestOutcome) -> str:
    """Return the lines about an executor's failure for the attempt's log; "" if there are none."""
    if answer.error is None:
        return ""
    error = answer.error
    lines = [f"{answer.status.value}: {error.message}"]
    lines += [f"{name}: {value}" for name, value in (("type", error.type), ("code", error.code))
              if value]  # fmt: skip
    if error.details:
        lines.append(f"details: {json.dumps(dict(error.details), ensure_ascii=False)}")
    return "\n".join(lines)[: limits.LOG_BYTES_MIN] + "\n"


def _issue_fields(task: Task) -> dict[str, Any]:
    return {"id": task.issue_id, "title": task.title, "description": task.description}


def _created(original: Mapping[str, Any], epoch: float) -> float:
    created = original.get("created_at")
    try:
        return read_time(created) if isinstance(created, str) else epoch
    except ValueError:
        return epoch


def _headers(original: Mapping[str, Any], key: str) -> dict[str, str] | None:
    headers = original.get(key)
    if not isinstance(headers, Mapping):
        return None
    return {str(name): value for name, value in headers.items() if isinstance(value, str)} or None
