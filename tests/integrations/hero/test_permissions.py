"""The rules of docs/HERO.md: enough for everything that the client does, and no more.

That they are enough for a fleet is seen in tests/end_to_end.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from beads_workers.integrations.hero.client import HeroClient
from beads_workers.integrations.hero.connection import CannotReach, connect, patiently
from beads_workers.integrations.hero.wire import DEFAULT, HeroJob, JobStatus
from tests.support.peers import Redis
from tests.support.redis_users import add_user, denied

JOB = HeroJob(worker_id="w1", script="x")


def test_the_client_does_all_that_it_can_under_its_rules(redis: Redis, tmp_path: Path) -> None:
    address = add_user(redis, "client", tmp_path)
    with HeroClient(replace(address, db=1), DEFAULT, 0.0) as client:
        first, second = client.submit([JOB, JOB])
        assert client.depths("w1") == (2, 0)
        assert {row.id for row in client.rows()} == {first, second}
        client.stop(first)
        redis.command("-n", "1", "lpush", f"hero:reply:{second}", "x")
        redis.command("-n", "1", "hset", f"hero:job:{second}", "status", "finished")
        assert client.wait(second, 60.0).status is JobStatus.FINISHED
        client.retry(second)
    assert denied(redis).strip() == ""


FOREIGN = (
    ("KEYS", "hero:job:*"),
    ("FLUSHALL",),
    ("CONFIG", "GET", "*"),
    ("GET", "another"),
    ("HGETALL", "another"),
    ("EVAL", "return 1", "0"),
    ("SUBSCRIBE", "x"),
    ("ACL", "LIST"),
    ("SHUTDOWN",),
    ("SCRIPT", "FLUSH"),
    ("MONITOR",),
)
OF_CLIENT = (*FOREIGN, ("DEL", "hero:job:a"), ("LPOP", "hero:work_queue:w1"), ("INFO",))
OF_FLEET = (*FOREIGN, ("LPUSH", "another", "x"), ("LRANGE", "another", "0", "1"))
REFUSED = [
    (kind, command)
    for kind, commands in (("client", OF_CLIENT), ("fleet", OF_FLEET))
    for command in commands
]


def test_anything_else_is_refused(redis: Redis, tmp_path: Path) -> None:
    users = {kind: add_user(redis, kind, tmp_path) for kind in ("client", "fleet")}
    for kind, words in REFUSED:
        address = users[kind]
        connection = connect(address)
        with pytest.raises(CannotReach, match="does not allow it") as raised:
            patiently(partial(connection.execute_command, *words), address, 0.0)
        assert "HERO.md" in raised.value.hint
        connection.close()
