"""Address and password of a Redis, and one thread's connection to it.

``redis://HOST:PORT/DB``, ``rediss://`` with TLS, ``redis+unix:///PATH?db=N``. A user's name may
stand before the host. A password may not, because everybody who can run ``ps`` would see it.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from beads_workers.core.base.model import value
from beads_workers.core.base.source import SourceError
from beads_workers.integrations.hero.lua import HEAD

if TYPE_CHECKING:
    from redis import Redis

PASSWORD_VARIABLES = ("BEADS_WORKERS_REDIS_PASSWORD", "REDISCLI_AUTH")
"""Variables that may hold a password if no file and no variable was named; the second is
redis-cli's."""

PASSWORD_BYTES_MAX = 4096
"""Longest password file: a longer file was named by mistake."""

PORT_DEFAULT = 6379
SCHEMES = ("redis", "rediss", "redis+unix", "unix")
FORM = "redis://[USER@]HOST[:PORT][/DB], rediss://..., or redis+unix:///PATH?db=N"
CONTAINER_SECRETS = "/run/secrets/"
"""Folder of a container's secrets, which all users of the container may read."""

_OWN = frozenset(("db", "password_file", "password_env", "ca", "cert", "key"))


@value
class Address:
    """Address of one Redis."""

    host: str = "127.0.0.1"
    port: int = PORT_DEFAULT
    # Path of a Unix socket, instead of ``host`` and ``port``.
    path: str = ""
    db: int = 0
    user: str = ""
    tls: bool = False
    # The password is in ``password_file`` or in the variable ``password_env``. It is read at each
    # new connection, so that it may be changed.
    password_file: str = ""
    password_env: str = ""
    # ``ca``, ``cert`` and ``key``: files for TLS.
    ca: str = ""
    cert: str = ""
    key: str = ""

    def __str__(self) -> str:
        """Return the address for people, without secrets."""
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        if self.path:
            return f"redis+unix://{user}{quote(self.path)}?db={self.db}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"redis{'s' if self.tls else ''}://{user}{host}:{self.port}/{self.db}"

    def url(self) -> str:
        """Return the whole address for ``read_url``: where the secret is, but not the secret."""
        files = {
            "password_file": self.password_file,
            "password_env": self.password_env,
            "ca": self.ca,
            "cert": self.cert,
            "key": self.key,
        }
        query = urlencode({name: value for name, value in files.items() if value})
        return f"{self}{'&' if '?' in str(self) else '?'}{query}" if query else str(self)


@value
class RedisAddress:
    """The content of a URL: the address, and in ``options`` the rest of its query."""

    address: Address
    options: Mapping[str, str] = field(default_factory=dict)


def read_url(url: str) -> RedisAddress:
    """Return the parts of a URL.

    Raises ``ValueError``: one line that repeats no possible secret.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(f"this is no URL of a Redis: write {FORM}") from None
    if parts.scheme not in SCHEMES:
        raise ValueError(f"this is no URL of a Redis: write {FORM}")
    if parts.password is not None:
        raise ValueError(
            "a password in a URL is seen by everybody: put it into a file (?password_file=PATH)"
            f" or into the environment ({PASSWORD_VARIABLES[0]})"
        )
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    own = {name: query.pop(name) for name in _OWN & query.keys()}
    unix = "unix" in parts.scheme
    db = own.pop("db", "") or ("0" if unix else parts.path.strip("/") or "0")
    if not (db.isascii() and db.isdecimal()) or len(db) > 5:
        raise ValueError("the database behind the host of a Redis is a number: redis://HOST/0")
    place = {"path": _socket(parts)} if unix else {"host": parts.hostname or "127.0.0.1"}
    address = Address(
        **place,
        port=PORT_DEFAULT if port is None else port,
        db=int(db),
        user=unquote(parts.username or ""),
        tls=parts.scheme == "rediss",
        **own,
    )
    return RedisAddress(address, query)


def password_of(address: Address, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the password, or None if there is none; raise ``ValueError`` or ``OSError``."""
    if address.password_file:
        return _from_file(address.password_file)
    if address.password_env:
        if not (found := environment.get(address.password_env)):
            raise ValueError(f"the variable {address.password_env} holds no password")
        return found
    return next((found for name in PASSWORD_VARIABLES if (found := environment.get(name))), None)


def secret_variables(address: Address) -> tuple[str, ...]:
    """Return the names of variables that may hold our password: no task may inherit them."""
    named = (address.password_env,) if address.password_env else ()
    return (*PASSWORD_VARIABLES, *named)


def _socket(parts: SplitResult) -> str:
    path = unquote(parts.path)
    if parts.hostname or parts.port is not None or not path.startswith("/") or path == "/":
        raise ValueError("the path of a Unix socket is a whole one: redis+unix:///run/redis.sock")
    return path


def _from_file(path: str) -> str:
    with open(path, "rb") as file:
        told_to_all = os.fstat(file.fileno()).st_mode & stat.S_IROTH
        if told_to_all and not path.startswith(CONTAINER_SECRETS):
            raise ValueError(f"{path} can be read by every user: chmod o-r {shlex.quote(path)}")
        content = file.read(PASSWORD_BYTES_MAX + 1)
    if len(content) > PASSWORD_BYTES_MAX:
        raise ValueError(f"{path} is too long to hold a password")
    try:
        password = content.decode("utf-8").strip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"{path} holds no text") from None
    if not password:
        raise ValueError(f"{path} is empty: no password is in it")
    return password


