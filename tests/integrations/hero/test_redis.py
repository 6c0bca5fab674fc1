"""A real Redis, looked at."""

from __future__ import annotations

import subprocess
from pathlib import Path

from beads_workers.checks.rules import Check, Grade
from beads_workers.integrations.hero.checks import cli_of
from beads_workers.integrations.hero.checks import redis as look
from beads_workers.integrations.hero.connection import Address
from beads_workers.integrations.hero.wire import DEFAULT
from tests.support.peers import Redis


def found(address: Address) -> list[Check]:
    return look(address, DEFAULT, "w1")


def test_a_fresh_one_is_reached_and_keeps_nothing(redis: Redis) -> None:
    redis.command("lpush", "hero:work_queue:w1", "a", "b")
    checks = found(Address(port=redis.port))
    assert "2 jobs in hero:work_queue:w1" in checks[0].text
    assert [check.status for check in checks[1:]] == [Grade.OK, Grade.OK, Grade.WARN]
    assert "appendonly is off" in checks[3].text


def test_what_it_is_told_to_do_mends_it(redis: Redis) -> None:
    redis.command("config", "set", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
    address = Address(port=redis.port)
    wrong = [check for check in found(address) if check.remedy]
    assert [check.status for check in wrong] == [Grade.FAIL, Grade.WARN]
    for check in wrong:
        # Without a file of settings there is nothing to write them down in.
        subprocess.run(check.remedy.split(" && ")[0], shell=True, check=True, capture_output=True)
    assert not [check for check in found(address) if check.status is not Grade.OK]


def test_one_that_is_away_or_lets_nobody_in_fails(redis: Redis, tmp_path: Path) -> None:
    redis.command("acl", "setuser", "ann", "on", ">hunter2", "-@all", "+llen", "+type", "~*")
    file = tmp_path / "password"
    file.write_text("hunter2")
    file.chmod(0o644)
    ann = Address(port=redis.port, user="ann", password_file=str(file))
    assert f"can be read by every user: chmod o-r {file}" in found(ann)[0].text
    file.chmod(0o640)
    checks = found(ann)
    assert [check.status for check in checks] == [Grade.OK, Grade.WARN]
    assert "not known" in checks[1].text
    file.write_text("wrong")
    assert "does not let us in" in found(ann)[0].text
    redis.close()
    (away,) = found(Address(port=redis.port))
    assert away.status is Grade.FAIL
    assert away.remedy == f"redis-cli -h 127.0.0.1 -p {redis.port} PING"


def test_redis_cli_is_called_without_a_secret() -> None:
    address = Address("h", 1, db=2, user="ann", tls=True, password_file="/p", ca="/ca")
    assert cli_of(address) == "redis-cli -h h -p 1 --tls --cacert /ca --user ann -n 2"
    assert cli_of(Address(path="/run/r s")) == "redis-cli -s '/run/r s'"
