"""One task that a broker has brought."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum

from beads_workers.core.jobs import IssueId
from beads_workers.protocols.dispatcherd.messages import Task


class Place(Enum):
    """Where a task is; the values are the words of dispatcherd's ``running``."""

    ARRIVING = "arriving"
    """Not entered yet."""
    DELAYED = "delayed"
    BLOCKED = "blocked"
    """Another one like it has to end first."""
    QUEUED = "queued"
    TAKEN = "worker"
    """With the scheduler: with a worker, or about to be, or waiting for another try."""
    OVER = "over"


@dataclass(slots=True, eq=False)
class Entry:
    """``number``: counts all that ever came, across restarts. ``received_at``: epoch seconds.

    ``size``: of its message in bytes.
    """

    number: int
    issue_id: IssueId
    task: Task
    channel: str
    received_at: float
    size: int
    place: Place = Place.ARRIVING
    key: str = ""

    def same_work(self) -> str:
        """Equal for tasks with the same path and arguments."""
        if not self.key:
            asked = [self.task.task, list(self.task.args), dict(self.task.kwargs)]
            self.key = json.dumps(asked, sort_keys=True)
        return self.key
