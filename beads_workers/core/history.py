"""What happened in a run, whole: every attempt, worker, issue and trouble, with its times.

``core.history_fold.fold`` makes it from a journal, ``core.findings`` draws conclusions from it.
All times are seconds of the run (``elapsed`` of the journal) unless a name says otherwise;
``History.began_at`` turns them into epoch seconds.
"""

from __future__ import annotations

from enum import Enum

from beads_workers.core.checkpoint_records import Resumed
from beads_workers.core.values import value

RUNNING = "running"
CUT_OFF = "cut_off"
OUTCOMES = (
    "success",
    "error",
    "timeout",
    "lost",
    "not_found",
    "retry",
    "cancelled",
    CUT_OFF,
    RUNNING,
)
"""Of an attempt, in the order in which people look for them: the values of ``OutcomeKind``, an
attempt whose orchestrator died under it, and one that still runs."""

FAILURES = ("error", "timeout", "lost", "not_found")
"""Outcomes that are somebody's fault, and count."""


class Fate(Enum):
    """What became of an issue. The values are those of ``report --json``."""

    CLOSED = "closed"
    SET_ASIDE = "set_aside"
    NOT_CLOSED = "not_closed"
    """Done, but the tracker has not closed it (yet); the next start does."""
    GIVEN_BACK = "given_back"
    """Open again, for anybody to take."""
    UNFINISHED = "unfinished"
    """Still ours when the account ends: it runs, or the run was killed."""
    LEFT_ALONE = "left_alone"
    """Somebody else holds it, closed it for another reason, or deleted it."""


@value
class Attempt:
    """One try at one issue. ``ended`` is None where no end was recorded.

    ``seconds``: how long a worker was taken up by it, on our clock, up to the end of the account.
    ``worker_ms``: as the worker measured it. ``attempt``: the number from 1, as it was told to
    the worker. ``charged``, ``delay_seconds``: what came after it, as in ``records.Finished``.
    """

    request_id: str
    issue_id: str
    title: str
    priority: int
    worker_id: str
    attempt: int
    began: float
    ended: float | None
    seconds: float
    outcome: str
    verdict: str = ""
    error: str = ""
    worker_ms: int = 0
    charged: int = 0
    delay_seconds: float = 0.0


@value
class WorkerSpan:
    """One life of a worker. ``status``: its exit status, None while it lives or is not ours.

    ``dismissed``: it ended after the whole fleet was told to stop, by itself or killed.
    """

    worker_id: str
    pid: int
    own: bool
    began: float
    ended: float | None
    status: int | None = None
    reason: str = ""
    dismissed: bool = False

    @property
    def died(self) -> bool:
        """Whether it ended otherwise than by leaving, when nobody wanted it to."""
        return bool(self.status) and not self.dismissed


@value
class Span:
    """A stretch of time: the tracker could not be asked, or the fleet was paused.

    ``ended`` is None where it lasts to the end of the account. ``count``: failures in a row.
    """

    began: float
    ended: float | None
    text: str = ""
    hint: str = ""
    count: int = 1


@value
class IssueHistory:
    """One issue. ``seconds``: of all its attempts. ``error``: the last one it failed with.

    ``charged``: attempts that count, earlier runs included. ``earlier``: this run only
    remembered it, or settled what an earlier one had done.
    """

    issue_id: str
    title: str
    priority: int
    fate: Fate
    attempts: int
    charged: int
    seconds: float
    error: str = ""
    closed: float | None = None
    earlier: bool = False


@value
class Note:
    """Something that the run wrote down for people. ``level``: info, warning or error."""

    at: float
    level: str
    text: str


@value
class History:
    """A run's whole account.

    ``state``: ``running``, ``ended`` (by itself) or ``killed`` (it ended without a word).
    ``exit_code`` and ``reason`` go with ``ended``. ``seconds``: how long the account is.
    ``settled``: the tracker is owed nothing of it, for a later start has seen to that.
    ``tracker_calls`` and ``tracker_seconds``: what asking the tracker has cost.
    """

    run_id: str
    project: str
    source: str
    version: str
    pid: int
    workers_asked: int
    began_at: float
    seconds: float
    state: str
    exit_code: int | None
    reason: str
    settled: bool
    attempts: tuple[Attempt, ...]
    workers: tuple[WorkerSpan, ...]
    issues: tuple[IssueHistory, ...]
    troubles: tuple[Span, ...]
    pauses: tuple[Span, ...]
    notes: tuple[Note, ...]
    tracker_calls: int
    tracker_seconds: float
    dropped: Resumed | None = None
    """What was counted before ``dropped_seconds``: the journal was too long, and tells the rest."""
    dropped_seconds: float = 0.0

    def with_fate(self, *fates: Fate) -> tuple[IssueHistory, ...]:
        """Issues that this run had in its hands and that came to one of these ends."""
        return tuple(i for i in self.issues if i.fate in fates and not i.earlier)
