"""The jobs of a queue in Redis and the runs that serve it, in as few round trips as possible."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from beads_workers.core.base.model import value
from beads_workers.core.base.source import SourceError
from beads_workers.core.base.times import write_time
from beads_workers.integrations.hero import lua
from beads_workers.integrations.hero.connection import Address, Evaluation, RedisLink
from beads_workers.integrations.hero.wire import LOST, STOPPED, JobStatus, Keys

if TYPE_CHECKING:
    from redis import Redis


# --- queue ---------------------------------------------------------------------------------------
# Values for questions about a queue and its jobs, and for the answers.


@value
class ServedQueue:
    """A queue in a Redis, and how it is served.

    ``lease_seconds``: a lease ends after so much silence; after twice the time the run is dead.
    ``reply_seconds``: time after which a reply that nobody has fetched is deleted.
    """

    address: Address
    worker: str
    keys: Keys
    lease_seconds: float = 15.0
    reply_seconds: int = 86_400


class Fetched(NamedTuple):
    """A fetched job, which is in our list now."""

    job_id: str
    # Number of attempts begun before.
    attempts: int
    fields: Mapping[bytes, bytes]
    # Type of its key if that is no hash, as ``TYPE`` names it.
    damaged: str = ""
    # A stop request for the job was there before.
    stopped: bool = False


class JobEnd(NamedTuple):
    """The end of a job. ``attempt``: number of the attempt; 0: it was never started."""

    job_id: str
    context: str
    attempt: int
    status: JobStatus
    text: str


# --- requests ------------------------------------------------------------------------------------
# Questions about one queue in the name of one run: keys and times are added here.


class Asker:
    """``run``: id of our run, which holds the jobs; ``link``: connection of this thread."""

    def __init__(
        self,
        queue: ServedQueue,
        run: str,
        *,
        link: RedisLink | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.queue = queue
        self.run = run
        self._clock = clock
        self._link = link or RedisLink(queue.address)
        self._call = self._link.call

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def _now(self) -> str:
        return write_time(self._clock())

    def _own(self, name: str) -> str:
        return self.queue.keys.own_key(self.queue.worker, name)

    def _keys(self, run: str) -> list[str]:
        keys, worker = self.queue.keys, self.queue.worker
        own = (f"processing:{run}", "attempts", "holders", "contexts", "fleet", f"lease:{run}")
        return [keys.work_key(worker), keys.stop_key(worker), *map(self._own, own)]

    def _of_job(
        self, text: str, job_id: str, *arguments: str | int, run: str = "", key_of: str = ""
    ) -> Evaluation:
        run, keys = run or self.run, self.queue.keys
        whose = key_of or job_id
        names = [*self._keys(run), keys.job_key(whose), keys.reply_key(whose)]
        return Evaluation(text, names, (run, job_id, *arguments))

    def _script(self, text: str, run: str, *arguments: str | int, of_run: str = "") -> Any:
        call = Evaluation(text, self._keys(of_run or self.run), (run, *arguments))
        return self._link.evaluate([call])[0]

    def _scripts(self, calls: Sequence[Evaluation]) -> list[Any]:
        """Run all scripts in one round trip."""
        return self._link.evaluate(calls) if calls else []


def text_of(value: Any) -> str:
    """Return an answer of Redis as text. An id that is not UTF-8 can be sent back unchanged."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


DAMAGED = {b"status": b"error"}
"""Fields that stand for a job whose key holds no hash: the job has failed."""


def _is_damage(answer: Any) -> bool:
    """Return whether a key has the wrong type; raise any other error."""
    if isinstance(answer, Exception) and not str(answer).startswith("WRONGTYPE"):
        raise answer
    return isinstance(answer, Exception)


# --- store ---------------------------------------------------------------------------------------
# The jobs of a queue in Redis as a run of ours sees them, in as few round trips as possible.
#
# Calls block; each thread has a store of its own. Every error is a ``SourceError``: then nothing is
# known, and everything may be asked again.


FETCH_MAX = 200
"""Most jobs in one step: Redis does nothing else for a millisecond or two."""

