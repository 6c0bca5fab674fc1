"""The jobs of a queue that are with us: which may begin, what the others wait for. Pure.

A job is first in, first out, unless it waits: for other jobs, for its context, for another attempt.
Two threads share one local buffer; whoever uses it holds its lock. Times are monotonic seconds.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from beads_workers.core.model import value
from beads_workers.integrations.hero.wire import HeroJob

PREFETCH_MAX = 1_000
"""Jobs in the local buffer that may begin: what the queue's length hides from those who look at
it."""
HELD_MAX = 10_000
"""All that are here, those that wait too: some 10 MB."""
BUSY_SECONDS = 0.25
"""A context that another orchestrator is busy with is asked for again after this."""


class JobStanding(Enum):
    """Where a job is on its way."""

    READY = "may begin"
    BEHIND = "waits for its context"
    PARKED = "waits for other jobs"
    COOLING = "waits for another attempt"
    OUT = "is with the fleet"
    DOOMED = "is to end without having been started"


@dataclass(slots=True, eq=False)
class BufferedJob:
    """One job. ``attempts``: started so far, with the one that is out. ``number``: its place.

    ``stopped``: somebody wants it stopped. ``evicted``: others have it now, and what we do with it
    is in vain; ``again``: since then it has come to us once more.
    """

    job: HeroJob
    attempts: int
    number: int
    standing: JobStanding = JobStanding.READY
    waits_for: set[str] = field(default_factory=set)
    not_before: float = 0.0
    stopped: bool = False
    evicted: bool = False
    again: bool = False

    @property
    def context(self) -> str:
        """Which context it has for itself; "" for one that runs beside others."""
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
        self._cooling: list[tuple[float, str]] = []
        self._heads: dict[str, str] = {}
        self._behind: dict[str, deque[str]] = {}
        self._waited_for: dict[str, set[str]] = {}
        self._count = dict.fromkeys(JobStanding, 0)
        self.doomed: dict[str, Doomed] = {}
        """By id: what is to end once Redis can be told."""

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._kept

    def get(self, job_id: str) -> BufferedJob | None:
        """The job, if it is here."""
        return self._kept.get(job_id)

    def count(self, standing: JobStanding) -> int:
        """How many stand so."""
        return self._count[standing]

    def room(self) -> int:
        """How many more may be fetched."""
        ahead = self._prefetch_max - self._count[JobStanding.READY]
        return max(0, min(ahead, self._held_max - len(self._kept)))

    def surplus(self, count: int) -> list[BufferedJob]:
        """The latest that wait for others, where these leave no room for any that could begin."""
        if self.room() or self._count[JobStanding.READY]:
            return []
        parked = [k for k in self._kept.values() if k.standing is JobStanding.PARKED]
        return sorted(parked, key=lambda kept: kept.number)[-count:]

    def rows(self) -> Iterator[BufferedJob]:
        """What is here and not with the fleet, the oldest first."""
        here = (k for k in self._kept.values() if k.standing is not JobStanding.OUT)
        return iter(sorted(here, key=lambda kept: kept.number))

    # --- coming ---------------------------------------------------------------------------------

    def add(self, job: HeroJob, attempts: int, waits_for: Iterable[str] = ()) -> BufferedJob:
        """It was fetched. ``waits_for``: jobs that are not finished."""
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
        """It may not begin before that other job has finished."""
        kept.waits_for.add(other)
        self._waited_for.setdefault(other, set()).add(kept.job.id)
        if kept.standing in (JobStanding.READY, JobStanding.BEHIND):
            self._free_context(kept)
            self._stand(kept, JobStanding.PARKED)

    # --- beginning ------------------------------------------------------------------------------

    def pick(self, limit: int) -> list[BufferedJob]:
        """The next ones, which are OUT from now on."""
        picked: list[BufferedJob] = []
        while self._ready and len(picked) < limit:
            _, job_id = heapq.heappop(self._ready)
            kept = self._kept.get(job_id)
            if kept is not None and kept.standing is JobStanding.READY:
                self._stand(kept, JobStanding.OUT)
                picked.append(kept)
        return picked

    def put_back(self, kept: BufferedJob) -> None:
        """It was not started after all: the next one again."""
        self._stand(kept, JobStanding.READY)
        heapq.heappush(self._ready, (kept.number, kept.job.id))

    def cool(self, kept: BufferedJob, until: float) -> None:
        """Another attempt, no sooner than that; its context is free meanwhile."""
        self._free_context(kept)
        self._stand(kept, JobStanding.COOLING)
        kept.not_before = until
        heapq.heappush(self._cooling, (until, kept.job.id))

    def rest(self, kept: BufferedJob, until: float) -> None:
        """Somebody else is busy with its context: ask again then; nobody overtakes it meanwhile."""
        self._stand(kept, JobStanding.COOLING)
        kept.not_before = until
        heapq.heappush(self._cooling, (until, kept.job.id))

    # --- time and others ------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """When ``warm_up`` is due."""
        return self._cooling[0][0] if self._cooling else None

    def warm_up(self, now: float) -> bool:
        """Whether some have waited long enough, and may begin."""
        some = False
        while self._cooling and self._cooling[0][0] <= now:
            until, job_id = heapq.heappop(self._cooling)
            kept = self._kept.get(job_id)
            cooling = kept is not None and kept.standing is JobStanding.COOLING
            if kept is not None and cooling and kept.not_before == until:
                self._line_up(kept)
                some = True
        return some

    def unmet(self) -> list[str]:
        """The jobs that some here wait for."""
        return list(self._waited_for)

    def finished(self, other: str) -> bool:
        """That job has finished: whether others may begin now."""
        some = False
        for kept in self._waiting(other):
            kept.waits_for.discard(other)
            if kept.standing is JobStanding.PARKED and not kept.waits_for:
                self._line_up(kept)
                some = True
        return some

    def failed(self, other: str, error: str) -> None:
        """That job will never finish: what waits for it ends as well."""
        for kept in self._waiting(other):
            if kept.standing is JobStanding.PARKED:
                self.doom(kept, error)

    # --- going ----------------------------------------------------------------------------------

    def doom(self, kept: BufferedJob, error: str) -> None:
        """It ends with this error, without having been started."""
        assert kept.standing is not JobStanding.OUT, "the fleet has it"
        self._free_context(kept)
        self._stand(kept, JobStanding.DOOMED)
        self.doomed[kept.job.id] = Doomed(kept.job.id, kept.context, error)

    def remove(self, kept: BufferedJob) -> None:
        """It is not ours any longer."""
        self._free_context(kept)
        self._forget_waiting(kept)
        self.doomed.pop(kept.job.id, None)
        self._count[kept.standing] -= 1
        del self._kept[kept.job.id]

    def evict(self) -> list[BufferedJob]:
        """Others have all that was ours; returns what the fleet is to end."""
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
        """The next one of its context may begin, if this was the one."""
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

    def _forget_waiting(self, kept: BufferedJob) -> None:
        for other in kept.waits_for:
            waiting = self._waited_for.get(other)
            if waiting is not None:
                waiting.discard(kept.job.id)
                if not waiting:
                    del self._waited_for[other]
