"""One queue in Redis as a run of ours sees it: what is asked, in as few round trips as possible.

Blocking; each thread has one of its own. Whatever goes wrong is a ``SourceError``: nothing is known
then, and everything may be asked again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from beads_workers.core.source import SourceError
from beads_workers.protocols.hero.jobs import LOST, STOPPED, Status
from beads_workers.protocols.times import write_time
from beads_workers.sources.hero import atoms
from beads_workers.sources.hero.calling import Evaluation, Link
from beads_workers.sources.hero.queue import Ending, Fetched, Queue

if TYPE_CHECKING:
    from redis import Redis

FETCH_MAX = 200
"""Jobs in one step: Redis does nothing else meanwhile, for a millisecond or two."""

STOPS_MAX = 10_000
"""Stop requests that are looked at; more of them are nonsense."""


class Store:
    """``run``: the id of ours, under which everything is held."""

    def __init__(self, queue: Queue, run: str, *, clock: Callable[[], float] = time.time) -> None:
        self.queue = queue
        self.run = run
        self._clock = clock
        self._link = Link(queue.address)
        self._call = self._link.call

    def close(self) -> None:
        """End the connection."""
        self._link.close()

    # --- who serves the queue -------------------------------------------------------------------

    def version(self) -> str:
        """Of the Redis; raises ``SourceError`` where that is too old."""
        said = str(self._call(lambda redis: redis.info("server")).get("redis_version", "0"))
        numbers = [int(part) for part in said.split(".")[:2] if part.isdecimal()]
        if numbers < [6, 2]:
            raise SourceError(f"Redis {said} is too old", "6.2 and later can do what is needed")
        return said

    def join(self, who: str, *, only_look: bool = False) -> str:
        """Serve it, or say who does so alone. ``who``: ``shared`` or ``alone``, then a place."""
        ms = 0 if only_look else int(self.queue.lease_seconds * 1000)
        answer = self._atom(atoms.JOIN, self.run, who, ms, self._own("lease:"))
        return bytes(answer).decode("utf-8", "replace")

    def beat(self, who: str) -> bool:
        """Keep our lease; False: our jobs have been taken over."""
        ms = int(self.queue.lease_seconds * 1000)
        return bool(self._atom(atoms.BEAT, self.run, who, ms))

    def others(self) -> dict[str, bool]:
        """The other runs that are known, and whether something of theirs is to be taken over if
        they are dead: their lease is over."""
        runs = [text for text in map(_text, self._call(self._fleet)) if text != self.run]

        def ask(redis: Redis) -> list[Any]:
            with redis.pipeline(transaction=False) as pipe:
                for run in runs:
                    pipe.exists(self._own(f"lease:{run}"))
                    pipe.llen(self._own(f"processing:{run}"))
                    pipe.hget(self._own("fleet"), run)
                return list(pipe.execute())

        answers = self._call(ask) if runs else []
        found = {}
        for run, lease, held, who in zip(
            runs, answers[::3], answers[1::3], answers[2::3], strict=True
        ):
            gone = who is None or bytes(who).startswith(b"gone")
            found[run] = not lease and (bool(held) or not gone)
        return found

    def give_back(self, run: str, how: str) -> list[tuple[str, str]]:
        """Return what a run holds (``atoms.RETURN``): each job, and ``queued`` or ``lost``."""
        keys = self.queue.keys
        job, reply = keys.around_job_id(), keys.around_reply_id()
        answer = self._atom(
            atoms.RETURN, run, how, self._now(), self.queue.reply_seconds, LOST, *job, *reply,
            int(self._clock()), of_run=run,
        )  # fmt: skip
        return [(_text(job_id), _text(what)) for job_id, what in answer]

    # --- jobs -----------------------------------------------------------------------------------

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
        return None if said is None else _text(said)

    def fetch(self, count: int, here: Sequence[str] = ()) -> list[Fetched] | None:
        """Those that are ``here`` in our list already, and up to so many more; None: we do not
        serve, according to Redis."""
        job = self.queue.keys.around_job_id()
        found = self._atom(atoms.FETCH, self.run, count, *job, *here)
        if found is None:
            return None
        return [
            Fetched(_text(job_id), int(known), dict(zip(pairs[::2], pairs[1::2], strict=True)))
            for job_id, known, pairs in found
        ]

    def held(self) -> list[str]:
        """What is in our list, the latest first."""
        key = self._own(f"processing:{self.run}")
        return [_text(each) for each in self._call(lambda redis: redis.lrange(key, 0, -1))]

    def begin(self, jobs: Iterable[tuple[str, str, int, int]]) -> list[str]:
        """Id, context, attempts so far, and at most; the answers of ``atoms.BEGIN``."""
        now = self._now()
        calls = [
            self._of_job(atoms.BEGIN, job_id, known, most, context, now)
            for job_id, context, known, most in jobs
        ]
        return [_text(answer) for answer in self._atoms(calls)]

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
        return [_text(answer) for answer in self._atoms(calls)]

    def again(self, jobs: Iterable[tuple[str, str, int, bool]], run: str = "") -> list[str]:
        """Id, context, attempt, and whether that was never begun; the answers of ``AGAIN``."""
        now = self._now()
        calls = [
            self._of_job(atoms.AGAIN, job_id, context, attempt, now, int(never), run=run)
            for job_id, context, attempt, never in jobs
        ]
        return [_text(answer) for answer in self._atoms(calls)]

    def drop_later(self, job_ids: Iterable[str]) -> None:
        """These came twice: the later one goes."""
        self._atoms([self._of_job(atoms.DROP, job_id) for job_id in job_ids])

    # --- stop requests --------------------------------------------------------------------------

    def stop_requests(self) -> list[str]:
        """All that wait; whoever they are for."""
        key = self.queue.keys.stop_key(self.queue.worker)
        found = self._call(lambda redis: redis.lrange(key, 0, STOPS_MAX - 1))
        return list(dict.fromkeys(map(_text, found)))

    def stop_queued(self, job_ids: Sequence[str]) -> list[str]:
        """Stop jobs that are not with us; the answers of ``atoms.STOP``."""
        now, ttl = self._now(), self.queue.reply_seconds
        calls = [self._of_job(atoms.STOP, job_id, now, ttl, STOPPED) for job_id in job_ids]
        return [_text(answer) for answer in self._atoms(calls)]

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
        return [_text(each) for each in reversed(found)]

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

    # --- inside ---------------------------------------------------------------------------------

    def _now(self) -> str:
        return write_time(self._clock())

    def _own(self, name: str) -> str:
        return self.queue.keys.own_key(self.queue.worker, name)

    def _fleet(self, redis: Redis) -> list[Any]:
        return list(redis.hkeys(self._own("fleet")))

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

    def _atom(self, text: str, run: str, *arguments: str | int, of_run: str = "") -> Any:
        call = Evaluation(text, self._keys(of_run or self.run), (run, *arguments))
        return self._link.evaluate([call])[0]

    def _atoms(self, calls: Sequence[Evaluation]) -> list[Any]:
        """All of them in one round trip."""
        return self._link.evaluate(calls) if calls else []


def _text(value: Any) -> str:
    # An id that is not UTF-8 is nobody's we know; it must not stop all others.
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