STOPS_MAX = 10_000
"""Most stop requests that are read; more of them are nonsense."""

LOOKED_THROUGH_MAX = 2_000
"""Most keys of a Redis in which all jobs are looked for at each fetch: 2 ms for 1,000 keys."""
KEYS_AT_ONCE = 1_000
"""Keys that one SCAN looks at."""


class JobStore(Asker):
    """The jobs of a queue; raises ``SourceError`` throughout."""

    def wait(self, seconds: float) -> str | None:
        """Wait for the next job; return its id, now in our list; None if no job came in time."""
        answer = self._call(
            lambda redis: redis.blmove(
                self.queue.keys.work_key(self.queue.worker),
                self._own(f"processing:{self.run}"),
                max(seconds, 0.01),  # type: ignore[arg-type]
                "RIGHT",
                "LEFT",
            )
        )
        return None if answer is None else text_of(answer)

    def fetch(self, count: int, held: Sequence[str] = ()) -> list[Fetched] | None:
        """Return the jobs of ``held``, which are in our list already, and up to ``count`` new ones.

        None: Redis says that we do not serve.
        """
        job = self.queue.keys.around_job_id()
        found = self._script(lua.FETCH, self.run, count, *job, STOPS_MAX, *held)
        if found is None:
            return None
        return [
            Fetched(
                text_of(job_id),
                int(known),
                dict(zip(pairs[::2], pairs[1::2], strict=True)),
                text_of(kind),
                stopped == 1,
            )
            for job_id, known, pairs, kind, stopped in found
        ]

    def held(self) -> list[str]:
        """Return the ids in our list, the latest first."""
        key = self._own(f"processing:{self.run}")
        return [text_of(each) for each in self._call(lambda redis: redis.lrange(key, 0, -1))]

    def begin(self, jobs: Iterable[tuple[str, str, int, int]]) -> list[str]:
        """Begin jobs: id, context, attempts so far, most attempts.

        Returns the answers of ``lua.BEGIN``.
        """
        now = self._now()
        calls = [
            self._of_job(lua.BEGIN, job_id, known, most, context, now)
            for job_id, context, known, most in jobs
        ]
        return [text_of(answer) for answer in self._scripts(calls)]

    def end(self, endings: Iterable[JobEnd], run: str = "") -> list[str]:
        """End jobs; return the answers of ``lua.END``.

        ``run``: the run that holds them, if not ours.
        """
        now, ttl = self._now(), self.queue.reply_seconds
        calls = [
            self._of_job(
                lua.END, e.job_id, e.context, e.attempt, now, ttl, e.status.value,
                "output" if e.status is JobStatus.FINISHED else "error", e.text, run=run,
            )
            for e in endings
        ]  # fmt: skip
        return [text_of(answer) for answer in self._scripts(calls)]

    def requeue(self, jobs: Iterable[tuple[str, str, int, bool]], run: str = "") -> list[str]:
        """Allow other attempts; return the answers of ``lua.AGAIN``.

        Each job: id, context, attempt, and whether that attempt was never started.
        """
        now = self._now()
        calls = [
            self._of_job(lua.AGAIN, job_id, context, attempt, now, int(never), run=run)
            for job_id, context, attempt, never in jobs
        ]
        return [text_of(answer) for answer in self._scripts(calls)]

    def drop_later(self, job_ids: Iterable[str]) -> None:
        """Remove the later entries of jobs that came twice."""
        self._scripts([self._of_job(lua.DROP, job_id) for job_id in job_ids])

    def put_behind(self, job_ids: Iterable[str]) -> None:
        """Move jobs to the back of the queue."""
        self._scripts([self._of_job(lua.LATER, job_id) for job_id in job_ids])

    # --- stop requests --------------------------------------------------------------------------

    def stop_requests(self) -> list[str] | None:
        """Return all stop requests of this queue; None if their key holds no list."""
        key = self.queue.keys.stop_key(self.queue.worker)

        def ask(redis: Redis) -> list[Any]:
            with redis.pipeline(transaction=False) as pipe:
                pipe.lrange(key, 0, STOPS_MAX - 1)
                return list(pipe.execute(raise_on_error=False))

        (found,) = self._call(ask)
        if _is_damage(found):
            return None
        return list(dict.fromkeys(map(text_of, found)))

    def stop_queued(self, job_ids: Sequence[str]) -> list[str]:
        """Stop jobs that are not with us; return the answers of ``lua.STOP``."""
        now, ttl = self._now(), self.queue.reply_seconds
        calls = [self._of_job(lua.STOP, job_id, now, ttl, STOPPED) for job_id in job_ids]
        return [text_of(answer) for answer in self._scripts(calls)]

    def forget_stops(self, job_ids: Sequence[str]) -> None:
        """Delete stop requests for jobs that do not exist."""
        key = self.queue.keys.stop_key(self.queue.worker)

        def forget(redis: Redis) -> None:
            with redis.pipeline(transaction=False) as pipe:
                for job_id in job_ids:
                    pipe.lrem(key, 0, job_id)
                pipe.execute()

        if job_ids:
            self._call(forget)

    # --- what jobs wait for ---------------------------------------------------------------------

    def fields_of(self, job_ids: Sequence[str], names: Sequence[str]) -> list[dict[bytes, bytes]]:
        """Return these fields of these jobs, as far as they exist; ``DAMAGED`` if a job is no
        hash."""

        def ask(redis: Redis) -> list[Any]:
            with redis.pipeline(transaction=False) as pipe:
                for job_id in job_ids:
                    pipe.hmget(self.queue.keys.job_key(job_id), list(names))
                return list(pipe.execute(raise_on_error=False))

        wanted = [name.encode() for name in names]
        answers = self._call(ask) if job_ids else []
        return [
            DAMAGED
            if _is_damage(values)
            else {n: each for n, each in zip(wanted, values, strict=True) if each is not None}
            for values in answers
        ]

    def all_jobs(self) -> list[str]:
        """Return the ids of all jobs.

        None are returned if there are too many keys to look through, or if the rules of our user
        forbid that.
        """
        keys = self.queue.keys

        def ask(redis: Redis) -> list[bytes]:
            from redis.exceptions import NoPermissionError

            try:
                if redis.dbsize() > LOOKED_THROUGH_MAX:
                    return []
                return list(redis.scan_iter(keys.jobs_pattern(), KEYS_AT_ONCE))
            except NoPermissionError:
                return []

        found = (keys.job_id_of(text_of(key)) for key in self._call(ask))
        return [job_id for job_id in found if job_id]

    def link(self, named: Iterable[tuple[str, str]], field: str, others: Sequence[str]) -> None:
        """Add names to fields: each pair is a job, and a job that its ``field`` is to name
        (``lua.LINK``)."""
        now = self._now()
        calls = [
            self._of_job(lua.LINK, other, field, now, *others, key_of=job_id)
            for job_id, other in named
        ]
        self._scripts(calls)

    # --- looking --------------------------------------------------------------------------------

    def queued(self, count: int) -> list[str]:
        """Return the next ids of the queue, oldest first; nothing is taken."""
        key = self.queue.keys.work_key(self.queue.worker)
        found = self._call(lambda redis: redis.lrange(key, -count, -1))
        return [text_of(each) for each in reversed(found)]

    def attempts_of(self, job_ids: Sequence[str]) -> list[int]:
        """Return how often each job was begun, as far as that is known."""
        if not job_ids:
            return []
        key = self._own("attempts")
        found = self._call(lambda redis: redis.hmget(key, list(job_ids)))
        return [int(each or 0) for each in found]

    def hashes(self, job_ids: Sequence[str]) -> list[dict[bytes, bytes]]:
        """Return the whole hashes of these jobs; empty if there is none, ``DAMAGED`` if it is no
        hash."""

        def ask(redis: Redis) -> list[Any]:
            with redis.pipeline(transaction=False) as pipe:
                for job_id in job_ids:
                    pipe.hgetall(self.queue.keys.job_key(job_id))
                return list(pipe.execute(raise_on_error=False))

        answers = self._call(ask) if job_ids else []
        return [DAMAGED if _is_damage(each) else each for each in answers]


