"""A client of Hero queues over any Redis: submits jobs and watches them, as Hero's own client."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from beads_workers.core.base.model import value
from beads_workers.integrations.hero import wire
from beads_workers.integrations.hero.connection import Address, connect, patiently
from beads_workers.runtime.output import open_to_read

if TYPE_CHECKING:
    from redis import Redis


# --- answers -------------------------------------------------------------------------------------
# Results and errors of the client.


ROW_FIELDS = (
    "id",
    "status",
    "caller_id",
    "worker_id",
    "context_id",
    "retries",
    "created_at",
    "updated_at",
    "error",
)
"""Fields that ``rows`` reads of each job: nothing long, and no secret."""


class NoSuchJob(LookupError):
    """No job has this id. ``str()`` is one line."""


class JobExists(ValueError):
    """A job with this id exists already, and no job was handed in. ``str()`` is one line."""


class StillUnderWay(TimeoutError):
    """The job had not ended when the time to wait was over. ``str()`` is one line."""


@value
class JobRow:
    """One job of a list, with ``ROW_FIELDS`` only. ``trouble``: why the job cannot be read."""

    id: str
    job: wire.HeroJob | None
    trouble: str = ""


def row_of(job_id: str, values: Sequence[bytes | None]) -> JobRow:
    """Return the row of a job from the values of its ``ROW_FIELDS``."""
    fields = {
        name.encode(): value
        for name, value in zip(ROW_FIELDS, values, strict=True)
        if value is not None
    }
    try:
        return JobRow(job_id, wire.read_job(job_id, fields))
    except wire.WrongField as error:
        return JobRow(job_id, None, str(error))


# --- logs ----------------------------------------------------------------------------------------
# The log of a job, read only if its path stays below the root.


_CHUNK_BYTES = 1 << 16
TAIL_BYTES_MAX = 16 << 20
"""Most bytes at the end of the log that are searched for the last lines."""


class JobLog:
    """One log, open for reading; rotation is followed. Use it as a context manager.

    The constructor raises ``UnsafePath``, or ``OSError`` if the file is not there.
    """

    def __init__(self, root: str, path: str) -> None:
        self._root, self._path = root, path
        self._file = open_to_read(root, path)

    def __enter__(self) -> JobLog:
        """Return the log itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Close the file."""
        os.close(self._file)

    def to_last(self, lines: int) -> None:
        """Skip everything before the last ``lines`` lines."""
        size = os.fstat(self._file).st_size
        at, seen, end = size, b"", max(0, size - TAIL_BYTES_MAX)
        # The newline at the end of the file does not begin another line.
        while at > end and seen.rstrip(b"\n").count(b"\n") < lines:
            step = min(_CHUNK_BYTES, at - end)
            at -= step
            seen = os.pread(self._file, step, at) + seen
        kept = seen.split(b"\n")
        last = lines + 1 if seen.endswith(b"\n") else lines
        left_out = len(b"\n".join(kept[:-last])) + 1 if len(kept) > last else 0
        os.lseek(self._file, at + left_out, os.SEEK_SET)

    def read(self) -> bytes:
        """Return the next bytes, at most 64 KiB; empty if there are none for now."""
        if data := os.read(self._file, _CHUNK_BYTES):
            return data
        newer = open_to_read(self._root, self._path)
        if os.path.sameopenfile(newer, self._file):
            os.close(newer)
            return b""
        os.close(self._file)
        self._file = newer
        return os.read(self._file, _CHUNK_BYTES)


# --- client --------------------------------------------------------------------------------------
# A client of Hero queues over any Redis: submits jobs and watches them, as Hero's own client.
#
# Source: docs/HERO.md, "The data in the Redis". No call blocks Redis: jobs are found by SCAN, and
# batches go in small transactions.


PATIENCE_SECONDS = 30.0
"""Time for which an unreachable Redis is tried again before the caller is told."""

JOBS_AT_ONCE = 200
"""Most jobs in one transaction: other clients of the Redis wait a millisecond or two for it."""

KEYS_AT_ONCE = 500
"""Keys that one SCAN looks at: less than a millisecond of the Redis' time."""

LOOK_SECONDS = 5.0
"""Interval at which a job's hash is read during ``wait``: its reply may be lost, or taken by
another client."""

T = TypeVar("T")


