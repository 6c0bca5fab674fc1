"""The maintenance of a queue: fetching, the lease, stop requests, dead runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event as Flag
from threading import Lock

from beads_workers.core.base.model import IssueId, value
from beads_workers.core.schedule.events import Arrived, Event, Warned, Withdrawn
from beads_workers.integrations.hero import wire
from beads_workers.integrations.hero.buffer import BufferedJob, JobStanding, LocalBuffer
from beads_workers.integrations.hero.store import FETCH_MAX, Fetched, JobEnd, JobStore, Runs

# --- fetch ---------------------------------------------------------------------------------------
# From the ids of a queue to jobs in the local buffer: read, compared with the buffer, and made to
# wait.


WALK_MAX = 1_000
"""Maximum number of jobs that are looked at to find a cycle of dependencies: no real job waits for
more."""


NAMED_MAX = 10_000
"""Maximum number of named jobs that ``Dependents`` remembers; beyond that all jobs are read
anew."""


@dataclass(slots=True)
class Dependents:
    """Which jobs name which others in ``dependents``, as far as they were read.

    A named job may be here before the job that names it was fetched, or queued.
    """

    _above: dict[str, list[str]] = field(default_factory=dict)
    _read: set[str] = field(default_factory=set)

    def note(self, job_id: str, dependents: Iterable[str]) -> None:
        """Note the ``dependents`` of a job that was read."""
        self._read.add(job_id)
        for other in dependents:
            self._above.setdefault(other, []).append(job_id)

    def unread(self, job_ids: Collection[str]) -> list[str]:
        """Return those of all existing jobs that were not read yet."""
        if len(self._above) > NAMED_MAX:
            self._above.clear()
            self._read.clear()
        self._read.intersection_update(job_ids)
        return [job_id for job_id in job_ids if job_id not in self._read]

    def above(self, job_id: str) -> list[str]:
        """Return the jobs that name this job."""
        return self._above.get(job_id, [])


@value
class Fetcher:
    """Takes fetched jobs into the buffer.

    ``tell`` hands an event to the core, from any thread; ``lock`` is the buffer's.
    """

    store: JobStore
    buffer: LocalBuffer
    lock: Lock
    tell: Callable[[Event], None]
    dependents: Dependents = field(default_factory=Dependents)

    def accept(self, found: Iterable[Fetched]) -> None:
        """Take in jobs that are in our list now.

        Raises ``SourceError``: then fetch the jobs that are not in the buffer once more.
        """
        twice: list[str] = []
        endings: list[JobEnd] = []
        jobs: list[tuple[wire.HeroJob, int]] = []
        stopped: set[str] = set()
        seen: set[str] = set()
        for fetched in found:
            if fetched.job_id in self.buffer or fetched.job_id in seen:
                self._twice(fetched.job_id, twice)
                continue
            seen.add(fetched.job_id)
            if fetched.damaged:
                text = f"wrong job: its key in Redis holds a {fetched.damaged}, not a hash"
                endings.append(JobEnd(fetched.job_id, "", 0, wire.JobStatus.ERROR, text))
                continue
            try:
                job = wire.read_job(fetched.job_id, fetched.fields)
            except wire.WrongField as error:
                endings.append(
                    JobEnd(fetched.job_id, "", 0, wire.JobStatus.ERROR, f"wrong job: {error}")
                )
                continue
            if not fetched.fields or job.status.is_final:
                endings.append(JobEnd(job.id, "", 0, wire.JobStatus.ERROR, "it had ended already"))
            else:
                jobs.append((job, fetched.attempts))
                stopped.update([job.id] if fetched.stopped else ())
        self.store.drop_later(twice)
        self._end(endings)
        self._add(jobs, stopped)

    def look_at_waits(self) -> None:
        """Look up all jobs that some job here waits for."""
        with self.lock:
            unmet = self.buffer.unmet()
        for begin in range(0, len(unmet), WALK_MAX):
            some = unmet[begin : begin + WALK_MAX]
            for other, standing in zip(some, self._standings(some), strict=True):
                self.ended(other, standing)

    def ended(self, other: str, status: wire.JobStatus | None) -> None:
        """Note the state of a job that others may wait for; None: nothing is known of it."""
        with self.lock:
            if status is wire.JobStatus.FINISHED and self.buffer.finished(other):
                self.tell(Arrived())
            if status is wire.JobStatus.ERROR:
                self.buffer.failed(other, failed_because_of(other))

    def _twice(self, job_id: str, twice: list[str]) -> None:
        with self.lock:
            kept = self.buffer.get(job_id)
            if kept is not None and kept.evicted:
                kept.returned = True  # Taken in again once the old attempt is over.
                return
        twice.append(job_id)

    def _end(self, endings: Sequence[JobEnd]) -> None:
        for ending, answer in zip(endings, self.store.end(endings), strict=True):
            if answer == "done":
                self.tell(Warned(f"{ending.job_id[:100]}: {ending.text}"))

    def _add(self, jobs: Sequence[tuple[wire.HeroJob, int]], stopped: Collection[str]) -> None:
        new = [job for job, attempts in jobs if not attempts]
        named = self._named_by_others(new)
        waits = {job.id: [*job.waits_for, *named.get(job.id, ())] for job, _ in jobs}
        asked = list(dict.fromkeys(other for others in waits.values() for other in others))
        standings = dict(zip(asked, self._standings(asked), strict=True))
        self._keep_in_step(new, named)
        parked = []
        with self.lock:
            for job, attempts in jobs:
                unmet = [o for o in waits[job.id] if standings[o] is not wire.JobStatus.FINISHED]
                kept = self.buffer.add(job, attempts, unmet)
                failed = [o for o in unmet if standings[o] is wire.JobStatus.ERROR]
                if failed or job.id in stopped:
                    why = wire.STOPPED if job.id in stopped else failed_because_of(failed[0])
                    self.buffer.doom(kept, why)
                elif unmet:
                    parked.append(kept)
            for job, _ in jobs:
                self._hold_back_dependents(job)
        for kept in parked:
            self._look_for_cycle(kept)
        if jobs:
            self.tell(Arrived())

    def _named_by_others(self, jobs: Sequence[wire.HeroJob]) -> dict[str, list[str]]:
        """Return, by job, which existing jobs name it in ``dependents``.

        A client may write ``dependents`` alone, and queue the jobs in any order.
        """
        known = self.dependents
        for job in jobs:
            known.note(job.id, job.dependents)
        unread = known.unread(self.store.all_jobs()) if jobs else []
        for begin in range(0, len(unread), WALK_MAX):
            some = unread[begin : begin + WALK_MAX]
            found = self.store.fields_of(some, ("status", "dependents"))
            for job_id, fields in zip(some, found, strict=True):
                known.note(job_id, _named_in(fields, ("dependents",)))
        above = {job.id: list(dict.fromkeys(known.above(job.id))) for job in jobs}
        others = list(dict.fromkeys(other for found in above.values() for other in found))
        there = {o for o, s in zip(others, self._standings(others), strict=True) if s is not None}
        return {job_id: [o for o in found if o in there] for job_id, found in above.items()}

    def _standings(self, job_ids: Sequence[str]) -> list[wire.JobStatus | None]:
        found: list[wire.JobStatus | None] = []
        for fields in self.store.fields_of(job_ids, ("status",)):
            try:
                found.append(wire.read_status(fields) if fields else None)
            except wire.WrongField:
                found.append(None)
        return found

    def _keep_in_step(
        self, jobs: Sequence[wire.HeroJob], named: Mapping[str, Sequence[str]]
    ) -> None:
        above = [(other, job.id) for job in jobs for other in job.waits_for]
        self.store.link(above, "dependents", ())
        below = [(other, job.id) for job in jobs for other in job.dependents]
        below += [(job_id, other) for job_id, others in named.items() for other in others]
        self.store.link(below, "prerequisites", ("dependencies",))

    def _hold_back_dependents(self, job: wire.HeroJob) -> None:
        for other in job.dependents:
            kept = self.buffer.get(other)
            if kept is not None and kept.standing in (
                JobStanding.READY,
                JobStanding.BEHIND,
                JobStanding.PARKED,
            ):
                self.buffer.wait(kept, job.id)

    def _look_for_cycle(self, kept: BufferedJob) -> None:
        """End a job that waits for itself, directly or through others: it would never begin."""
        came_from: dict[str, str] = dict.fromkeys(kept.waits_for, kept.job.id)
        level = list(came_from)
        while level and len(came_from) < WALK_MAX:
            if kept.job.id in came_from:
                break
            found = self.store.fields_of(level, ("status", *wire.WAITS))
            following: list[str] = []
            for job_id, fields in zip(level, found, strict=True):
                for other in _named_in(fields, wire.WAITS):
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
            if kept.standing is JobStanding.PARKED:
                self.buffer.doom(kept, text)


def failed_because_of(other: str) -> str:
    """Return the ``error`` of a job that waited for a failed job."""
    return f"prerequisite {other} failed"


def _named_in(fields: dict[bytes, bytes], names: Sequence[str]) -> list[str]:
    """Return the jobs that these fields of a job name; none if that job has ended."""
    try:
        if wire.read_status(fields).is_final:
            return []
        return [other for name in names for other in wire.read_ids(fields, name)]
    except wire.WrongField:
        return []


# --- maintenance ---------------------------------------------------------------------------------
# Continuous work for a queue: fetching, the lease, stop requests, dead runs.
#
# One thread does it, round after round. What the fleet asks for itself is in ``source``. Times are
# monotonic seconds. Source: docs/HERO.md, "The data in the Redis".


STOPS_SECONDS = 0.25
"""Interval at which stop requests are read."""
WAITS_SECONDS = 1.0
"""Interval at which we look up jobs of other fleets for which jobs here wait."""
UNKNOWN_SECONDS_MAX = 10.0
"""Longest delay until a stop request for a job that is not here is looked at again."""
MISSING_SECONDS = 60.0
"""Time after which a stop request for a job that does not exist is forgotten."""


@dataclass(slots=True)
class SharedState:
    """State shared by the maintenance thread and the tracker thread.

    Hold ``lock`` to use ``buffer``.
    """

    buffer: LocalBuffer = field(default_factory=LocalBuffer)
    lock: Lock = field(default_factory=Lock)
    # The fleet has asked for work, so everything older is settled.
    opened: Flag = field(default_factory=Flag)
    # There may be room again, or something is to be ended.
    wake: Flag = field(default_factory=Flag)
    # Redis says that we do not serve.
    evicted: Flag = field(default_factory=Flag)
    # Our list in Redis may hold jobs that are not here.
    unsure: Flag = field(default_factory=Flag)
    # Redis stalls, and may still move one more job into our list after we have left.
    stuck: Flag = field(default_factory=Flag)


@dataclass(slots=True)
class _Unknown:
    """A stop request for a job that is not here. ``missing_since``: first found missing."""

    again_at: float
    delay: float
    missing_since: float | None


class ServedElsewhere(Exception):
    """Another orchestrator serves this queue, and does not share it. ``str()`` is one line."""


class Maintenance:
    """The work of the maintenance thread.

    ``round`` does what is due and fetches; call ``failed`` if ``round`` raised ``SourceError``.
    """

    def __init__(
        self,
        store: JobStore,
        runs: Runs,
        holding: SharedState,
        who: str,
        tell: Callable[[Event], None],
        clock: Callable[[], float] = time.monotonic,
        patience_seconds: float = STOPS_SECONDS,
    ) -> None:
        """``who``: see ``Runs.join``. ``tell`` is called in this thread.

        ``patience_seconds``: longest wait for jobs in one round.
        """
        self._store = store
        self._runs = runs
        self._holding = holding
        self._buffer = holding.buffer
        self._who = who
        self._tell = tell
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._taking = Fetcher(store, self._buffer, holding.lock, tell)
        self._lease = store.queue.lease_seconds
        self._joined = False
        self._beat_at = self._stops_at = self._waits_at = self._others_at = 0.0
        self._alive_at = clock()
        self._missing: dict[str, float] = {}
        self._unknown: dict[str, _Unknown] = {}
        self._is_deaf = False
        self.stopped_accepting = False
        """Whether the run is ending: nothing more is fetched, and jobs that we hold are kept."""

    def round(self) -> None:
        """Do what is due, then wait for jobs until something else is due.

        Raises ``SourceError`` and ``ServedElsewhere``.
        """
        now = self._clock()
        if self._holding.evicted.is_set():
            self._evicted("another orchestrator has taken it over")
        if not self._joined:
            self._join()
        if now >= self._beat_at:
            self._beat(now)
        if self._holding.unsure.is_set():
            self._fetch_what_is_ours()
        if now >= self._stops_at:
            self._look_for_stops(now)
        if now >= self._waits_at:
            self._taking.look_at_waits()
            self._make_room()
            self._waits_at = now + WAITS_SECONDS
        if now >= self._others_at:
            self._look_after_others(now)
        self._end_doomed()
        self._fetch()

    def failed(self) -> None:
        """Note that Redis could not be asked.

        Our list there is compared with the buffer afterwards. If others could have taken over our
        jobs by now, the fleet ends its work on them.
        """
        self._holding.unsure.set()
        self._missing.clear()
        silent = self._clock() - self._alive_at
        if self._who.startswith("shared") and silent > 2 * self._lease:
            self._evicted(f"Redis has not been reached for {silent:.0f} s")

    # --- being there ----------------------------------------------------------------------------

    def _join(self) -> None:
        if other := self._runs.join(self._who):
            raise ServedElsewhere(f"another orchestrator serves this queue: {other}")
        self._joined = True

    def _beat(self, now: float) -> None:
        if not self._runs.beat(self._who):
            self._evicted("another orchestrator has taken it over")
            self._join()
        self._alive_at, self._beat_at = now, now + self._lease / 3

    def _evicted(self, why: str) -> None:
        self._holding.evicted.clear()
        self._joined = False
        self._holding.unsure.set()
        with self._holding.lock:
            out = self._buffer.evict()
        if out:
            self._tell(Withdrawn(tuple(IssueId(kept.job.id) for kept in out), why))

    def _look_after_others(self, now: float) -> None:
        """Requeue the jobs of dead runs: those whose lease expired at least one more lease
        ago."""
        self._others_at = now + self._lease / 3
        for run, dead in self._runs.others().items():
            if not dead:
                self._missing.pop(run, None)
            elif now - self._missing.setdefault(run, now) >= self._lease:
                del self._missing[run]
                answers = self._runs.requeue(run, "dead")
                lost = sum(what == "lost" for _, what in answers)
                if answers:
                    text = f"run {run} is dead: {len(answers) - lost} of its jobs are queued again"
                    self._tell(Warned(text + (f", {lost} are lost" if lost else "")))

    # --- fetching -------------------------------------------------------------------------------

    def _fetch_what_is_ours(self) -> None:
        """Fetch the jobs in our list that are not here: an answer was lost, or they came back to
        us."""
        self._holding.unsure.clear()
        held = self._store.held()
        with self._holding.lock:
            here = [job_id for job_id in held if job_id not in self._buffer]
        for begin in range(0, len(here), FETCH_MAX):
            found = self._store.fetch(0, here[begin : begin + FETCH_MAX][::-1])
            self._taking.accept(found or ())

    def _fetch(self) -> None:
        with self._holding.lock:
            room = min(self._buffer.room(), FETCH_MAX)
        if self.stopped_accepting or not self._holding.opened.is_set() or not room:
            self._holding.wake.wait(self._patience())
            self._holding.wake.clear()
            return
        found = self._store.fetch(room)
        if found == [] and (job_id := self._store.wait(self._patience())):
            found = self._store.fetch(room - 1, [job_id])
        if found is None:
            self._holding.evicted.set()
        elif found:
            self._taking.accept(found)

    def _patience(self) -> float:
        due = min(self._beat_at, self._stops_at, self._waits_at, self._others_at)
        return min(max(0.0, due - self._clock()), self._patience_seconds)

    def _make_room(self) -> None:
        """Move surplus jobs to the back of the queue: the jobs that they wait for may be behind
        them."""
        with self._holding.lock:
            surplus = self._buffer.surplus(FETCH_MAX)
            # Removed before Redis is asked: jobs left in our list after a lost answer are fetched
            # anew.
            for kept in surplus:
                self._buffer.remove(kept)
        self._store.put_behind(reversed([kept.job.id for kept in surplus]))

    # --- ending without having started -----------------------------------------------------------

    def _end_doomed(self) -> None:
        with self._holding.lock:
            doomed = list(self._buffer.doomed.values())
        endings = [JobEnd(d.job_id, d.context, 0, wire.JobStatus.ERROR, d.error) for d in doomed]
        for ending, answer in zip(endings, self._store.end(endings), strict=True):
            with self._holding.lock:
                if (kept := self._buffer.get(ending.job_id)) is not None:
                    self._buffer.remove(kept)
                self._buffer.failed(ending.job_id, failed_because_of(ending.job_id))
            if answer == "done" and ending.text != wire.STOPPED:
                self._tell(Warned(f"{ending.job_id}: {ending.text}"))
        if endings and self._buffer.count(JobStanding.READY):
            self._tell(Arrived())

    def _look_for_stops(self, now: float) -> None:
        self._stops_at = now + STOPS_SECONDS
        running, unknown = [], []
        requests = self._stop_requests()
        with self._holding.lock:
            for job_id in requests:
                kept = self._buffer.get(job_id)
                if kept is None:
                    unknown.append(job_id)
                elif kept.standing is JobStanding.OUT and not kept.stopped:
                    kept.stopped = True
                    running.append(IssueId(job_id))
                elif kept.standing not in (JobStanding.OUT, JobStanding.DOOMED):
                    self._buffer.doom(kept, wire.STOPPED)
        if running:
            self._tell(Withdrawn(tuple(running), wire.STOPPED))
        self._stop_elsewhere(unknown, now)

    def _stop_requests(self) -> list[str]:
        requests = self._store.stop_requests()
        if requests is None and not self._is_deaf:
            key = self._store.queue.keys.stop_key(self._store.queue.worker)
            self._tell(Warned(f"nothing can be stopped through Redis: {key} holds no list"))
        self._is_deaf = requests is None
        return requests or []

    def _stop_elsewhere(self, unknown: list[str], now: float) -> None:
        self._unknown = {i: self._unknown[i] for i in unknown if i in self._unknown}
        due = [i for i in unknown if i not in self._unknown or now >= self._unknown[i].again_at]
        forgotten = []
        for job_id, answer in zip(due, self._store.stop_queued(due), strict=True):
            if answer == "stopped":
                self._taking.ended(job_id, wire.JobStatus.ERROR)
            known = self._unknown.setdefault(job_id, _Unknown(now, STOPS_SECONDS, None))
            known.delay = min(known.delay * 2, UNKNOWN_SECONDS_MAX)
            known.again_at = now + known.delay
            if answer != "missing":
                known.missing_since = None
            elif known.missing_since is None:
                known.missing_since = now
            elif now - known.missing_since > MISSING_SECONDS:
                forgotten.append(job_id)
        self._store.forget_stops(forgotten)