# --- connections ---------------------------------------------------------------------------------
# A connection to a Redis through redis-py, which is imported only here and only on use.


ANSWER_SECONDS = 30.0
"""Longest silence in the middle of a command, after which a Redis counts as gone."""

RETRY_SECONDS = 0.1
RETRY_SECONDS_MAX = 5.0
"""Delay between attempts to reach a Redis: doubled each time, up to this."""

T = TypeVar("T")


class RedisMissing(Exception):
    """redis-py is not installed. ``str()`` is one line."""

    hint = f"{shlex.quote(sys.executable)} -m pip install 'redis>=5'"


class CannotReach(Exception):
    """The Redis does not answer, or refuses us; ``str()`` is one line, ``hint`` says what to do.

    ``lasting``: trying again will not help.
    """

    def __init__(self, message: str, hint: str = "", *, lasting: bool = False) -> None:
        super().__init__(message)
        self.hint = hint
        self.lasting = lasting


def connect(address: Address) -> Redis:
    """Return a client that connects at its first command, and never repeats a command by itself.

    Raises ``RedisMissing``, or ``CannotReach`` if the password cannot be read. Keys and values are
    bytes.
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
        encoding_errors="surrogateescape",  # Ids that are not UTF-8 are sent back unchanged.
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
    """Return an exception of redis-py as one line for people, with a hint about what to do."""
    from redis.exceptions import (
        AuthenticationError,
        BusyLoadingError,
        MovedError,
        NoPermissionError,
        ReadOnlyError,
        ResponseError,
    )

    message = " ".join(str(error).split())[:300] or type(error).__name__
    match error:
        case BusyLoadingError():
            return CannotReach(f"{address} is loading its data")
        case AuthenticationError():
            hint = "name the file of its password: ?password_file=PATH, or set REDISCLI_AUTH"
            return CannotReach(f"{address} does not let us in: {message}", hint, lasting=True)
        case NoPermissionError():
            hint = "docs/HERO.md has the rules that the user needs"
            return CannotReach(f"{address} does not allow it: {message}", hint, lasting=True)
        case ReadOnlyError():
            hint = "it is a replica: name the Redis that it follows"
            return CannotReach(f"{address} cannot be written: {message}", hint)
        case MovedError():
            there = message.rpartition(" ")[2]
            hint = "name that node; and --naming cluster has all keys on one"
            return CannotReach(f"{address} is not the node with these keys: {there} is", hint)
        case ResponseError() if message.startswith("WRONGTYPE"):
            found = "a key holds what it should not: 'beads-workers doctor' names it"
            return CannotReach(f"{address}: {found}", lasting=True)
        case ResponseError():
            hint = "its memory is full" if message.startswith("OOM") else ""
            return CannotReach(f"{address} refused: {message}", hint, lasting=True)
        case _ if "CERTIFICATE" in message.upper():
            hint = "?ca=FILE in its URL names the authority that has signed its certificate"
            return CannotReach(f"{address} cannot be trusted: {message}", hint)
        case _:
            return CannotReach(f"{address} does not answer: {message}", "is the Redis running?")


def patiently(call: Callable[[], T], address: Address, patience_seconds: float) -> T:
    """Call, and repeat while the Redis cannot be reached; the delay doubles each time.

    The call must be safe to repeat: it may have been carried out although its answer was lost.
    Raises ``CannotReach`` when the patience is over, and at once if a repetition would not help.
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


# --- calls ---------------------------------------------------------------------------------------
# One thread's connection to a Redis: every call returns an answer or raises ``SourceError``.


class Evaluation(NamedTuple):
    """One of the Lua scripts, with its keys and arguments."""

    text: str
    keys: list[str]
    arguments: tuple[str | int, ...]


class RedisLink:
    """A connection that is made on use, and anew after any error."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._redis: Redis | None = None
        self._digests: dict[str, str] = {}

    def close(self) -> None:
        """Close the connection."""
        if self._redis is not None:
            self._redis.close()
            self._redis = None

    def call(self, ask: Callable[[Redis], T]) -> T:
        """Call ``ask``.

        Raises ``SourceError``: then it is unknown whether the call was carried out.
        """
        try:
            if self._redis is None:
                self._redis = connect(self._address)
        except (RedisMissing, CannotReach) as error:
            raise SourceError(str(error), error.hint) from None
        from redis.exceptions import RedisError

        try:
            return ask(self._redis)
        except (RedisError, OSError) as error:
            # A pending answer would be taken for the answer to the next question.
            self.close()
            trouble = explained(error, self._address)
            raise SourceError(str(trouble), trouble.hint) from None

    def evaluate(self, calls: Sequence[Evaluation]) -> list[Any]:
        """Run all scripts in one round trip; each is atomic and safe to repeat."""
        return self.call(lambda redis: self._evaluate(redis, calls))

    def _evaluate(self, redis: Redis, calls: Sequence[Evaluation]) -> list[Any]:
        from redis.exceptions import NoScriptError

        with redis.pipeline(transaction=False) as pipe:
            for text, keys, arguments in calls:
                pipe.evalsha(self._digest(text), len(keys), *keys, *arguments)
            answers = list(pipe.execute(raise_on_error=False))
        unknown = [n for n, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown:  # A new Redis, or one whose scripts were flushed.
            for text in {calls[n].text for n in unknown}:
                redis.script_load(HEAD + text)
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
            digest = hashlib.sha1((HEAD + text).encode(), usedforsecurity=False)
            self._digests[text] = digest.hexdigest()
        return self._digests[text]
