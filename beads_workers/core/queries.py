"""Tasks of the fleet, found by what they call: for control planes of other systems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from beads_workers.core.inflight import ISSUE_PATH, arguments
from beads_workers.core.journal import Checkpointed
from beads_workers.core.model import Call, Job, value
from beads_workers.core.states import IssueState

if TYPE_CHECKING:
    from beads_workers.core.orchestrator import Parts


# --- found ---------------------------------------------------------------------------------------
# Which tasks a dispatcherd request means, and those that were found for it.


FILTERABLE = ("task", "args", "kwargs", "uuid")


@value
class TaskFilter:
    """Every field that is set must be equal, to the letter; a filter without any means all."""

    fields: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> TaskFilter:
        """What a request's ``control_data`` says; an empty value says nothing."""
        return cls({name: data[name] for name in FILTERABLE if data.get(name)})

    def matches(self, message: Mapping[str, Any]) -> bool:
        """Whether a task's message is meant."""
        return all(message.get(name) == value for name, value in self.fields.items())


@value
class FoundTask:
    """``key``: of the job here. ``place``: ``worker``, ``queued``, ``delayed`` or ``blocked``.

    ``worker_id`` where it runs; ``message``: the task, as its publisher would write it.
    """

    key: str
    place: str
    message: Mapping[str, Any]
    worker_id: str = ""


@value
class FoundTasks:
    """In the order in which they are shown. ``cancelling``: workers whose task is to end."""

    tasks: tuple[FoundTask, ...] = ()
    cancelling: frozenset[str] = frozenset()


# --- tasks ---------------------------------------------------------------------------------------
# The tasks of a fleet as dispatcherd shows them, and which of them a filter means.


MESSAGES = "dispatcherd"
"""The source whose jobs are such messages: ``Job.original`` is the one that came."""


def find(parts: Parts, wanted: TaskFilter) -> FoundTasks:
    """Everything in our hands, or waiting here for another try, that the filter means."""
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
    """A job as the message of a task: the one that came, or one that says the same."""
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
        args, kwargs, _ = arguments(retry_entry.arguments)
        call = Call(retry_entry.path, tuple(args or ()), kwargs or {})
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
