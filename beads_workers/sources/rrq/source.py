"""The fleet's view of an RRQ executor: requests are jobs, and settling one is its answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from beads_workers.core.jobs import Call, IssueId, Job
from beads_workers.core.source import (
    Action,
    Calls,
    DeadRun,
    Renewed,
    Result,
    Seen,
    Settled,
    Settlement,
    Taken,
)
from beads_workers.protocols.rrq.envelopes import Request, request_fields
from beads_workers.sources.results import whole
from beads_workers.sources.rrq.owed import Owed
from beads_workers.sources.rrq.serving import Serving

EXECUTOR = "default"
"""What we are called where jobs are shown: the orchestrator does not say which of its executors."""

LEFT = "whoever asked for it has left"

SECONDS_MIN = 0.001
"""Some time is left, or it would have been answered already."""


class RrqSource:
    """See ``Source``. It never blocks, and belongs to the thread of the loop.

    ``prefix``: stands before the name of every function, with a dot; ``calls``: requests are calls
    of Python functions, and not of the fleet's command. ``attempt_seconds``: for each at most.
    """

    name = "rrq"
    literal = False

    def __init__(
        self,
        serving: Serving,
        *,
        actor: str,
        place: str,
        calls_functions: bool,
        prefix: str = "",
        attempt_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.serving = serving
        self.actor = actor
        self.calls = Calls()
        self._place = place
        self._calls_functions = calls_functions
        self._prefix = f"{prefix}." if prefix else ""
        self._attempt_seconds = attempt_seconds
        self._clock = clock

    def describe(self) -> str:
        """Where requests come from."""
        return f"RRQ requests at {self._place}"

    def take(self, limit: int, skip: Collection[IssueId]) -> Taken:
        """The next requests, oldest first."""
        now = self._clock()
        return Taken(tuple(self._job(owed, now) for owed in self.serving.take(limit)))

    def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Answer them; whoever is not there any more is passed over."""
        for settlement in settlements:
            self.serving.settled(settlement.issue_id, whole(settlement.outcome))
        return [Settled(settlement, Result.APPLIED) for settlement in settlements]

    def renew(self, issue_ids: Sequence[IssueId]) -> Renewed:
        """There are no leases."""
        return Renewed()

    def recover(self, dead: DeadRun) -> list[Settled]:
        """Nothing is owed: whoever was to get an answer of a dead run has seen its connection
        end. That is said, or it would be remembered for ever as not closed."""
        done = (Settlement(Action.CLOSE, issue_id) for issue_id in dead.done_not_closed)
        return [Settled(each, Result.NOT_OURS, LEFT) for each in done]

    def look(self, issue_ids: Sequence[IssueId]) -> dict[IssueId, Seen]:
        """Nothing is known here of a request that has been answered."""
        return {}

    def unfinished(self, rows_max: int) -> list[Seen]:
        """What is waiting is the orchestrator's to show."""
        return []

    def ready(self) -> frozenset[IssueId]:
        """See ``unfinished``."""
        return frozenset()

    def close(self) -> None:
        """The connections belong to the edge."""

    def _job(self, owed: Owed, now: float) -> Job:
        request = owed.request
        assert request is not None and owed.issue_id is not None, "it is still wanted"
        seconds = self._attempt_seconds
        if owed.deadline is not None:
            left = max(SECONDS_MIN, owed.deadline - now)
            seconds = left if seconds is None else min(left, seconds)
        calls = self._calls_functions
        before = self._prefix if calls else f"{EXECUTOR}#"
        call = Call(before + request.function_name, request.args, request.kwargs)
        return Job(
            self.name,
            owed.issue_id,
            request.function_name,
            issue_type="request",
            timeout_seconds=seconds,
            attempt=request.context.attempt,
            enqueued_at=request.context.enqueue_time,
            trace_context=request.context.trace_context,
            call=call if calls else None,
            named=None if calls else call,
            original={} if calls else _shown(owed.issue_id, request),
        )


def _shown(issue_id: IssueId, request: Request) -> dict[str, Any]:
    """What a command reads in ``BW_ISSUE_FILE``: the request, with the keys of any other issue."""
    return {"id": issue_id, "title": request.function_name, **request_fields(request)}
