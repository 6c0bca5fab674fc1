"""What is said about a queue and its jobs to Redis, and by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from beads_workers.core.values import value
from beads_workers.protocols.hero.jobs import Status
from beads_workers.protocols.hero.keys import Keys
from beads_workers.sources.hero.addresses import Address


@value
class Queue:
    """Which queue of which Redis, and how it is served.

    ``lease_seconds``: who is silent for so long is taken for dead. ``reply_seconds``: a reply that
    nobody has fetched by then is forgotten.
    """

    address: Address
    worker: str
    keys: Keys
    lease_seconds: float = 15.0
    reply_seconds: int = 86_400


class Fetched(NamedTuple):
    """A job of the queue that is in our list now. ``attempts``: those begun before."""

    job_id: str
    attempts: int
    fields: Mapping[bytes, bytes]


class Ending(NamedTuple):
    """How a job ends. ``attempt``: which one it was; 0: it was never begun."""

    job_id: str
    context: str
    attempt: int
    status: Status
    said: str
