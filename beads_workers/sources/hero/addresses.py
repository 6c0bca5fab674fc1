"""Where a Redis is, and how one gets in: a URL without a secret, which lies elsewhere.

``redis://HOST:PORT/DB``, ``rediss://`` with TLS, ``redis+unix:///PATH?db=N``. A user's name may
stand before the host; a password may not, because whoever may run ``ps`` would see it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from beads_workers.core.values import value

PASSWORD_VARIABLES = ("BEADS_WORKERS_REDIS_PASSWORD", "REDISCLI_AUTH")
"""Where a password is looked for when no file and no variable was named; the second is
redis-cli's."""

PASSWORD_BYTES_MAX = 4096
"""A longer file holds no password, but was named by mistake."""

PORT_DEFAULT = 6379
SCHEMES = ("redis", "rediss", "redis+unix", "unix")
FORM = "redis://[USER@]HOST[:PORT][/DB], rediss://..., or redis+unix:///PATH?db=N"
_OWN = frozenset(("db", "password_file", "password_env", "ca", "cert", "key"))


@value
class Address:
    """One Redis. ``path``: of a Unix socket, instead of ``host`` and ``port``.

    The password is in ``password_file`` or in the variable ``password_env``, and is read at each
    new connection, so that it may be changed. ``ca``, ``cert``, ``key``: files for TLS.
    """

    host: str = "127.0.0.1"
    port: int = PORT_DEFAULT
    path: str = ""
    db: int = 0
    user: str = ""
    tls: bool = False
    password_file: str = ""
    password_env: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""

    def __str__(self) -> str:
        """For people; there is no secret in it."""
        user = f"{quote(self.user, safe='')}@" if self.user else ""
        if self.path:
            return f"redis+unix://{user}{quote(self.path)}?db={self.db}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"redis{'s' if self.tls else ''}://{user}{host}:{self.port}/{self.db}"

    def url(self) -> str:
        """The whole of it, for ``read_url``: where the secret is, and not the secret."""
        files = {
            "password_file": self.password_file,
            "password_env": self.password_env,
            "ca": self.ca,
            "cert": self.cert,
            "key": self.key,
        }
        said = urlencode({name: value for name, value in files.items() if value})
        return f"{self}{'&' if '?' in str(self) else '?'}{said}" if said else str(self)


@value
class Place:
    """What a URL says: where the Redis is, and in ``options`` what else its query holds."""

    address: Address
    options: Mapping[str, str] = field(default_factory=dict)


def read_url(url: str) -> Place:
    """Raises ``ValueError``, one line that repeats nothing of what may be a secret."""
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
    said = dict(parse_qsl(parts.query, keep_blank_values=True))
    own = {name: said.pop(name) for name in _OWN & said.keys()}
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
    return Place(address, said)


def password_of(address: Address, environment: Mapping[str, str] = os.environ) -> str | None:
    """The password, or None where there is none; raises ``ValueError`` or ``OSError``."""
    if address.password_file:
        return _from_file(address.password_file)
    if address.password_env:
        if not (found := environment.get(address.password_env)):
            raise ValueError(f"the variable {address.password_env} holds no password")
        return found
    return next((found for name in PASSWORD_VARIABLES if (found := environment.get(name))), None)


def secret_variables(address: Address) -> tuple[str, ...]:
    """The names of the variables that may hold our password: no task is to inherit them."""
    named = (address.password_env,) if address.password_env else ()
    return (*PASSWORD_VARIABLES, *named)


def _socket(parts: SplitResult) -> str:
    path = unquote(parts.path)
    if parts.hostname or parts.port is not None or not path.startswith("/") or path == "/":
        raise ValueError("the path of a Unix socket is a whole one: redis+unix:///run/redis.sock")
    return path


def _from_file(path: str) -> str:
    with open(path, "rb") as file:
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
