"""The tasks of a fleet as dispatcherd shows them, and the tasks that a filter matches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from beads_workers.core.base.model import Arguments, Call, Job
from beads_workers.core.base.states import IssueState
from beads_workers.core.records.journal import Checkpointed
from beads_workers.core.schedule.commands import FoundTask, FoundTasks
from beads_workers.core.schedule.events import TaskFilter
from beads_workers.core.schedule.inflight import ISSUE_PATH
from beads_workers.core.schedule.parts import Parts

MESSAGES = "dispatcherd"
"""The source whose jobs are such messages: ``Job.original`` is the message that came."""


def find(parts: Parts, wanted: TaskFilter) -> FoundTasks:
    """Return the matching tasks in our hands, or waiting here for another try."""
    found = (task for task in _all(parts) if wanted.matches(task.message))
    ending = (each.issue.worker_id for each in parts.tasks.in_flight.values() if each.cancelled)
    return FoundTasks(tuple(found), frozenset(ending))


def _all(parts: Parts) -> Iterator[FoundTask]:
    source = parts.settings.source
    in_flight = parts.tasks.in_flight
    for issue_id, each in in_flight.items():
        if each.issue.state in _WITH_A_WORKER:
            yield FoundTask(issue_id, "worker", message_of(each.job, source), each.issue.worker_id)
    for issue_id in parts.tasks.waiting():
        yield FoundTask(issue_id, "queued", message_of(in_flight[issue_id].job, source))
    for issue in parts.retry_state.cooling():
        if issue.issue_id not in in_flight and issue.retry_entry is not None:
            yield FoundTask(issue.issue_id, "delayed", _remembered(issue.retry_entry, source))


_WITH_A_WORKER = (IssueState.DELEGATING, IssueState.RUNNING, IssueState.ORPHANED)


def message_of(job: Job, source: str) -> dict[str, Any]:
    """Return a job as the message of a task: the one that came, or an equivalent one."""
    if job.source == MESSAGES:
        return {"channel": source, **job.original}
    call = job.call or job.named
    message = _message(job.issue_id, job.title, call, source)
    if job.timeout_seconds is not None:
        message["timeout"] = job.timeout_seconds
    if job.enqueued_at:
        message["time_pub"] = job.enqueued_at
    return message


def _remembered(retry_entry: Checkpointed, source: str) -> dict[str, Any]:
    call = None
    if retry_entry.path:
        given = retry_entry.arguments or Arguments()
        call = Call(retry_entry.path, given.args or (), given.kwargs or {})
    return _message(retry_entry.issue_id, retry_entry.title, call, source)


def _message(uuid: str, title: str, call: Call | None, source: str) -> dict[str, Any]:
    path = call.path if call else ISSUE_PATH
    message: dict[str, Any] = {"channel": source, "uuid": uuid, "task": path}
    if call is None:
        message["title"] = title
    elif call.args:
        message["args"] = list(call.args)
    if call is not None and call.kwargs:
        message["kwargs"] = dict(call.kwargs)
    return message
