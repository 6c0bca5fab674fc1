"""The jobs of a queue in Redis as a run of ours sees them, in as few round trips as possible.

Blocking; each thread has one of its own. Whatever goes wrong is a ``SourceError``: nothing is known
then, and everything may be asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from beads_workers.protocols.hero.jobs import STOPPED, Status
from beads_workers.sources.hero import atoms
from beads_workers.sources.hero.asking import Asker, text_of
from beads_workers.sources.hero.queue import Ending, Fetched

if TYPE_CHECKING:
    from redis import Redis

FETCH_MAX = 200
"""Jobs in one step: Redis does nothing else meanwhile, for a millisecond or two."""

STOPS_MAX = 10_000
"""Stop requests that are looked at; more of them are nonsense."""


class Store(Asker):
    """The jobs of a queue; raises ``SourceError`` throughout."""

    def wait(self, seconds: float) -> str | None:
        """The next job's id, now in our list; None when nothing came in this time."""
        said = self._call(
            lambda redis: redis.blmove(
                self.queue.keys.work_key(self.queue.worker),
                self._own(f"processing:{self.run}"),
                max(seconds, 0.01),  # type: ignore[arg-type]
                "RIGHT",
                "LEFT",
            )
        )
        return None if said is None else text_of(said)

    def fetch(self, count: int, here: Sequence[str] = ()) -> list[Fetched] | None:
        """Those that are ``here`` in our list already, and up to so many more; None: we do not
        serve, according to Redis."""
        job = self.queue.keys.around_job_id()
        found = self._atom(atoms.FETCH, self.run, count, *job, *here)
        if found is None:
            return None
        return [
            Fetched(text_of(job_id), int(known), dict(zip(pairs[::2], pairs[1::2], strict=True)))
            for job_id, known, pairs in found
        ]

    def held(self) -> list[str]:
        """What is in our list, the latest first."""
        key = self._own(f"processing:{self.run}")
        return [text_of(each) for each in self._call(lambda redis: redis.lrange(key, 0, -1))]

    def begin(self, jobs: Iterable[tuple[str, str, int, int]]) -> list[str]:
        """Id, context, attempts so far, and at most; the answers of ``atoms.BEGIN``."""
        now = self._now()
        calls = [
            self._of_job(atoms.BEGIN, job_id, known, most, context, now)
            for job_id, context, known, most in jobs
        ]
        return [text_of(answer) for answer in self._atoms(calls)]

    def end(self, endings: Iterable[Ending], run: str = "") -> list[str]:
        """The answers of ``atoms.END``. ``run``: whose they are, if not ours."""
        now, ttl = self._now(), self.queue.reply_seconds
        calls = [
            self._of_job(
                atoms.END, e.job_id, e.context, e.attempt, now, ttl, e.status.value,
                "output" if e.status is Status.FINISHED else "error", e.said, run=run,
            )
            for e in endings
        ]  # fmt: skip
        return [text_of(answer) for answer in self._atoms(calls)]

    def again(self, jobs: Iterable[tuple[str, str, int, bool]], run: str = "") -> list[str]:
        """Id, context, attempt, and whether that was never begun; the answers of ``AGAIN``."""
        now = self._now()
        calls = [
            self._of_job(atoms.AGAIN, job_id, context, attempt, now, int(never), run=run)
            for job_id, context, attempt, never in jobs
        ]
        return [text_of(answer) for answer in self._atoms(calls)]

    def drop_later(self, job_ids: Iterable[str]) -> None:
        """These came twice: the later one goes."""
        self._atoms([self._of_job(atoms.DROP, job_id) for job_id in job_ids])

    def put_behind(self, job_ids: Iterable[str]) -> None:
        """These go to the back of the queue."""
        self._atoms([self._of_job(atoms.LATER, job_id) for job_id in job_ids])

    # --- stop requests --------------------------------------------------------------------------

    def stop_requests(self) -> list[str]:
        """All that wait; whoever they are for."""
        key = self.queue.keys.stop_key(self.queue.worker)
        found = self._call(lambda redis: redis.lrange(key, 0, STOPS_MAX - 1))
        return list(dict.fromkeys(map(text_of, found)))

    def stop_queued(self, job_ids: Sequence[str]) -> list[str]:
        """Stop jobs that are not with us; the answers of ``atoms.STOP``."""
        now, ttl = self._now(), self.queue.reply_seconds
        calls = [self._of_job(atoms.STOP, job_id, now, ttl, STOPPED) for job_id in job_ids]
        return [text_of(answer) for answer in self._atoms(calls)]

    def forget_stops(self, job_ids: Sequence[str]) -> None:
        """These will never be for anybody."""
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
        """These fields of these jobs, as far as they are there."""

        def ask(redis: Redis) -> list[Any]:
            with redis.pipeline(transaction=False) as pipe:
                for job_id in job_ids:
                    pipe.hmget(self.queue.keys.job_key(job_id), list(names))
                return list(pipe.execute())

        wanted = [name.encode() for name in names]
        answers = self._call(ask) if job_ids else []
        return [
            {name: value for name, value in zip(wanted, values, strict=True) if value is not None}
            for values in answers
        ]

    def link(self, named: Iterable[tuple[str, str]], field: str, others: Sequence[str]) -> None:
        """Each pair: a job, and another that its ``field`` is to name (``atoms.LINK``)."""
        now = self._now()
        calls = [
            self._of_job(atoms.LINK, other, field, now, *others, key_of=job_id)
            for job_id, other in named
        ]
        self._atoms(calls)

    # --- looking --------------------------------------------------------------------------------

    def queued(self, count: int) -> list[str]:
        """The next ids of the queue, oldest first; nothing is taken."""
        key = self.queue.keys.work_key(self.queue.worker)
        found = self._call(lambda redis: redis.lrange(key, -count, -1))
        return [text_of(each) for each in reversed(found)]

    def attempts_of(self, job_ids: Sequence[str]) -> list[int]:
        """How often each was begun, as far as that is known."""
        if not job_ids:
            return []
        key = self._own("attempts")
        found = self._call(lambda redis: redis.hmget(key, list(job_ids)))
        return [int(each or 0) for each in found]

    def hashes(self, job_ids: Sequence[str]) -> list[dict[bytes, bytes]]:
        """The whole hashes of these jobs; empty where there is none."""

        def ask(redis: Redis) -> list[Any]:
            with redis.pipeline(transaction=False) as pipe:
                for job_id in job_ids:
                    pipe.hgetall(self.queue.keys.job_key(job_id))
                return list(pipe.execute())

        return self._call(ask) if job_ids else []
