"""Which tasks a dispatcherd request means, and those that were found for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from beads_workers.core.values import value

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
