"""One thread's connection to a Redis: every answer is one, or a ``SourceError``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from beads_workers.core.source import SourceError
from beads_workers.sources.hero.addresses import Address
from beads_workers.sources.hero.connecting import CannotReach, RedisMissing, connect, explained

if TYPE_CHECKING:
    from redis import Redis

T = TypeVar("T")


class Evaluation(NamedTuple):
    """One of ``atoms``, with its keys and arguments."""

    text: str
    keys: list[str]
    arguments: tuple[str | int, ...]


class Link:
    """It connects when it is used, and anew after any trouble."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._redis: Redis | None = None
        self._digests: dict[str, str] = {}

    def close(self) -> None:
        """End the connection."""
        if self._redis is not None:
            self._redis.close()
            self._redis = None

    def call(self, ask: Callable[[Redis], T]) -> T:
        """Ask; raises ``SourceError``. Whether it was carried out is not known then."""
        try:
            if self._redis is None:
                self._redis = connect(self._address)
        except (RedisMissing, CannotReach) as error:
            raise SourceError(str(error), error.hint) from None
        from redis.exceptions import RedisError

        try:
            return ask(self._redis)
        except (RedisError, OSError) as error:
            # Whatever is under way would be taken for the answer to the next question.
            self.close()
            trouble = explained(error, self._address)
            raise SourceError(str(trouble), trouble.hint) from None

    def evaluate(self, calls: Sequence[Evaluation]) -> list[Any]:
        """All of them in one round trip, each in one step, and each safe to repeat."""
        return self.call(lambda redis: self._evaluate(redis, calls))

    def _evaluate(self, redis: Redis, calls: Sequence[Evaluation]) -> list[Any]:
        from redis.exceptions import NoScriptError

        with redis.pipeline(transaction=False) as pipe:
            for text, keys, arguments in calls:
                pipe.evalsha(self._digest(text), len(keys), *keys, *arguments)
            answers = list(pipe.execute(raise_on_error=False))
        unknown = [n for n, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown:  # A new Redis, or one that was told to forget them.
            for text in {calls[n].text for n in unknown}:
                redis.script_load(text)
            for n, answer in zip(
                unknown, self._evaluate(redis, [calls[n] for n in unknown]), strict=True
            ):
                answers[n] = answer
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def _digest(self, text: str) -> str:
        if text not in self._digests:
            digest = hashlib.sha1(text.encode(), usedforsecurity=False)
            self._digests[text] = digest.hexdigest()
        return self._digests[text]
