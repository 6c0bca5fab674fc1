"""The local buffer of a queue's jobs: which may begin, and what the others wait for. No I/O.

Jobs are first in, first out, unless they wait for other jobs, their context or another attempt. Two
threads share one local buffer; hold its lock while you use it. Times are monotonic seconds.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from beads_workers.core.base.model import value
from beads_workers.core.schedule.effects import Timers
from beads_workers.integrations.hero.wire import HeroJob

PREFETCH_MAX = 1_000
"""Most jobs in the local buffer that may begin: the queue's length in Redis does not count them."""
HELD_MAX = 10_000
"""Most jobs in the local buffer, including those that wait: some 10 MB."""
BUSY_SECONDS = 0.25
"""Delay before a context that another orchestrator uses is asked for again."""


class JobStanding(Enum):
    """The state of a job in the buffer."""

    READY = "may begin"
    BEHIND = "waits for its context"
    PARKED = "waits for other jobs"
    COOLING = "waits for another attempt"
    OUT = "is with the fleet"
    DOOMED = "is to end without having been started"


@dataclass(slots=True, eq=False)
class BufferedJob:
    """One job."""

    job: HeroJob
    # Number of attempts begun, with the current one.
    attempts: int
    # Its place in the order.
    number: int
    standing: JobStanding = JobStanding.READY
    waits_for: set[str] = field(default_factory=set)
    # Somebody wants the job stopped.
    stopped: bool = False
    # Others have the job now, and our work on it is in vain.
    evicted: bool = False
    # After it was ``evicted``, the job has come to us once more.
    returned: bool = False

    @property
    def context(self) -> str:
        """The context that the job has for itself; "" if it may run beside others."""
        return "" if self.job.concurrent else "c:" + self.job.context_id


@value
class Doomed:
    """A job that is to end with this error, without having been started."""

    job_id: str
    context: str
    error: str


