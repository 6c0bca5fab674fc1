"""The tasks of a fleet as dispatcherd shows them, and which of them a filter means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from beads_workers.core.dispatching.found import FoundTask, FoundTasks, TaskFilter
from beads_workers.core.issues import Standing
from beads_workers.core.jobs import Call, Job
from beads_workers.core.kept import ISSUE_PATH, arguments
from beads_workers.core.ledger import Page
from beads_workers.core.parts import Parts
from beads_workers.core.states import IssueState

DISPATCHERD = "dispatcherd"
"""The source whose jobs are such messages: ``Job.original`` is the one that came."""


def find(parts: Parts, wanted: TaskFilter) -> FoundTasks:
    """Everything in our hands, or waiting here for another try, that the filter means."""
    found = (task for task in _all(parts) if wanted.matches(task.message))
    ending = (held.worker_id for held in parts.tasks.held.values() if held.cancelled)
    return FoundTasks(tuple(found), frozenset(ending))


def _all(parts: Parts) -> Iterator[FoundTask]:
    source = parts.settings.source
    held = parts.tasks.held
    for issue_id, each in held.items():
        if each.state in _WITH_A_WORKER:
            yield FoundTask(issue_id, "worker", message_of(each.job, source), each.worker_id)
    for issue_id in parts.tasks.waiting():
        yield FoundTask(issue_id, "queued", message_of(held[issue_id].job, source))
    for issue_id, page in parts.ledger.pages.items():
        if page.standing is Standing.COOLING and issue_id not in held:
            yield FoundTask(issue_id, "delayed", _remembered(issue_id, page, source))


_WITH_A_WORKER = (IssueState.HANDING, IssueState.RUNNING, IssueState.LOOSE)


def message_of(job: Job, source: str) -> dict[str, Any]:
    """A job as the message of a task: the one that came, or one that says the same."""
    if job.source == DISPATCHERD:
        return {"channel": source, **job.original}
    call = job.call or job.named
    message = _message(job.issue_id, job.title, call, source)
    if job.timeout_seconds is not None:
        message["timeout"] = job.timeout_seconds
    if job.enqueued_at:
        message["time_pub"] = job.enqueued_at
    return message


def _remembered(issue_id: str, page: Page, source: str) -> dict[str, Any]:
    call = None
    if page.path:
        args, kwargs, _ = arguments(page.arguments)
        call = Call(page.path, tuple(args or ()), kwargs or {})
    return _message(issue_id, page.title, call, source)


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
