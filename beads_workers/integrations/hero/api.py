"""Hand in Hero jobs from Python, wait for them, stop them.

``pip install 'beads-workers[redis]'``, and then::

    from beads_workers.integrations.hero.wire import HeroJob
    from beads_workers.integrations.hero.api import connect

    with connect("redis://localhost/0") as client:
        ended = client.run(HeroJob(worker_id="w1", context_id="sh", script="echo hello"), 60.0)
        print(ended.status, ended.output, ended.error)

docs/HERO.md, "The client", has every call.
"""

from __future__ import annotations

from collections.abc import Mapping

from beads_workers.integrations.hero.client import (
    PATIENCE_SECONDS,
    HeroClient,
    JobExists,
    JobRow,
    NoSuchJob,
    StillUnderWay,
)
from beads_workers.integrations.hero.connection import CannotReach, RedisMissing, read_url
from beads_workers.integrations.hero.wire import HeroJob, JobStatus, WrongField, keys_of

__all__ = [
    "CannotReach",
    "HeroClient",
    "HeroJob",
    "JobExists",
    "JobRow",
    "JobStatus",
    "NoSuchJob",
    "RedisMissing",
    "StillUnderWay",
    "WrongField",
    "connect",
]


def connect(
    url: str = "redis://127.0.0.1/0",
    *,
    naming: str = "text",
    keys: Mapping[str, str] | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
) -> HeroClient:
    """Return a client of this Redis; it connects at its first call.

    Raises ``ValueError`` for a wrong URL. ``url`` holds no password: that is in a file
    (``?password_file=PATH``) or in the environment. ``naming`` and ``keys`` (templates) must be
    those of the fleet that serves the queues.
    """
    return HeroClient(read_url(url).address, keys_of(naming, keys), patience_seconds)
