"""Where publishers of dispatcherd bring their tasks: plain values, passed on as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beads_workers.core.values import value
from beads_workers.protocols.dispatcherd import MESSAGE_TIMEOUT_SECONDS

IDLE_SECONDS = 30.0
"""A connection to PostgreSQL that was silent for so long is asked whether it still stands."""


@value
class Postgres:
    """``config``: arguments of ``psycopg.connect``. ``idle_seconds``: 0 never looks."""

    config: Mapping[str, Any]
    channels: tuple[str, ...]
    idle_seconds: float = IDLE_SECONDS


@value
class Brokers:
    """``sockets``: absolute paths. ``node_id``: what we are called in replies; "" for any name."""

    sockets: tuple[str, ...] = ()
    postgres: tuple[Postgres, ...] = ()
    chunk_seconds: float = MESSAGE_TIMEOUT_SECONDS
    node_id: str = ""

    def describe(self) -> str:
        """One line for people; nothing secret is in it."""
        named = [f"PostgreSQL ({', '.join(each.channels)})" for each in self.postgres]
        return ", ".join([*self.sockets, *named])


def brokers_from_json(fields: dict[str, Any]) -> Brokers:
    """Read back what ``asdict`` wrote."""
    postgres = tuple(
        Postgres(**{**each, "channels": tuple(each["channels"])}) for each in fields["postgres"]
    )
    return Brokers(**{**fields, "sockets": tuple(fields["sockets"]), "postgres": postgres})
