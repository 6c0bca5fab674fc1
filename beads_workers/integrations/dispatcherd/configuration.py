"""Brokers that publishers write to, as people give them: a configuration file, or a URL."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from beads_workers.core.base.framing import as_number
from beads_workers.core.base.model import value
from beads_workers.integrations.dispatcherd.wire import CHANNEL_BYTES_MAX, MESSAGE_TIMEOUT_SECONDS

IDLE_SECONDS = 30.0
"""Silence after which a connection to PostgreSQL is probed."""


@value
class Postgres:
    """``config``: arguments of ``psycopg.connect``.

    ``idle_seconds``: 0: never probe the connection.
    """

    config: Mapping[str, Any]
    channels: tuple[str, ...]
    idle_seconds: float = IDLE_SECONDS


@value
class Produced:
    """A task that the service itself produces.

    ``message``: as a publisher would send it, without its ``uuid``. ``seconds``: period; 0: once at
    the start.
    """

    message: Mapping[str, Any]
    seconds: float = 0.0


@value
class Brokers:
    """``sockets``: absolute paths. ``node_id``: our name in replies; "" for a random one."""

    sockets: tuple[str, ...] = ()
    postgres: tuple[Postgres, ...] = ()
    chunk_seconds: float = MESSAGE_TIMEOUT_SECONDS
    node_id: str = ""
    produced: tuple[Produced, ...] = ()

    def describe(self) -> str:
        """Return one line for people, without secrets."""
        named = [f"PostgreSQL ({', '.join(each.channels)})" for each in self.postgres]
        return ", ".join([*self.sockets, *named])


# --- configuration -------------------------------------------------------------------------------
# Brokers that publishers write to, as people give them: a configuration file of dispatcherd, or
# short URLs. Source: docs/DISPATCHERD.md.


PATH_BYTES_MAX = 107
"""Longest path that the kernel accepts for a Unix socket, without the closing zero."""
CONFIG_VERSION = 2


def from_url(url: str) -> Brokers:
    """Return the one broker of a URL; raise ``ValueError`` with a line for people."""
    parts = urlsplit(url)
    if parts.scheme == "dispatcherd+unix":
        if parts.netloc or not parts.path.startswith("/"):
            raise ValueError("three slashes and an absolute path: dispatcherd+unix:///run/d.sock")
        return Brokers(sockets=(_configured_path(unquote(parts.path)),))
    if parts.password:
        raise ValueError(
            "everybody on this machine sees a password in a URL: set PGPASSWORD, or use ~/.pgpass"
        )
    query = parse_qsl(parts.query, keep_blank_values=True)
    channels = _channels([value for name, value in query if name == "channel"])
    rest = urlencode([each for each in query if each[0] != "channel"], quote_via=quote)
    conninfo = urlunsplit((parts.scheme, parts.netloc, parts.path, rest, ""))
    return Brokers(postgres=(Postgres({"conninfo": conninfo}, channels),))


def from_config(config: object) -> Brokers:
    """Return the brokers of a dispatcherd configuration file; raise ``ValueError``."""
    if not isinstance(config, dict) or config.get("version") != CONFIG_VERSION:
        raise ValueError(f"no configuration of dispatcherd: 'version: {CONFIG_VERSION}' is missing")
    sockets: list[str] = []
    postgres: list[Postgres] = []
    for name, settings in _table(config, "brokers").items():
        if not isinstance(settings, dict):
            raise ValueError(f"brokers.{str(name)[:80]} is no table")
        match _kind(name):
            case "socket":
                sockets.append(_configured_path(_text(settings, "socket_path")))
            case "pg_notify":
                postgres.append(_postgres(settings))
            case _:
                raise ValueError(
                    f"broker {str(name)[:80]!r} is not known: socket and pg_notify are"
                )
    if not sockets and not postgres:
        raise ValueError("no brokers: a section 'brokers' with socket or pg_notify is needed")
    service = _table(config, "service")
    main = _table(service, "main_kwargs")
    seconds = main.get("chunk_message_timeout_seconds")
    if seconds is None:
        seconds = service.get("chunk_message_timeout_seconds", MESSAGE_TIMEOUT_SECONDS)
    if (timeout := as_number(seconds)) is None:
        raise ValueError("chunk_message_timeout_seconds is no number")
    node_id = main.get("node_id")
    return Brokers(
        tuple(sockets),
        tuple(postgres),
        timeout,
        node_id if isinstance(node_id, str) else "",
        tuple(_produced(_table(config, "producers"))),
    )


SCHEDULED, ON_START = "ScheduledProducer", "OnStartProducer"
PERIOD_SECONDS_MIN = 0.01
"""Shortest period: a shorter one is a mistake, and would leave no time for other tasks."""


def _produced(producers: Mapping[str, Any]) -> Iterator[Produced]:
    for task, options in _tasks(producers, SCHEDULED, "task_schedule"):
        seconds = as_number(options.pop("schedule", None))
        if seconds is None or seconds < PERIOD_SECONDS_MIN:
            raise ValueError(f"producers.{SCHEDULED}: 'schedule' of {task} is no number of seconds")
        yield Produced(options | {"task": task}, seconds)
    for task, options in _tasks(producers, ON_START, "task_list"):
        yield Produced(options | {"task": task})


def _tasks(
    producers: Mapping[str, Any], name: str, key: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    for task, options in _table(_table(producers, name), key).items():
        if not isinstance(task, str) or not isinstance(options, dict):
            raise ValueError(
                f"producers.{name}.{key}: {str(task)[:80]} is no task with its options"
            )
        yield task, dict(options)


_USED: Mapping[str, Any] = {
    "version": None,
    "brokers": {
        "socket": {"socket_path": None},
        "pg_notify": {
            "config": None,
            "channels": None,
            "max_connection_idle_seconds": None,
            "default_publish_channel": None,
            "sync_connection_factory": None,
        },
    },
    "producers": {
        "ControlProducer": None,
        "BrokeredProducer": None,
        SCHEDULED: {"task_schedule": None},
        ON_START: {"task_list": None},
    },
    "service": {
        "pool_kwargs": {"max_workers": None},
        "main_kwargs": {"node_id": None, "chunk_message_timeout_seconds": None},
        "chunk_message_timeout_seconds": None,
        "process_manager_kwargs": {"preload_modules": None},
    },
    "publish": None,
    "worker": {"worker_cls": None, "worker_kwargs": None},
}
"""Settings that a fleet, its workers or its publishers use. None: with everything below."""


def ignored(config: object) -> list[str]:
    """Return the settings of a configuration that nothing uses, such as ``service.pool_cls``.

    They are misspelt, or the real service would do something with them that a fleet does not.
    """
    found = list(_unused(config, _USED, ""))
    pool = config["service"]["pool_kwargs"] if MIN_WORKERS in found else {}  # type: ignore[index]
    if pool and pool["min_workers"] == pool.get("max_workers"):
        found.remove(MIN_WORKERS)  # The same as the maximum: no difference.
    return found


MIN_WORKERS = "service.pool_kwargs.min_workers"


def _unused(found: object, used: Mapping[str, Any] | None, path: str) -> Iterator[str]:
    if used is None or not isinstance(found, dict):
        return
    for name, below in found.items():
        key = _kind(name)
        if key in used:
            yield from _unused(below, used[key], f"{path}{name}.")
        else:
            yield f"{path}{str(name)[:80]}"


def workers_of(config: object) -> int | None:
    """Return how many workers a configuration asks for; None if it does not say."""
    service = config.get("service") if isinstance(config, dict) else None
    pool = service.get("pool_kwargs") if isinstance(service, dict) else None
    most = pool.get("max_workers") if isinstance(pool, dict) else None
    return most if type(most) is int and most > 0 else None


def _kind(name: object) -> str:
    # A broker may also be named by its module: dispatcherd.brokers.socket.
    return str(name).removeprefix("dispatcherd.brokers.")


def _postgres(settings: Mapping[str, Any]) -> Postgres:
    config = settings.get("config")
    if not isinstance(config, dict) or not config:
        raise ValueError(
            "brokers.pg_notify.config is missing: connections are made from it, "
            "and not by a factory of the application's"
        )
    channels = settings.get("channels")
    if not isinstance(channels, list | tuple):
        raise ValueError("brokers.pg_notify.channels is no list")
    idle = settings.get("max_connection_idle_seconds", IDLE_SECONDS)
    seconds = 0.0 if idle is None else as_number(idle)
    if seconds is None or seconds < 0:
        raise ValueError("max_connection_idle_seconds is no number")
    return Postgres(config, _channels(list(channels)), seconds)


def _channels(channels: list[Any]) -> tuple[str, ...]:
    if not channels:
        raise ValueError("no channel to listen on: postgresql://HOST/DATABASE?channel=NAME")
    for channel in channels:
        if not isinstance(channel, str) or not 0 < len(channel.encode()) <= CHANNEL_BYTES_MAX:
            raise ValueError(f"a channel has 1 to {CHANNEL_BYTES_MAX} bytes: {str(channel)[:80]!r}")
    return tuple(dict.fromkeys(channels))


def _configured_path(path: str) -> str:
    absolute = os.path.abspath(path)  # noqa: PTH100 - no file is looked at
    if "\0" in path or len(os.fsencode(absolute)) > PATH_BYTES_MAX:
        raise ValueError(f"the path of a socket has {PATH_BYTES_MAX} bytes at most: {path[:80]!r}")
    return absolute


def _table(fields: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = fields.get(key)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{key} is no table")
    return value or {}


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key} is missing")
    return value
