"""From the ids of a queue to jobs in the stock: read, compared with what is here, made to wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Lock

from beads_workers.core.events import Arrived, Event, Warned
from beads_workers.core.values import value
from beads_workers.protocols.hero.jobs import HeroJob, Status
from beads_workers.protocols.hero.reading import WrongField, read_ids, read_job, read_status
from beads_workers.sources.hero.queue import Ending, Fetched
from beads_workers.sources.hero.stock import Kept, Standing, Stock
from beads_workers.sources.hero.store import Store

WALK_MAX = 1_000
"""Jobs that are looked at for a cycle: nobody waits for more."""

_WAITS = ("prerequisites", "dependencies")


@value
class TakingIn:
    """``tell`` hands an event to the core, from any thread; ``lock`` is the stock's."""

    store: Store
    stock: Stock
    lock: Lock
    tell: Callable[[Event], None]

    def take_in(self, found: Iterable[Fetched]) -> None:
        """These are in our list now. Raises ``SourceError``: those that are not in the stock then
        are to be fetched once more."""
        twice: list[str] = []
        over: list[Ending] = []
        jobs: list[tuple[HeroJob, int]] = []
        seen: set[str] = set()
        for fetched in found:
            if fetched.job_id in self.stock or fetched.job_id in seen:
                self._twice(fetched.job_id, twice)
                continue
            seen.add(fetched.job_id)
            try:
                job = read_job(fetched.job_id, fetched.fields)
            except WrongField as error:
                over.append(Ending(fetched.job_id, "", 0, Status.ERROR, f"wrong job: {error}"))
                continue
            if not fetched.fields or job.status.is_final:
                over.append(Ending(job.id, "", 0, Status.ERROR, "it had ended already"))
            else:
                jobs.append((job, fetched.attempts))
        self.store.drop_later(twice)
        self._end(over)
        self._add(jobs)

    def look_at_waits(self) -> None:
        """Ask about all that some here wait for."""
        with self.lock:
            unmet = self.stock.unmet()
        for begin in range(0, len(unmet), WALK_MAX):
            some = unmet[begin : begin + WALK_MAX]
            for other, standing in zip(some, self._standings(some), strict=True):
                self.ended(other, standing)

    def ended(self, other: str, status: Status | None) -> None:
        """That job stands so; None: nothing is known of it."""
        with self.lock:
            if status is Status.FINISHED and self.stock.finished(other):
                self.tell(Arrived())
            if status is Status.ERROR:
                self.stock.failed(other, failed_because_of(other))

    def _twice(self, job_id: str, twice: list[str]) -> None:
        with self.lock:
            kept = self.stock.get(job_id)
            if kept is not None and kept.evicted:
                kept.again = True  # Taken in once the attempt of old is over.
                return
        twice.append(job_id)

    def _end(self, over: Sequence[Ending]) -> None:
        for ending, answer in zip(over, self.store.end(over), strict=True):
            if answer == "done":
                self.tell(Warned(f"{ending.job_id[:100]}: {ending.said}"))

    def _add(self, jobs: Sequence[tuple[HeroJob, int]]) -> None:
        waits = list(dict.fromkeys(other for job, _ in jobs for other in job.waits_for))
        standings = dict(zip(waits, self._standings(waits), strict=True))
        self._keep_in_step([job for job, attempts in jobs if not attempts])
        parked = []
        with self.lock:
            for job, attempts in jobs:
                unmet = [o for o in job.waits_for if standings[o] is not Status.FINISHED]
                kept = self.stock.add(job, attempts, unmet)
                failed = [o for o in unmet if standings[o] is Status.ERROR]
                if failed:
                    self.stock.doom(kept, failed_because_of(failed[0]))
                elif unmet:
                    parked.append(kept)
            for job, _ in jobs:
                self._hold_back_dependents(job)
        for kept in parked:
            self._look_for_cycle(kept)
        if jobs:
            self.tell(Arrived())

    def _standings(self, job_ids: Sequence[str]) -> list[Status | None]:
        found: list[Status | None] = []
        for fields in self.store.fields_of(job_ids, ("status",)):
            try:
                found.append(read_status(fields) if fields else None)
            except WrongField:
                found.append(None)
        return found

    def _keep_in_step(self, jobs: Sequence[HeroJob]) -> None:
        above = [(other, job.id) for job in jobs for other in job.waits_for]
        self.store.link(above, "dependents", ())
        below = [(other, job.id) for job in jobs for other in job.dependents]
        self.store.link(below, "prerequisites", ("dependencies",))

    def _hold_back_dependents(self, job: HeroJob) -> None:
        for other in job.dependents:
            kept = self.stock.get(other)
            if kept is not None and kept.standing in (
                Standing.READY,
                Standing.BEHIND,
                Standing.PARKED,
            ):
                self.stock.wait(kept, job.id)

    def _look_for_cycle(self, kept: Kept) -> None:
        """One that waits for itself, however far around, will never begin."""
        came_from: dict[str, str] = dict.fromkeys(kept.waits_for, kept.job.id)
        level = list(came_from)
        while level and len(came_from) < WALK_MAX:
            if kept.job.id in came_from:
                break
            found = self.store.fields_of(level, ("status", *_WAITS))
            following: list[str] = []
            for job_id, fields in zip(level, found, strict=True):
                for other in _waits_of(fields):
                    if other not in came_from:
                        came_from[other] = job_id
                        following.append(other)
            level = following
        if kept.job.id not in came_from:
            return
        path = [kept.job.id]
        while len(path) < 2 or path[-1] != kept.job.id:
            path.append(came_from[path[-1]])
        text = "these jobs wait for each other: " + " -> ".join(reversed(path[-10:]))
        with self.lock:
            if kept.standing is Standing.PARKED:
                self.stock.doom(kept, text)


def failed_because_of(other: str) -> str:
    """``error`` of a job that waited for one which failed."""
    return f"prerequisite {other} failed"


def _waits_of(fields: dict[bytes, bytes]) -> list[str]:
    try:
        if read_status(fields).is_final:
            return []
        return [other for name in _WAITS for other in read_ids(fields, name)]
    except WrongField:
        return []
