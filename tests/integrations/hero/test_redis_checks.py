"""What a Redis says of itself, judged."""

from __future__ import annotations

import pytest

from beads_workers.checks.rules import Grade
from beads_workers.integrations.hero.checks import eviction, persistence, role, version

CLI = "redis-cli -p 7000"


@pytest.mark.parametrize(
    ("said", "grade"),
    [
        ("7.0.15", Grade.OK),
        ("6.2.0", Grade.OK),
        ("10.1", Grade.OK),
        ("6.0.16", Grade.FAIL),
        ("5.0.3", Grade.FAIL),
        ("", Grade.WARN),
        ("unstable", Grade.WARN),
        ("6.²", Grade.WARN),
    ],
)
def test_a_version_that_cannot_move_a_job_in_one_step_is_too_old(said: str, grade: Grade) -> None:
    assert version(said).status is grade


def test_a_redis_that_throws_jobs_away_is_told_how_not_to() -> None:
    assert eviction({"maxmemory_policy": "noeviction", "maxmemory": 1}, CLI).status is Grade.OK
    assert eviction({"maxmemory_policy": "allkeys-lru", "maxmemory": 0}, CLI).status is Grade.WARN
    found = eviction({"maxmemory_policy": "allkeys-lru", "maxmemory": 1 << 20}, CLI)
    assert found.status is Grade.FAIL
    assert found.remedy.startswith(f"{CLI} CONFIG SET maxmemory-policy noeviction")
    assert eviction({}, CLI).status is Grade.WARN


def test_a_redis_that_keeps_nothing_is_a_warning() -> None:
    assert persistence({"aof_enabled": 1}, CLI).status is Grade.OK
    assert persistence({"aof_enabled": 0}, CLI).remedy.startswith(f"{CLI} CONFIG SET appendonly")
    assert persistence({"aof_enabled": 1, "aof_last_write_status": "err"}, CLI).status is Grade.FAIL
    assert persistence({}, CLI).status is Grade.WARN


def test_a_replica_cannot_be_written() -> None:
    assert role({"role": "master"}) is None
    found = role({"role": "slave", "master_host": "h", "master_port": 1})
    assert found is not None and found.status is Grade.FAIL
