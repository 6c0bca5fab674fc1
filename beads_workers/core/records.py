"""The lines of the journal: one frozen dataclass per kind of transition.

The journal is the one account of a run. The dashboard, ``status``, ``start`` and the recovery are
folds over these records, which hold all they need; ``journal_lines`` writes and reads them.
"""

from __future__ import annotations

from beads_workers.core.record import Record
from beads_workers.core.tracker_records import (
    CallEnded,
    CallStarted,
    Hindrance,
    HindranceOver,
    SettlementFailed,
    SourceRecovered,
    SourceTrouble,
    Spent,
    TurnBegan,
)
from beads_workers.core.values import value

__all__ = [
    "CallEnded",
    "CallStarted",
    "Hindrance",
    "HindranceOver",
    "Record",
    "SettlementFailed",
    "SourceRecovered",
    "SourceTrouble",
    "Spent",
    "TurnBegan",
]
"""What stands elsewhere and is used from here, beside the records below."""


@value
class RunStarted(Record):
    """The first line of a run."""

    run_id: str
    pid: int
    actor: str
    source: str
    project: str
    socket: str = ""
    control_socket: str = ""
    workers: int = 0
    version: str = ""


@value
class Carried(Record):
    """Checkpoint: what earlier runs left to remember of one unfinished issue.

    ``not_before`` in epoch seconds, the end of ``delay_seconds``. ``held_by``: the actor in whose
    name a done issue is still to be closed. ``path`` to ``enqueued_at``: see ``Claimed``;
    ``outcome``: of its last attempt, see ``Finished``; ``traceparent``: of its first one.
    """

    issue_id: str
    title: str = ""
    charged: int = 0
    free_in_a_row: int = 0
    not_before: float = 0.0
    set_aside: bool = False
    error: str = ""
    held_by: str = ""
    delay_seconds: float = 0.0
    path: str = ""
    arguments: str = ""
    enqueued_at: float = 0.0
    outcome: str = ""
    traceparent: str = ""


@value
class CheckpointEnded(Record):
    """Everything carried over is written: older runs are disposable from here on."""


@value
class RunChanged(Record):
    """The orchestrator's state: a name of ``RunState``. ``reason``: a SHUTDOWN reason, or why."""

    state: str
    reason: str = ""


@value
class WorkerStarted(Record):
    """We started a worker process."""

    worker_id: str
    pid: int


@value
class WorkerJoined(Record):
    """A worker said its first valid word. ``called``: by itself. ``start_time``: of ``pid``."""

    worker_id: str
    pid: int
    called: str = ""
    own: bool = True
    version: str = "1"
    start_time: int = 0


@value
class WorkerLeft(Record):
    """A worker's connection is gone."""

    worker_id: str
    reason: str = ""


@value
class WorkerStopping(Record):
    """A worker has said with the end of its task that it takes no more, and will leave."""

    worker_id: str


@value
class WorkerExited(Record):
    """A worker process of ours ended; ``status`` as the shell says it (128+N for a signal)."""

    worker_id: str
    pid: int
    status: int


@value
class WorkerGone(Record):
    """A worker of ours is not started again: scaled down, or it crashed too often."""

    worker_id: str
    reason: str = ""


@value
class Listed(Record):
    """What the tracker showed: takeable issues by priority (0 to 4), and blocked ones."""

    by_priority: tuple[int, ...] = (0, 0, 0, 0, 0)
    more: bool = False
    blocked: int = 0


@value
class Claimed(Record):
    """An issue is ours in the tracker.

    ``path`` and ``arguments`` (JSON text of args and kwargs): the function that it names, if any.
    ``enqueued_at``: epoch seconds at which the tracker got it; 0 where that is not known.
    """

    issue_id: str
    title: str = ""
    priority: int = 2
    path: str = ""
    arguments: str = ""
    enqueued_at: float = 0.0


@value
class HandingOver(Record):
    """From here on an issue may be in progress in nobody's name: its worker claims by itself."""

    issue_id: str
    worker_id: str


@value
class Started(Record):
    """An attempt begins: the TASK follows.

    ``traceparent`` of its span, ``trace_parent`` of the one that it continues, and ``tracestate``:
    W3C headers, "" where there is no tracer, or no such thing.
    """

    issue_id: str
    worker_id: str
    attempt: int
    request_id: str
    title: str = ""
    priority: int = 2
    traceparent: str = ""
    trace_parent: str = ""
    tracestate: str = ""


@value
class HolderLost(Record):
    """The worker of a running attempt is gone from us, and not yet known to be dead."""

    issue_id: str
    worker_id: str
    pid: int


@value
class Finished(Record):
    """An attempt ended. ``verdict``: ``finish``, ``requeue``, ``set_aside``, ``hand_back``.

    ``charged`` and ``free_in_a_row`` are the history after it; ``delay_seconds`` until the next
    try; ``duration_ms`` as the worker measured it, or as we did where it said nothing. ``note``,
    ``result`` (JSON, see ``outcomes.kept``) and ``result_file``: what came of a success.
    """

    issue_id: str
    worker_id: str
    attempt: int
    request_id: str
    outcome: str
    verdict: str
    error: str = ""
    duration_ms: int = 0
    charged: int = 0
    free_in_a_row: int = 0
    delay_seconds: float = 0.0
    note: str = ""
    result: str = ""
    result_file: str = ""


@value
class SettledRecord(Record):
    """The tracker answered: names of ``Action`` and ``Result``."""

    issue_id: str
    action: str
    result: str
    error: str = ""


@value
class Requeued(Record):
    """Nobody works on it, and nobody will: the tracker is owed its release.

    It was claimed and unsent, or reserved for a worker that has left. The end of an attempt needs
    no such record: ``Finished`` says what becomes of its issue.
    """

    issue_id: str


@value
class Withheld(Record):
    """A person took the issue away (``release``); this run leaves it alone until ``retry``."""

    issue_id: str


@value
class RetryAsked(Record):
    """A person wants the issue tried again, with a clean history."""

    issue_id: str


@value
class Forgiven(Record):
    """It failed in a spawn storm, and is open for a next try. ``charged``: what still counts."""

    issue_id: str
    charged: int = 0


@value
class Noted(Record):
    """Something a person may want to read. ``level``: ``info``, ``warning`` or ``error``."""

    level: str
    text: str


@value
class Recovered(Record):
    """What an earlier run had left was settled."""

    run_id: str


@value
class RunEnded(Record):
    """The last line of a run that ended by itself."""

    exit_code: int
    reason: str = ""
