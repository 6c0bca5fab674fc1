"""Many jobs: a Redis that others use, too, is never held up."""

from __future__ import annotations

import re

from beads_workers.integrations.hero.client import KEYS_AT_ONCE, HeroClient
from beads_workers.integrations.hero.connection import Address
from beads_workers.integrations.hero.wire import DEFAULT, HeroJob
from tests.support.peers import Redis

COUNT = 20_000
MICROSECONDS_MAX = 20_000.0
"""On average, of one command; a busy machine may hold up the Redis in the middle of any."""


def costs(redis: Redis) -> dict[str, tuple[int, float]]:
    """Command -> how often it was called, and how many microseconds it took on average."""
    found = redis.command("info", "commandstats")
    pattern = r"cmdstat_([^:]+):calls=(\d+),usec=\d+,usec_per_call=([\d.]+)"
    return {name: (int(calls), float(each)) for name, calls, each in re.findall(pattern, found)}


def test_a_list_of_many_jobs_is_looked_for_bit_by_bit(redis: Redis) -> None:
    with HeroClient(Address(port=redis.port), DEFAULT) as client:
        jobs = (HeroJob(worker_id="w1", id=f"j{n}", script="echo hello") for n in range(COUNT))
        client.submit(jobs)
        redis.command("config", "resetstat")
        assert len({row.id for row in client.rows()}) == COUNT
    spent = costs(redis)
    assert "keys" not in spent
    calls, each = spent["scan"]
    assert calls >= COUNT / KEYS_AT_ONCE * 0.8
    assert max(each for _, each in spent.values()) < MICROSECONDS_MAX, spent
    assert each < MICROSECONDS_MAX