class HeroClient:
    """A client of one Redis, connected at the first call; a context manager, or ``close`` it.

    Every call may raise ``CannotReach`` after ``patience_seconds`` of trying, and ``RedisMissing``.
    Not for several threads at once.
    """

    def __init__(
        self, address: Address, keys: wire.Keys, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self.address = address
        self.keys = keys
        self._patience = patience_seconds
        self._redis: Redis | None = None

    def __enter__(self) -> HeroClient:
        """Return the client itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """See ``close``."""
        self.close()

    def close(self) -> None:
        """Close the connection; another call makes a new one."""
        if self._redis is not None:
            self._redis.close()
            self._redis = None

    # --- handing in ---------------------------------------------------------------------------

    def submit(self, jobs: Iterable[wire.HeroJob]) -> list[str]:
        """Hand in jobs in this order: first the hash of each, then its place in its worker's queue.

        Returns the ids; a job without an id gets a new one. Raises ``JobExists`` before the first
        job is handed in, and ``ValueError`` for a job that names no worker or cannot be written.
        """
        made = [self._new(job) for job in jobs]
        ids = [job.id for job in made]
        if len(set(ids)) < len(ids):
            raise JobExists("the same id twice")
        for chunk in _chunks(ids, KEYS_AT_ONCE):
            self._refuse_known(chunk)
        for jobs_of_chunk in _chunks(made, JOBS_AT_ONCE):
            self._submit_chunk(jobs_of_chunk)
        return ids

    def run(self, job: wire.HeroJob, seconds: float | None = None) -> wire.HeroJob:
        """Hand in a job and ``wait`` for its end."""
        (job_id,) = self.submit([job])
        return self.wait(job_id, seconds)

    def wait(self, job_id: str, seconds: float | None = None) -> wire.HeroJob:
        """Return the job once it has ended, ``finished`` or ``error``: look at its ``status``.

        Raises ``StillUnderWay`` after so many seconds (None: never), ``NoSuchJob``, ``WrongField``.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        key = self.keys.reply_key(job_id)
        while not (job := self.get(job_id)).status.is_final:
            left = LOOK_SECONDS if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise StillUnderWay(f"{job_id} is {job.status.value} after {seconds:g} s")
            # The hash is complete before the reply arrives, so the reply's text says nothing more.
            self._do(partial(_next_reply, key, min(left, LOOK_SECONDS)))
        return job

    # --- looking ------------------------------------------------------------------------------

    def get(self, job_id: str) -> wire.HeroJob:
        """Return the current job; raise ``NoSuchJob``, or ``WrongField`` if it is damaged."""
        fields = self._do(lambda redis: redis.hgetall(self.keys.job_key(job_id)))
        if not fields:
            raise NoSuchJob(f"no such job: {job_id}")
        return wire.read_job(job_id, fields)

    def rows(self) -> Iterator[JobRow]:
        """Yield every job once, in no order; jobs that come or go meanwhile may be missed."""
        seen: set[str] = set()
        for found in self._scan():
            new = [job_id for job_id in found if job_id not in seen]
            seen.update(new)
            yield from self._read_rows(new)

    def depths(self, worker_id: str) -> tuple[int, int]:
        """Return how many jobs and how many stop requests wait for this worker."""
        work, stop = self.keys.work_key(worker_id), self.keys.stop_key(worker_id)
        found = self._do(lambda redis: (redis.llen(work), redis.llen(stop)))
        return int(found[0]), int(found[1])

    # --- stopping, and again ------------------------------------------------------------------

    def stop(self, job_id: str, worker_id: str = "") -> wire.HeroJob:
        """Ask for the end of a job; return the job as it was before, which may have ended already.

        ``worker_id``: for a job that names no worker. The fleet that serves the queue ends the job
        with ``error`` and a reply, whether the job runs or waits.
        """
        job = self.get(job_id)
        if job.status.is_final:
            return job
        key = self.keys.stop_key(_worker_of(job, worker_id))
        # A repeated request does no harm: the second one finds a job that has ended.
        self._do(lambda redis: redis.lpush(key, job_id))
        return job

    def retry(self, job_id: str, worker_id: str = "") -> wire.HeroJob:
        """Queue an ended job again; return it as it was, or unchanged if it has not ended.

        Its attempts are counted anew. ``worker_id``: see ``stop``.
        """
        job = self.get(job_id)
        if not job.status.is_final:
            return job
        key, work = self.keys.job_key(job_id), self.keys.work_key(_worker_of(job, worker_id))
        known = self._do(lambda redis: redis.hget(key, "updated_at"))

        def hand_in(redis: Any) -> None:
            # The hash has changed: an earlier call had been carried out, and only its answer was
            # lost.
            if redis.hget(key, "updated_at") != known:
                return
            pipeline = redis.pipeline(transaction=True)
            pipeline.hdel(key, "output", "error")
            pipeline.hset(key, mapping=wire.status_fields(wire.JobStatus.DISPATCHED, time.time()))
            pipeline.lpush(work, job_id)
            pipeline.execute()

        self._do(hand_in)
        return job

    # --- inside -------------------------------------------------------------------------------

    def _new(self, job: wire.HeroJob) -> wire.HeroJob:
        job_id = job.id or str(uuid4())
        if not wire.is_id(job_id):
            raise ValueError("an id is printable, and of at most 500 characters")
        if not wire.is_id(job.worker_id):
            raise ValueError("a job names the worker whose queue it is for")
        now = time.time()
        return replace(
            job,
            id=job_id,
            status=wire.JobStatus.DISPATCHED,
            created_at=now if job.created_at is None else job.created_at,
            updated_at=now,
            output=None,
            error=None,
        )

    def _refuse_known(self, ids: Sequence[str]) -> None:
        def look(redis: Any) -> Any:
            pipeline = redis.pipeline(transaction=False)
            for job_id in ids:
                pipeline.exists(self.keys.job_key(job_id))
            return pipeline.execute()

        for job_id, known in zip(ids, self._do(look), strict=True):
            if known:
                raise JobExists(f"there is a job {job_id} already")

    def _submit_chunk(self, jobs: Sequence[wire.HeroJob]) -> None:
        first = self.keys.job_key(jobs[0].id)
        tried = False

        def hand_in(redis: Any) -> None:
            nonlocal tried
            # A transaction writes all jobs or none, so the first one tells whether only an answer
            # was lost.
            if tried and redis.exists(first):
                return
            tried = True
            pipeline = redis.pipeline(transaction=True)
            for job in jobs:
                pipeline.hset(self.keys.job_key(job.id), mapping=wire.write_job(job))
            for worker_id, group in groupby(jobs, key=lambda job: job.worker_id):
                pipeline.lpush(self.keys.work_key(worker_id), *[job.id for job in group])
            pipeline.execute()

        self._do(hand_in)

    def _scan(self) -> Iterator[list[str]]:
        cursor, pattern = 0, self.keys.jobs_pattern()
        while True:
            cursor, found = self._do(partial(_next_keys, pattern, cursor))
            ids = [self.keys.job_id_of(key.decode("utf-8", "replace")) for key in found]
            yield [job_id for job_id in ids if job_id]
            if not cursor:
                return

    def _read_rows(self, ids: Sequence[str]) -> Iterator[JobRow]:
        def look(redis: Any) -> Any:
            pipeline = redis.pipeline(transaction=False)
            for job_id in ids:
                pipeline.hmget(self.keys.job_key(job_id), ROW_FIELDS)
            return pipeline.execute(raise_on_error=False)

        for job_id, values in zip(ids, self._do(look) if ids else (), strict=True):
            if isinstance(values, Exception):
                yield JobRow(job_id, None, "is no hash")
            elif any(value is not None for value in values):
                yield row_of(job_id, values)

    def _do(self, call: Callable[[Any], Any]) -> Any:
        # redis-py's types describe its sync and async clients at once, and so fit neither.
        def once() -> Any:
            if self._redis is None:
                # Connected anew each time: a password may have changed meanwhile.
                self._redis = connect(self.address)
            try:
                return call(self._redis)
            except BaseException:  # The connection may be in the middle of an answer.
                self.close()
                raise

        return patiently(once, self.address, self._patience)


def _worker_of(job: wire.HeroJob, worker_id: str) -> str:
    if not (whose := job.worker_id or worker_id):
        raise ValueError(f"{job.id} names no worker")
    return whose


def _next_reply(key: str, seconds: float, redis: Any) -> Any:
    return redis.blpop([key], timeout=seconds)


def _next_keys(pattern: str, cursor: int, redis: Any) -> Any:
    return redis.scan(cursor, pattern, KEYS_AT_ONCE)


def _chunks(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (values[at : at + size] for at in range(0, len(values), size))
