"""What a Hero job is, and which states it may go to.

Source: docs/PROTOCOL.md, "Hero over Redis".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from beads_workers.core.values import value


class Status(Enum):
    """The values are what stands in the field ``status``."""

    DISPATCHED = "dispatched"
    """Created, in a queue, or between two attempts."""
    STARTED = "started"
    FINISHED = "finished"
    ERROR = "error"

    @property
    def is_final(self) -> bool:
        """Whether it ends a job: whoever waits has been told, or is just being told."""
        return self in (Status.FINISHED, Status.ERROR)


MOVES: Mapping[Status, frozenset[Status]] = {
    # A job can fail without ever being started: it was stopped, or what it waits for failed.
    Status.DISPATCHED: frozenset((Status.STARTED, Status.ERROR)),
    # Back to dispatched: another attempt will be made.
    Status.STARTED: frozenset((Status.DISPATCHED, Status.FINISHED, Status.ERROR)),
    # Only its client begins anew: it sets ``dispatched``, and queues the job again.
    Status.FINISHED: frozenset((Status.DISPATCHED,)),
    Status.ERROR: frozenset((Status.DISPATCHED,)),
}
"""Total: where each state may go to."""


def may_become(status: Status, to: Status) -> bool:
    """Whether a job in this state may go to that one."""
    return to in MOVES[status]


STOPPED = "stopped_by_request"
"""``error`` of a job that was stopped; we write this of the text's two spellings."""
STOPPED_SPELLINGS = frozenset((STOPPED, "stopped"))
TIMED_OUT = "timeout"
"""``error`` of a job that took longer than its ``timeout``."""
LOST = "lost"
"""``error`` of a job that was cut short, and has no attempt left; ours, the text has no word."""


@value
class HeroJob:
    """One job. Times are epoch seconds; None where the field is missing. Without an id it is not
    handed in yet.

    ``timeout_seconds``: for one attempt; None: no limit. ``retries``: attempts beyond the first.
    ``concurrent``: it may run beside others of its context; False: beside no other that says False.
    ``prerequisites`` and ``dependencies`` mean the same: ``waits_for`` has both.
    """

    id: str = ""
    caller_id: str = ""
    worker_id: str = ""
    context_id: str = ""
    script: str = ""
    timeout_seconds: float | None = None
    retries: int = 0
    concurrent: bool = False
    log_path: str | None = None
    created_at: float | None = None
    updated_at: float | None = None
    status: Status = Status.DISPATCHED
    env_vars: Mapping[str, str] = field(default_factory=dict)
    prerequisites: tuple[str, ...] = ()
    dependents: tuple[str, ...] = ()
    output: str | None = None
    error: str | None = None
    dependencies: tuple[str, ...] = ()

    @property
    def waits_for(self) -> tuple[str, ...]:
        """What must be finished before it: each once, in order."""
        return tuple(dict.fromkeys((*self.prerequisites, *self.dependencies)))

    @property
    def attempts_max(self) -> int:
        """How often it may be started at most."""
        return self.retries + 1
