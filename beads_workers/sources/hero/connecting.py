"""A connection to a Redis through redis-py, which is loaded only here, and only when it is used."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from beads_workers.sources.hero.addresses import Address, password_of

if TYPE_CHECKING:
    from redis import Redis

ANSWER_SECONDS = 30.0
"""A Redis that is silent for longer, in the middle of a command, is as good as gone."""

RETRY_SECONDS = 0.1
RETRY_SECONDS_MAX = 5.0
"""Between two tries to reach it: twice as long each time, up to this."""

T = TypeVar("T")


class RedisMissing(Exception):
    """redis-py is not installed. ``str()`` is one line."""

    hint = f"{shlex.quote(sys.executable)} -m pip install 'redis>=5'"


class CannotReach(Exception):
    """The Redis does not answer, or not to us; ``str()`` is one line, ``hint`` says what to do.

    ``lasting``: trying again will not help.
    """

    def __init__(self, message: str, hint: str = "", *, lasting: bool = False) -> None:
        super().__init__(message)
        self.hint = hint
        self.lasting = lasting


def connect(address: Address) -> Redis:
    """A client that connects at its first command, and repeats none by itself.

    Raises ``RedisMissing``, or ``CannotReach`` where the password cannot be read. Keys and values
    are bytes.
    """
    try:
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry
    except ImportError:
        raise RedisMissing("redis-py is not installed here") from None
    try:
        password = password_of(address)
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
        raise CannotReach(f"no password for Redis: {why}", lasting=True) from None
    except ValueError as error:
        raise CannotReach(f"no password for Redis: {error}", lasting=True) from None
    return Redis(
        **_place(address),
        db=address.db,
        username=address.user or None,
        password=password,
        encoding_errors="surrogateescape",  # Ids that are not UTF-8 go back as they came.
        protocol=2,  # RESP 3 has nothing that we need, and changes the shape of answers.
        socket_timeout=ANSWER_SECONDS,
        socket_connect_timeout=ANSWER_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )


def _place(address: Address) -> dict[str, Any]:
    if address.path:
        return {"unix_socket_path": address.path}
    place = {"host": address.host, "port": address.port}
    if not address.tls:
        return place
    return {
        **place,
        "ssl": True,
        "ssl_ca_certs": address.ca or None,
        "ssl_certfile": address.cert or None,
        "ssl_keyfile": address.key or None,
    }


def explained(error: Exception, address: Address) -> CannotReach:
    """What redis-py raised, as one line for people, with what to do about it."""
    from redis.exceptions import (
        AuthenticationError,
        BusyLoadingError,
        MovedError,
        NoPermissionError,
        ReadOnlyError,
        ResponseError,
    )

    said = " ".join(str(error).split())[:300] or type(error).__name__
    match error:
        case BusyLoadingError():
            return CannotReach(f"{address} is loading its data")
        case AuthenticationError():
            hint = "name the file of its password: ?password_file=PATH, or set REDISCLI_AUTH"
            return CannotReach(f"{address} does not let us in: {said}", hint, lasting=True)
        case NoPermissionError():
            hint = "docs/HERO.md has the rules that the user needs"
            return CannotReach(f"{address} does not allow it: {said}", hint, lasting=True)
        case ReadOnlyError():
            hint = "it is a replica: name the Redis that it follows"
            return CannotReach(f"{address} cannot be written: {said}", hint)
        case MovedError():
            there = said.rpartition(" ")[2]
            hint = "name that node; and --naming cluster has all keys on one"
            return CannotReach(f"{address} is not the node with these keys: {there} is", hint)
        case ResponseError():
            hint = "its memory is full" if said.startswith("OOM") else ""
            return CannotReach(f"{address} refused: {said}", hint, lasting=True)
        case _ if "CERTIFICATE" in said.upper():
            hint = "?ca=FILE in its URL names the authority that has signed its certificate"
            return CannotReach(f"{address} cannot be trusted: {said}", hint)
        case _:
            return CannotReach(f"{address} does not answer: {said}", "is the Redis running?")


def patiently(call: Callable[[], T], address: Address, patience_seconds: float) -> T:
    """Do it, and again while the Redis cannot be reached, waiting twice as long each time.

    It must be safe to repeat: a call may have been carried out whose answer was lost. Raises
    ``CannotReach`` when the patience is over, and at once where that would not help.
    """
    try:
        from redis.exceptions import ConnectionError, RedisError, TimeoutError
    except ImportError:
        raise RedisMissing("redis-py is not installed here") from None
    deadline = time.monotonic() + patience_seconds
    delay = RETRY_SECONDS
    while True:
        try:
            return call()
        except RedisError as error:
            trouble = explained(error, address)
            passing = isinstance(error, ConnectionError | TimeoutError) and not trouble.lasting
            left = deadline - time.monotonic()
            if not passing or left <= 0:
                raise trouble from None
        time.sleep(min(delay, left))
        delay = min(delay * 2, RETRY_SECONDS_MAX)
