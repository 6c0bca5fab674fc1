"""Who serves a queue: our run among others, the living and the dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beads_workers.core.source import SourceError
from beads_workers.protocols.hero.jobs import LOST
from beads_workers.sources.hero import atoms
from beads_workers.sources.hero.asking import Asker, text_of

if TYPE_CHECKING:
    from redis import Redis

GONE_SECONDS = 86_400
"""A run that was taken over is remembered so long: it may have been asleep, and bring one more."""


class Runs(Asker):
    """The runs of a queue; raises ``SourceError`` throughout."""

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
        """The other runs that are known, and whether they seem to be dead: their lease is over, and
        what they have, if anything, is to be taken over. Those long gone are forgotten."""
        known = self._call(self._look_at_all)
        found = {}
        for run, (lease, held, who) in known.items():
            said = text_of(who or b"gone")
            gone = said.startswith("gone")
            found[run] = not lease and (bool(held) or not gone)
            if gone and not held and self._is_long_ago(said.removeprefix("gone ")):
                self._forget(run)
        return found

    def give_back(self, run: str, how: str) -> list[tuple[str, str]]:
        """Return what a run holds (``atoms.RETURN``): each job, and ``queued`` or ``lost``."""
        keys = self.queue.keys
        job, reply = keys.around_job_id(), keys.around_reply_id()
        answer = self._atom(
            atoms.RETURN, run, how, self._now(), self.queue.reply_seconds, LOST, *job, *reply,
            int(self._clock()), of_run=run,
        )  # fmt: skip
        return [(text_of(job_id), text_of(what)) for job_id, what in answer]

    def in_hand(self, count: int) -> list[str]:
        """Jobs that are with some run, the oldest of each first; up to so many of each."""

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
