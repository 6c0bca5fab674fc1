"""A job that is in our hands, and all that is known of who has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from beads_workers.core.events import ConnId
from beads_workers.core.jobs import Job
from beads_workers.core.outcomes import Outcome, OutcomeKind
from beads_workers.core.states import IssueState


@dataclass(slots=True)
class Held:
    """A job that is ours until the tracker knows better.

    ``handed_over``: in progress there in nobody's name, because its worker claims by itself.
    ``holder_pid`` and ``lost_conn_id``: who had it when its connection was lost. ``cancelled``:
    why it was taken away from its worker, if it was. ``behind``: its worker has another task to
    end before it begins this one. ``overdue``: its time was over long before.
    ``trace_context``: the W3C headers of its attempt.
    """

    job: Job
    claimed_at: float
    state: IssueState = IssueState.CLAIMED
    conn_id: ConnId | None = None
    worker_id: str = ""
    attempt: int = 0
    request_id: str = ""
    started_at: float = 0.0
    handed_over: bool = False
    holder_pid: int = 0
    lost_conn_id: ConnId | None = None
    cancelled: str = ""
    behind: bool = False
    overdue: bool = False
    trace_context: Mapping[str, str] = field(default_factory=dict)


RELEASED = "released"
"""Why a task is cancelled when a person takes it away."""

CANCELLED = "cancelled"
"""Why it is when dispatcherd's ``cancel`` means it, on a source that sends it."""


def lost(pid: int) -> Outcome:
    """A worker died with the job under a living orchestrator."""
    return Outcome(OutcomeKind.LOST, f"its worker (pid {pid}) died")