# --- runs ----------------------------------------------------------------------------------------
# The runs that serve a queue: ours and others, alive and dead.


GONE_SECONDS = 86_400
"""Time for which a dead run is remembered: it may only have been suspended, and take another
job."""


class Runs(Asker):
    """The runs of a queue; raises ``SourceError`` throughout."""

    def version(self) -> str:
        """Return the version of the Redis; raise ``SourceError`` if it is too old."""
        version = str(self._call(lambda redis: redis.info("server")).get("redis_version", "0"))
        numbers = [int(part) for part in version.split(".")[:2] if part.isdecimal()]
        if numbers < [6, 2]:
            raise SourceError(f"Redis {version} is too old", "6.2 and later can do what is needed")
        return version

    def join(self, who: str, *, only_look: bool = False) -> str:
        """Serve the queue; return "", or the run with which it cannot be shared.

        ``who``: ``shared`` or ``alone``, a place.
        """
        ms = 0 if only_look else int(self.queue.lease_seconds * 1000)
        answer = self._script(lua.JOIN, self.run, who, ms, self._own("lease:"))
        return bytes(answer).decode("utf-8", "replace")

    def beat(self, who: str) -> bool:
        """Renew our lease; return False if our jobs have been taken over."""
        ms = int(self.queue.lease_seconds * 1000)
        return bool(self._script(lua.BEAT, self.run, who, ms))

    def others(self) -> dict[str, bool]:
        """Return the other known runs, and whether each seems to be dead.

        A dead run has no lease; its jobs, if any, are to be taken over. Runs that are gone for long
        are forgotten.
        """
        known = self._call(self._look_at_all)
        found = {}
        for run, (lease, held, who) in known.items():
            state = text_of(who or b"gone")
            gone = state.startswith("gone")
            found[run] = not lease and (bool(held) or not gone)
            if gone and not held and self._is_long_ago(state.removeprefix("gone ")):
                self._forget(run)
        return found

    def requeue(self, run: str, how: str) -> list[tuple[str, str]]:
        """Return the jobs of a run to the queue (``lua.RETURN``): each id, and ``queued`` or
        ``lost``."""
        keys = self.queue.keys
        job, reply = keys.around_job_id(), keys.around_reply_id()
        answer = self._script(
            lua.RETURN, run, how, self._now(), self.queue.reply_seconds, LOST, *job, *reply,
            int(self._clock()), of_run=run,
        )  # fmt: skip
        return [(text_of(job_id), text_of(what)) for job_id, what in answer]

    def in_hand(self, count: int) -> list[str]:
        """Return the jobs of all runs, the oldest of each run first; up to ``count`` of each."""

        def ask(redis: Redis) -> list[list[bytes]]:
            with redis.pipeline(transaction=False) as pipe:
                for run in self._fleet(redis):
                    pipe.lrange(self._own(f"processing:{run}"), -count, -1)
                return list(pipe.execute())

        return [text_of(each) for found in self._call(ask) for each in reversed(found)]

    def _look_at_all(self, redis: Redis) -> dict[str, tuple[int, int, bytes | None]]:
        runs = [text for text in self._fleet(redis) if text != self.run]
        with redis.pipeline(transaction=False) as pipe:
            for run in runs:
                pipe.exists(self._own(f"lease:{run}"))
                pipe.llen(self._own(f"processing:{run}"))
                pipe.hget(self._own("fleet"), run)
            answers = list(pipe.execute())
        return dict(zip(runs, zip(*(answers[n::3] for n in range(3)), strict=True), strict=True))

    def _is_long_ago(self, since: str) -> bool:
        return since.isdecimal() and self._clock() - int(since) > GONE_SECONDS

    def _forget(self, run: str) -> None:
        self._call(lambda redis: redis.hdel(self._own("fleet"), run))

    def _fleet(self, redis: Redis) -> list[str]:
        return [text_of(run) for run in redis.hkeys(self._own("fleet"))]