class LocalBuffer:
    """See the module text."""

    def __init__(self, *, prefetch_max: int = PREFETCH_MAX, held_max: int = HELD_MAX) -> None:
        self._prefetch_max = prefetch_max
        self._held_max = held_max
        self._kept: dict[str, BufferedJob] = {}
        self._number = 0
        self._ready: list[tuple[int, str]] = []
        self._cooling = Timers[BufferedJob]()
        self._heads: dict[str, str] = {}
        self._behind: dict[str, deque[str]] = {}
        self._waited_for: dict[str, set[str]] = {}
        self._count = dict.fromkeys(JobStanding, 0)
        self.doomed: dict[str, Doomed] = {}
        """Jobs to end once Redis can be told, by id."""

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._kept

    def get(self, job_id: str) -> BufferedJob | None:
        """Return the job, or None if it is not here."""
        return self._kept.get(job_id)

    def count(self, standing: JobStanding) -> int:
        """Return the number of jobs in this state."""
        return self._count[standing]

    def room(self) -> int:
        """Return how many more jobs may be fetched."""
        ahead = self._prefetch_max - self._count[JobStanding.READY]
        return max(0, min(ahead, self._held_max - len(self._kept)))

    def surplus(self, count: int) -> list[BufferedJob]:
        """Return the latest ``count`` parked jobs if they leave no room for a job that could
        begin."""
        if self.room() or self._count[JobStanding.READY]:
            return []
        parked = [k for k in self._kept.values() if k.standing is JobStanding.PARKED]
        return sorted(parked, key=lambda kept: kept.number)[-count:]

    def rows(self) -> Iterator[BufferedJob]:
        """Yield the jobs that are not with the fleet, the oldest first."""
        here = (k for k in self._kept.values() if k.standing is not JobStanding.OUT)
        return iter(sorted(here, key=lambda kept: kept.number))

    # --- coming ---------------------------------------------------------------------------------

    def add(self, job: HeroJob, attempts: int, waits_for: Iterable[str] = ()) -> BufferedJob:
        """Add a fetched job. ``waits_for``: jobs that are not finished."""
        assert job.id not in self._kept, "each is here once"
        self._number += 1
        kept = self._kept[job.id] = BufferedJob(job, attempts, self._number)
        self._count[kept.standing] += 1
        for other in waits_for:
            self.wait(kept, other)
        if not kept.waits_for:
            self._line_up(kept)
        return kept

    def wait(self, kept: BufferedJob, other: str) -> None:
        """Keep a job from beginning before that other job has finished."""
        kept.waits_for.add(other)
        self._waited_for.setdefault(other, set()).add(kept.job.id)
        if kept.standing in (JobStanding.READY, JobStanding.BEHIND):
            self._free_context(kept)
            self._stand(kept, JobStanding.PARKED)

    # --- beginning ------------------------------------------------------------------------------

    def pick(self, limit: int) -> list[BufferedJob]:
        """Return the next jobs, and mark them as ``OUT``."""
        picked: list[BufferedJob] = []
        while self._ready and len(picked) < limit:
            _, job_id = heapq.heappop(self._ready)
            kept = self._kept.get(job_id)
            if kept is not None and kept.standing is JobStanding.READY:
                self._stand(kept, JobStanding.OUT)
                picked.append(kept)
        return picked

    def put_back(self, kept: BufferedJob) -> None:
        """Make a job ready again that was not started after all: it is the next one again."""
        self._stand(kept, JobStanding.READY)
        heapq.heappush(self._ready, (kept.number, kept.job.id))

    def cool(self, kept: BufferedJob, until: float) -> None:
        """Delay another attempt until then; the job's context is free meanwhile."""
        self._free_context(kept)
        self._stand(kept, JobStanding.COOLING)
        self._cooling.set(kept, until)

    def rest(self, kept: BufferedJob, until: float) -> None:
        """Ask for the job's context again at that time: others use it. The job keeps its turn."""
        self._stand(kept, JobStanding.COOLING)
        self._cooling.set(kept, until)

    # --- time and others ------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """Return when ``warm_up`` is due."""
        return self._cooling.deadline()

    def warm_up(self, now: float) -> bool:
        """End the delays that are over; return whether some jobs may begin now."""
        warm = self._cooling.due(now)
        for kept in warm:
            self._line_up(kept)
        return bool(warm)

    def unmet(self) -> list[str]:
        """Return the ids of all jobs that some job here waits for."""
        return list(self._waited_for)

    def finished(self, other: str) -> bool:
        """Note that a job has finished; return whether others may begin now."""
        some = False
        for kept in self._waiting(other):
            kept.waits_for.discard(other)
            if kept.standing is JobStanding.PARKED and not kept.waits_for:
                self._line_up(kept)
                some = True
        return some

    def failed(self, other: str, error: str) -> None:
        """Note that a job will never finish: jobs that wait for it end with this error."""
        for kept in self._waiting(other):
            if kept.standing is JobStanding.PARKED:
                self.doom(kept, error)

    # --- going ----------------------------------------------------------------------------------

    def doom(self, kept: BufferedJob, error: str) -> None:
        """Mark a job to end with this error, without being started."""
        assert kept.standing is not JobStanding.OUT, "the fleet has it"
        self._free_context(kept)
        self._stand(kept, JobStanding.DOOMED)
        self.doomed[kept.job.id] = Doomed(kept.job.id, kept.context, error)

    def remove(self, kept: BufferedJob) -> None:
        """Remove a job that is not ours any longer."""
        self._free_context(kept)
        for other in kept.waits_for:
            waiting = self._waited_for.get(other)
            if waiting is not None:
                waiting.discard(kept.job.id)
                if not waiting:
                    del self._waited_for[other]
        self.doomed.pop(kept.job.id, None)
        self._cooling.cancel(kept)
        self._count[kept.standing] -= 1
        del self._kept[kept.job.id]

    def evict(self) -> list[BufferedJob]:
        """Drop all jobs: others have them. Return those that the fleet is to end."""
        out = []
        for kept in list(self._kept.values()):
            if kept.standing is JobStanding.OUT:
                kept.evicted = True
                out.append(kept)
            else:
                self.remove(kept)
        return out

    # --- inside ---------------------------------------------------------------------------------

    def _stand(self, kept: BufferedJob, standing: JobStanding) -> None:
        self._cooling.cancel(kept)
        self._count[kept.standing] -= 1
        self._count[standing] += 1
        kept.standing = standing

    def _line_up(self, kept: BufferedJob) -> None:
        context = kept.context
        if context and self._heads.setdefault(context, kept.job.id) != kept.job.id:
            self._stand(kept, JobStanding.BEHIND)
            self._behind.setdefault(context, deque()).append(kept.job.id)
            return
        self.put_back(kept)

    def _free_context(self, kept: BufferedJob) -> None:
        """Let the next job of the context begin, if this job had the context."""
        context = kept.context
        if self._heads.get(context) != kept.job.id:
            return
        del self._heads[context]
        behind = self._behind.get(context, deque())
        while behind:
            following = self._kept.get(behind.popleft())
            if following is not None and following.standing is JobStanding.BEHIND:
                self._heads[context] = following.job.id
                self.put_back(following)
                return
        self._behind.pop(context, None)

    def _waiting(self, other: str) -> list[BufferedJob]:
        ids = self._waited_for.pop(other, set())
        return [kept for job_id in ids if (kept := self._kept.get(job_id)) is not None]
